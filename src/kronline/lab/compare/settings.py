"""What `kronline compare` can be told: a sweep's settings, and what is measured besides."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from kronline.errors import UsageError
from kronline.lab.runs.grid import sweep_of
from kronline.lab.tasks import Task

METHODS = ("kf_rtrl", "uoro", "ok(1)", "kf_tbptt(8, pairs=4)", "tbptt(8)")


@dataclass(frozen=True)
class _Terms:
    """What a comparison adds to a sweep."""

    # methods that are compared, by name, as --estimator of `kronline train` takes them
    estimators: tuple[str, ...] = METHODS
    rates: tuple[float, ...] = (10**-3,)  # learning rates; the best one is picked for each method
    seeds: tuple[int, ...] = (0,)  # mean and deviation are over these
    workers: int | None = 1  # processes at a time; 1: each has the machine to itself, as when timed
    most: float = 20.0  # a cheap method trains for at most so many times the steps
    loss_steps: int = 5  # noise: how many losses the compared gradient is of, the same for all
    places: int = 12  # noise: of the stream, at which estimates are looked at
    draws: int = 20  # noise: estimates at each of them

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        for name in ("loss_steps", "places", "draws"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.most >= 1:
            raise UsageError(f"most must be >= 1, got {self.most}")


DOC = """{title}, learnt by several estimators on equal terms.

Each is timed first, all in turn. Each is then trained for so many steps (equal data), and on until
it has had as much compute as the dearest of them (equal compute). Then estimates of the gradient of
the same few losses are compared with the exact one, in the networks that came out, the same
networks for all. The result is one page: curves over data, curves over compute, cosine and
variance. Started again, it goes on where it was stopped.

Try:
    kronline compare {kind} --preset laptop --out runs/compare
    kronline compare {kind} --preset laptop --estimators kf_rtrl "kf_tbptt(8)" --steps 20000
"""


@cache
def compare_of(of: type[Task]) -> type[Any]:
    """What a comparison on a task can be told."""

    @dataclass(frozen=True)
    class Compare(_Terms, sweep_of(of)):  # type: ignore[misc]
        presets: ClassVar[str] = f"compare-{of.kind}"

    Compare.__doc__ = DOC.format(title=of.title, kind=of.kind)
    return Compare

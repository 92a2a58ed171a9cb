"""What all training runs can be told, and the learner that it means."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import optax

from kronline import Learner, Readout, spec
from kronline import lanes as layouts
from kronline.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """What all training runs have in common."""

    preset: str = ""  # a whole configuration, laptop for instance; what else is given overrides it
    config: Path | None = None  # a TOML file; overrides the preset, and flags override it
    out: Path | None = None  # the run's folder (default: a new one in runs/)
    cell: str = "RHN"  # RHN, LSTM, Stack(RHN, LSTM), Embedded(LSTM, 16), ..., or file.py:NAME
    hidden: int = 128  # units
    estimator: str = "kf_rtrl"  # kf_rtrl, uoro(copies=4), tbptt(25), ..., or file.py:NAME
    optimiser: str = "adam"  # adam, adamw, sgd(momentum=0.9), rmsprop, radam
    rate: float = 10**-3  # learning rate
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # of the rate, down to zero
    clip: float | None = None  # the gradient's norm is clipped to this
    # row_norm(1), spectral(1), activation(0.01), noise(0.1); several with + between them
    regulariser: str | None = None
    lanes: int = 16  # streams that are learnt from at once
    update_every: int | None = None  # steps between updates (default: as the estimator gives them)
    seed: int = 0  # of weights, noise and data: the same seed gives the same run
    log_every: int = 1000  # steps between lines of metrics; a stop signal waits for the next one
    save_every: int = 10_000  # steps between checkpoints
    keep: int = 2  # how many checkpoints are kept
    # write a TensorBoard log, too (needs the extra: kronline[tensorboard])
    tensorboard: bool = False
    monitor: bool = False  # measure how noisy gradients are, too: snr and noise in the metrics
    print_config: bool = False  # print the resolved configuration, with reasons, and stop
    json: bool = False  # print one JSON object at the end

    kind: ClassVar[str] = ""  # of runs that are configured by this

    def __post_init__(self) -> None:
        for name in ("hidden", "lanes", "log_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise UsageError(f"rate must be a positive number, got {self.rate}")
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip must be a positive number or none, got {self.clip}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed must be between 0 and 2^32 - 1, got {self.seed}")

    def network(self, inputs: int) -> Any:
        """The cell that `cell` and `hidden` mean."""
        return spec.given(self.cell, "cell", self.hidden, inputs)

    def learner(self, cell: Any, readout: Readout, steps: int) -> Learner:
        """The network and how it learns, for a run of so many steps."""
        estimator = spec.given(self.estimator, "estimator")
        updates = max(1, steps // (self.update_every or estimator.span or steps))
        optimiser = _optimiser(self.optimiser, self.rate, self.schedule, self.clip, updates)
        regularisers = tuple(
            spec.given(text, "regulariser")
            for text in (spec.split(self.regulariser, "+") if self.regulariser else ())
        )
        try:
            layout = layouts.best(self.lanes)
            if isinstance(layout, layouts.Shard):
                layout.share(self.lanes)  # an error, if that cannot be
            return Learner(
                cell,
                readout,
                estimator,
                optimiser,
                layout=layout,
                update_every=self.update_every,
                regularisers=regularisers,
            )
        except (TypeError, ValueError) as e:
            raise UsageError(str(e)) from e


def whole(steps: int, learner: Learner) -> int:
    """Rounded up to whole segments of the learner."""
    k = learner.estimator.span or 1
    return -(-steps // k) * k


@lru_cache(maxsize=64)
def _optimiser(text: str, rate: float, schedule: str, clip: float | None, updates: int) -> Any:
    """The same object for the same settings, so that equal runs share compiled programs."""
    falling: Any = {
        "constant": rate,
        "linear": optax.linear_schedule(rate, 0.0, updates),
        "cosine": optax.cosine_decay_schedule(rate, updates),
    }[schedule]
    optimiser = spec.given(text, "optimiser", falling)
    return optimiser if clip is None else optax.chain(optax.clip_by_global_norm(clip), optimiser)

"""What is verified: one cell x estimator at a time, or the whole library."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import jax

from kronline import cells
from kronline.cells.base import Cell, LinearCell
from kronline.online import Estimator, Online, kf_rtrl, rtrl, uoro
from kronline.traces import UORO
from kronline.verifier import enumerate as by_enumeration
from kronline.verifier.report import Check, Report
from kronline.verifier.theorem import theorem

# Tiny, so that all patterns can be tried; two units or more wherever N allows it.
CELLS: dict[str, Cell] = {
    "tanh": cells.Tanh(2, 2),
    "leaky tanh": cells.LeakyTanh(2, 2),
    "RHN": cells.RHN(2, 2),
    "LSTM": cells.LSTM(2, 2),
    "GRU": cells.GRU(2, 2),
    "depth-2 RHN": cells.DeepRHN(2, 2),
    "reset-before GRU": cells.ResetBeforeGRU(2, 2),
    "two-layer stack": cells.Stack((cells.RHN(2, 2), cells.Tanh(1, 2))),
}
MORE_CELLS: dict[str, Cell] = {
    "RHN (tanh)": cells.RHN(2, 2, activation="tanh"),
    "tanh, no bias": cells.Tanh(2, 2, bias=False),
    "depth-3 RHN": cells.DeepRHN(2, 2, depth=3),
    "LSTM stack": cells.Stack((cells.LSTM(1, 2), cells.LSTM(1, 1))),
    "embedded RHN": cells.Embedded(cells.RHN(2, 2), inputs=3),
    "opaque GRU": cells.Opaque(cells.GRU(2, 2)),
}
# sizes at which two lanes, or two copies, can be enumerated too
TINY: dict[str, Cell] = {"tanh": cells.Tanh(2, 2), "LSTM": cells.LSTM(1, 2)}

Job = tuple[str, Callable[[], list[Check]]]


def verify(cell: Cell, estimator: Estimator, *, name: str | None = None) -> Report:
    """Prove one cell x estimator right, a user's own included, or show where it is wrong.

    Args:
        cell: small (two or three units), so that every noise pattern can be tried.
        estimator: any estimator; with a trace (`Online`) the trace itself is looked into, too.
        name: what to call the cell in the report.

    Example:
        >>> print(kronline.verify(RHN(2, 3), kf_rtrl()).ok)
    """
    return run(list(jobs_for(cell, estimator, name, lanes=True)))


def jobs_for(
    cell: Cell, estimator: Estimator, name: str | None = None, lanes: bool = False
) -> Iterator[Job]:
    """The checks that fit one cell x estimator, each with a title."""
    estimator.check(cell)
    name = name or type(cell).__name__
    title = f"{name}, {estimator.name}"
    one_step = isinstance(estimator, Online) and estimator.window in (None, 1)
    noisy = _noisy(cell, estimator)
    if noisy:
        yield title, lambda: by_enumeration.bias(cell, estimator, name)
    else:
        yield title, lambda: by_enumeration.exact(cell, estimator, name)
    if one_step and noisy:
        assert isinstance(estimator, Online)
        trace = estimator.trace
        if not (isinstance(trace, UORO) and trace.copies > 1):
            yield title, lambda: by_enumeration.trace(cell, trace, name, estimator.name)
        if lanes:
            yield title, lambda: by_enumeration.halves(cell, estimator, name)


def _noisy(cell: Cell, estimator: Estimator) -> bool:
    learner = by_enumeration.Problem(cell, estimator.span or 2).learner(estimator)
    with jax.enable_x64(True):
        return by_enumeration.count(learner.draws(1, 2)) > 1


def run(jobs: list[Job], done: Callable[[str], None] = lambda title: None) -> Report:
    """All jobs, two at a time (most of the time goes into compilation); checks in their order."""

    def one(job: Job) -> list[Check]:
        with jax.enable_x64(True):  # which is a setting of the thread
            checks = job[1]()
        done(job[0])
        return checks

    with ThreadPoolExecutor(2) as pool:
        return Report([check for checks in pool.map(one, jobs) for check in checks])


def library(everything: bool = False) -> list[Job]:
    """The library's own proofs: the default set, or all of them."""
    jobs: list[Job] = []
    for name, cell in {**CELLS, **(MORE_CELLS if everything else {})}.items():
        jobs += jobs_for(cell, rtrl(), name)
        estimators = [kf_rtrl(), uoro()] if isinstance(cell, LinearCell) else [uoro()]
        for estimator in estimators:
            jobs += jobs_for(cell, estimator, name)
        if everything:
            jobs += _windows(name, cell)
    for name, cell in TINY.items():
        for estimator in (kf_rtrl(), uoro()):
            jobs += [(f"{name}, lanes", _halves(cell, estimator, name))]
    jobs += [("copies", lambda: by_enumeration.copies(
        cells.Tanh(2, 1), uoro(), uoro(copies=2), 2, "tanh"))]  # fmt: skip
    jobs += [("Theorem 1", theorem)]
    return jobs


def _halves(cell: Cell, estimator: Estimator, name: str) -> Callable[[], list[Check]]:
    return lambda: by_enumeration.halves(cell, estimator, name)


def _windows(name: str, cell: Cell) -> list[Job]:
    """The same traces behind windows: the last one or two steps exact."""
    windowed: list[Estimator] = [uoro(window=1), uoro(window=2)]
    if isinstance(cell, LinearCell):
        windowed += [kf_rtrl(window=1), kf_rtrl(window=2)]

    def exact(w: int) -> Job:
        return f"{name}, rtrl", lambda: by_enumeration.exact(cell, rtrl(window=w), name)

    def biased(e: Estimator) -> Job:
        return f"{name}, {e.name}", lambda: by_enumeration.bias(cell, e, name)

    return [exact(1), exact(3), *map(biased, windowed)]

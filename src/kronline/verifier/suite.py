"""What is verified: one cell x estimator at a time, or the whole library."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import jax

from kronline import cells, native
from kronline.cells.base import Cell, LinearCell
from kronline.cells.unit import UnitCell
from kronline.estimators.base import Estimator
from kronline.estimators.methods import (
    artbp,
    dni,
    immediate,
    kf_rtrl,
    kf_tbptt,
    ok,
    reservoir,
    reverse_kf,
    rflo,
    rolling_tbptt,
    rtrl,
    snap,
    spatial,
    tbptt,
    uoro,
)
from kronline.estimators.online import Online
from kronline.estimators.rolling import Rolling
from kronline.show import show
from kronline.traces import UORO, Average
from kronline.verifier import enumeration as proofs
from kronline.verifier.definition import biased
from kronline.verifier.report import Check, Report
from kronline.verifier.theorem import theorem

# Tiny, so that all patterns can be enumerated; two units or more where N allows it.
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
    "LIF": cells.LIF(2, 2),
}
# no unit reads another unit's state
DIAGONAL: dict[str, Cell] = {
    "LRU": cells.LRU(2, 2),
    "RTU": cells.RTU(2, 2),
    "RTU (tanh)": cells.RTU(2, 2, activation="tanh"),
    "eLSTM": cells.ELSTM(2, 2),
    "minGRU": cells.MinGRU(2, 2),
    "minLSTM": cells.MinLSTM(2, 2),
}
# stacks of such: two layers, two blocks, three; an embedding below
DEEP: dict[str, Cell] = {
    "two layers": cells.Stack((cells.LRU(2, 2), cells.ELSTM(2, 4))),
    "two blocks": cells.Stack((cells.Block(cells.LRU(1, 2), 3), cells.Block(cells.LRU(1, 3)))),
    "three blocks": cells.Stack(
        (
            cells.Block(cells.RTU(1, 2), 3),
            cells.Block(cells.ELSTM(1, 3)),
            cells.Block(cells.MinGRU(2, 3)),
        )
    ),
    "the input seen": cells.Stack((cells.MinLSTM(1, 2), cells.LRU(1, 1)), see_input=True),
    "embedded blocks": cells.Embedded(
        cells.Stack((cells.Block(cells.LRU(1, 3)), cells.Block(cells.MinLSTM(1, 3)))), inputs=3
    ),
    "dense layer below": cells.Stack((cells.RHN(1, 2), cells.LRU(1, 1))),
}
# for Kronecker sums of several pairs: in smaller cells fewer pairs are exact already
WIDE: dict[str, Cell] = {
    "tanh": cells.Tanh(4, 4),
    "RHN": cells.RHN(4, 4),
    "LSTM": cells.LSTM(2, 4),
    "depth-2 RHN": cells.DeepRHN(4, 4),
}
WIDER = cells.DeepRHN(8, 8)  # for four pairs
# sizes at which two lanes, or two copies, can be enumerated too
TINY: dict[str, Cell] = {"tanh": cells.Tanh(2, 2), "LSTM": cells.LSTM(1, 2)}

Job = tuple[str, Callable[[], list[Check]]]


def verify(
    cell: Cell, estimator: Estimator, *, name: str | None = None, symbols: bool = False
) -> Report:
    """Prove that an estimator is right on a cell, a user's own included, or show where it is wrong.

    In float64, over ALL noise patterns: the mean gradient equals the exact one. For a trace also
    its mean and, where there is a formula, its variance. An estimator that ignores something is
    compared with its definition, and must be biased.

    Args:
        cell: small (two or three units), so that all noise patterns can be enumerated.
        estimator: any estimator.
        name: what the cell is called in the report; by default as it is written, `RHN(2, 3)`.
        symbols: whether the cell is fed symbols (integers), for one that does not take vectors.

    Returns:
        the report: `ok`, and the checks one by one.

    Example:
        >>> import kronline as kl
        >>> kl.verify(kl.Tanh(1, 1), kl.rtrl()).ok
        True
    """
    return run(jobs_for(cell, estimator, name, symbols=symbols))


def jobs_for(
    cell: Cell,
    estimator: Estimator,
    name: str | None = None,
    *,
    symbols: bool = False,
    lanes: bool = True,
) -> list[Job]:
    """All checks that fit one cell x estimator."""
    estimator.check(cell)
    name = name or show(cell)
    title = f"{name}, {show(estimator)}"
    if proofs.tail(estimator) != 1:
        return [(title, lambda: proofs.weighed(cell, estimator, name))]
    enumerated = isinstance(estimator, Rolling) and estimator.cut > 0
    if estimator.ignores(cell) and not enumerated:
        return [(title, lambda: biased(cell, estimator, name, symbols=symbols))]
    if not _noisy(cell, estimator):
        return [(title, lambda: proofs.exact(cell, estimator, name, symbols=symbols))]
    jobs: list[Job] = [(title, lambda: proofs.bias(cell, estimator, name, symbols=symbols))]
    if lanes:
        jobs += [(title, lambda: proofs.independent(cell, estimator, name))]
    if not isinstance(estimator, Online):
        return jobs
    trace = estimator.trace
    if isinstance(trace, UORO | Average) and trace.copies > 1:
        one = trace.trace if isinstance(trace, Average) else replace(trace, copies=1)
        single = replace(estimator, trace=one)
        jobs += [(title, lambda: proofs.copies(cell, single, estimator, trace.copies, name))]
    whole = not trace.needs_newest(cell.structure())  # else its gradients are all there is of it
    if whole and (not isinstance(trace, UORO) or trace.copies == 1):  # else too many patterns
        jobs += [(title, lambda: proofs.trace(cell, trace, name, show(estimator), symbols=symbols))]
    return jobs


def _noisy(cell: Cell, estimator: Estimator) -> bool:
    with jax.enable_x64(True):
        learner = proofs.Problem(cell, estimator.span or 2).learner(estimator)
        return proofs.count(learner.draws(1, 2)) > 1


def run(
    jobs: list[Job], done: Callable[[str], None] = lambda title: None, threads: int = 1
) -> Report:
    """All jobs, in float64.

    Args:
        jobs: what is to be proven.
        done: is told the title of each.
        threads: how many at a time; most of the work is compiling, outside the interpreter lock.
    """

    def one(job: Job) -> list[Check]:
        title, prove = job
        with jax.enable_x64(True):
            checks = prove()
        done(title)
        return checks

    with ThreadPoolExecutor(threads) as pool:
        try:
            return Report([check for checks in pool.map(one, jobs) for check in checks])
        finally:
            pool.shutdown(cancel_futures=True)


def library(everything: bool = False) -> list[Job]:
    """The library's own proofs: the default set, or all of them."""
    jobs: list[Job] = []
    for cell in {**CELLS, **(MORE_CELLS if everything else {})}.values():
        noisy: list[Callable[..., Estimator]] = [uoro]
        if isinstance(cell, LinearCell):
            noisy = [kf_rtrl, uoro]
        for estimator in (rtrl(), *(make() for make in noisy)):
            jobs += jobs_for(cell, estimator, lanes=everything)
        if everything:
            windows = [make(window=w) for make in (rtrl, *noisy) for w in (1, 2)]
            jobs += [_gradient_only(cell, e) for e in windows]
            jobs += [_gradient_only(cell, noisy[0](), symbols=True)]
    jobs += _diagonal(everything) + _deep(everything)
    jobs += _relatives(everything)
    jobs += _sums(everything)
    jobs += _cheap(everything)
    for cell in TINY.values():
        jobs += [_lanes(cell, estimator) for estimator in (kf_rtrl(), uoro())]
    jobs += jobs_for(cells.Tanh(2, 1), uoro(copies=2))
    if native.status().active:  # all above is then a proof of the kernel; here of pure JAX
        for name in ("RHN", "LSTM") if everything else ("RHN",):
            pure = f"{show(CELLS[name])}, pure JAX"
            jobs += map(_pure, jobs_for(CELLS[name], kf_rtrl(), pure, lanes=False))
    return [*jobs, ("Theorem 1", theorem)]


def _diagonal(everything: bool) -> list[Job]:
    """Diagonal recurrence: exact, the same as dense RTRL; and every other method."""
    noisy = (kf_rtrl(), uoro(), ok(1), reverse_kf(), kf_rtrl(window=1))
    cheap = (snap(1), snap(2), rflo(), tbptt(2), dni(2), rolling_tbptt(2))
    windows = (rtrl(window=2), spatial(1), spatial(3), kf_tbptt(2, pairs=1))
    some: dict[str, tuple[Estimator, ...]] = {"LRU": (kf_rtrl(),), "eLSTM": (uoro(), snap(1))}
    jobs: list[Job] = []
    for name, cell in DIAGONAL.items():
        jobs += [*jobs_for(cell, rtrl()), _cheap_is_dense(cell)]
        for e in (*noisy, *cheap, *windows) if everything else some.get(name, ()):
            jobs += jobs_for(cell, e, lanes=False)
        if everything:
            jobs += jobs_for(cell, rtrl(), f"{show(cell)}, symbols", symbols=True)
    return jobs


def _cheap_is_dense(cell: Cell) -> Job:
    """`rtrl()`, which sees the structure, equals RTRL of the cell with its structure hidden."""
    name = show(cell)
    return f"{name}, rtrl()", lambda: proofs.same(cell, cells.Opaque(cell), rtrl(), name)


def _deep(everything: bool) -> list[Job]:
    """Stacks of layers: exact, in-layer, and unbiased, with resets inside segments."""
    two, three = DEEP["two blocks"], DEEP["three blocks"]
    some = [(two, rtrl()), (two, spatial(2)), (two, kf_tbptt(2, pairs=1)), (three, rtrl())]
    every: tuple[Estimator, ...] = (rtrl(), tbptt(2), kf_rtrl(), uoro())
    layers = (spatial(1), spatial(2), kf_tbptt(2, 1), kf_tbptt(2, 2), kf_tbptt(3, 1))
    if everything:
        some = [
            (cell, e)
            for cell in DEEP.values()
            for e in (*every, *(layers if cell.structure().layers else ()))
        ]
        some += [(two, kf_tbptt(2, 1, 0.5)), (two, kf_tbptt(2, 1, "auto"))]
    return [job for cell, e in some for job in jobs_for(cell, e, lanes=False)]


# one of each kind: unit-wise, with and without slots, and in groups
FOUR = ("tanh", "RHN", "LSTM", "depth-2 RHN")
TWO = FOUR[:2]  # for the default set
LONG = 8  # steps, more than any enumeration has


def _relatives(everything: bool) -> list[Job]:
    """Methods beside the paper's: their gradients, and for one cell each all other claims."""
    every = (reverse_kf(), kf_rtrl(copies=2), artbp(0.3, LONG, every=1), rolling_tbptt(2))
    looked_into = {("RHN", reverse_kf()), ("tanh", kf_rtrl(copies=2))}
    jobs: list[Job] = []
    for name, e in product(CELLS if everything else TWO, every):
        if everything or (name, e) in looked_into or e.ignores(CELLS[name]):
            jobs += jobs_for(CELLS[name], e, lanes=everything)
        else:
            jobs += [_gradient_only(CELLS[name], e)]
    if everything:
        truncated = (rolling_tbptt(3, every=2), artbp(0.4, 2))
        more = (kf_rtrl(copies=3), kf_rtrl(window=1, copies=2), reverse_kf(window=2), *truncated)
        for name, e in product(FOUR, more):
            jobs += jobs_for(CELLS[name], e)
        for e in truncated:
            jobs += jobs_for(MORE_CELLS["opaque GRU"], e)
    return jobs


def _sums(everything: bool) -> list[Job]:
    """Kronecker sums: OK, with its noise; KF-TBPTT, with resets inside segments."""
    one, two = kf_tbptt(2, pairs=1), kf_tbptt(2, pairs=2)
    if not everything:
        some = [("tanh", two), ("RHN", one), ("LSTM", ok(2)), ("depth-2 RHN", ok(1))]
        jobs = [_gradient_only(CELLS[name], e) for name, e in some]
        jobs += jobs_for(CELLS["tanh"], kf_tbptt(2, 1, 0.5))
        return [*jobs, *(_noise("RHN", r) for r in (1, 2, 4))]
    jobs = [_noise(name, r) for name, r in product(FOUR, (1, 2, 4))]
    every = [ok(1), ok(2), ok(4), ok(1, window=1), ok(2, window=2), one, two, kf_tbptt(3, pairs=1)]
    jobs += [_gradient_only(CELLS[name], e) for name, e in product(FOUR, every)]
    for name, e in product(TWO, [kf_tbptt(2, 2, 0.0), kf_tbptt(2, 2, 0.5), kf_tbptt(2, 2, "auto")]):
        jobs += jobs_for(CELLS[name], e)
    return [*jobs, *(_lanes(TINY["tanh"], e) for e in (ok(1), one))]


def _noise(name: str, r: int) -> Job:
    """OK's trace, of a cell wide enough for r pairs to be noisy."""
    e, wide = ok(r), WIDER if (name, r) == ("depth-2 RHN", 4) else WIDE[name]
    label = show(wide)
    return f"{label}, {show(e)}", lambda: proofs.trace(wide, e.trace, label, show(e), least=1)


def _cheap(everything: bool) -> list[Job]:
    """The cheap and biased methods: each on the cells that it takes, or once."""
    once = {
        "tanh": (snap(2), immediate()),
        "leaky tanh": (rflo(),),
        "LSTM": (snap(1),),
        "RHN": (dni(2), reservoir()),
    }
    jobs: list[Job] = []
    for name, cell in (CELLS | {"LIF": MORE_CELLS["LIF"]}).items():
        chosen: list[Estimator] = list(once.get(name, ()))
        if everything:
            chosen = [snap(1), snap(2), snap(1, window=2), tbptt(2), dni(2), reservoir()]
            chosen += [rflo(), rflo(window=1)] * isinstance(cell, UnitCell)
        for e in chosen:
            jobs += jobs_for(cell, e)
    return jobs


def _pure(job: Job) -> Job:
    title, prove = job

    def without_kernel() -> list[Check]:
        with native.use(False):
            return prove()

    return title, without_kernel


def _lanes(cell: Cell, estimator: Estimator) -> Job:
    name = show(cell)
    return f"{name}, lanes", lambda: [
        *proofs.independent(cell, estimator, name),
        *proofs.halves(cell, estimator, name),
    ]


def _gradient_only(cell: Cell, e: Estimator, symbols: bool = False) -> Job:
    prove = proofs.bias if _noisy(cell, e) else proofs.exact
    label = f"{show(cell)}, symbols" if symbols else show(cell)
    return f"{label}, {show(e)}", lambda: prove(cell, e, label, symbols=symbols)

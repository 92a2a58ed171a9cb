"""What is timed: rows by name, and how each is built and run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kronline import cells, kf_rtrl, rtrl, spec, tbptt, uoro
from kronline.errors import UsageError
from kronline.estimators import Estimator
from kronline.lab.bench import baseline
from kronline.lab.machine import cores
from kronline.lanes import Vmap, best
from kronline.learner import Learner
from kronline.readout import softmax

SYMBOLS = 32
TEXT = 50  # symbols of the Penn Treebank, which diagonal cells are timed with
WINDOW = 25
DIAGONAL: dict[str, type[cells.UnitCell]] = {
    "LRU": cells.LRU,
    "RTU": cells.RTU,
    "ELSTM": cells.ELSTM,
}
CELLS: dict[str, type[cells.UnitCell]] = {"RHN": cells.RHN, "LSTM": cells.LSTM, **DIAGONAL}
GATES = baseline.GATES | {name: len(cell.gates) for name, cell in DIAGONAL.items()}
SLOTS = baseline.SLOTS | {name: len(cell.slots) for name, cell in DIAGONAL.items()}


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        method: KF-RTRL, UORO, UORO-AVG, RTRL, TBPTT-25, forward, or an estimator by its name, as
            in "kf_tbptt(25, pairs=8)".
        path: "fast": kronline as it comes; "jax": kronline without the native kernel, lanes over
            CPU devices; "step": `Learner.step`, called for every step; "plain": `baseline.py`.
        cell: RHN, LSTM, LRU, RTU or ELSTM.
        hidden, lanes: sizes.
        start: steps that are run before any is timed; every timing then begins there.
    """

    method: str
    path: str
    cell: str
    hidden: int
    lanes: int
    start: int = 0

    @property
    def flops(self) -> float | None:
        """Of H·A per step, all lanes, without structural zeros: 4n³ for RHN, 16n³ for LSTM."""
        if self.method != "KF-RTRL":
            return None
        return 2.0 * SLOTS[self.cell] * GATES[self.cell] * self.hidden**3 * self.lanes

    @property
    def diagonal(self) -> bool:
        """Whether no unit reads another unit's state."""
        return self.cell in DIAGONAL

    @property
    def symbols(self) -> int:
        """How many there are, in and out."""
        return TEXT if self.diagonal else SYMBOLS

    @property
    def weights(self) -> int:
        """How many there are in the cell."""
        read = 0 if self.diagonal else self.hidden
        return (read + self.symbols + 1) * GATES[self.cell] * self.hidden

    @property
    def bytes(self) -> float:
        """A rough guess of the memory that the row takes, to skip what cannot fit."""
        n, q, r = self.hidden, SLOTS[self.cell], GATES[self.cell]
        copies = {"fast": 2, "step": 2, "jax": 3, "plain": 5}[self.path]
        lane = {
            "KF-RTRL": copies * q * n * r * n,
            "UORO": 3 * self.weights,
            "UORO-AVG": 3 * n * self.weights,
            "RTRL": 4 * q * (1 if self.diagonal else n) * self.weights,
            "TBPTT-25": 50 * WINDOW * r * n,
            "forward": 50 * WINDOW * r * n,
        }.get(self.method, 20 * q * n * r * n)
        return 4.0 * lane * self.lanes

    @property
    def guess(self) -> float:
        """A rough guess of seconds per step, to choose how many to time."""
        n, q = self.hidden, SLOTS[self.cell]
        slow = {"plain": 3.0, "jax": 1.5}.get(self.path, 1.0)
        pair = 2.0 * q * GATES[self.cell] * n**3  # H·A
        flops = {
            "KF-RTRL": pair,
            "UORO": 20.0 * self.weights,
            "UORO-AVG": 20.0 * n * self.weights,
            "RTRL": 50.0 * q * self.weights if self.diagonal else 2.0 * (q * n) ** 2 * self.weights,
            "TBPTT-25": 8.0 * self.weights,
            "forward": 8.0 * self.weights,
        }.get(self.method, 2 * pair)
        return 4e-5 * (5 if self.path == "step" else 1) + slow * flops * self.lanes / 1.5e11


@dataclass(frozen=True)
class Timed:
    """A row that is ready: `run()` takes `steps` steps."""

    run: Callable[[], Any]
    steps: int
    bytes_per_lane: float | None  # at rest, and what is made meanwhile, divided by lanes
    rewind: Callable[[], None] = lambda: None  # before each timing
    trace_bytes: int = 0  # what is remembered of the past, all lanes


def build(row: Row, seconds: float = 0.15) -> Timed:
    """Compiled, warm, and with enough steps to take about so many seconds."""
    span = WINDOW if row.method == "forward" else estimator(row).span or WINDOW
    steps = max(2, min(math.ceil(seconds / row.guess), 4000))
    if span > 1:
        steps = span * max(1, min(math.ceil(seconds / row.guess / span), 2000 // span))
    if row.start:
        steps = min(steps, row.start)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, row.symbols, (steps, row.lanes), np.int32) for _ in range(2))
    make = {"plain": _plain, "step": _step}.get(row.path, _kronline)
    return make(row, x, y)


def estimator(row: Row) -> Estimator:
    """By the method's name."""
    known: dict[str, Callable[[], Estimator]] = {
        "KF-RTRL": kf_rtrl,
        "UORO": uoro,
        "UORO-AVG": lambda: uoro(copies=row.hidden),
        "RTRL": rtrl,
        "TBPTT-25": lambda: tbptt(WINDOW),
        "forward": lambda: tbptt(WINDOW),  # which is not asked for a gradient
    }
    if row.method in known:
        return known[row.method]()
    try:
        named: Estimator = spec.given(row.method, "estimator")
        return named
    except UsageError as e:
        raise ValueError(
            f"method must be one of {', '.join(known)}, or an estimator; got {row.method!r}: {e}"
        ) from e


def learner(row: Row) -> Learner:
    """The learner that is timed."""
    cell = CELLS[row.cell](row.hidden, row.symbols)
    layout = best(row.lanes) if row.path == "jax" else Vmap()
    return Learner(
        cell, softmax(row.symbols), estimator(row), baseline.OPTIMISER, layout=layout, donate=True
    )


def _kronline(row: Row, x: np.ndarray, y: np.ndarray) -> Timed:
    learn = learner(row)
    state = learn.init(jax.random.key(0), row.lanes)
    if row.method == "forward":
        return _compiled(
            lambda params, x, y: (params, learn.evaluate(params, x, y).loss), state.params, x, y
        )
    held = _nbytes(state.memory)
    timed = _compiled(learn.run, state, x, y, lambda s: (s.s, s.memory), row.start)
    timed = replace(timed, trace_bytes=held)
    if row.path != "fast" or row.method != "KF-RTRL" or timed.bytes_per_lane is None:
        return timed
    # the kernel's own: H and a panel of A for each thread
    scratch = 4.0 * cores() * SLOTS[row.cell] * row.hidden * (row.hidden + 32)
    return replace(timed, bytes_per_lane=timed.bytes_per_lane + scratch / row.lanes)


def _plain(row: Row, x: np.ndarray, y: np.ndarray) -> Timed:
    carry = baseline.init(row.cell, row.hidden, row.lanes, SYMBOLS)
    if row.method == "KF-RTRL":
        return _compiled(
            lambda c, x, y: baseline.kf_rtrl(row.cell, c, x, y), carry, x, y, lambda c: c[2:5]
        )
    return _compiled(
        lambda c, x, y: baseline.tbptt(row.cell, WINDOW, c, x, y), carry[:3], x, y, lambda c: c[2]
    )


def _compiled(
    f: Callable[[Any, Any, Any], Any],
    carry: Any,
    x: np.ndarray,
    y: np.ndarray,
    lanes: Callable[[Any], Any] = lambda carry: (),
    start: int = 0,
) -> Timed:
    """`carry, out = f(carry, x, y)` as one program, which works in the carry's memory."""
    data = (jnp.asarray(x), jnp.asarray(y))
    carry = jax.tree.map(jnp.array, carry)
    program = jax.jit(f, donate_argnums=0).lower(carry, *data).compile()
    per_lane = None
    if stats := program.memory_analysis():
        # a device's lanes at rest, and all that is made while they work
        here = max(1, x.shape[1] // jax.device_count())
        per_lane = _nbytes(lanes(carry)) / x.shape[1] + stats.temp_size_in_bytes / here

    def run() -> Any:
        nonlocal carry
        carry, out = program(carry, *data)
        return jax.block_until_ready((carry, out))

    for _ in range(max(1, start // len(x))):
        run()
    if not start:
        return Timed(run, len(x), per_lane)
    saved = jax.tree.map(jnp.copy, carry)

    def rewind() -> None:
        nonlocal carry
        carry = jax.block_until_ready(jax.tree.map(jnp.copy, saved))

    return Timed(run, len(x), per_lane, rewind)


def _nbytes(tree: Any) -> int:
    return sum(a.nbytes for a in jax.tree.leaves(tree))


def _step(row: Row, x: np.ndarray, y: np.ndarray) -> Timed:
    """As a program that waits for its data would: one call per step, which ends before the next."""
    learn = learner(row)
    state = learn.init(jax.random.key(0), row.lanes)

    def run() -> Any:
        nonlocal state
        for i in range(len(x)):
            state, out = learn.step(state, x[i], y[i])
            jax.block_until_ready((state, out))

    run()
    return Timed(run, len(x), None)

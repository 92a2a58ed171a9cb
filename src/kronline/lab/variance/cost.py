"""What a step of each method costs: timed in turn, and by the products that it takes."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from kronline import Learner
from kronline.cells import UnitCell
from kronline.estimators import Online
from kronline.traces import KF, KFTBPTT, OK, UORO, Average, Nothing, Trace

ADAM = optax.adam(1e-3)
SECONDS = 0.1  # of one timing, about
STEPS = 50  # of one program
ROUNDS = 7
UNITS = 40 + ROUNDS  # of work for each: compiling takes as long as so many rounds

Tick = Callable[[str, int], None]


class Cost(NamedTuple):
    """Of one whole training step: forward, gradient, trace, update."""

    seconds: float  # the fastest of all rounds
    flops: float | None  # per lane; None: not known here


def costs(
    learners: dict[str, Learner], lanes: int, tick: Tick = lambda name, units: None
) -> dict[str, Cost]:
    """Every method's, timed in turn, so that a busy machine is as busy for all of them.

    Args:
        learners: by name.
        lanes: streams that are learnt from at once.
        tick: told for which of them something was done, and how much of UNITS it was.
    """
    runs = {}
    for name, learner in learners.items():
        runs[name] = _prepared(learner, lanes)
        tick(name, UNITS - ROUNDS)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, (run, steps) in runs.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], (time.perf_counter() - begin) / steps)
            tick(name, 1)
    return {name: Cost(best[name], flops(learner)) for name, learner in learners.items()}


def _prepared(learner: Learner, lanes: int) -> tuple[Callable[[], Any], int]:
    """Warm, and with so many steps that they take about SECONDS."""
    learner = replace(learner, optimiser=ADAM, donate=True)
    k = learner.estimator.span or STEPS
    steps = -(-STEPS // k) * k
    data = _data(learner, (steps, lanes))
    state = learner.init(jax.random.key(0), lanes)

    def run(times: int = 1) -> float:
        nonlocal state
        begin = time.perf_counter()
        for _ in range(times):
            state, out = learner.run(state, *data)
            jax.block_until_ready((state, out))
        return time.perf_counter() - begin

    run()
    times = max(1, int(SECONDS / run()))
    return lambda: run(times), times * steps


def _data(learner: Learner, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Any inputs and targets: symbols, or vectors where the readout predicts some."""
    rng, readout = np.random.default_rng(0), learner.readout
    assert readout is not None
    if readout.targets == "symbols":
        x, y = rng.integers(0, learner.cell.inputs, (2, *shape), np.int32)
    else:
        x = rng.standard_normal((*shape, learner.cell.inputs), np.float32)
        y = rng.standard_normal((*shape, readout.outputs), np.float32)
    return jnp.asarray(x), jnp.asarray(y)


def flops(learner: Learner) -> float | None:
    """Of the large products per step and lane; for unit-wise cells, and the traces known here.

    Products of inputs are left out: symbols cost nothing. Forward and backward: 6 for each
    recurrent weight.
    """
    cell, estimator = learner.cell, learner.estimator
    if not isinstance(cell, UnitCell) or cell.sparse or not isinstance(estimator, Online):
        return None
    pushed = _pushed(estimator.trace, cell, estimator.span or 1)
    return None if pushed is None else 6.0 * _weights(cell) + pushed


def _weights(cell: UnitCell) -> int:
    """Recurrent ones: they read `reads` slots of each unit."""
    return cell.hidden * len(cell.reads) * len(cell.gates) * cell.hidden


def _pushed(trace: Trace, cell: UnitCell, k: int) -> float | None:
    N, n = cell.size, cell.hidden
    read, gates = n * len(cell.reads), n * len(cell.gates)
    HA = 2.0 * N * read * gates  # H reads only what the gates read
    match trace:
        case Nothing():
            found = 0.0
        case KF():
            found = HA
        case OK(r):
            found = r * HA
        case Average(one, copies) if (each := _pushed(one, cell, k)) is not None:
            found = copies * each
        case KFTBPTT(r):
            # P H per step; P A of every pair per segment
            found = 2.0 * N * N * read + r * 2.0 * N * N * gates / k
        case UORO(copies):
            # ν F, two scalings and a sum of θ̃, and its product with δ·s̃
            found = copies * 8.0 * _weights(cell)
        case _:
            return None
    return found

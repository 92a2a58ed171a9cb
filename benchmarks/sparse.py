"""KF-RTRL with fewer recurrent weights: `python benchmarks/sparse.py`.

The step of a cell with block-sparse weights or weights of low rank, over that of the dense cell on
the native kernel; all are timed in turn, in one process, and the medians of the ratios are printed.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kronline import native
from kronline.cells import RHN, Blocks, LowRank
from kronline.cells.base import LinearCell
from kronline.estimators.methods import kf_rtrl
from kronline.learner import Learner
from kronline.readout import softmax

SYMBOLS = 32


def rows(n: int) -> dict[str, tuple[LinearCell, bool]]:
    """What is timed: a cell, and whether on the native kernel where that takes it."""
    sparse = {d: RHN(n, SYMBOLS, sparse=Blocks(d)) for d in (0.25, 0.1)}
    return {
        "dense": (RHN(n, SYMBOLS), True),
        "dense, pure JAX": (RHN(n, SYMBOLS), False),
        **{_title(n, Blocks(d)): (cell, True) for d, cell in sparse.items()},
        **{f"rank {n // k}": (LowRank(RHN(n, SYMBOLS), n // k), True) for k in (4, 16)},
    }


def _title(n: int, blocks: Blocks) -> str:
    B = blocks.units(n)
    return f"{blocks.exact(n):.1%} of the weights, blocks of {B}"


Clock = Callable[[], float]


def timer(cell: LinearCell, lanes: int, seconds: float, clock: Clock) -> Callable[[], float]:
    """A function that takes some steps, about so many seconds, and says how long one took."""
    learner = Learner(cell, softmax(SYMBOLS), kf_rtrl(), optax.adam(1e-3), donate=True)
    carry: Any = jax.tree.map(jnp.array, learner.init(jax.random.key(0), lanes))
    n = cell.outputs
    steps = max(2, round(seconds / (1e-4 + lanes * 4.0 * n**3 / 1e11)))
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.integers(0, SYMBOLS, (steps, lanes), np.int32)) for _ in range(2))
    program = jax.jit(learner.run, donate_argnums=0).lower(carry, x, y).compile()

    def run() -> float:
        nonlocal carry
        start = clock()
        carry, out = program(carry, x, y)
        jax.block_until_ready((carry, out))
        return (clock() - start) / steps

    run()
    return run


def measure(
    n: int, lanes: int, rounds: int, seconds: float, clock: Clock
) -> dict[str, tuple[float, float]]:
    """Of each row the median time of a step, and the median ratio to the dense cell's."""
    timers = {}
    for name, (cell, kernel) in rows(n).items():
        with native.use(kernel):
            timers[name] = timer(cell, lanes, seconds, clock)
    times = [{name: run() for name, run in timers.items()} for _ in range(rounds)]
    return {
        name: (median(t[name] for t in times), median(t[name] / t["dense"] for t in times))
        for name in timers
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python benchmarks/sparse.py", description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 256], help="units")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05, help="of one timing, about")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time of all threads, for a core that others use too"
    )
    args = parser.parse_args()
    clock = time.process_time if args.cpu else time.perf_counter
    of = "CPU time, " if args.cpu else ""
    print(f"KF-RTRL, RHN, {args.lanes} lanes; {of}native kernel: {native.status().reason}\n")
    print("| n | recurrent weights | ms per step | of dense |\n|---|---|---|---|")
    for n in args.hidden:
        found = measure(n, args.lanes, args.rounds, args.seconds, clock)
        for name, (step, ratio) in found.items():
            print(f"| {n} | {name} | {1e3 * step:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

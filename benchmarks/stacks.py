"""Estimators on a stack of blocks of LRU: `python benchmarks/stacks.py`.

CPU time of a whole training step on 16 lanes, all in turn, in one process; medians are printed.
CPU time, since it differs less than seconds where the cores are shared; pin it to one core.
"""

import argparse
import time
from statistics import median

import jax
import numpy as np
import optax

from kronline import LRU, Block, Learner, Stack, kf_tbptt, softmax, spatial, tbptt

SYMBOLS, LANES, STEPS = 4, 16, 100


def main() -> None:
    """Time all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64, help="complex units, and the width")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    n = args.hidden
    above = [Block(LRU(n, n)) for _ in range(args.blocks - 1)]
    cell = Stack((Block(LRU(n, SYMBOLS), n), *above))
    symbols = np.random.default_rng(0).integers(0, SYMBOLS, (STEPS + 1, LANES))
    reset = np.zeros((STEPS, LANES), bool)

    learners, states = {}, {}
    for estimator in (tbptt(10), spatial(10), kf_tbptt(10, pairs=8)):
        name = estimator.name
        learners[name] = Learner(cell, softmax(SYMBOLS), estimator, optax.adam(1e-3))
        states[name] = learners[name].init(jax.random.key(0), LANES)
    spent: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(args.rounds + 1):  # the first one compiles
        for name, learner in learners.items():
            start = time.process_time()
            states[name], out = learner.run(states[name], symbols[:-1], symbols[1:], reset=reset)
            jax.block_until_ready(out.loss)
            spent[name].append((time.process_time() - start) / STEPS)
    for name, each in spent.items():
        print(f"{name:25} {1e3 * median(each[1:]):8.2f} ms of CPU time per step")


if __name__ == "__main__":
    main()

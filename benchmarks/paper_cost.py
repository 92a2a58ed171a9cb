"""What the paper's experiments cost in full, from measured steps: hours, memory, by method.

    python benchmarks/paper_cost.py [--save results/paper-cost.json]

RHN with 256 units as in the paper, on text of 50 symbols and on the copy task's four. Each method
trains for some segments on symbols drawn at random, with the native kernel where there is one; a
step takes the same time whatever the symbols are. Hours follow from the number of steps:

    text    EPOCHS passes over 5,101,618 characters, split over the lanes
    copy    COPY_STEPS steps
    grid    RATES learning rates with one seed, then SEEDS seeds of the best

The paper states neither epochs nor steps: these are the ones of docs/results.md and of the
published curves. Memory is that of the learner's state. docs/results.md has the table.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import kronline as kl
from kronline.lab.machine import commit, describe
from kronline.spec import parse

CHARACTERS, EPOCHS, COPY_STEPS = 5_101_618, 20, 4_000_000
RATES, SEEDS = 4, 5
METHODS = ("tbptt(5)", "tbptt(25)", "kf_rtrl()", "kf_tbptt(25, pairs=8)", "uoro()")
SECONDS = 4.0  # of measuring, per method and number of lanes


def step_time(method: str, lanes: int, symbols: int) -> tuple[float, int]:
    """Seconds per step of all lanes, the median over calls; bytes of the state."""
    estimator = parse(method, "estimator")
    span = estimator.span or 1
    steps = span * max(1, 10 // span)
    learner = kl.Learner(
        kl.RHN(256, symbols), kl.softmax(symbols), estimator, optax.adam(1e-3), donate=True
    )
    state = learner.init(jax.random.key(0), lanes)
    size = sum(a.nbytes for a in jax.tree.leaves(state))
    text = np.random.default_rng(0).integers(0, symbols, (steps + 1, lanes))
    times: list[float] = []
    while len(times) < 3 or (sum(times) < SECONDS and len(times) < 50):
        start = time.perf_counter()
        state, out = learner.run(state, text[:-1], text[1:])
        jax.block_until_ready((state, out))
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:])) / steps, size  # the first one compiles


def measured() -> dict[str, Any]:
    """All methods with 32 and 256 lanes on text; with 256 on the copy task."""
    rows = []
    for method in METHODS:
        for task, symbols, lanes in (("text", 50, 32), ("text", 50, 256), ("copy", 4, 256)):
            seconds, size = step_time(method, lanes, symbols)
            row = {"method": method, "task": task, "lanes": lanes, "ms": round(1e3 * seconds, 3)}
            steps = COPY_STEPS if task == "copy" else EPOCHS * CHARACTERS / lanes
            rows.append(
                row | {"MiB": round(size / 2**20), "hours": round(steps * seconds / 3600, 2)}
            )
            print(json.dumps(rows[-1]), flush=True)
    plan = {"epochs": EPOCHS, "copy steps": COPY_STEPS, "runs": RATES + SEEDS - 1}
    return {"commit": commit(), "machine": describe(), "plan": plan, "rows": rows}


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="a JSON file")
    args = parser.parse_args()
    found = measured()
    if args.save:
        args.save.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

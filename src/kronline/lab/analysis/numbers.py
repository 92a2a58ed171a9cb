"""A run in numbers: one of each quantity, and where it was measured."""

import math
from typing import Any

import numpy as np

from kronline.lab.runs.folder import Run
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.quantity import MONITORED, Quantity

# by name, of any task; names that are not here are measured, too, and shown as they come
KNOWN: dict[str, Quantity] = {
    q.key: q for task in TASKS.values() for q in (task.curve, *task.numbers)
} | {q.key: q for q in MONITORED}


def quantity(name: str) -> Quantity:
    """The quantity of that name in metrics.jsonl."""
    return KNOWN.get(name) or Quantity(name, name, name)


def number(run: Run, name: str) -> float | None:
    """One number of a run; None if it was never measured.

    Args:
        run: the run.
        name: of a quantity; or "seconds" of compute, the last "step", or "arrival", the step at
            which the task's curve came to its last value.
    """
    if name == "seconds":
        return clock(run)[-1][1] if run.timing else None
    if name == "step":
        return max((m["step"] for m in run.metrics), default=0)
    if name == "arrival":
        seen = points(run, TASKS[run.kind].curve.key)
        return next(x for x, y in seen if y == seen[-1][1]) if seen else None
    seen = points(run, name)
    return _of_run(quantity(name), seen) if seen else None


def _of_run(q: Quantity, seen: list[tuple[float, float]]) -> float:
    match q.of_run:
        case "least":
            return min(y for _, y in seen)
        case "late":
            return float(np.mean([y for x, y in seen if 2 * x > seen[-1][0]]))
    return seen[-1][1]


def points(run: Run, name: str) -> list[tuple[float, float]]:
    """(step, value) wherever it was measured and is a number.

    A closing line that repeats a value says where that was measured: `valid` at `valid_step`.
    """
    lines = [m for m in run.metrics if m.get(name) is not None]
    seen = {float(m.get(f"{name}_step", m["step"])): float(m[name]) for m in lines}
    found = [(x, y) for x, y in sorted(seen.items()) if math.isfinite(y)]
    start = quantity(name).start
    return [(0.0, start), *found] if start is not None and found else found


def clock(run: Run) -> list[tuple[float, float]]:
    """(step, seconds since the start); a chunk that was done twice counts once."""
    chunks = {float(t["step"]): float(t["seconds"]) for t in run.timing}
    steps = sorted(chunks)
    seconds = np.cumsum([chunks[s] for s in steps]).tolist()
    return [(0.0, 0.0), *zip(steps, seconds, strict=True)]


def summary(run: Run) -> dict[str, Any]:
    """A run in a few numbers: the loss, and what its task counts."""
    if run.kind not in TASKS:
        return {}
    task = TASKS[run.kind]
    wanted = [task.curve.key, task.loss, *(q.key for q in (*task.numbers, *MONITORED))]
    out: dict[str, Any] = {}
    for line in run.metrics:
        out |= {k: v for k, v in line.items() if k in wanted}
    least = [q.key for q in task.numbers if q.of_run == "least" and q.key in out]
    return out | {key: number(run, key) for key in least}

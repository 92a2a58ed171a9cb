"""Curves of others, from a CSV file, to be drawn beside one's own.

A line a measurement: `label,run,step` and what a task's curve shows: `T` of the copy task, `valid`
of a text, for instance.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kronline.errors import UsageError
from kronline.lab.analysis.curves import Curve, mean_of
from kronline.lab.tasks import TASKS

KINDS = {task.curve.key: kind for kind, task in TASKS.items()}  # by the column

Points = list[tuple[float, float]]  # step, value


class Beside(NamedTuple):
    """A curve of somebody else's: the mean over their runs."""

    kind: str
    label: str
    curve: Curve
    runs: list[Points]


def read(paths: Sequence[Path]) -> list[Beside]:
    """The curves of these files, each where all of its runs were measured."""
    return [found for path in paths for found in _read(path)]


def _read(path: Path) -> list[Beside]:
    seen: dict[str, dict[str, Points]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as f:  # Excel writes a mark first
            reader = csv.reader(f)
            columns = [c.strip() for c in next(reader, [])]
            name = _measured(path, columns)
            for row in reader:
                if row:
                    where = f"{path}, line {reader.line_num}"
                    label, run, point = _line(dict(zip(columns, row, strict=False)), name, where)
                    seen.setdefault(label, {}).setdefault(run, []).append(point)
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise UsageError(f"the curves {str(path)!r} cannot be read: {e}") from e
    if not seen:
        raise UsageError(f"{path} has no measurement: needed a line for each, below the columns")
    return [_curve(path, name, label, list(runs.values())) for label, runs in seen.items()]


def _measured(path: Path, columns: Sequence[str]) -> str:
    """Which task's curve it is, by its column."""
    found = [name for name in KINDS if name in columns]
    if len(found) != 1 or not {"label", "run", "step"} <= set(columns):
        raise UsageError(
            f"{path} needs the columns label, run, step, and one of {', '.join(KINDS)}, got "
            f"{', '.join(columns) or 'nothing'}"
        )
    return found[0]


def _line(row: dict[str, str], name: str, where: str) -> tuple[str, str, tuple[float, float]]:
    label = row.get("label", "").strip()
    if not label:
        raise UsageError(f"{where}: the label is empty")
    try:
        point = float(row.get("step", "")), float(row.get(name, ""))
    except ValueError as e:
        raise UsageError(f"{where}: step and {name} must be numbers: {e}") from e
    if not all(map(math.isfinite, point)):
        raise UsageError(f"{where}: step and {name} must be finite, got {row}")
    return label, row.get("run", ""), point


def _curve(path: Path, name: str, label: str, runs: list[Points]) -> Beside:
    """Where all of the runs were measured, so that it is of the same runs everywhere."""
    both = [np.array(sorted(run)).T for run in runs]
    begin, end = max(x[0] for x, _ in both), min(x[-1] for x, _ in both)
    if begin > end:
        raise UsageError(
            f"{path}: the runs of {label!r} have no step in common, so they have no mean; give "
            "them labels of their own"
        )
    found = mean_of([(x, y) for x, y in both], end, stairs=TASKS[KINDS[name]].curve.stairs)
    kept = found.x >= begin
    curve = Curve(found.x[kept], found.mean[kept], found.std[kept])
    return Beside(KINDS[name], label, curve, runs)

"""Curves of others, from a CSV file, to be drawn beside one's own.

A line a measurement: `label,run,step,T` of the copy task, or `label,run,step,valid` of a text.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kronline.errors import UsageError
from kronline.report.curves import Curve, mean_of

KINDS = {"T": "copy", "valid": "text"}


class Beside(NamedTuple):
    """A curve of somebody else's: the mean over their runs."""

    kind: str
    label: str
    curve: Curve


def read(paths: Sequence[Path]) -> list[Beside]:
    """The curves of these files, each as far as all of its runs come."""
    return [found for path in paths for found in _read(path)]


def _read(path: Path) -> list[Beside]:
    try:
        with path.open(encoding="utf-8", newline="") as f:
            rows = list(csv.DictReader(f))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the curves {str(path)!r} cannot be read: {e}") from e
    columns = list(rows[0]) if rows else []
    name = next((n for n in KINDS if n in columns), "")
    if not name or not {"label", "run", "step"} <= set(columns):
        raise UsageError(
            f"{path} needs the columns label, run, step, and T or valid, and a line for each "
            f"measurement; got {', '.join(columns) or 'nothing'}"
        )
    seen: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for i, row in enumerate(rows, 2):
        try:
            point = float(row["step"]), float(row[name])
        except (TypeError, ValueError) as e:
            raise UsageError(f"{path}, line {i}: step and {name} must be numbers: {e}") from e
        seen.setdefault(row["label"], {}).setdefault(row["run"], []).append(point)
    return [
        Beside(KINDS[name], label, _mean(name, list(runs.values()))) for label, runs in seen.items()
    ]


def _mean(name: str, runs: list[list[tuple[float, float]]]) -> Curve:
    """As far as all of them come, so that it is of the same runs everywhere."""
    both = [np.array(sorted(run)).T for run in runs]
    end = min(x[-1] for x, _ in both)
    return mean_of([(x, y) for x, y in both], end, stairs=name == "T")

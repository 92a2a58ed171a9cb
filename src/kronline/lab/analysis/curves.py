"""Groups as curves: over data time, over compute time, and the profiles of runs that ended."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from kronline.lab.analysis.groups import Group
from kronline.lab.analysis.numbers import clock, points, quantity
from kronline.lab.analysis.stat import Stat
from kronline.lab.runs.folder import Run
from kronline.lab.tasks.quantity import Profile

Axis = Literal["steps", "seconds"]

POINTS = 240  # of a curve over compute time, where no two seeds are measured at the same moment


class Curve(NamedTuple):
    """A mean over seeds, its deviation (0 where there is one seed), and where seeds ended early."""

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    ended: tuple[tuple[float, float, str], ...] = ()  # x, y, state

    def until(self, end: float) -> "Curve":
        """No further than this."""
        kept = self.x <= end
        x = np.append(self.x[kept], end) if self.x[0] <= end < self.x[-1] else self.x[kept]
        return Curve(x, np.interp(x, self.x, self.mean), np.interp(x, self.x, self.std))


def profile(group: Group, of: Profile) -> Curve | None:
    """What runs measured for 1, 2, 3, ... when they had ended; None if none has."""
    tried = [m[of.key] for run in group.runs for m in run.metrics if of.key in m]
    at = [
        Stat.of(r[i] for r in tried if i < len(r)) for i in range(max(map(len, tried), default=0))
    ]
    kept = [(i + 1, s) for i, s in enumerate(at) if s]
    if not kept:
        return None
    x, stats = zip(*kept, strict=True)
    mean, std = (np.array(v) for v in zip(*((s.mean, s.std or 0.0) for s in stats), strict=True))
    return Curve(np.array(x), of.factor * mean, of.factor * std)


def curve(group: Group, name: str, axis: Axis = "steps") -> Curve | None:
    """A measured number over data time or compute time.

    Each seed is read off on a common grid: stairs as they are, the rest between measurements. A
    seed that has finished keeps its last value (seeds take different times); one that has not
    counts as far as it has come. None if nothing was measured.
    """
    seeds = [(run, *_over(run, name, axis)) for run in group.runs]
    seeds = [(run, x, y) for run, x, y in seeds if len(x)]
    if not seeds:
        return None
    done = [x[-1] for run, x, _ in seeds if run.state == "finished"]
    end = max(done or [x[-1] for _, x, _ in seeds])
    both = [(x, y) for _, x, y in seeds]
    held = [run.state == "finished" for run, _, _ in seeds]
    found = mean_of(both, end, stairs=quantity(name).stairs, exact=axis == "steps", held=held)
    ended = tuple((x[-1], y[-1], run.state) for run, x, y in seeds if run.state != "finished")
    return found._replace(ended=ended)


def mean_of(
    runs: Sequence[tuple[np.ndarray, np.ndarray]],
    end: float,
    *,
    stairs: bool,
    exact: bool = True,
    held: Sequence[bool] | None = None,
) -> Curve:
    """Mean and deviation of (x, y) of several runs.

    Args:
        runs: each measured at places of its own.
        end: as far as the curve goes.
        stairs: a value stays until the next one; else what lies between two is between them.
        exact: at the places where runs were measured, if those are not too many.
        held: which runs keep their last value; the others count as far as they have come.
    """
    grid = _grid([x for x, _ in runs], end, exact)
    keeps = held or [False] * len(runs)
    rows = [_read_off(grid, x, y, stairs, h) for (x, y), h in zip(runs, keeps, strict=True)]
    values = np.stack(rows)
    n = np.isfinite(values).sum(0)
    grid, values, n = grid[n > 0], values[:, n > 0], n[n > 0]
    mean = np.nansum(values, 0) / n
    std = np.sqrt(np.nansum((values - mean[None]) ** 2, 0) / np.maximum(n - 1, 1))
    return Curve(grid, mean, std)


def _over(run: Run, name: str, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    found = np.array(points(run, name), float).reshape(-1, 2)
    x, y = found[:, 0], found[:, 1]
    if axis == "seconds":
        if not run.timing:
            return np.zeros(0), np.zeros(0)
        steps, seconds = np.array(clock(run)).T
        x = np.interp(x, steps, seconds)
    return x, y


def _grid(xs: Sequence[np.ndarray], end: float, exact: bool) -> np.ndarray:
    every = np.unique(np.concatenate(xs))
    every = every[every <= end]
    if exact and len(every) <= 2 * POINTS:
        return every
    return np.linspace(every[0], end, POINTS)


def _read_off(
    grid: np.ndarray, x: np.ndarray, y: np.ndarray, stairs: bool, held: bool
) -> np.ndarray:
    if stairs:
        at = y[np.clip(np.searchsorted(x, grid, "right") - 1, 0, None)]
    else:
        at = np.interp(grid, x, y)
    return np.where((grid >= x[0]) & ((grid <= x[-1]) | held), at, np.nan)

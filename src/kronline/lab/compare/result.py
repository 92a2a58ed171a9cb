"""What came out of a comparison: curves over data and over compute, and the noise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kronline.lab.analysis.curves import Curve, curve
from kronline.lab.analysis.groups import Group, Picked, best_rates, grouped
from kronline.lab.analysis.labels import duration
from kronline.lab.compare.terms import Terms
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import Task
from kronline.lab.tasks.quantity import Quantity

BASE = "kf_rtrl"  # whose step is the unit of cost, if it is there


class Row(NamedTuple):
    """One method."""

    group: Group
    seconds: float  # of a step
    flops: float | None
    noise: dict[str, float]  # variance and cosine; empty if not measured
    over_data: Curve | None
    over_compute: Curve | None  # in seconds


def ends(task: type[Task]) -> list[Quantity]:
    """What is measured when a run has ended, besides what its curve shows."""
    return [q for q in task.numbers if q.key != task.curve.key]


@dataclass(frozen=True)
class Result:
    """All of it."""

    task: type[Task]
    terms: Terms
    loss_steps: int
    picked: Picked
    rows: list[Row]

    @classmethod
    def of(
        cls,
        task: type[Task],
        runs: Sequence[Run],
        terms: Terms,
        noise: dict[str, dict[str, float]],
        loss_steps: int,
    ) -> "Result":
        """From the runs, each method at its best learning rate."""
        # how long one trained is no difference of settings here
        alike = [replace(run, config=run.config | {"steps": terms.steps}) for run in runs]
        picked = _as_they_were(best_rates(grouped(alike, task)), runs)
        rows = [_row(g, terms, noise, task.curve.key) for g in picked.shown]
        return cls(task, terms, loss_steps, picked, rows)

    def numbers(self) -> dict[str, Any]:
        """For programs."""
        base = next((r for r in self.rows if r.group.config["estimator"] == BASE), self.rows[0])
        return {
            "kind": self.task.kind,
            "steps": self.terms.steps,
            "budget": duration(self.terms.budget),
            "budget_seconds": self.terms.budget,
            "loss_steps": self.loss_steps,
            "unit": base.group.label,
            "rows": [_numbers(r, base, self.task) for r in self.rows],
        }


def _as_they_were(picked: Picked, runs: Sequence[Run]) -> Picked:
    """With the runs' own configurations, for whoever reads them."""
    own = {run.path: run for run in runs}

    def back(g: Group) -> Group:
        return replace(g, runs=tuple(own[run.path] for run in g.runs))

    return Picked([*map(back, picked.shown)], [[*map(back, some)] for some in picked.tried])


def _row(g: Group, terms: Terms, noise: dict[str, dict[str, float]], measured: str) -> Row:
    e = str(g.config["estimator"])
    seconds, whole = terms.seconds[e], curve(g, measured)
    over_data = over_compute = None
    if whole is not None:
        over_data = _upto(whole, terms.steps)
        timed = replace_x(whole, whole.x * seconds)
        over_compute = _upto(timed, terms.budget)
    return Row(g, seconds, terms.flops[e], noise.get(e, {}), over_data, over_compute)


def replace_x(c: Curve, x: np.ndarray) -> Curve:
    """The same over something else."""
    scale = float(x[-1] / c.x[-1]) if c.x[-1] else 1.0
    return Curve(x, c.mean, c.std, tuple((at * scale, y, state) for at, y, state in c.ended))


def _upto(c: Curve, end: float) -> Curve:
    """As far as this; a segment that goes over it, by a twentieth at most, counts."""
    n = int(np.searchsorted(c.x, end * (1 + 1e-6), "right"))
    short = not n or c.x[n - 1] < 0.999 * end
    n += int(short and n < len(c.x) and c.x[n] <= 1.05 * end)
    ended = tuple(e for e in c.ended if e[0] <= end)
    return Curve(c.x[:n], c.mean[:n], c.std[:n], ended)


def _numbers(r: Row, base: Row, task: type[Task]) -> dict[str, Any]:
    g = r.group

    def last(c: Curve | None) -> float | None:
        if c is None or not len(c.mean):
            return None
        return float(c.mean.min() if task.curve.of_run == "least" else c.mean[-1])

    return {
        "label": g.label,
        "estimator": g.config["estimator"],
        "rate": g.config["rate"],
        "seeds": g.seeds,
        "data": last(r.over_data),
        "compute": last(r.over_compute),
        **{q.key: _end(g, q.key) for q in ends(task)},
        "steps": max(int(run.status.get("steps", 0)) for run in g.runs),
        "us_per_step": 1e6 * r.seconds,
        "time": r.seconds / base.seconds,
        "flops": r.flops / base.flops if r.flops and base.flops else None,
        "variance": r.noise.get("variance"),
        "cosine": r.noise.get("cosine"),
    }


def _end(g: Group, name: str) -> float | None:
    """What a run tests when it has ended."""
    stat = g.stat(name)
    return None if stat is None else stat.mean

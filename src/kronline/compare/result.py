"""What came out of a comparison: curves over data and over compute, and the noise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kronline.compare.terms import Terms
from kronline.report.curves import Curve, curve
from kronline.report.findings import Findings
from kronline.report.groups import Group, Picked
from kronline.report.labels import duration
from kronline.runs.folder import Run
from kronline.tasks.copy import NUMBERS

MEASURED = {"copy": "T", "text": "valid"}  # what the curves show
ENDS = {"copy": NUMBERS[1:], "text": ("test",)}  # what is measured when a run has ended
BASE = "kf_rtrl"  # whose step is the unit of cost, if it is there


class Row(NamedTuple):
    """One method."""

    group: Group
    seconds: float  # of a step
    flops: float | None
    noise: dict[str, float]  # variance and cosine; empty if not measured
    over_data: Curve | None
    over_compute: Curve | None  # in seconds


@dataclass(frozen=True)
class Result:
    """All of it."""

    kind: str
    terms: Terms
    loss_steps: int
    findings: Findings
    rows: list[Row]

    @classmethod
    def of(
        cls,
        kind: str,
        runs: Sequence[Run],
        terms: Terms,
        noise: dict[str, dict[str, float]],
        loss_steps: int,
    ) -> "Result":
        """From the runs, each method at its best learning rate."""
        # how long one trained is no difference of settings here
        alike = [replace(run, config=run.config | {"steps": terms.steps}) for run in runs]
        findings = _as_they_were(Findings.of(alike), kind, runs)
        groups = findings.copy.shown if kind == "copy" else findings.text.shown
        rows = [_row(g, terms, noise, MEASURED[kind]) for g in groups]
        return cls(kind, terms, loss_steps, findings, rows)

    def numbers(self) -> dict[str, Any]:
        """For programs."""
        base = next((r for r in self.rows if r.group.config["estimator"] == BASE), self.rows[0])
        return {
            "kind": self.kind,
            "steps": self.terms.steps,
            "budget": duration(self.terms.budget),
            "budget_seconds": self.terms.budget,
            "loss_steps": self.loss_steps,
            "unit": base.group.label,
            "rows": [_numbers(r, base, self.kind) for r in self.rows],
        }


def _as_they_were(f: Findings, kind: str, runs: Sequence[Run]) -> Findings:
    """With the runs' own configurations, for whoever reads them."""
    own = {run.path: run for run in runs}

    def back(g: Group) -> Group:
        return replace(g, runs=tuple(own[run.path] for run in g.runs))

    picked: Picked = getattr(f, kind)
    found = Picked([*map(back, picked.shown)], [[*map(back, some)] for some in picked.tried])
    copy, text = (found, f.text) if kind == "copy" else (f.copy, found)
    return replace(f, runs=list(runs), copy=copy, text=text)


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


def _numbers(r: Row, base: Row, kind: str) -> dict[str, Any]:
    g = r.group

    def last(c: Curve | None) -> float | None:
        if c is None or not len(c.mean):
            return None
        return float(c.mean[-1] if kind == "copy" else c.mean.min())

    return {
        "label": g.label,
        "estimator": g.config["estimator"],
        "rate": g.config["rate"],
        "seeds": g.seeds,
        "data": last(r.over_data),
        "compute": last(r.over_compute),
        **{name: _end(g, name) for name in ENDS[kind]},
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

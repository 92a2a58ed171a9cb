"""The variance runs as curves: the cosine to the exact gradient over time, and over units."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kronline.lab.analysis import labels
from kronline.lab.analysis.groups import defaults_of, rank, settings, varying
from kronline.lab.analysis.stat import Stat
from kronline.lab.runs.folder import Run
from kronline.lab.variance.settings import Variance

# what is measured, and how often: runs that differ in these alone are pooled
MEASURE = frozenset(
    {"experiment", "estimators", "units", "characters", "times", "networks", "draws", "avg_draws"}
    | {"units_networks", "units_draws"}
)
OTHER = {"time": "steps", "units": "hidden"}  # a setting of the other experiment


class Series(NamedTuple):
    """One method's cosine: mean and deviation over networks and draws, at each x."""

    label: str
    method: str
    x: np.ndarray  # t, or n
    cosine: list[Stat]
    error: list[Stat | None]  # |g̃ − g|² / |g|²

    def at(self, low: float, high: float) -> float | None:
        """The mean cosine where low <= x <= high."""
        inside = [s.mean for x, s in zip(self.x, self.cosine, strict=True) if low <= x <= high]
        return float(np.mean(inside)) if inside else None


def series(runs: Iterable[Run], experiment: str) -> list[Series]:
    """All that was measured in one of the two experiments, "time" or "units", method by method."""
    runs = [run for run in runs if run.kind == Variance.kind]
    configs = [_kept(run, experiment) for run in runs]
    differ = sorted(varying(configs)) if configs else []
    found: dict[tuple[str, str], dict[int, tuple[list[float], list[float]]]] = {}
    for run, config in zip(runs, configs, strict=True):
        suffix = "".join(f", {labels.setting(k, config.get(k))}" for k in differ)
        for m in run.metrics:
            if m.get("experiment") != experiment:
                continue
            method = labels.method(str(m["estimator"]))
            x = int(m["t"] if experiment == "time" else m["n"])
            cosine, error = found.setdefault((method, method + suffix), {}).setdefault(x, ([], []))
            cosine += m["cosine"]
            error += m.get("error", [])
    return [
        _series(method, label, points)
        for (method, label), points in sorted(found.items(), key=lambda item: rank(item[0][1]))
    ]


def _kept(run: Run, experiment: str) -> dict[str, Any]:
    drop = MEASURE | {OTHER[experiment]}
    return {k: v for k, v in settings(run, defaults_of(Variance)).items() if k not in drop}


def _series(
    method: str, label: str, points: Mapping[int, tuple[Sequence[float], Sequence[float]]]
) -> Series:
    stats = {x: (Stat.of(c), Stat.of(e)) for x, (c, e) in sorted(points.items())}
    kept = {x: (c, e) for x, (c, e) in stats.items() if c is not None}
    return Series(
        label,
        method,
        np.array(list(kept)),
        [c for c, _ in kept.values() if c is not None],
        [e for _, e in kept.values()],
    )

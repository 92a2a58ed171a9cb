"""The README's picture: the copy task over data, and streams beside what else learns from them."""

import json
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from tables import HOME, RESULTS

from kronline.lab.analysis.numbers import points
from kronline.lab.report.style import PRINT, looks, using
from kronline.lab.runs import folder

OUT = HOME / "docs" / "figures" / "front.png"
COPY = {  # what is drawn: label, runs of results/
    "4 LRU blocks, exact traces: spatial(10)": "copy-deep.runs:l4-spatial-200k-s*",
    "the same network, TBPTT-10": "copy-deep.runs:l4-tbptt-200k-s0",
    "RHN, KF-TBPTT-10, 8 pairs": "copy-clip.runs:kf_tbptt-10--pairs-8-rate0.00316-seed?",
    "RHN, KF-RTRL": "copy-clip.runs:kf_rtrl-rate0.001-seed?",
    "RHN, TBPTT-10": "copy-clip.runs:tbptt-10-rate0.001-seed?",
    "RHN, UORO": "copy-clip.runs:uoro-rate0.001-seed?",
}
STEPS = 200_000


def main() -> None:
    """Draw it."""
    with using(PRINT, 9):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
        copy(left)
        streams(right)
        figure.savefig(OUT, dpi=150)
    print(OUT.relative_to(HOME))


def copy(axes: Any) -> None:
    """T over time steps: the mean over seeds, and their range."""
    look = looks((label, label) for label in COPY)
    grid = np.linspace(0, STEPS, 201)
    for label, place in COPY.items():
        runs = folder.find([f"{RESULTS}/{place}"])
        own = look[label]
        seeds = np.array([_at(points(r, "T"), grid) for r in runs])
        name = f"{label} ({len(runs)} seed{'s' * (len(runs) > 1)})"
        style = {"color": own.colour(PRINT), "linestyle": own.dash}
        axes.plot(grid / 1e3, seeds.mean(0), **style, label=name)
        axes.fill_between(
            grid / 1e3, seeds.min(0), seeds.max(0), color=style["color"], alpha=0.15, linewidth=0
        )
    axes.set_xlabel("time steps, thousands")
    axes.set_ylabel("copy task: the curriculum's T")
    axes.set_ylim(0, 92)
    axes.legend(loc="upper left", fontsize=7, frameon=False)


def streams(axes: Any) -> None:
    """Mean absolute errors over that of the last value: kronline, deep-river, river's best."""
    found = json.loads((RESULTS / "streams.json").read_text())
    last = _errors(found, ["last value / class"])
    ours = _errors(found, ["kronline"])
    names = sorted(ours, key=lambda name: ours[name] / last[name], reverse=True)
    models = {r["model"] for r in found if r["model"] not in ("last value / class", "kronline")}
    deep = [m for m in models if m.startswith("deep-river")]
    others = _errors(found, sorted(models - set(deep)))
    groups = {
        "the best of river's models, mean and last value": others,
        "the best of deep-river's recurrent ones": _errors(found, deep),
        "kronline, its defaults": ours,
    }
    look = looks((label, label) for label in groups)
    for label, errors in groups.items():
        own = look[label]
        x = [errors[n] / last[n] for n in names]
        axes.plot(
            x, range(len(names)), own.marker, color=own.colour(PRINT), label=label, markersize=5
        )
    axes.axvline(1, color=PRINT.muted, linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("mean absolute error, over that of the last value")
    axes.set_ylim(-0.7, len(names) + 2.1)
    axes.legend(loc="upper left", fontsize=7, frameon=False)


def _at(line: Sequence[tuple[float, float]], grid: np.ndarray) -> np.ndarray:
    """T at these steps: it stays until it grows; 1 at the start."""
    steps, values = np.array([(0, 1.0), *line]).T
    return values[np.searchsorted(steps, grid, side="right") - 1]


def _errors(found: Sequence[dict[str, Any]], models: Sequence[str]) -> dict[str, float]:
    """Of each stream of numbers: the least over models of the mean over seeds."""
    means: dict[str, list[float]] = {}
    for model in models:
        rows = [r for r in found if r["model"] == model and "MAE" in r]
        for name in {r["data"] for r in rows}:
            seeds = [r["MAE"] for r in rows if r["data"] == name]
            means.setdefault(name, []).append(float(np.mean(seeds)))
    return {name: min(values) for name, values in means.items()}


if __name__ == "__main__":
    main()

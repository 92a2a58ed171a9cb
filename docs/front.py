"""The README's picture: the copy task over data, and streams beside what else learns from them."""

import json
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine
from tables import HOME, RESULTS

from kronline.lab.analysis.numbers import points
from kronline.lab.report.style import PRINT, using
from kronline.lab.runs import folder

OUT = HOME / "docs" / "figures" / "front.png"
BLUE, RED, GREY = PRINT.colours[:3]
NAMES = {"santafe_laser": "Santa Fe laser", "taylor": "Taylor", "sunspots": "Sunspots"}
COPY = {  # what is drawn: name, runs of results/, how
    "4 LRU blocks,\nspatial(10)": ("copy-deep.runs:l4-spatial-200k-s*", BLUE, "-"),
    "4 LRU blocks,\nTBPTT-10": ("copy-deep.runs:l4-tbptt-200k-s0", BLUE, ":"),
    "RHN, KF-TBPTT-10": ("copy-clip.runs:kf_tbptt-10--pairs-8-rate0.00316-seed?", RED, "-"),
    "RHN, KF-RTRL": ("copy-clip.runs:kf_rtrl-rate0.001-seed?", RED, "--"),
    "RHN, TBPTT-10": ("copy-clip.runs:tbptt-10-rate0.001-seed?", RED, ":"),
    "RHN, UORO": ("copy-clip.runs:uoro-rate0.001-seed?", GREY, "-"),
}
STEPS = 200_000


def main() -> None:
    """Draw it."""
    with using(PRINT, 10):
        figure, (left, right) = plt.subplots(
            1,
            2,
            figsize=(10.4, 4.1),
            layout=ConstrainedLayoutEngine(wspace=0.06),
            width_ratios=(1, 1),
        )
        copy(left)
        streams(right)
        figure.savefig(OUT, dpi=150)
    print(OUT.relative_to(HOME))


def copy(axes: Any) -> None:
    """T over time steps: the mean over seeds, and their range."""
    grid = np.linspace(0, STEPS, 201)
    for name, (place, colour, dash) in COPY.items():
        runs = folder.find([f"{RESULTS}/{place}"])
        seeds = np.array([_at(points(r, "T"), grid) for r in runs])
        mean = seeds.mean(0)
        axes.plot(grid / 1e3, mean, color=colour, linestyle=dash, linewidth=2)
        if len(runs) > 1:
            low, high = seeds.min(0), seeds.max(0)
            axes.fill_between(grid / 1e3, low, high, color=colour, alpha=0.15, linewidth=0)
        label = f"{name}{' (1 seed)' * (len(runs) == 1)}"
        at = (STEPS / 1e3, mean[-1])
        axes.annotate(label, at, (5, 0), textcoords="offset points", va="center", color=colour)
    axes.set_title("Copy task: length of the strings", loc="left", fontsize=11)
    axes.set_xlabel("time steps, thousands")
    axes.set_ylabel("T of the curriculum (more is better)")
    axes.set_xlim(0, STEPS / 1e3)
    axes.set_ylim(0, 72)


def streams(axes: Any) -> None:
    """Mean absolute errors over that of the last value: kronline, deep-river, river's best."""
    found = json.loads((RESULTS / "streams.json").read_text())
    last = _errors(found, ["last value / class"])
    ours = _errors(found, ["kronline"])
    names = sorted(ours, key=lambda name: ours[name] / last[name], reverse=True)
    models = {
        r["model"] for r in found if not r["model"].startswith(("last value / class", "kronline"))
    }
    deep = [m for m in models if m.startswith("deep-river")]
    groups = {  # errors, marker, colour, whether it is filled, size
        "deep-river, the best": (_errors(found, deep), "s", GREY, False, 6),
        "river or naive, the best": (
            _errors(found, sorted(models - set(deep))),
            "D",
            RED,
            False,
            6,
        ),
        "kronline, defaults": (ours, "o", BLUE, True, 8),
    }
    for label, (errors, marker, colour, full, size) in groups.items():
        axes.plot(
            [errors[n] / last[n] for n in names],
            range(len(names)),
            marker,
            color=colour,
            markerfacecolor=colour if full else "none",
            markeredgewidth=1.5,
            markersize=size,
            label=label,
        )
    axes.axvline(1, color=PRINT.muted, linewidth=1)
    axes.set_title("Streams: error one step ahead", loc="left", fontsize=11)
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), [NAMES.get(n, n) for n in names])
    axes.set_xlabel("error, over that of the last value (less is better)")
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.legend(loc="lower left", frameon=False, reverse=True, fontsize=9)


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

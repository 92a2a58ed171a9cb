"""What comes of a setting: its values one below another, the numbers of every seed beside them."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from kronline.errors import UsageError
from kronline.report import labels
from kronline.report.groups import MONITORED, Group, Stat, number
from kronline.report.style import PRINT, Look, using
from kronline.tasks import copy

NAMES = {
    "T": "curriculum's T",
    "right_trained": "bits right over\ntrained lengths",
    "solved": "solved length",
    "valid": "validation bits/char",
    "test": "test bits/char",
    "snr": "signal over noise,\na lane",
    "noise": "a step's noise,\nof the trace",
}


def draw(groups: Sequence[Group], setting: str, out: Path, width: float, size: float = 9) -> None:
    """One panel a number: a dot a seed, a bar for their mean, a line at the first value's mean.

    Args:
        groups: as `grouped` gives them, of one kind.
        setting: the name of a setting.
        out: the picture, PNG, SVG or PDF.
        width: in inches.
        size: of the letters, in points.
    """
    found: dict[str, list[Group]] = {}
    for g in groups:
        found.setdefault(labels.value(setting, g.config.get(setting)), []).append(g)
    if len(found) < 2:
        known = sorted({k for g in groups for k in g.config})
        raise UsageError(
            f"over needs a setting that has several values in these runs, got {setting!r} with "
            f"{' and '.join(found) or 'none'}; settings are {', '.join(known)}"
        )
    own = copy.NUMBERS if groups[0].kind == "copy" else ("valid", "test")
    names = [n for n in (*own, *MONITORED) if any(g.stat(n) for g in groups)]
    with using(PRINT, size, outlines=False):
        fig = Figure(figsize=(width, 0.8 + 0.2 * len(found)), layout="constrained")
        axes = fig.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for ax, name in zip(axes, names, strict=True):
            for y, members in enumerate(found.values()):
                seeds = [number(run, name) for g in members for run in g.runs]
                seeds = [v for v in seeds if v is not None]
                ax.plot(seeds, [y] * len(seeds), "o", color=Look(0).colour(PRINT), ms=4, alpha=0.6)
                if stat := Stat.of(seeds):
                    ax.plot(stat.mean, y, "|", color=PRINT.ink, ms=11, mew=1.6)
                    if y == 0:
                        ax.axvline(stat.mean, color=PRINT.muted, lw=0.8, zorder=0)
            ax.set_xlabel(NAMES[name])
            ax.locator_params(axis="x", nbins=3)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            ax.margins(x=0.12)
        axes[0].set_yticks(range(len(found)), list(found))
        axes[0].invert_yaxis()
        fig.savefig(out, dpi=200)

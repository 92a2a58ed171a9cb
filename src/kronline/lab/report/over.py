"""What comes of a setting: its values one below another, the numbers of every seed beside them."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from kronline.errors import UsageError
from kronline.lab.analysis import labels
from kronline.lab.analysis.groups import Group
from kronline.lab.analysis.numbers import number
from kronline.lab.analysis.stat import Stat
from kronline.lab.report.style import PRINT, Look, using
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.quantity import MONITORED


def draw(groups: Sequence[Group], setting: str, out: Path, width: float, size: float = 9) -> None:
    """One panel per number: a dot per seed, a bar for their mean, a line at the first value's mean.

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
    own = TASKS[groups[0].kind].numbers
    drawn = [q for q in (*own, *MONITORED) if any(g.has(q) for g in groups)]
    with using(PRINT, size, outlines=False):
        fig = Figure(figsize=(width, 0.8 + 0.2 * len(found)), layout="constrained")
        axes = fig.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
        for ax, q in zip(axes, drawn, strict=True):
            for y, members in enumerate(found.values()):
                every = [number(run, q.key) for g in members for run in g.runs]
                seeds = [q.factor * v for v in every if v is not None]
                ax.plot(seeds, [y] * len(seeds), "o", color=Look(0).colour(PRINT), ms=4, alpha=0.6)
                if stat := Stat.of(seeds):
                    ax.plot(stat.mean, y, "|", color=PRINT.ink, ms=11, mew=1.6)
                    if y == 0:
                        ax.axvline(stat.mean, color=PRINT.muted, lw=0.8, zorder=0)
            ax.set_xlabel(q.axis.replace(", ", ",\n"))
            ax.locator_params(axis="x", nbins=3)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            ax.margins(x=0.12)
        axes[0].set_yticks(range(len(found)), list(found))
        axes[0].invert_yaxis()
        fig.savefig(out, dpi=200)

"""The figure of how far KF-TBPTT-k is ahead of TBPTT-k on the Penn Treebank (ptb.runs)."""

import matplotlib.pyplot as plt
import numpy as np
from tables import HOME, against, groups

from kronline.lab.analysis import labels
from kronline.lab.analysis.numbers import points
from kronline.lab.report.style import PRINT, looks, using
from kronline.lab.runs.folder import Run

OUT = HOME / "docs" / "figures" / "ptb-ahead.png"


def main() -> None:
    """Draw it."""
    shown = {
        f"{g.method}, {labels.rate(g.config['rate'])}": [_ahead(*pair) for pair in pairs]
        for g, _, pairs in against(groups("text", "ptb"))
        if "1 pair" not in g.method.split(", ")  # noise costs it more than the figure has room for
    }
    look = looks((label, label) for label in shown)
    with using(PRINT, 9):
        figure, axes = plt.subplots(figsize=(6.8, 3.6), layout="constrained")
        axes.axhline(0, color=PRINT.muted, linewidth=1)
        for i, (label, seeds) in enumerate(shown.items()):
            own = look[label]
            steps = seeds[0][0]
            style = {"color": own.colour(PRINT), "linestyle": own.dash, "marker": own.marker}
            mean = np.mean([ahead for _, ahead in seeds], axis=0)
            axes.plot(steps / 1e3, mean, **style, label=label, markevery=(i, 8), markersize=5)
        axes.set_xlabel("time steps, thousands")
        axes.set_ylabel("bits/char ahead of TBPTT-k")
        axes.set_ylim(-0.045, 0.06)
        axes.legend(ncols=2, loc="upper right", fontsize=8, frameon=False)
        figure.savefig(OUT, dpi=150)
    print(f"{OUT.relative_to(HOME)}: {len(shown)} curves")


def _ahead(theirs: Run, ours: Run) -> tuple[np.ndarray, np.ndarray]:
    """(steps, difference) wherever both were validated."""
    a, b = dict(points(theirs, "valid")), dict(points(ours, "valid"))
    both = sorted(a.keys() & b.keys())
    return np.array(both), np.array([a[s] - b[s] for s in both])


if __name__ == "__main__":
    main()

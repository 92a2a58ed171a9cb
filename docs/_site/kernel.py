"""Run in every kernel that runs a page's cells: figures that are readable by day and by night.

A figure is put into the page as SVG, without a background, its text and axes in the colour of the
page's text (`currentColor`). So cells are plain matplotlib, with `fig` in their last line.
"""

import io
import itertools
import os
import re

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import matplotlib as mpl
from cycler import cycler

mpl.use("agg")

INK = "#123457"  # stands for the text's colour
FAINT = "#123458"  # for lines that are to be seen less
NUMBER = itertools.count()

mpl.rcParams.update(
    {
        "figure.figsize": (7, 3.2),
        "figure.constrained_layout.use": True,
        "savefig.transparent": True,
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.edgecolor": INK,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        # of a brightness that stands out from white and from black
        "axes.prop_cycle": cycler(
            color=["#3d8bd9", "#e0752d", "#3a9d5d", "#c44f8e", "#8a74d6", "#a08a2e"]
        ),
    }
)


def drawn(figure: "mpl.figure.Figure") -> str:
    """A figure as SVG for a page."""
    mpl.rcParams["svg.hashsalt"] = f"kronline {next(NUMBER)}"  # ids that no other figure has
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = svg.replace(f"stroke: {FAINT}", "stroke: currentColor; stroke-opacity: 0.18")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    labels = [f"{a.get_ylabel()} over {a.get_xlabel()}" for a in figure.axes if a.get_xlabel()]
    name = "; ".join(dict.fromkeys(labels)) or "figure"
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
    return f'<div class="figure">{svg}</div>'


def _install() -> None:
    shell = get_ipython()  # type: ignore[name-defined]
    shell.run_line_magic("matplotlib", "agg")
    shell.display_formatter.formatters["text/html"].for_type_by_name(
        "matplotlib.figure", "Figure", drawn
    )
    for kind in ("image/png", "image/svg+xml"):
        shell.display_formatter.formatters[kind].enabled = False


_install()

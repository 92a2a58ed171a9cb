"""Panels as pictures: for the page, for a run's folder, for a paper."""

import io
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

from kronline.lab.analysis.curves import Axis, curve, profile
from kronline.lab.report import panels as draw
from kronline.lab.report.findings import Findings
from kronline.lab.report.panels import Panel
from kronline.lab.report.style import LIGHT, PRINT, Style, using
from kronline.lab.runs.folder import Run
from kronline.lab.tasks.quantity import MONITORED

WIDTH, HEIGHT, FONT = 4.8, 3.3, 11.5  # inches and points: read at a phone's width
_LONG = re.compile(r"(\d+\.\d\d)\d+")


def svg(panel: Panel, style: Style) -> str:
    """One panel as an SVG picture with letters as outlines, the same on every machine."""
    with using(style, FONT):
        fig = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        draw_on(fig, [panel], style)
        out = io.StringIO()
        fig.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    # a hundredth of a point is enough for a path
    return re.sub(r' d="[^"]*"', lambda d: _LONG.sub(r"\1", d[0]), text[text.index("<svg") :])


def draw_on(fig: Figure, panels: Sequence[Panel], style: Style, columns: int = 1) -> None:
    """Panels side by side, with one legend above them all."""
    if not panels:
        fig.text(0.5, 0.5, "nothing is measured yet", ha="center", va="center")
        return
    rows = -(-len(panels) // columns)
    axes = fig.subplots(rows, min(columns, len(panels)), squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for ax, panel in zip(axes, panels, strict=False):
        panel(ax, style)
        handles |= {label: h for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    names = list(handles)
    across = _across(names, fig.get_figwidth() * 72 / rcParams["font.size"])
    names = [name for i in range(across) for name in names[i::across]]  # row by row
    written = [textwrap.fill(name, 42) for name in names]
    lines = sum(text.count("\n") + 1 for text in written) / across
    if lines > 2:  # a long legend makes the figure taller, and leaves the panels as they are
        fig.set_figheight(fig.get_figheight() + (lines - 2) * 1.45 * rcParams["font.size"] / 72)
    legend = fig.legend(
        [handles[name] for name in names],
        written,
        loc="outside upper left",
        ncols=across,
        columnspacing=1.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold a dollar sign


def _across(names: Sequence[str], width: float) -> int:
    """How many columns of a legend fit a width in ems: a letter is about 0.6, the line 4.5."""
    for n in range(len(names), 1, -1):
        if sum(4.5 + 0.6 * max(map(len, names[i::n])) for i in range(n)) <= width:
            return n
    return 1


def for_run(run: Run) -> Figure:
    """One run's own curves, for its figures folder."""
    f = Findings.of([run])
    panels = panels_of(f, "steps")
    for part in f.parts if panels else ():
        if names := part.task.of_one_run:
            panels = [draw.one_run(g, names, f.look[g.label]) for g in part.shown]
    with using(LIGHT, FONT):
        columns = max(1, len(panels))
        fig = Figure(figsize=(WIDTH * columns, HEIGHT), layout="constrained")
        draw_on(fig, panels, LIGHT, columns)
    return fig


def save_for_run(run: Run) -> Path:
    """The same, in its figures folder."""
    out = run.path / "figures" / "curve.png"
    out.parent.mkdir(exist_ok=True)
    for_run(run).savefig(out, dpi=150)
    return out


def for_paper(panels: Sequence[Panel], out: Path, width: float, size: float = 9) -> None:
    """Panels in a row or two, at the width of a page or a column, written as PNG, SVG or PDF."""
    columns = min(len(panels), max(1, int(width // 2.6)))
    rows = -(-len(panels) // columns)
    with using(PRINT, size, outlines=False):
        height = 0.35 + rows * width / columns * 0.68
        fig = Figure(figsize=(width, height), layout="constrained")
        draw_on(fig, panels, PRINT, columns)
        for letter, ax in zip("abcdefgh" if len(panels) > 1 else "", fig.axes, strict=False):
            ax.set_title(f"({letter})")
        fig.savefig(out, dpi=300)


def panels_of(f: Findings, x: Axis) -> list[Panel]:
    """What can be drawn of these runs."""
    panels = []
    for part in f.parts:
        if any(curve(g, part.task.curve.key, x) for g in part.shown):
            panels.append(draw.curves(part, x, f.look, f.others(part)))
            of = part.task.profile
            if of and any(profile(g, of) for g in part.shown):
                panels.append(draw.profiles(part, of, f.look))
    for part in f.parts if x == "steps" else ():
        known = [q for q in MONITORED if any(curve(g, q.key) for g in part.shown)]
        panels += [draw.monitor(part.shown, q, f.look) for q in known]
    panels += [draw.noise_time(f.over_time, f.look)] * bool(f.over_time)
    return panels + [draw.noise_units(f.over_units, f.look)] * bool(f.over_units)

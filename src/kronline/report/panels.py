"""The paper's figures with our curves in them: one function a panel, for any ground."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from kronline.report import labels
from kronline.report.curves import Axis, Curve, curve, right
from kronline.report.groups import Group
from kronline.report.noise import Series
from kronline.report.style import Look, Style
from kronline.tasks.copy import Copy

MARKS = {"diverged": "x", "running": ">", "stopped": "|", "killed": "|"}  # where a seed ended

OTHERS = ((0, (1, 0.8)), (0, (4, 1, 1, 1)), (0, (6, 1.5)), (0, (1, 2.5)))  # dashes, in turn

Looks = Mapping[str, Look]
Panel = Callable[[Axes, Style], None]
Others = Sequence[tuple[str, Curve]]  # curves that are not ours, with their labels


def copy_T(groups: Sequence[Group], axis: Axis, look: Looks, others: Others = ()) -> Panel:
    """Figure 1a: the curriculum's T, over data time or compute time."""

    def draw(ax: Axes, style: Style) -> None:
        scale = _time(ax, axis, [curve(g, "T", axis) for g in groups])
        for g in groups:
            _line(ax, curve(g, "T", axis), g.label, look[g.label], style, scale)
        _others(ax, others, axis, style, scale)
        _horizons(ax, groups, style)
        ax.set_ylabel("curriculum's T")
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))

    return draw


def copy_right(groups: Sequence[Group], look: Looks) -> Panel:
    """What is learnt at the end: the share of bits right, by string length."""

    def draw(ax: Axes, style: Style) -> None:
        for g in groups:
            c = right(g)
            if c is not None:
                percent = Curve(c.x, 100 * c.mean, 100 * c.std)
                _line(ax, percent, g.label, look[g.label], style, every=1)
        ax.axhline(50, color=style.muted, lw=0.8)
        place = ("axes fraction", "data")
        ax.annotate("guessing", (1, 49), xycoords=place, va="top", ha="right", color=style.muted)
        ax.set(xlabel="string length", ylabel="bits right, %", ylim=(-4, 104))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    return draw


def text_valid(groups: Sequence[Group], axis: Axis, look: Looks, others: Others = ()) -> Panel:
    """Figure 2: validation bits per character, over data time or compute time."""

    def draw(ax: Axes, style: Style) -> None:
        curves = [curve(g, "valid", axis) for g in groups]
        scale = _time(ax, axis, curves)
        for g, c in zip(groups, curves, strict=True):
            _line(ax, c, g.label, look[g.label], style, scale)
        _others(ax, others, axis, style, scale)
        ax.set_ylabel("validation bits/char")
        shown = [*curves, *(c for _, c in others if axis == "steps")]
        _without_the_first_fall(ax, [c for c in shown if c is not None])

    return draw


def text_bits(group: Group, look: Look) -> Panel:
    """One run of a text: bits of the training stream as it comes, and of validation."""

    def draw(ax: Axes, style: Style) -> None:
        stream, valid = (curve(group, name) for name in ("bits", "valid"))
        scale = _time(ax, "steps", [stream, valid])
        _line(ax, stream, f"{group.label}, training", Look(2), style, scale)
        _line(ax, valid, f"{group.label}, validation", look, style, scale)
        ax.set_ylabel("bits/char")
        _without_the_first_fall(ax, [c for c in (stream, valid) if c is not None])

    return draw


def noise_time(found: Sequence[Series], look: Looks) -> Panel:
    """Figure 3a: the cosine between estimate and exact gradient, over time."""

    def draw(ax: Axes, style: Style) -> None:
        for s in found:
            _line(ax, _cosine(s), s.label, look[s.label], style)
        ax.set_xscale("log")
        ax.set_xlabel("time step t (log scale)")
        _cosines(ax, style)

    return draw


def noise_units(found: Sequence[Series], look: Looks) -> Panel:
    """Figure 3b: the same over the number of units."""

    def draw(ax: Axes, style: Style) -> None:
        for s in found:
            _line(ax, _cosine(s), s.label, look[s.label], style, every=1)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(sorted({int(x) for s in found for x in s.x})))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
        ax.set_xlabel("units n")
        _cosines(ax, style)

    return draw


def monitor(groups: Sequence[Group], name: str, look: Looks) -> Panel:
    """What `--monitor` measured: the lanes' signal over noise, or the noise by the closed form."""

    def draw(ax: Axes, style: Style) -> None:
        curves = [curve(g, name) for g in groups]
        scale = _time(ax, "steps", curves)
        for g, c in zip(groups, curves, strict=True):
            _line(ax, c, g.label, look[g.label], style, scale)
        words = {"snr": "signal over noise, a lane", "noise": "a step's noise, of the trace"}
        ax.set_ylabel(words[name])
        if name == "snr":
            ax.axhline(0, color=style.muted, lw=0.8)

    return draw


def lines(
    found: Sequence[tuple[str, Curve | None]],
    look: Looks,
    axis: Axis,
    what: str,
    *,
    less: bool = False,
) -> Panel:
    """Curves that are made already, over steps or seconds; `less` is better, as of bits."""

    def draw(ax: Axes, style: Style) -> None:
        known = [(label, c) for label, c in found if c is not None and len(c.x)]
        scale = _time(ax, axis, [c for _, c in known])
        for label, c in known:
            _line(ax, c, label, look[label], style, scale)
        ax.set_ylabel(what)
        if less:
            _without_the_first_fall(ax, [c for _, c in known])
        else:
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))

    return draw


def bars(
    values: Sequence[tuple[str, float]], look: Looks, what: str, *, log: bool = False
) -> Panel:
    """One number of each, in its colour."""

    def draw(ax: Axes, style: Style) -> None:
        for i, (label, value) in enumerate(reversed(values)):
            ax.barh(i, value, color=look[label].colour(style), height=0.62)
        ax.set_yticks(range(len(values)), [label for label, _ in reversed(values)])
        for text in ax.get_yticklabels():
            text.set_parse_math(False)
        ax.set_xlabel(what)
        ax.grid(False, axis="y")
        ax.grid(True, axis="x")
        if log and all(v > 0 for _, v in values):
            ax.set_xscale("log")
        else:
            ax.set_xlim(min(0.0, *(v for _, v in values)), max(1.0, *(v for _, v in values)))

    return draw


# -- parts of a panel ------------------------------------------------------------------------------


def _line(
    ax: Axes,
    c: Curve | None,
    label: str,
    look: Look,
    style: Style,
    scale: float = 1,
    every: float | tuple[float, float] | None = None,
) -> None:
    """Mean, shaded deviation, and a mark where a seed ended before its last step."""
    if c is None or not len(c.x):
        return
    colour, size = look.colour(style), rcParams["font.size"]
    x = c.x / scale
    if c.std.any():
        ax.fill_between(x, c.mean - c.std, c.mean + c.std, color=colour, alpha=0.18, lw=0)
    spaced = every or (0.03 * (look.index % 5), 0.16)  # so that markers do not cover each other
    ax.plot(
        x,
        c.mean,
        color=colour,
        ls=look.dash,
        lw=0.17 * size,
        marker=look.marker,
        ms=0.43 * size,
        markevery=spaced if len(x) > 2 else None,
        label=_shown(label),
    )
    for at, y, state in c.ended:
        ax.plot(
            at / scale,
            y,
            MARKS.get(state, "|"),
            color=colour,
            ms=0.95 * size,
            mew=0.19 * size,
            clip_on=False,
        )


def _others(ax: Axes, others: Others, axis: Axis, style: Style, scale: float) -> None:
    """Without marks, in ink; nobody knows on what machine, so not over compute time."""
    if axis != "steps":
        return
    for i, (label, c) in enumerate(others):
        x = c.x / scale
        ax.fill_between(x, c.mean - c.std, c.mean + c.std, color=style.ink, alpha=0.1, lw=0)
        dash, width = OTHERS[i % len(OTHERS)], 0.2 * rcParams["font.size"]
        ax.plot(x, c.mean, color=style.ink, ls=dash, lw=width, label=_shown(label))


def _shown(label: str) -> str:
    """Matplotlib would hide one that begins like this."""
    return label if label[:1] != "_" else f" {label}"


def _time(ax: Axes, axis: Axis, curves: Sequence[Curve | None]) -> float:
    """Labels the axis; by what its numbers are to be divided."""
    end = max((c.x[-1] for c in curves if c is not None and len(c.x)), default=0)
    if axis == "steps":
        scale, unit = (1e6, ", millions") if end >= 3e6 else (1e3, ", thousands")
        scale, unit = (scale, unit) if end >= 3e3 else (1, "")
        ax.set_xlabel(f"time steps{unit}")
    else:
        scale, unit = (3600, "hours") if end >= 7200 else (60, "minutes")
        scale, unit = (scale, unit) if end >= 120 else (1, "seconds")
        ax.set_xlabel(f"compute time, {unit}")
    ax.set_xlim(0, end / scale * 1.02 if end else 1)
    return scale


def reach(group: Group) -> int | None:
    """The longest string whose bits TBPTT-k's gradient can follow: lag <= k − 1."""
    k = labels.horizon(str(group.config.get("estimator", "")))
    delay = group.config.get("delay", "short")
    if k is None or delay not in ("short", "paper"):
        return None
    return max((length for length in range(1, k) if Copy(delay).lag(length) <= k - 1), default=0)


def _horizons(ax: Axes, groups: Sequence[Group], style: Style) -> None:
    """Where truncation ends what can be learnt, as far as the curves come there."""
    top = ax.get_ylim()[1]
    for T, who in {r: g.method for g in groups if (r := reach(g)) and r <= top}.items():
        ax.axhline(T, color=style.muted, lw=0.8)
        ax.annotate(
            f"{who} can follow T = {T}",
            (1, T),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            color=style.muted,
            size="small",
        )


def _without_the_first_fall(ax: Axes, curves: Sequence[Curve]) -> None:
    """Leave out the steep start, in which all methods look alike."""
    if not curves:
        return
    low = min(float(c.mean.min()) for c in curves)
    late = max(float(np.interp(0.1 * c.x[-1], c.x, c.mean)) for c in curves)
    ends = max(float(c.mean[-1] + c.std[-1]) for c in curves)
    top = max(late, ends + 0.1 * (ends - low), low + 0.05)
    ax.set_ylim(low - 0.06 * (top - low), top + 0.06 * (top - low))


def _cosine(s: Series) -> Curve:
    mean, std = (np.array(v) for v in zip(*((c.mean, c.std or 0.0) for c in s.cosine), strict=True))
    return Curve(s.x, mean, std)


def _cosines(ax: Axes, style: Style) -> None:
    ax.axhline(0, color=style.muted, lw=0.8)
    ax.set_ylabel("cosine to exact gradient")
    ax.set_ylim(min(-0.05, ax.get_ylim()[0]), 1.0)

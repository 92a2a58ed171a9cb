"""The page of a stream: errors beside the baselines, noise, drift and latency, over events."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes

from kronline import disk
from kronline.errors import UsageError
from kronline.lab.learn import meter, timing
from kronline.lab.report import page, sections
from kronline.lab.report.html import Html, join, table, tag
from kronline.lab.report.keys import named
from kronline.lab.report.panels import Panel
from kronline.lab.report.stream_data import SHOWN, Line, Stream, several, shown
from kronline.lab.report.style import Look, Style
from kronline.lab.wording import plural, short

FOOT = (
    "Each point is the mean over a bin of events; bins are joined in pairs as the stream grows, so "
    "that the history stays small. Predictions are made before their targets are seen, and scored "
    "from the second target on. Times are as exact as the machine was quiet."
)


def write(folder: Path, out: Path) -> Path:
    """The page of a stream's folder."""
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"out needs a file in an existing folder, report.html, got {str(out)!r}")
    disk.write(out, document(Stream.read(folder)))
    return out


def document(s: Stream) -> str:
    """The whole page."""
    look = {name: Look(i) for i, name in enumerate(s.names)}
    main = [_summary(s, look), _errors(s, look), _noise(s), _drift(s), _latency(s), _settings(s)]
    places = [
        ("summary", "In short"),
        ("errors", "Scores" if s.task == "anomaly" else "Errors"),
        ("noise", "Alarms" if s.task == "anomaly" else "Noise"),
        ("drift", "Drift"),
        ("latency", "Latency"),
        ("settings", "Settings"),
    ]
    what = {"anomaly": "how unusual each event is"}.get(s.task, str(s.settings["target"]))
    source = "a pipe" if s.settings["input"] == "-" else short(s.settings["input"])
    lead = (
        f"{plural(s.events, 'event')} of {source}"
        + (f", by {s.settings['key']}" if s.settings["key"] else "")
        + f", in lines 1 to {s.point.place.line:,}; {plural(s.rejected, 'line')} rejected."
    )
    return page.document(f"A stream: {what}", lead, places, main, look, FOOT)


# -- sections --------------------------------------------------------------------------------------


def _summary(s: Stream, look: dict[str, Look]) -> Html:
    totals, late = s.totals(), s.late()
    if s.task == "anomaly":
        odd, others = (s.meter.total[meter.SQ + i] for i in (1, 2))
        text = (
            f"The mean score is {shown(totals[0], 3)}, where 0.5 is expected, and "
            f"{plural(int(s.meter.total[meter.SQ]), 'event')} had a score of {meter.ALARM} or more."
        )
        if odd and others:
            scores = [s.meter.total[meter.ABS + i] / n for i, n in ((1, odd), (2, others))]
            text += (
                f" The {plural(int(odd), 'event')} labelled odd have a mean score of "
                f"{scores[0]:.3f}, the others {scores[1]:.3f}."
            )
        return sections.section("", "In short", "summary", tag("p", text, _class="headline"))
    rows = [
        [named(name, look[name]), shown(a), shown(b)]
        for name, a, b in zip(s.names, totals, late, strict=True)
    ]
    parts: list[Any] = [tag("p", _verdict(s, late), _class="headline")]
    title = s.measure[:1].upper() + s.measure[1:]
    parts.append(table(title, ("", "whole stream", "second half"), rows))
    asked = s.meter.total[meter.ASKED]
    if asked:
        share = 100 * s.meter.total[meter.INSIDE] / asked
        level = 100 * float(s.settings["level"])
        parts.append(tag("p", f"{share:.1f} % of targets lay in their {level:g} % interval."))
    return sections.section("", "In short", "summary", *parts)


def _verdict(s: Stream, late: Sequence[float | None]) -> str:
    model, *guesses = late
    known = [(v, name) for v, name in zip(guesses, s.names[1:], strict=True) if v is not None]
    if model is None or not known:
        return "No target has come for a prediction yet."
    best, name = min(known)
    if best == 0:
        return f"The {name} is always right in the second half of the stream."
    part = 100 * (1 - model / best)
    how = f"{abs(part):.0f} % {'below' if part >= 0 else 'above'} that of the {name}"
    return f"In the second half of the stream the model's error is {how}, the better guess."


def _errors(s: Stream, look: dict[str, Look]) -> Html:
    lines = several(s.errors())
    if not lines:
        nothing = tag("p", "Nothing is scored yet.")
        return sections.section("", "Errors over the stream", "errors", nothing)
    title = "Scores over the stream" if s.task == "anomaly" else "Errors over the stream"
    caption = join(
        tag("b", title, ". "),
        f"{s.measure[:1].upper() + s.measure[1:]} over events. ",
        "0.5 is what a calibrated score has on average."
        if s.task == "anomaly"
        else "A model that has learnt something is below both guesses.",
    )
    drawn = [(_panel(lines, s.measure, look), _words(s.measure, lines))]
    return sections.section("", title, "errors", sections.figure(drawn, caption))


def _noise(s: Stream) -> Html:
    lines = several(s.noise())
    title = {"anomaly": "Alarms", "classify": "Doubt"}.get(s.task, "Noise")
    if not lines:
        return sections.section("", title, "noise", tag("p", "Nothing is scored yet."))
    what = {
        "anomaly": "The share of events that are reported as unusual, in each bin.",
        "classify": "How surprised the model was by the classes that came, in each bin; "
        "log 2 = 0.69 is a coin's.",
    }.get(
        s.task,
        "Root mean square error of the model beside the deviation of the target in each bin: what "
        "is between them was predicted, what is left is noise or not learnt yet.",
    )
    axis = {"anomaly": "share", "classify": "nats"}.get(s.task, "in units of the target")
    caption = join(tag("b", title, ". "), what)
    drawn = [(_panel(lines, axis), _words(title.lower(), lines))]
    return sections.section("", title, "noise", sections.figure(drawn, caption))


def _drift(s: Stream) -> Html:
    drawn: list[tuple[Panel, str]] = []
    target, moved = several(s.target()), s.drift()
    if target:
        axis = "share of class" if target[0].band is None else "target, mean ± deviation"
        drawn.append((_panel(target, axis), _words("the target", target)))
    if moved:
        lines = [line for _, line in moved[:SHOWN]]
        drawn.append(
            (_panel(lines, "mean, in deviations"), _words("the columns that moved most", lines))
        )
    if not drawn:
        return sections.section("", "Drift", "drift", tag("p", "Nothing is measured yet."))
    caption = join(
        tag("b", "Drift. "),
        "The target, and the means of those columns that moved most, less their mean over the "
        "whole stream and over their deviation.",
    )
    rows = [
        [line.name, shown(span, 3), shown(float(line.y[0]), 3), shown(float(line.y[-1]), 3)]
        for span, line in moved[:12]
    ]
    head = ("column", "range of bins' means", "first bin", "last bin")
    listed = table("Columns that moved most, in deviations", head, rows) if rows else None
    return sections.section("", "Drift", "drift", sections.figure(drawn, caption), listed)


def _latency(s: Stream) -> Html:
    lines, rate = s.latency()
    if not several(lines):
        return sections.section("", "Latency", "latency", tag("p", "Nothing is measured yet."))
    drawn = [(_panel(lines, "µs an event", log=True), _words("time per event", lines))]
    if len(rate.x):
        drawn.append((_panel([rate], "events per second"), _words("events per second", [rate])))
    whole = s.times.whole
    first, last = lines[0].y[0], lines[0].y[-1]
    facts = {
        "median": f"{1e6 * (timing.quantile(whole, 0.5) or 0):,.0f} µs",
        "99 % take less than": f"{1e6 * (timing.quantile(whole, 0.99) or 0):,.0f} µs",
        "median of the first and the last bin": f"{first:,.0f} and {last:,.0f} µs",
        "events per commit": f"{whole['events'] / max(whole['commits'], 1):,.0f}",
    }
    caption = join(
        tag("b", "Latency. "),
        "Time to read, predict and learn an event, without commits; and events per second, with "
        "commits and checkpoints. The first bins hold compilation.",
    )
    facts_ = tag("dl", *(tag(t, v) for k, v in facts.items() for t, v in (("dt", k), ("dd", v))))
    return sections.section("", "Latency", "latency", sections.figure(drawn, caption), facts_)


def _settings(s: Stream) -> Html:
    given = {k: v for k, v in s.settings.items() if v not in (None, [], False, "")}
    given |= {"task": s.task, "format": s.about["format"], "kronline": s.about["version"]}
    if given.get("input") not in (None, "-"):
        given["input"] = short(str(given["input"]))
    if "out" in given:
        given["out"] = short(str(given["out"]))
    rows = [
        part
        for k, v in given.items()
        for part in (tag("dt", k), tag("dd", ", ".join(v) if isinstance(v, list) else v))
    ]
    return sections.section("", "Settings", "settings", tag("dl", *rows))


# -- panels ----------------------------------------------------------------------------------------


def _panel(
    lines: Sequence[Line], axis: str, look: dict[str, Look] | None = None, log: bool = False
) -> Panel:
    """Lines over events."""

    def draw(ax: Axes, style: Style) -> None:
        end = max(float(line.x[-1]) for line in lines)
        scale, unit = (1e6, ", millions") if end >= 3e6 else (1e3, ", thousands")
        scale, unit = (scale, unit) if end >= 3e3 else (1.0, "")
        size = rcParams["font.size"]
        for i, line in enumerate(lines):
            own = (look or {}).get(line.name) or Look(i)
            x, colour = line.x / scale, own.colour(style)
            if line.band is not None:
                low, high = line.y - line.band, line.y + line.band
                ax.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
            ax.plot(
                x,
                line.y,
                color=colour,
                ls=own.dash,
                lw=0.17 * size,
                marker=own.marker,
                ms=0.43 * size,
                markevery=(own.index % len(x), max(1, len(x) // 7)),
                label=line.name if line.name[:1] != "_" else f" {line.name}",
            )
        ax.set(xlabel=f"events{unit}", ylabel=axis, xlim=(0, end / scale * 1.02))
        if log:
            ax.set_yscale("log")
        elif min(float(line.y.min()) for line in lines) >= 0 and all(
            line.band is None for line in lines
        ):
            ax.set_ylim(bottom=0, top=_top(lines))

    return draw


def _top(lines: Sequence[Line]) -> float:
    """So high that a first bin far above the rest does not flatten it."""
    late = [float(np.max(line.y[len(line.y) // 8 :])) for line in lines]
    return 1.08 * max(late) or 1.0


def _words(what: str, lines: Sequence[Line]) -> str:
    """What a picture shows, for those who do not see it."""
    ends = [
        f"{line.name} from {shown(float(line.y[0]), 3)} to {shown(float(line.y[-1]), 3)}"
        for line in lines
    ]
    return f"{what} over events: {'; '.join(ends)}"

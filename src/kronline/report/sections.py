"""The page's figures and tables, one section an experiment."""

from collections.abc import Sequence
from typing import Any

from kronline.report import figures, labels, paper, words
from kronline.report import panels as draw
from kronline.report.curves import curve, right
from kronline.report.findings import Findings
from kronline.report.groups import MONITORED, RULE, Group, score
from kronline.report.html import Html, join, picture, table, tag
from kronline.report.keys import named
from kronline.report.panels import Panel
from kronline.report.style import DARK, LIGHT
from kronline.tasks.copy import NUMBERS

COMMANDS = {
    "copy": ("Figure 1", "the copy task", "kronline train copy --preset laptop"),
    "text": ("Figure 2 and Table 1", "a text", "kronline train text --preset laptop"),
    "variance": ("Figure 3", "the noise of gradients", "kronline variance --preset laptop"),
}


def section(mark: str, title: str, name: str, *parts: Any) -> Html:
    """A heading in the margin, and what belongs to it."""
    kicker = tag("span", mark, _class="mark") if mark else None
    head = tag("h2", kicker, " ", title, id=name)
    return tag("section", head, tag("div", *parts, _class="body"), aria_labelledby=name)


def missing(kinds: Sequence[str]) -> Html | None:
    """One line for each kind of run that is not there."""
    lines = []
    for kind in kinds:
        figure, what, command = COMMANDS[kind]
        lines.append(tag("li", f"{figure}, {what}: ", tag("code", command)))
    if not lines:
        return None
    intro = tag("p", "These come with runs of their own:")
    return section("", "Not in this report", "missing", intro, tag("ul", *lines))


def figure(panels: Sequence[tuple[Panel, str]], caption: Any) -> Html:
    """Pictures side by side, each with what it shows in words, and a caption."""
    shown = [picture(figures.svg(p, LIGHT), figures.svg(p, DARK), alt) for p, alt in panels]
    odd = "odd" if len(panels) % 2 else None
    return tag("figure", *shown, tag("figcaption", caption), _class=odd)


def copy(f: Findings) -> Html:
    """Figure 1."""
    shown = f.copy.shown
    panels = [(draw.copy_T(shown, "steps", f.look, f.others("copy")), words.copy_T(shown))]
    where = "T over time steps"
    if any(g.stat("seconds") for g in shown):
        panels.append((draw.copy_T(shown, "seconds", f.look), words.copy_seconds(shown)))
        where += ", T over compute time"
    if any(right(g) for g in shown):
        panels.append((draw.copy_right(shown, f.look), words.copy_right(shown)))
        where += ", and the bits written right on fresh strings when training has ended"
    lags = {labels.LAGS.get(str(g.config.get("delay")), "T + 1") for g in shown}
    caption = join(
        tag("b", "The copy task. "),
        f"{where}; {words.seeds(shown)}. A bit is written {labels.listed(sorted(lags))} steps "
        "after it is read.",
        _beside(f, "copy"),
        _ended(shown),
    )
    intro = (
        "A binary string is read, and has to be written out again some steps later. Its length is "
        "set by the curriculum's T, which is also the paper's T, and grows by one whenever the "
        "error is small: a run is always at work on lengths that it has not learnt yet. What was "
        "learnt is the share of bits right on fresh strings when training has ended: over the "
        f"trained lengths in the table, at every length in the figure. {words.lengths(shown)}"
    )
    return section(
        "Figure 1",
        "The copy task",
        "copy",
        tag("p", intro),
        figure(panels, caption),
        table(
            "The length reached, beside the paper's",
            ("method", *words.heads(NUMBERS), "paper's T", "rate", "steps", "compute", "seeds"),
            [_copy_row(f, g) for g in shown],
        ),
        *_monitored(f, shown),
        notes(shown),
        _rates(f.copy.tried, "copy"),
    )


def _copy_row(f: Findings, g: Group) -> list[Any]:
    theirs: Any = paper.COPY_T.get(g.method, "–")
    return [
        named(g.label, f.look.get(g.label)),
        *words.numbers(g, NUMBERS),
        "at its horizon" if g.method == paper.COPY_STUCK else theirs,
        *_common(g),
    ]


def text(f: Findings) -> Html:
    """Figure 2 and Table 1."""
    shown = f.text.shown
    panels = [(draw.text_valid(shown, "steps", f.look, f.others("text")), words.text_valid(shown))]
    where = "over time steps"
    if any(g.stat("seconds") for g in shown):
        panels.append((draw.text_valid(shown, "seconds", f.look), words.text_seconds(shown)))
        where += ", and over compute time"
    names = labels.texts(g.config for g in shown)
    caption = join(
        tag("b", names, ". "),
        f"Validation bits per character {where}; {words.seeds(shown)}.",
        _beside(f, "text"),
        _ended(shown),
    )
    ptb = all(map(paper.is_ptb, shown))
    intro = (
        "The network reads a text character by character, and at each one predicts the next. Less "
        "is better; a bit is one yes-or-no question."
    )
    warn = (
        None
        if ptb
        else (
            " The paper's text is the Penn Treebank, so its numbers stand beside ours for their "
            "order and distance, not to be equalled."
        )
    )
    return section(
        "Figure 2 · Table 1",
        "Text, character by character",
        "text",
        tag("p", intro, warn),
        figure(panels, caption),
        table(
            f"Bits per character on {names}, beside the paper's on the Penn Treebank",
            (
                *("method", "validation", "test", "paper's validation", "paper's test"),
                *("rate", "steps", "compute", "seeds"),
            ),
            [_text_row(f, g) for g in shown],
        ),
        tag("p", f"The paper's deviations are below {paper.PTB_STD}.", _class="note"),
        *_monitored(f, shown),
        notes(shown),
        _rates(f.text.tried, "text"),
    )


def _text_row(f: Findings, g: Group) -> list[Any]:
    theirs = paper.PTB.get(g.method)
    return [
        named(g.label, f.look.get(g.label)),
        words.bits(g.stat("valid")),
        words.bits(g.stat("test")),
        *((f"{theirs.valid:.2f}", f"{theirs.test:.2f}") if theirs else ("–", "–")),
        *_common(g),
    ]


def _monitored(f: Findings, shown: Sequence[Group]) -> list[Html]:
    """How noisy gradients were on the way, where `--monitor` measured it."""
    names = [n for n in MONITORED if any(curve(g, n) for g in shown)]
    if not names:
        return []
    panels = [(draw.monitor(shown, n, f.look), words.monitored(shown, n)) for n in names]
    caption = join(
        tag("b", "The noise of gradients while learning. "),
        labels.listed([words.MONITORED[n][1] for n in names]),
        ".",
    )
    rows = [
        [named(g.label, f.look.get(g.label)), *(words.small(g.stat(n)) for n in names)]
        for g in shown
    ]
    head = ("method", *(words.MONITORED[n][0] for n in names))
    return [figure(panels, caption), table("The mean over the second half of a run", head, rows)]


def _common(g: Group) -> list[Any]:
    seconds, steps = g.stat("seconds"), sorted({int(r.status.get("steps", 0)) for r in g.runs})
    return [
        labels.value("rate", g.config.get("rate")),
        f"{steps[-1]:,}",
        labels.duration(seconds.mean) if seconds else "–",
        len(g.runs),
    ]


def _beside(f: Findings, kind: str) -> str:
    """Whose curves the dotted ones are."""
    names = [label for label, _ in f.others(kind)]
    return f" Without marks, for comparison: {labels.listed(names)}." if names else ""


def _ended(groups: Sequence[Group]) -> str:
    """What the marks in the figure are, if there are any."""
    states = {run.state for g in groups for run in g.unfinished}
    marks = [("diverged", "a cross marks where a seed diverged")]
    marks += [(s, "a bar marks where a seed was stopped") for s in ("stopped", "killed")]
    marks += [("running", "an arrowhead marks how far a seed has come")]
    said = dict.fromkeys(say for state, say in marks if state in states)
    return f" In the figure, {labels.listed(list(said))}." if said else ""


def notes(groups: Sequence[Group]) -> Html | None:
    """Runs that are not finished, one line each."""
    lines = []
    for g in groups:
        for run in g.unfinished:
            step, total = (int(run.status.get(k) or 0) for k in ("step", "steps"))
            far = f" of {total:,}" if total else ""
            why = f": {run.status['message']}" if run.status.get("message") else ""
            who = f"{g.label}, seed {run.config.get('seed', 0)}"
            lines.append(tag("li", f"{who}, is {run.state} at step {step:,}{far}{why}"))
    return tag("ul", *lines, _class="note") if lines else None


def _rates(tried: Sequence[Sequence[Group]], kind: str) -> Html | None:
    """What came out at every learning rate, where several were tried."""
    rows = []
    names = {"copy": NUMBERS, "text": ("valid", "test")}[kind]
    for family in tried:
        if len(family) < 2:
            continue
        best = min(family, key=score)
        for g in family:
            numbers = words.numbers(g, names)
            mark = tag("b", "shown above") if g is best else ""
            rate = labels.value("rate", g.config.get("rate"))
            rows.append(
                [named(_base(g), None), rate, *numbers, len(g.runs), len(g.unfinished) or "–", mark]
            )
    if not rows:
        return None
    head = ("method", "rate", *words.heads(names), "seeds", "unfinished", "")
    caption = f"Every learning rate that was tried. Shown above: {RULE[kind]}"
    return table(caption, head, rows, words=(0, len(head) - 1))


def _base(g: Group) -> str:
    """Its label without the rate, which has a column of its own."""
    return g.label.removesuffix(f", {labels.setting('rate', g.config.get('rate'))}")

"""The page's figures and tables, one section per experiment."""

from collections.abc import Sequence
from typing import Any

from kronline.lab.analysis import labels
from kronline.lab.analysis.curves import curve, profile
from kronline.lab.analysis.groups import Group, score
from kronline.lab.report import figures, words
from kronline.lab.report import panels as draw
from kronline.lab.report.findings import Findings, Part
from kronline.lab.report.html import Html, join, picture, table, tag
from kronline.lab.report.keys import named
from kronline.lab.report.panels import Panel
from kronline.lab.report.style import DARK, LIGHT
from kronline.lab.tasks import TASKS, Task
from kronline.lab.tasks.quantity import MONITORED, MONITORED_IN_FULL
from kronline.lab.wording import listed


def section(mark: str, title: str, name: str, *parts: Any) -> Html:
    """A heading in the margin, and what belongs to it."""
    kicker = tag("span", mark, _class="mark") if mark else None
    head = tag("h2", kicker, " ", title, id=name)
    return tag("section", head, tag("div", *parts, _class="body"), aria_labelledby=name)


def missing(tasks: Sequence[type[Task]], noise: bool) -> Html | None:
    """One line for each kind of run that is not there; `noise`: nor are variance runs."""
    absent = [(t.figure, t.subject, f"kronline train {t.kind} --preset laptop") for t in tasks]
    if noise:
        absent += [("Figure 3", "the noise of gradients", "kronline variance --preset laptop")]
    if not absent:
        return None
    lines = [tag("li", f"{figure}, {what}: ", tag("code", run)) for figure, what, run in absent]
    intro = tag("p", "These come with runs of their own:")
    return section("", "Not in this report", "missing", intro, tag("ul", *lines))


def figure(panels: Sequence[tuple[Panel, str]], caption: Any) -> Html:
    """Pictures side by side, each with what it shows in words, and a caption."""
    shown = [picture(figures.svg(p, LIGHT), figures.svg(p, DARK), alt) for p, alt in panels]
    odd = "odd" if len(panels) % 2 else None
    return tag("figure", *shown, tag("figcaption", caption), _class=odd)


def learning(f: Findings, part: Part) -> Html:
    """What was learnt of a task: curves, and numbers beside the paper's."""
    task, shown = part.task, part.shown
    panels = [(draw.curves(part, "steps", f.look, f.others(part)), words.curves(part))]
    over = ["time steps"]
    if any(g.stat("seconds") for g in shown):
        panels.append((draw.curves(part, "seconds", f.look), words.seconds(part)))
        over.append("compute time")
    drawn = f"{_upper(task.curve.axis)} over {' and over '.join(over)}"
    if task.profile and any(profile(g, task.profile) for g in shown):
        panels.append(
            (draw.profiles(part, task.profile, f.look), words.profiles(part, task.profile))
        )
        drawn += f", and {task.profile.caption}"
    caption = join(
        tag("b", words.title(part), ". "),
        f"{drawn}; {words.seeds(shown)}. {task.caption(shown)}",
        _beside(f, part),
        _ended(shown),
    )
    heads = (*words.heads(task.numbers), *task.paper.heads)
    return section(
        task.figure,
        task.title if part.value is None else f"{task.title}: {part.facet}",
        part.name,
        tag("p", task.intro(shown)),
        figure(panels, caption),
        table(
            task.table_title(shown),
            ("method", *heads, "rate", "steps", "compute", "seeds"),
            [_row(f, g) for g in shown],
        ),
        tag("p", task.paper.note, _class="note") if task.paper.note else None,
        *_monitored(f, shown),
        notes(shown),
        _rates(part),
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _row(f: Findings, g: Group) -> list[Any]:
    task = TASKS[g.kind]
    return [
        named(g.label, f.look.get(g.label)),
        *words.numbers(g, task.numbers),
        *task.published_cells(g.method, g.config),
        *_common(g),
    ]


def _monitored(f: Findings, shown: Sequence[Group]) -> list[Html]:
    """How noisy gradients were on the way, where `--monitor` measured it."""
    known = [q for q in MONITORED if any(curve(g, q.key) for g in shown)]
    if not known:
        return []
    panels = [(draw.monitor(shown, q, f.look), words.monitored(shown, q)) for q in known]
    caption = join(
        tag("b", "The noise of gradients while learning. "),
        listed([MONITORED_IN_FULL[q.key] for q in known]),
        ".",
    )
    rows = [[named(g.label, f.look.get(g.label)), *words.numbers(g, known)] for g in shown]
    head = ("method", *words.heads(known))
    return [figure(panels, caption), table("The mean over the second half of a run", head, rows)]


def _common(g: Group) -> list[Any]:
    seconds, steps = g.stat("seconds"), sorted({int(r.status.get("steps", 0)) for r in g.runs})
    return [
        labels.value("rate", g.config.get("rate")),
        f"{steps[-1]:,}",
        labels.duration(seconds.mean) if seconds else "–",
        len(g.runs),
    ]


def _beside(f: Findings, part: Part) -> str:
    """Whose curves the dotted ones are."""
    names = [label for label, _ in f.others(part)]
    return f" Without marks, for comparison: {listed(names)}." if names else ""


def _ended(groups: Sequence[Group]) -> str:
    """What the marks in the figure are, if there are any."""
    states = {run.state for g in groups for run in g.unfinished}
    marks = [("diverged", "a cross marks where a seed diverged")]
    marks += [(s, "a bar marks where a seed was stopped") for s in ("stopped", "killed")]
    marks += [("running", "an arrowhead marks how far a seed has come")]
    said = dict.fromkeys(say for state, say in marks if state in states)
    return f" In the figure, {listed(list(said))}." if said else ""


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


def _rates(part: Part) -> Html | None:
    """What came out at every learning rate, where several were tried."""
    rows = []
    for family in part.tried:
        if len(family) < 2:
            continue
        best = min(family, key=score)
        for g in family:
            numbers = words.numbers(g, part.task.numbers)
            mark = tag("b", "shown above") if g is best else ""
            rate = labels.value("rate", g.config.get("rate"))
            rows.append(
                [named(_base(g), None), rate, *numbers, len(g.runs), len(g.unfinished) or "–", mark]
            )
    if not rows:
        return None
    head = ("method", "rate", *words.heads(part.task.numbers), "seeds", "unfinished", "")
    caption = f"Every learning rate that was tried. Shown above: {part.task.rule}"
    return table(caption, head, rows, words=(0, len(head) - 1))


def _base(g: Group) -> str:
    """Its label without the rate, which has a column of its own."""
    return g.label.removesuffix(f", {labels.setting('rate', g.config.get('rate'))}")

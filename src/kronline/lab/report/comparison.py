"""The page of a comparison: curves over data and over compute, beside cosine and variance."""

from collections.abc import Sequence
from typing import Any

from kronline.lab.analysis import labels
from kronline.lab.compare.result import Result, Row, ends
from kronline.lab.report import details, words
from kronline.lab.report import panels as draw
from kronline.lab.report.html import Html, join, prose, table, tag
from kronline.lab.report.keys import named
from kronline.lab.report.page import document
from kronline.lab.report.panels import Panel
from kronline.lab.report.sections import figure, notes, section
from kronline.lab.report.style import Look, looks
from kronline.lab.wording import listed

NOTHING = 1e-6


def page(r: Result) -> str:
    """The whole page."""
    title = f"Estimators on equal terms: {r.task.subject}"
    methods = listed([row.group.label for row in r.rows])
    lead = (
        f"{methods}: each trained for {r.terms.steps:,} steps and on until it had "
        f"{labels.duration(r.terms.budget)} of compute, as much as the dearest needs for its steps."
    )
    groups = [g for family in r.picked.tried for g in family]
    main = [_short(r), _learning(r), _noise(r), _cost(r), details.runs({r.task.title: groups})]
    names = {"summary": "In short", "learning": "Learning", "noise": "Noise", "cost": "Cost"}
    places = [*names.items(), ("runs", "The runs")]
    return document(title, lead, places, main, _looks(r), _footer(r))


def _looks(r: Result) -> dict[str, Look]:
    return looks([(g.method, g.label) for g in r.picked.shown])


def _short(r: Result) -> Html:
    rows = r.numbers()["rows"]
    better = min if r.task.lower else max
    parts = []
    for name, where in (("data", "At equal data"), ("compute", "At equal compute")):
        known = [row for row in rows if row[name] is not None]
        if known:
            best = better(row[name] for row in known)
            who = [row["label"] for row in known if row[name] == best]
            verb = "is ahead" if len(who) == 1 else "are level"
            parts.append(f"{where}, {listed(who)} {verb}: {_score(r, best)}.")
    quiet = [row for row in rows if row["variance"] is not None]
    if quiet:
        first = min(quiet, key=lambda row: row["variance"])
        parts.append(
            f"The estimates of {first['label']} are the nearest to the exact gradient: a squared "
            f"error of {_small(first['variance'])} of its square, a cosine of "
            f"{first['cosine']:.2f}."
        )
    body = [tag("p", prose(" ".join(parts) or "Nothing is measured yet."), _class="headline")]
    return section("", "In short", "summary", *body)


def _small(value: float) -> str:
    """A share; what is below NOTHING is rounding."""
    return f"{value:.2g}" if value > NOTHING else f"less than {NOTHING:g}"


def _score(r: Result, value: float) -> str:
    return r.task.told.alone.format(r.task.curve.text(value))


def _learning(r: Result) -> Html:
    data = [(row.group.label, row.over_data) for row in r.rows]
    compute = [(row.group.label, row.over_compute) for row in r.rows]
    look, of = _looks(r), r.task.curve
    panels = [
        (draw.lines(data, look, "steps", of), _told(r, "data", "data")),
        (draw.lines(compute, look, "seconds", of), _told(r, "compute", "compute")),
    ]
    caption = join(
        tag("b", "Learning. "),
        f"On the left at equal data: {r.terms.steps:,} steps of each. On the right at equal "
        "compute: steps times what one step takes, all timed in turn in one session.",
    )
    at_end = [f"{head}, at the end" for head in words.heads(ends(r.task))]
    scores = (f"{of.head}, equal data", f"{of.head}, equal compute", *at_end)
    head = ("method", *scores, "steps", "rate", "seeds")
    rows = [
        [
            _key(r, row),
            *("–" if n[name] is None else of.text(n[name]) for name in ("data", "compute")),
            *words.numbers(row.group, ends(r.task)),
            *(f"{n['steps']:,}", labels.value("rate", n["rate"]), len(n["seeds"])),
        ]
        for row, n in zip(r.rows, r.numbers()["rows"], strict=True)
    ]
    parts = [figure(panels, caption), table("How far each came", head, rows)]
    parts.append(tag("p", prose(r.task.intro([row.group for row in r.rows])), _class="note"))
    return section("", "Learning", "learning", *parts, notes([row.group for row in r.rows]))


def _told(r: Result, name: str, over: str) -> str:
    rows = [n for n in r.numbers()["rows"] if n[name] is not None]
    parts = [f"{n['label']} {_score(r, n[name])}" for n in rows]
    return f"At equal {over}: {listed(parts)}."


def _noise(r: Result) -> Html:
    known = [row for row in r.rows if row.noise]
    if not known:
        return section("", "Noise", "noise", tag("p", "Nothing is measured yet."))

    def bars(name: str, what: str, log: bool) -> tuple[Panel, str]:
        low = NOTHING if log else -1.0
        values = [(row.group.label, max(low, row.noise[name])) for row in known]
        said = listed([f"{label} {_small(value)}" for label, value in values])
        return draw.bars(values, _looks(r), what, log=log), f"{what}: {said}."

    panels = [
        bars("cosine", "cosine to exact gradient", False),
        bars("variance", "relative squared error", True),
    ]
    caption = join(
        tag("b", "Noise. "),
        f"Estimates of the gradient of the same {r.loss_steps} losses for all, in the networks "
        "that all methods ended with. Left: the cosine of a single estimate to the exact gradient; "
        "1 is perfect. Right: E|estimate − exact|² / E|exact|², on a logarithmic scale; of a "
        "method that is biased, its bias is in it.",
    )
    return section("", "Noise", "noise", figure(panels, caption))


def _cost(r: Result) -> Html:
    found = r.numbers()
    forms: Sequence[tuple[str, str]] = (
        *(("us_per_step", "{:.0f}"), ("time", "{:.2f}"), ("flops", "{:.2f}")),
        *(("variance", "{:.3g}"), ("cosine", "{:.3f}")),
    )
    rows = [
        [_key(r, row), *(_shown(n[name], form) for name, form in forms)]
        for row, n in zip(r.rows, found["rows"], strict=True)
    ]
    head = ("method", "µs per step", "time", "flops", "variance", "cosine")
    caption = (
        "What a step costs, beside what its gradient is worth; "
        f"time and flops: {found['unit']}'s is 1"
    )
    return section("", "Cost", "cost", table(caption, head, rows))


def _key(r: Result, row: Row) -> Html:
    return named(row.group.label, _looks(r).get(row.group.label))


def _shown(value: Any, form: str) -> str:
    return "–" if value is None else form.format(value)


def _footer(r: Result) -> str:
    return (
        "Equal compute counts steps, each as long as it took when all methods were timed in turn; "
        "the fastest of several rounds. Compiling is not counted. A method that is much cheaper "
        "than the dearest may have been stopped before it had its share: its curve ends earlier."
    )

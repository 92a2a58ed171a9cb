"""The page of a comparison: curves over data and over compute, beside cosine and variance."""

from collections.abc import Sequence
from typing import Any

from kronline.compare.result import ENDS, Result, Row
from kronline.report import details, labels, words
from kronline.report import panels as draw
from kronline.report.html import Html, join, prose, table, tag
from kronline.report.keys import named
from kronline.report.page import document
from kronline.report.panels import Panel
from kronline.report.sections import figure, notes, section

WHAT = {"copy": "curriculum's T", "text": "validation bits/char"}
NOTHING = 1e-6
TITLE = {"copy": "the copy task", "text": "a text"}


def page(r: Result) -> str:
    """The whole page."""
    title = f"Estimators on equal terms: {TITLE[r.kind]}"
    methods = labels.listed([row.group.label for row in r.rows])
    lead = (
        f"{methods}: each trained for {r.terms.steps:,} steps and on until it had "
        f"{labels.duration(r.terms.budget)} of compute, as much as the dearest needs for its steps."
    )
    main = [_short(r), _learning(r), _noise(r), _cost(r), details.runs(r.findings, [r.kind])]
    names = {"summary": "In short", "learning": "Learning", "noise": "Noise", "cost": "Cost"}
    places = [*names.items(), ("runs", "The runs")]
    return document(title, lead, places, main, r.findings.look, _footer(r))


def _short(r: Result) -> Html:
    rows = r.numbers()["rows"]
    better = max if r.kind == "copy" else min
    parts = []
    for name, where in (("data", "At equal data"), ("compute", "At equal compute")):
        known = [row for row in rows if row[name] is not None]
        if known:
            best = better(row[name] for row in known)
            who = [row["label"] for row in known if row[name] == best]
            verb = "is ahead" if len(who) == 1 else "are level"
            parts.append(f"{where}, {labels.listed(who)} {verb}: {_score(r.kind, best)}.")
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


def _score(kind: str, value: float) -> str:
    return f"T = {value:g}" if kind == "copy" else f"{value:.3f} bits per character"


def _learning(r: Result) -> Html:
    data = [(row.group.label, row.over_data) for row in r.rows]
    compute = [(row.group.label, row.over_compute) for row in r.rows]
    look, what = r.findings.look, WHAT[r.kind]
    less = r.kind == "text"
    panels = [
        (draw.lines(data, look, "steps", what, less=less), _told(r, "data", "data")),
        (draw.lines(compute, look, "seconds", what, less=less), _told(r, "compute", "compute")),
    ]
    caption = join(
        tag("b", "Learning. "),
        f"On the left at equal data: {r.terms.steps:,} steps of each. On the right at equal "
        "compute: steps times what one step takes, all timed in turn in one session.",
    )
    score = {"copy": "curriculum's T", "text": "bits/char"}[r.kind]
    ends = [f"{head}, at the end" for head in words.heads(ENDS[r.kind])]
    scores = (f"{score}, equal data", f"{score}, equal compute", *ends)
    head = ("method", *scores, "steps", "rate", "seeds")
    digits = {"copy": "{:g}", "text": "{:.3f}"}[r.kind]
    rows = [
        [
            _key(r, row),
            *(_shown(n[name], digits) for name in ("data", "compute")),
            *words.numbers(row.group, ENDS[r.kind]),
            *(f"{n['steps']:,}", labels.value("rate", n["rate"]), len(n["seeds"])),
        ]
        for row, n in zip(r.rows, r.numbers()["rows"], strict=True)
    ]
    parts = [figure(panels, caption), table("How far each came", head, rows)]
    if r.kind == "copy":
        groups = [row.group for row in r.rows]
        parts.append(tag("p", prose(words.lengths(groups)), _class="note"))
    return section("", "Learning", "learning", *parts, notes([row.group for row in r.rows]))


def _told(r: Result, name: str, over: str) -> str:
    rows = [n for n in r.numbers()["rows"] if n[name] is not None]
    parts = [f"{n['label']} {_score(r.kind, n[name])}" for n in rows]
    return f"At equal {over}: {labels.listed(parts)}."


def _noise(r: Result) -> Html:
    known = [row for row in r.rows if row.noise]
    if not known:
        return section("", "Noise", "noise", tag("p", "Nothing is measured yet."))

    def bars(name: str, what: str, log: bool) -> tuple[Panel, str]:
        low = NOTHING if log else -1.0
        values = [(row.group.label, max(low, row.noise[name])) for row in known]
        said = labels.listed([f"{label} {_small(value)}" for label, value in values])
        return draw.bars(values, r.findings.look, what, log=log), f"{what}: {said}."

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
    head = ("method", "µs a step", "time", "flops", "variance", "cosine")
    caption = (
        "What a step costs, beside what its gradient is worth; "
        f"time and flops: {found['unit']}'s is 1"
    )
    return section("", "Cost", "cost", table(caption, head, rows))


def _key(r: Result, row: Row) -> Html:
    return named(row.group.label, r.findings.look.get(row.group.label))


def _shown(value: Any, form: str) -> str:
    return "–" if value is None else form.format(value)


def _footer(r: Result) -> str:
    return (
        "Equal compute counts steps, each as long as it took when all methods were timed in turn; "
        "the fastest of several rounds. Compiling is not counted. A method that is much cheaper "
        "than the dearest may have been stopped before it had its share: its curve ends earlier."
    )

"""The page's second half: what differs from the paper, and how each run was made."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kronline.report import labels, paper, words
from kronline.report.findings import Findings
from kronline.report.groups import HOW, Group, number
from kronline.report.html import Html, join, prose, table, tag
from kronline.report.sections import section
from kronline.runs.config import comments
from kronline.runs.folder import CONFIG, Run
from kronline.tasks.copy import NUMBERS

TITLES = {"copy": "The copy task", "text": "Text", "variance": "The noise of gradients"}


def differences(f: Findings, kinds: Iterable[str]) -> Html:
    """From the configurations, and from what the paper leaves open."""
    parts: list[Any] = [
        tag(
            "p",
            "Every setting that is not the paper's, as the runs' configurations have it; then what "
            "the paper's text leaves open, and what is done in another way on purpose.",
        )
    ]
    for kind in kinds:
        rows = [
            [_with(d.what, d.why), d.here, d.paper] for d in paper.differences(kind, f.groups(kind))
        ]
        head = ("what", "here", "in the paper")
        parts.append(table(TITLES[kind], head, rows, words=(0, 1, 2), fits=True))
    parts.append(
        tag(
            "p",
            "In all of them, KF-RTRL draws one sign a step where the paper draws two (only their "
            "product counts), and a term with a zero factor, after a reset for instance, is "
            "dropped instead of scaled: the estimate is the same in law, and unbiased.",
            _class="note",
        )
    )
    return section("", "What differs from the paper", "differences", *parts)


def _with(name: Any, reason: str) -> Html:
    """A name, and below it the reason, if there is one."""
    return join(name, tag("small", reason) if reason else None)


def runs(f: Findings, kinds: Iterable[str]) -> Html:
    """Every group's configuration, seeds, version, commit and machine."""
    parts: list[Any] = []
    for kind in kinds:
        parts.append(tag("h3", TITLES[kind]))
        parts += [_group(g) for g in f.groups(kind)]
    return section("", "The runs", "runs", *parts)


def _group(g: Group) -> Html:
    title = g.label.strip(", ") or labels.listed(
        [labels.method(str(e)) for e in g.config.get("estimators", [])]
    )
    about = f"{labels.plural(len(g.runs), 'seed')}"
    summary = tag("summary", tag("b", title or g.kind), " ", tag("span", about, _class="quiet"))
    return tag("details", summary, _facts(g), _configuration(g), _members(g))


def _facts(g: Group) -> Html:
    found = {
        "version": [_version(run) for run in g.runs],
        "machine": [_machine(run) for run in g.runs],
        "text": [_text(run) for run in g.runs],
        "parameters": [f"{run.about.get('parameters') or 0:,}" for run in g.runs],
        "started": [labels.date(str(run.about.get("started", ""))) for run in g.runs],
    }
    rows = []
    for name, given in found.items():
        values = list(dict.fromkeys(v for v in given if v not in ("", "0")))
        if values:
            rows += [tag("dt", name), *(tag("dd", v) for v in values)]
    return tag("dl", *rows)


def _version(run: Run) -> str:
    commit = run.about.get("commit")
    dirty = ", with changes" if commit and commit.endswith("+") else ""
    return f"kronline {run.about.get('version', '?')}" + (
        f", commit {commit[:10].rstrip('+')}{dirty}" if commit else ", no commit known"
    )


def _machine(run: Run) -> str:
    m = run.about.get("machine", {})
    cores, memory = m.get("cores"), m.get("memory_gb")
    parts = [
        str(m.get("cpu") or ""),
        labels.plural(int(cores), "core") if cores else "",
        f"{memory:g} GB" if memory else "",
        str(m.get("os") or ""),
        f"Python {m['python']}" if "python" in m else "",
        f"JAX {m['jax']}" if "jax" in m else "",
        str(m.get("path") or ""),
    ]
    return ", ".join(p for p in parts if p)


def _text(run: Run) -> str:
    data = run.about.get("data") or {}
    if not data:
        return ""
    sizes = data.get("characters") or {}
    parts = [str(data.get("name", "")), labels.plural(int(data.get("symbols", 0)), "symbol")]
    if sizes:
        parts.append(" / ".join(f"{int(n):,}" for n in sizes.values()) + " characters")
    train = str((data.get("sha256") or {}).get("train", ""))
    return ", ".join(parts) + (f", sha256 of the training part {train[:12]}…" if train else "")


def _configuration(g: Group) -> Html:
    first = g.runs[0]
    try:
        reasons = comments((first.path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        reasons = {}
    same = {k: v for k, v in first.config.items() if k == "preset" or k not in HOW}
    rows = [
        [_with(tag("code", k), reasons.get(k, "")), tag("code", _plain(v))] for k, v in same.items()
    ]
    return table("Configuration", ("setting", "value"), rows, words=(0, 1), fits=True)


def _plain(value: Any) -> str:
    return str(value) if value != "" else '""'


def _members(g: Group) -> Html:
    kinds: dict[str, tuple[str, ...]] = {"copy": NUMBERS, "text": ("valid", "test")}
    names = kinds.get(g.kind, ())
    rows = []
    for run in g.runs:
        shown = words.numbers(replace(g, runs=(run,)), names)
        seconds = number(run, "seconds")
        time = labels.duration(seconds) if seconds else "–"
        step = f"{int(run.status.get('step') or 0):,}"
        rows.append([run.config.get("seed", 0), *shown, run.state, step, time, run.name])
    head = ("seed", *words.heads(names), "state", "step", "compute", "folder")
    word = (0, 1 + len(names), len(head) - 1)
    return table("Seeds", head, rows, words=word)


def summary(f: Findings, kinds: Iterable[str]) -> Html:
    """The outcomes, one after another."""
    say = {"copy": words.copy_summary, "text": words.text_summary, "variance": words.noise_summary}
    parts = []
    for kind in kinds:
        title, headline, more = say[kind](f)
        parts += [tag("h3", title), tag("p", prose(headline), _class="headline")]
        parts += [tag("p", prose(more), _class="note")] if more else []
    return section("", "In short", "summary", *parts)

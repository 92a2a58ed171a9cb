"""The page's second half: what differs from the paper, and how each run was made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kronline.lab.analysis import labels
from kronline.lab.analysis.groups import HOW, Group
from kronline.lab.analysis.numbers import number
from kronline.lab.report import words
from kronline.lab.report.differences import of_settings, of_task
from kronline.lab.report.findings import Findings
from kronline.lab.report.html import Html, join, prose, table, tag
from kronline.lab.report.sections import section
from kronline.lab.runs import packed
from kronline.lab.runs.config import comments
from kronline.lab.runs.folder import CONFIG, Run
from kronline.lab.tasks import TASKS
from kronline.lab.variance import paper
from kronline.lab.wording import listed, plural

NOISE = "The noise of gradients"


def differences(f: Findings) -> Html:
    """From the configurations, and from what the paper leaves open."""
    parts: list[Any] = [
        tag(
            "p",
            "Every setting that is not the paper's, as the runs' configurations have it; then what "
            "the paper's text leaves open, and what is done in another way on purpose.",
        )
    ]
    found = [(t.link, of_task(t, [g for p in f.of_task(t) for g in p.groups])) for t in f.tasks]
    if f.noise:
        found.append((NOISE, of_settings(paper.SETTINGS, f.noise) + paper.differences(f.noise)))
    for title, some in found:
        rows = [[_with(d.what, d.why), d.here, d.paper] for d in some]
        head = ("what", "here", "in the paper")
        parts.append(table(title, head, rows, words=(0, 1, 2), fits=True))
    parts.append(
        tag(
            "p",
            "In all of them, KF-RTRL draws one sign per step where the paper draws two (only their "
            "product counts), and a term with a zero factor, after a reset for instance, is "
            "dropped instead of scaled: the estimate is the same in law, and unbiased.",
            _class="note",
        )
    )
    return section("", "What differs from the paper", "differences", *parts)


def _with(name: Any, reason: str) -> Html:
    """A name, and below it the reason, if there is one."""
    return join(name, tag("small", reason) if reason else None)


def chapters(f: Findings) -> dict[str, list[Group]]:
    """All groups, every learning rate, by title."""
    found = {words.title(part): part.groups for part in f.parts}
    return found | ({NOISE: f.noise} if f.noise else {})


def runs(found: Mapping[str, Sequence[Group]]) -> Html:
    """Every group's configuration, seeds, version, commit and machine."""
    parts: list[Any] = []
    for title, groups in found.items():
        parts.append(tag("h3", title))
        parts += [_group(g) for g in groups]
    return section("", "The runs", "runs", *parts)


def _group(g: Group) -> Html:
    title = g.label.strip(", ") or listed(
        [labels.method(str(e)) for e in g.config.get("estimators", [])]
    )
    about = f"{plural(len(g.runs), 'seed')}"
    summary = tag("summary", tag("b", title or g.kind), " ", tag("span", about, _class="quiet"))
    return tag("details", summary, _facts(g), _configuration(g), _members(g))


def _facts(g: Group) -> Html:
    found = {
        "version": [_version(run) for run in g.runs],
        "machine": [_machine(run) for run in g.runs],
        "data": [_data(run) for run in g.runs],
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
        plural(int(cores), "core") if cores else "",
        f"{memory:g} GB" if memory else "",
        str(m.get("os") or ""),
        f"Python {m['python']}" if "python" in m else "",
        f"JAX {m['jax']}" if "jax" in m else "",
        str(m.get("path") or ""),
    ]
    return ", ".join(p for p in parts if p)


def _data(run: Run) -> str:
    data = run.about.get("data") or {}
    if not data:
        return ""
    sizes = data.get("characters") or {}
    parts = [str(data.get("name", "")), plural(int(data.get("symbols", 0)), "symbol")]
    if sizes:
        parts.append(" / ".join(f"{int(n):,}" for n in sizes.values()) + " characters")
    train = str((data.get("sha256") or {}).get("train", ""))
    return ", ".join(parts) + (f", sha256 of the training part {train[:12]}…" if train else "")


def _configuration(g: Group) -> Html:
    first = g.runs[0]
    try:
        reasons = comments(packed.text(first.path / CONFIG) or "")
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
    names = TASKS[g.kind].numbers if g.kind in TASKS else ()
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


def summary(f: Findings) -> Html:
    """The outcomes, one after another."""
    found = [words.summary(part) for part in f.parts]
    found += [words.noise_summary(f)] if f.noise else []
    parts = []
    for title, headline, more in found:
        parts += [tag("h3", title), tag("p", prose(headline), _class="headline")]
        parts += [tag("p", prose(more), _class="note")] if more else []
    return section("", "In short", "summary", *parts)

"""The tables of README.md and docs/results.md, from the files in results/.

    python docs/tables.py           # writes them, each between its two marks
    python docs/tables.py --check   # only says whether they are what the files say

A mark is `<!-- table NAME -->`, and `<!-- end -->` behind the table.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronline.report import labels, paper, words
from kronline.report.findings import Findings
from kronline.report.groups import Group, Stat, clock, grouped, number, points
from kronline.runs import folder
from kronline.runs.folder import Run

HOME = Path(__file__).resolve().parent.parent
RESULTS = HOME / "results"
PAGES = (HOME / "README.md", HOME / "docs" / "results.md")
MARK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
EPOCH = 5_101_618 / 32  # characters a lane of the Penn Treebank, with 32 lanes


def main(words: Sequence[str]) -> int:
    """Write the pages, or check them; 1 if one is not what it should be."""
    stale = [page for page in PAGES if page.exists() and filled(page) != page.read_text()]
    for page in stale:
        if "--check" not in words:
            page.write_text(filled(page))
        print(f"{page.relative_to(HOME)}: {'stale' if '--check' in words else 'written'}")
    return int("--check" in words and bool(stale))


def filled(page: Path) -> str:
    """The page with its tables as the files have them."""
    return MARK.sub(lambda m: m[1] + "\n" + TABLES[m[2]]() + "\n" + m[3], page.read_text())


# -- what tables are made of -----------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """As Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def groups(kind: str, *places: str) -> list[Group]:
    """The runs of these folders of results/, by all but the seed."""
    return grouped(folder.find([RESULTS / place for place in places]), kind)


def each(group: Group, name: str) -> str:
    """One number of every seed."""
    return ", ".join("–" if (v := number(r, name)) is None else f"{v:g}" for r in group.runs)


def at(run: Run, name: str, *, step: float | None = None, seconds: float | None = None) -> float:
    """A number as it last was by then: at a step, or when so much compute was spent."""
    seen = points(run, name)
    if seconds is not None:
        steps, spent = np.array(clock(run)).T
        step = float(np.interp(seconds, spent, steps))
    assert step is not None
    return [y for x, y in seen if x <= step][-1]


def rate(group: Group) -> str:
    """And how it falls, if it does."""
    falls = "" if group.config["schedule"] == "constant" else ", falling"
    return labels.rate(group.config["rate"]) + falls


def minutes(stat: Stat | None) -> str:
    """Of compute."""
    return "–" if stat is None else f"{stat.mean / 60:.1f}"


def seconds_of(found: Iterable[Group], method: str) -> float:
    """The compute that a method took for its whole run, the mean over seeds."""
    stats = [g.stat("seconds") for g in found if g.method == method]
    return next(s.mean for s in stats if s)


# -- the tables ------------------------------------------------------------------------------------


def speed() -> str:
    """KF-RTRL beside the machine's matmul, from the whole bench."""
    bench = json.loads((RESULTS / "bench" / "bench.json").read_text())
    rows = {(r["cell"], r["hidden"], r["lanes"], r["path"]): r for r in _kf(bench["rows"])}
    shapes = [("RHN", 256, 32), ("RHN", 128, 64), ("RHN", 64, 64), ("LSTM", 128, 32)]
    lines = []
    for cell, n, lanes in shapes:
        fast, jax, plain = (rows[cell, n, lanes, path] for path in ("fast", "jax", "plain"))
        share = [f"{r['fraction_of_matmul']:.2f}" for r in (fast, jax, plain)]
        over = plain["us_per_step"] / fast["us_per_step"]
        lines.append([f"{cell}, n = {n}, {lanes} lanes", *share, f"{over:.1f}×"])
    head = (
        *("KF-RTRL, whole training step", "fast path, of the matmul rate", "pure JAX"),
        *("straightforward einsum", "fast over straightforward"),
    )
    return table(head, lines)


def _kf(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if r["method"] == "KF-RTRL"]


def variance_time() -> str:
    """Figure 3a, by decades of t."""
    found = Findings.of(folder.find([RESULTS / "variance"])).over_time
    spans = words.decades(found)
    rows = [
        [
            s.label,
            *("–" if (c := s.at(*span)) is None else f"{c:.3f}" for span in spans),
            max(c.n for c in s.cosine),
        ]
        for s in found
    ]
    return table(["", *(f"t = {a:,} to {b:,}" for a, b in spans), "repetitions"], rows)


def variance_units() -> str:
    """Figure 3b."""
    found = Findings.of(folder.find([RESULTS / "variance"])).over_units
    sizes = sorted({int(n) for s in found for n in s.x})
    rows = [
        [
            s.label,
            *("–" if (c := s.at(n, n)) is None else f"{c:.3f}" for n in sizes),
            max(c.n for c in s.cosine),
        ]
        for s in found
    ]
    return table(["", *(f"n = {n}" for n in sizes), "repetitions"], rows)


def picks() -> str:
    """T after 30,000 steps with each learning rate, one seed."""
    found = groups("copy", "copy-rates")
    rates = sorted({g.config["rate"] for g in found}, reverse=True)
    T = {(g.method, g.config["rate"]): words.count(g.stat("T")) for g in found}
    methods = dict.fromkeys(g.method for g in found)
    rows = [[m, *(T.get((m, r), "–") for r in rates)] for m in methods]
    return table(["", *map(labels.rate, rates)], rows)


def copy() -> str:
    """What came of 300,000 steps."""
    found = groups("copy", "copy")
    budget = seconds_of(found, "KF-RTRL")
    rows = []
    for g in sorted(found, key=lambda g: g.stat("T") or 0):
        equal = Stat.of(at(r, "T", seconds=budget) for r in g.runs)
        T, solved = words.count(g.stat("T")), each(g, "solved")
        rows.append([g.method, rate(g), T, solved, words.count(equal), minutes(g.stat("seconds"))])
    head = ["", "rate", "T", "solved, each seed", f"T after {budget / 60:.1f} minutes of compute"]
    return table([*head, "minutes in all"], rows)


def million() -> str:
    """T on the way to 1,000,000 steps, beside the published curves."""
    marks = (100_000, 300_000, 500_000, 1_000_000)
    rows = []
    for g in groups("copy", "copy-million"):
        T = [words.count(Stat.of(at(r, "T", step=s) for r in g.runs)) for s in marks]
        rows.append([g.method, rate(g), *T, each(g, "solved")])
    theirs = _published("copy.csv")
    T = [", ".join(f"{max(y for x, y in run if x <= s):g}" for run in theirs) for s in marks]
    rows.append(["OK, 16 pairs, published, each of five runs", "10⁻³·⁵", *T, "–"])
    return table(["", "rate", *(f"T at {s:,}" for s in marks), "solved"], rows)


def _published(name: str) -> list[list[tuple[float, float]]]:
    lines = (RESULTS / "published" / name).read_text().splitlines()[1:]
    runs: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        *_, run, step, value = line.split(",")
        runs.setdefault(run, []).append((float(step), float(value)))
    return list(runs.values())


def ptb() -> str:
    """The paper's table, with ours."""
    found = sorted(groups("text", "ptb"), key=lambda g: g.stat("valid") or 0)
    base = next(g.stat("valid") for g in found if g.method == "TBPTT-25")
    budget = seconds_of(found, "TBPTT-25")
    assert base
    rows = []
    for g in found:
        valid, theirs = g.stat("valid"), paper.PTB.get(g.method)
        assert valid
        gap = f"{valid.mean - base.mean:+.3f}"
        their_gap = f"{theirs.valid - paper.PTB['TBPTT-25'].valid:+.2f}" if theirs else "–"
        early = Stat.of(at(r, "valid", seconds=budget) for r in g.runs if _valid_by(r, budget))
        beside = f"{theirs.valid}, {theirs.test}" if theirs else "–"
        ours = (g.method, rate(g), words.bits(valid), words.bits(g.stat("test")))
        compute = (words.bits(early), minutes(g.stat("seconds")), len(g.runs))
        rows.append([*ours, beside, gap, their_gap, *compute])
    head = ("", "rate", "valid", "test", "paper's", "behind TBPTT-25", "paper's")
    return table([*head, f"valid after {budget / 60:.1f} minutes", "minutes", "seeds"], rows)


def _valid_by(run: Run, seconds: float) -> bool:
    """Whether anything was measured by then."""
    steps, spent = np.array(clock(run)).T
    return points(run, "valid")[0][0] <= float(np.interp(seconds, spent, steps))


def ahead() -> str:
    """KF-TBPTT-k against TBPTT-k on the way: seed by seed, then mean and two standard errors."""
    found = {g.method: g for g in groups("text", "ptb")}
    marks = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    rows = []
    for method, g in found.items():
        k = re.match(r"KF-TBPTT-(\d+), ", method)
        other = found.get(f"TBPTT-{k[1]}") if k else None
        if other is None:
            continue
        rows.append([f"{method}, ahead of TBPTT-{k and k[1]}"])
        theirs = {r.config["seed"]: r for r in other.runs}
        for epoch in marks:
            step = epoch * EPOCH + 100  # the last is rounded up to whole segments
            pairs = [(theirs[s], r) for r in g.runs if (s := r.config["seed"]) in theirs]
            stat = Stat.of(at(a, "valid", step=step) - at(b, "valid", step=step) for a, b in pairs)
            rows[-1].append(_two_errors(stat))
    return table(["", *(f"{e:g} epochs" for e in marks)], rows)


def _two_errors(stat: Stat | None) -> str:
    if stat is None:
        return "–"
    return f"{stat.mean:+.3f}" + (
        f" ± {2 * stat.std / np.sqrt(stat.n):.3f}" if stat.std is not None else ""
    )


TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "variance-time": variance_time,
    "variance-units": variance_units,
    "copy-rates": picks,
    "copy": copy,
    "copy-million": million,
    "ptb": ptb,
    "ptb-ahead": ahead,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The tables of docs/speed.md, docs/results.md and docs/beyond.md, from the files in results/.

A table stands between two marks, `<!-- table NAME -->` and `<!-- end -->`. Two pages of results/
are tables of their own: those of `kronline variance --preset table`.
"""

import argparse
import json
import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kronline.lab.analysis import beside, labels
from kronline.lab.analysis.groups import Group, best_rates, grouped
from kronline.lab.analysis.numbers import clock, number, points, quantity
from kronline.lab.analysis.stat import Stat
from kronline.lab.report import words
from kronline.lab.report.findings import Findings
from kronline.lab.runs import folder, packed
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.series import CLOSING, NAMES, SeriesTask
from kronline.lab.tasks.text import PAPER_BITS
from kronline.lab.variance import steady
from kronline.lab.variance.series import Series

HOME = Path(__file__).resolve().parent.parent
RESULTS = HOME / "results"
PAGES = tuple(HOME / "docs" / f"{name}.md" for name in ("speed", "results", "beyond"))
NOISE = ("noise", "noise-ptb")  # files of results/, with a run of that name and its page
DEEP_MARKS = (60_000, 100_000, 200_000, 400_000, 700_000, 1_000_000, 2_000_000)
LARGER = 64  # cores of a larger machine
LEARNT = ("bits right, T − 5 to T, %", "solved, each seed")  # of copy runs, when they have ended
MARK = re.compile(r"(<!-- table (\S+) -->\n)((?:(?!<!-- ).)*)(<!-- end -->)", re.DOTALL)


def main(argv: Sequence[str]) -> int:
    """Write the pages, or check them; 1 if one is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    check = parser.parse_args(argv).check
    pages = {page: filled(page) for page in PAGES}
    pages |= {RESULTS / f"{name}.md": noise_page(name) for name in NOISE}
    stale = {page: new for page, new in pages.items() if new != page.read_text()}
    for page, new in stale.items():
        if not check:
            page.write_text(new)
        print(f"{page.relative_to(HOME)}: {'stale' if check else 'written'}")
    return int(check and bool(stale))


def filled(page: Path) -> str:
    """The page with its tables as the files have them."""
    text = page.read_text()
    begun, whole = re.findall(r"<!-- table (\S+) -->", text), MARK.findall(text)
    if begun != [name for _, name, _, _ in whole] or not set(begun) <= set(TABLES):
        sys.exit(f"{page}: needed tables of {', '.join(TABLES)}, each with its end, got {begun}")
    return MARK.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n{m[4]}", text)


def noise_page(name: str) -> str:
    """The table that its run made."""
    return packed.text(RESULTS / f"{name}.runs:{name}" / "table.md") or ""


# -- what tables are made of -----------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """As Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def groups(kind: str, *places: str) -> list[Group]:
    """The runs of these files of results/, by all but the seed."""
    runs = folder.find([RESULTS / f"{place}.runs" for place in places])
    return grouped(runs, TASKS[kind])


def shown(name: str, stat: Stat | None) -> str:
    """Mean and deviation of a quantity; a dash if it was not measured."""
    return "–" if stat is None else quantity(name).text(stat.mean, stat.std)


def each(group: Group, name: str) -> str:
    """One number of every seed."""
    return ", ".join("–" if (v := number(r, name)) is None else f"{v:g}" for r in group.runs)


def learnt(group: Group) -> tuple[str, str]:
    """At the end of copy runs: bits right over the trained lengths, each seed's solved length."""
    return shown("right_trained", group.stat("right_trained")), each(group, "solved")


def mean(group: Group, name: str) -> float:
    """Of a number that all its runs have."""
    stat = group.stat(name)
    if stat is None or stat.n < len(group.runs):
        sys.exit(f"{group.method} has runs without {name}: {[str(r.path) for r in group.runs]}")
    return stat.mean


def at(run: Run, name: str, step: float) -> float | None:
    """A number as it last was by that step; None if it had not been measured, or the run ended."""
    seen = points(run, name)
    before = [y for x, y in seen if x <= step]
    return before[-1] if before and step <= 1.01 * seen[-1][0] else None


def after(run: Run, name: str, seconds: float) -> float | None:
    """The same when so much compute was spent."""
    steps, spent = np.array(clock(run)).T
    return at(run, name, np.interp(seconds, spent, steps)) if seconds <= spent[-1] else None


def equal(group: Group, name: str, seconds: float) -> str:
    """After that compute; runs that took less count with what they ended with, marked by a sign."""
    ended = [clock(r)[-1][1] < seconds for r in group.runs]
    values = [
        number(r, name) if done else after(r, name, seconds)
        for r, done in zip(group.runs, ended, strict=True)
    ]
    if None in values:
        return "–"
    sign = ("≥ " if name == "T" else "≤ ") if any(ended) else ""
    return sign + shown(name, Stat.of(values))


def rate(group: Group) -> str:
    """And how it falls, if it does."""
    falls = "" if group.config["schedule"] == "constant" else ", falling"
    return labels.rate(group.config["rate"]) + falls


def clip(group: Group) -> str:
    """To which norm gradients were clipped, if they were."""
    return "–" if group.config["clip"] == "none" else f"{group.config['clip']:g}"


def minutes(group: Group) -> str:
    """Of compute, the whole run."""
    return f"{mean(group, 'seconds') / 60:.1f}"


def the(found: Iterable[Group], method: str, /, **settings: Any) -> Group:
    """The one group of a method, with these settings."""
    same = [g for g in found if g.method == method and settings.items() <= g.config.items()]
    if len(same) != 1:
        sys.exit(f"needed one group of {method} with {settings}, got {len(same)}")
    return same[0]


# -- the tables ------------------------------------------------------------------------------------


def speed() -> str:
    """KF-RTRL beside the machine's matmul, from the whole bench."""
    bench = json.loads((RESULTS / "bench" / "bench.json").read_text())
    kf = [r for r in bench["rows"] if r["method"] == "KF-RTRL"]
    rows = {(r["cell"], r["hidden"], r["lanes"], r["path"]): r for r in kf}
    lines = []
    for shape in (("RHN", 256, 32), ("RHN", 128, 64), ("RHN", 64, 64), ("LSTM", 128, 32)):
        timed = [rows[*shape, path] for path in ("fast", "jax", "plain")]
        over = timed[-1]["us_per_step"] / timed[0]["us_per_step"]
        share = [f"{r['fraction_of_matmul']:.2f}" for r in timed]
        lines.append(["{}, n = {}, {} lanes".format(*shape), *share, f"{over:.1f}×"])
    head = ("KF-RTRL, whole training step", "fast path, of the matmul rate", "pure JAX")
    return table([*head, "straightforward einsum", "fast over straightforward"], lines)


def variance_time() -> str:
    """Figure 3a, by decades of t."""
    found = Findings.of(folder.find([RESULTS / "variance.runs"])).over_time
    return _cosines(found, {f"t = {a:,} to {b:,}": (a, b) for a, b in words.decades(found)})


def variance_units() -> str:
    """Figure 3b."""
    found = Findings.of(folder.find([RESULTS / "variance.runs"])).over_units
    return _cosines(
        found, {f"n = {n}": (n, n) for n in sorted({int(n) for s in found for n in s.x})}
    )


def _cosines(found: Sequence[Series], spans: dict[str, tuple[int, int]]) -> str:
    rows = []
    for s in found:
        means = ["–" if (c := s.at(*span)) is None else f"{c:.3f}" for span in spans.values()]
        counts = [c.n for c in s.cosine]
        spread = dict.fromkeys((min(counts), max(counts)))
        rows.append([s.label, *means, " to ".join(map(str, spread))])
    return table(["", *spans, "repetitions"], rows)


def noise_ptb() -> str:
    """All methods in a network that has learnt the Penn Treebank."""
    (run,) = folder.find([RESULTS / "noise-ptb.runs"])
    shown = operator.itemgetter(0, 3, 4, 5)  # of steady.HEAD: not the untrained ones, nor flops
    return table(shown(steady.HEAD), [shown(steady.cells(row)) for row in steady.rows(run)])


def copy_rates() -> str:
    """T after 30,000 steps with each learning rate, one seed."""
    found = groups("copy", "copy-rates")
    rates = sorted({g.config["rate"] for g in found}, reverse=True)
    T = {(g.method, g.config["rate"]): shown("T", g.stat("T")) for g in found}
    rows = [[m, *(T.get((m, r), "–") for r in rates)] for m in dict.fromkeys(m for m, _ in T)]
    return table(["", *map(labels.rate, rates)], rows)


def copy() -> str:
    """What came of 300,000 steps, as published and with gradients clipped."""
    found = groups("copy", "copy", "copy-clip")
    ours = [g for g in found if g.method.startswith("KF-")]
    budget = min(clock(r)[-1][1] for g in ours for r in g.runs) // 60 * 60  # all of these have it
    rows = []
    for g in sorted(found, key=lambda g: (g.config["clip"] != "none", mean(g, "T"))):
        reached = (shown("T", g.stat("T")), *learnt(g), equal(g, "T", budget))
        rows.append([g.method, clip(g), rate(g), *reached, minutes(g)])
    head = ("", "clip", "rate", "T", *LEARNT)
    return table([*head, f"T after {budget / 60:.0f} minutes of compute", "minutes in all"], rows)


def copy_solve() -> str:
    """What is solved where the curriculum stops at a length."""
    rows = []
    for g in groups("copy", "copy-solve"):
        (right,) = [[m["right"] for m in r.metrics if "right" in m][-1] for r in g.runs]
        at_length = [
            f"{100 * right[n - 1]:.1f}" if n <= len(right) else "–" for n in (8, 12, 16, 20)
        ]
        rows.append([g.method, rate(g), each(g, "T"), *learnt(g), *at_length])
    head = ("", "rate", "T", *LEARNT, *(f"bits right of {n}, %" for n in (8, 12, 16, 20)))
    return table(head, rows)


def copy_million() -> str:
    """T on the way to 1,000,000 steps, beside the published curves."""
    marks = (100_000, 300_000, 500_000, 1_000_000)
    rows = []
    for g in groups("copy", "copy-million"):
        T = [shown("T", Stat.of(at(r, "T", s) for r in g.runs)) for s in marks]
        rows.append([g.method, rate(g), *T, *learnt(g)])
    (theirs,) = beside.read([RESULTS / "published" / "copy.csv"])
    T = [", ".join(f"{max(y for x, y in run if x <= s):g}" for run in theirs.runs) for s in marks]
    rows.append([f"{theirs.label}, each of five runs", labels.rate(10**-3.5), *T, "–", "–"])
    return table(["", "rate", *(f"T at {s:,}" for s in marks), *LEARNT], rows)


def copy_deep(place: str, marks: Sequence[int]) -> str:
    """Stacks of blocks of LRU: T on the way, and what is learnt at the end."""
    rows = []

    def key(g: Group) -> Any:
        return g.config["cell"].count("Block"), g.config["steps"], g.method, g.config["rate"]

    for g in sorted(groups("copy", place), key=key):
        T = [shown("T", Stat.of(at(r, "T", s) for r in g.runs)) for s in marks]
        blocks, size = g.config["cell"].count("Block"), f"{g.runs[0].about['parameters']:,}"
        delay = "2(T + 1)" if g.config["delay"] == "paper" else "T + 1"
        net = (blocks, g.config["hidden"], size, delay)
        rows.append([*net, g.method, rate(g), *T, *learnt(g), len(g.runs), minutes(g)])
    head = ("blocks", "units", "parameters", "delay", "", "rate", *(f"T at {s:,}" for s in marks))
    return table([*head, *LEARNT, "seeds", "minutes"], rows)


def copy_equal() -> str:
    """Stacks of blocks of LRU and the RHN, at equal data and at equal compute of one core."""
    steps, spent, rows = (100_000, 200_000), (1, 3, 6), []
    ours = {"steps": steps[-1], "delay": "short"}
    deep = [g for g in groups("copy", "copy-deep") if ours.items() <= g.config.items()]
    dense = [g for g in groups("copy", "copy-clip") if g.method != "UORO"]
    dense = [g for g in dense if g.method != "TBPTT-10" or g.config["schedule"] == "linear"]
    for g in sorted([*deep, *dense], key=lambda g: -mean(g, "T")):
        blocks, n = g.config["cell"].count("Block"), g.config["hidden"]
        what = f"LRU, {blocks} block{'s'[: blocks > 1]}" if blocks else f"RHN, n = {n}"
        data = [shown("T", Stat.of(at(r, "T", s) for r in g.runs)) for s in steps]
        compute = [equal(g, "T", 60 * minutes) for minutes in spent]
        size = f"{g.runs[0].about['parameters']:,}"
        rows.append([what, size, g.method, rate(g), *data, *compute, len(g.runs)])
    marks = [f"T at {s:,} steps" for s in steps]
    marks += [f"T after {m} minute{'s'[: m > 1]}" for m in spent]
    return table(["", "parameters", "", "rate", *marks, "seeds"], rows)


def ptb() -> str:
    """The paper's table, with ours, each method at its best rate."""
    found = sorted(best_rates(groups("text", "ptb")).shown, key=lambda g: mean(g, "valid"))
    base = the(found, "TBPTT-25")
    budget = mean(base, "seconds")
    rows = []
    for g in found:
        theirs = PAPER_BITS.get(g.method)
        ours = (shown("valid", g.stat("valid")), shown("test", g.stat("test")))
        gap = f"{mean(g, 'valid') - mean(base, 'valid'):+.3f}"
        said = (
            (
                f"{theirs['valid']}, {theirs['test']}",
                f"{theirs['valid'] - PAPER_BITS['TBPTT-25']['valid']:+.2f}",
            )
            if theirs
            else ("–", "–")
        )
        compute = (equal(g, "valid", budget), minutes(g), len(g.runs))
        rows.append([g.method, rate(g), *ours, gap, *said, *compute])
    head = ("", "rate", "valid", "test", "behind TBPTT-25", "paper's valid, test", "paper's gap")
    return table([*head, f"valid after {budget / 60:.1f} minutes", "minutes", "seeds"], rows)


def ptb_rates() -> str:
    """Validation with each learning rate that was tried for three epochs."""
    tried = [family for family in best_rates(groups("text", "ptb")).tried if len(family) > 1]
    rates = sorted({g.config["rate"] for family in tried for g in family}, reverse=True)
    rows = []
    for family in sorted(tried, key=lambda family: min(mean(g, "valid") for g in family)):
        valid = {g.config["rate"]: shown("valid", g.stat("valid")) for g in family}
        rows.append([family[0].method, *(valid.get(r, "–") for r in rates)])
    return table(["", *map(labels.rate, rates)], rows)


def against(found: Sequence[Group]) -> list[tuple[Group, Group, list[tuple[Run, Run]]]]:
    """What updates as often as TBPTT-k and sees more, TBPTT-k of the same settings, runs by seed.

    That is KF-TBPTT-k, Spatial-k, and rolling TBPTT every k steps.
    """
    out = []
    for g in found:
        k = re.match(r"(?:KF-TBPTT|Spatial)-(\d+)|Rolling TBPTT-\d+, every (\d+)", g.method)
        if not k:
            continue
        same = {name: v for name, v in g.config.items() if name != "estimator"}
        other = the(found, f"TBPTT-{k[1] or k[2]}", **same)
        theirs = {r.config["seed"]: r for r in other.runs}
        pairs = [(theirs[s], r) for r in g.runs if (s := r.config["seed"]) in theirs]
        out.append((g, other, pairs))
    return out


def ptb_ahead() -> str:
    """On the RHN, three epochs."""
    found = groups("text", "ptb", "ptb-tried", "beyond/ptb-linear")
    return _table_of_leads(found, (0.5, 1.0, 1.5, 2.0, 2.5, 3.0))


def ptb_credit() -> str:
    """On blocks, four epochs: what the credit from before the segment is worth."""
    found = [g for g in groups("text", "ptb-deep") if g.config["epochs"] == 4]
    found = [g for g in found if g.config["cell"].count("Block") == 5]
    return _table_of_leads(found, (1.0, 2.0, 3.0, 4.0))


def _table_of_leads(found: Sequence[Group], marks: Sequence[float]) -> str:
    """Ahead of TBPTT-k on the way: seed by seed, then mean and two standard errors."""
    rows = []
    for g, other, pairs in against(found):
        ahead = [_two_errors(Stat.of(_ahead(a, b, e) for a, b in pairs)) for e in marks]
        size = g.config["hidden"]
        rows.append([g.method, other.method, size, rate(g), clip(g), *ahead, len(pairs)])
    head = ("", "ahead of", "n", "rate", "clip")
    return table([*head, *(f"{e:g} epoch{'s' * (e != 1)}" for e in marks), "seeds"], rows)


def _ahead(theirs: Run, ours: Run, epochs: float) -> float | None:
    """In bits per character, at the last validation up to then."""
    characters = ours.about["data"]["characters"]["train"] / ours.config["lanes"]
    step = epochs * characters + 25  # which are rounded up to whole segments
    a, b = (at(run, "valid", step) for run in (theirs, ours))
    return None if a is None or b is None else a - b


def _two_errors(stat: Stat | None) -> str:
    if stat is None:
        return "–"
    errors = "" if stat.std is None else f" ± {2 * stat.std / np.sqrt(stat.n):.3f}"
    return f"{stat.mean:+.3f}{errors}"


def ptb_tried() -> str:
    """TBPTT-25 with other rates and with clipping: what KF-TBPTT-25 would have to be ahead of."""
    found = [g for g in groups("text", "ptb", "ptb-tried") if g.method == "TBPTT-25"]
    rows = [
        [
            clip(g),
            rate(g),
            shown("valid", g.stat("valid")),
            shown("test", g.stat("test")),
            len(g.runs),
        ]
        for g in sorted(found, key=lambda g: mean(g, "valid"))
    ]
    return table(["clip", "rate", "valid", "test", "seeds"], rows)


def ptb_256() -> str:
    """The paper's size, as far as it was run, beside the published curve."""
    marks = (10_000, 20_000, 40_000, 60_000)
    rows = []
    for g in sorted(best_rates(groups("text", "ptb-256")).shown, key=lambda g: mean(g, "valid")):
        valid = [shown("valid", Stat.of(at(r, "valid", s) for r in g.runs)) for s in marks]
        rows.append(
            [g.method, rate(g), *valid, shown("test", g.stat("test")), minutes(g), len(g.runs)]
        )
    (theirs,) = beside.read([RESULTS / "published" / "ptb.csv"])
    last = [[[y for x, y in run if x <= s][-1] for run in theirs.runs] for s in marks]
    valid = [shown("valid", Stat.of(values)) for values in last]
    rows.append([theirs.label, labels.rate(10**-3.5), *valid, "–", "–", len(theirs.runs)])
    return table(["", "rate", *(f"{s:,} steps" for s in marks), "test", "minutes", "seeds"], rows)


def ptb_20() -> str:
    """The paper's size and many epochs, beside the paper's numbers."""
    epochs, rows = (1, 2, 4, 6, 10, 20), []
    for g in groups("text", "ptb-20"):
        (run,) = g.runs
        each_epoch = points(run, "valid")[-1][0] / g.config["epochs"]
        found = [at(run, "valid", n * each_epoch) for n in epochs]
        valid = ["–" if v is None else f"{v:.3f}" for v in found]
        theirs = PAPER_BITS.get(g.method)
        paper = "–" if theirs is None else " / ".join(f"{v:.2f}" for v in theirs.values())
        ends = (shown("valid", g.stat("valid")), shown("test", g.stat("test")))
        rows.append([g.method, g.config["lanes"], rate(g), *valid, *ends, paper, minutes(g)])
    head = ["", "lanes", "rate", *(f"epoch {n}" for n in epochs)]
    return table([*head, "best in validation", "test", "the paper's", "minutes"], rows)


def ptb_deep() -> str:
    """Stacks of blocks beside the RHN: data, compute, and what comes of them."""
    found = [*groups("text", "ptb-deep"), *groups("text", "ptb-20")]
    found += [the(groups("text", "ptb"), "TBPTT-25", rate=0.01)]
    rows = []
    for g in sorted(found, key=lambda g: mean(g, "valid")):
        blocks, n = g.config["cell"].count("Block"), g.config["hidden"]
        what = f"LRU, {blocks} blocks" if blocks else f"RHN, n = {n}"
        machines = {r.about["machine"]["cores"] for r in g.runs}
        epochs = g.config["epochs"]
        first = [at(r, "valid", points(r, "valid")[-1][0] / epochs) for r in g.runs]
        size, ends = f"{g.runs[0].about['parameters']:,}", ("valid", "test")
        bits = [shown("valid", Stat.of(first)), *(shown(e, g.stat(e)) for e in ends)]
        cores = " or ".join(map(str, sorted(machines)))
        row = [what, size, g.method, rate(g), g.config["lanes"], f"{epochs:g}", *bits]
        rows.append([*row, len(g.runs), minutes(g), cores])
    head = ("", "parameters", "", "rate", "lanes", "epochs", "valid after one", "valid", "test")
    return table([*head, "seeds", "minutes", "cores"], rows)


def lstm_copy() -> str:
    """The copy task, by an LSTM."""
    rows = [
        [g.method, rate(g), shown("T", g.stat("T")), *learnt(g), minutes(g)]
        for g in sorted(groups("copy", "lstm/copy"), key=lambda g: mean(g, "T"))
    ]
    return table(["", "rate", "T", *LEARNT, "minutes"], rows)


def copy_beyond() -> str:
    """The copy task with KF-TBPTT and OK beside the paper's methods."""
    rows = [
        [g.method, rate(g), shown("T", g.stat("T")), *learnt(g)]
        for g in sorted(groups("copy", "beyond/copy"), key=lambda g: mean(g, "T"))
    ]
    return table(["", "rate", "T", *LEARNT], rows)


def lstm_ptb() -> str:
    """The Penn Treebank, by an LSTM, each method at its best rate."""
    found = best_rates(groups("text", "lstm/ptb")).shown
    rows = [
        [
            g.method,
            rate(g),
            shown("valid", g.stat("valid")),
            shown("test", g.stat("test")),
            minutes(g),
        ]
        for g in sorted(found, key=lambda g: mean(g, "valid"))
    ]
    return table(["", "rate", "valid", "test", "minutes"], rows)


def series() -> str:
    """NMSE of every method on every system, beside what was published."""
    found = groups(SeriesTask.kind, "series")
    rows = []
    for method in dict.fromkeys(
        g.method for g in sorted(found, key=lambda g: mean(g, CLOSING.key))
    ):
        of = {str(g.config["series"]): g for g in found if g.method == method}
        ours = [of[system].text(CLOSING) for system in NAMES]
        theirs = [SeriesTask.published_cells(method, {"series": system})[0] for system in NAMES]
        rows.append([method, *ours, *theirs, len(of["henon"].runs)])
    heads = [*NAMES.values(), *(f"{name}, published" for name in NAMES.values())]
    return table(["NMSE", *heads, "seeds"], rows)


def paper_cost() -> str:
    """Hours and memory of the paper's experiments, from measured steps."""
    found = json.loads((RESULTS / "paper-cost.json").read_text())
    runs, cores = found["plan"]["runs"], found["machine"]["cores"]
    rows = []
    for r in sorted(found["rows"], key=lambda r: (r["task"] != "text", r["lanes"], r["hours"])):
        whole = runs * r["hours"]
        times = [f"{r['hours']:,.1f}", f"{whole:,.0f}", f"{whole * cores / LARGER:,.1f}"]
        method = labels.method(r["method"])
        rows.append([r["task"], method, r["lanes"], f"{r['ms']:.3g}", r["MiB"], *times])
    heads = ["ms per step", "MiB", "one run, hours", f"{runs} runs", f"{runs} runs, {LARGER} cores"]
    return table(["", "", "lanes", *heads], rows)


def series_cells() -> str:
    """NMSE of exact gradients on diagonal cells, and on the tanh RNN of the table above."""
    found = groups(SeriesTask.kind, "series", "series-cells")
    found = [g for g in found if g.method == "RTRL"]
    rows = []
    for cell in dict.fromkeys(str(g.config["cell"]) for g in found):
        of = {str(g.config["series"]): g for g in found if g.config["cell"] == cell}
        ours = [of[system].text(CLOSING) for system in NAMES]
        size = f"{of['henon'].runs[0].about['parameters']:,}"
        rows.append([f"`{cell}`", size, *ours, len(of["henon"].runs)])
    return table(["NMSE, RTRL", "parameters", *NAMES.values(), "seeds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "variance-time": variance_time,
    "variance-units": variance_units,
    "noise-ptb": noise_ptb,
    "copy-rates": copy_rates,
    "copy": copy,
    "copy-solve": copy_solve,
    "copy-million": copy_million,
    "copy-deep": partial(copy_deep, "copy-deep", DEEP_MARKS),
    "copy-unbiased": partial(copy_deep, "copy-unbiased", (10_000, 20_000, 30_000, 40_000, 60_000)),
    "copy-equal": copy_equal,
    "copy-beyond": copy_beyond,
    "ptb": ptb,
    "ptb-rates": ptb_rates,
    "ptb-ahead": ptb_ahead,
    "ptb-tried": ptb_tried,
    "ptb-256": ptb_256,
    "ptb-20": ptb_20,
    "ptb-deep": ptb_deep,
    "ptb-credit": ptb_credit,
    "lstm-copy": lstm_copy,
    "lstm-ptb": lstm_ptb,
    "series": series,
    "paper-cost": paper_cost,
    "series-cells": series_cells,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

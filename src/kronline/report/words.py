"""The outcomes in words: for the summary, and for those who cannot see the figures."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kronline.report import labels, paper
from kronline.report.curves import right
from kronline.report.findings import Findings
from kronline.report.groups import Group, Stat, number, score
from kronline.report.noise import Series
from kronline.report.panels import reach
from kronline.tasks.copy import Copy

MANY, BEST = 6, 4  # of more groups than that, as many are told of


class Summary(NamedTuple):
    """An experiment's outcome."""

    title: str
    headline: str
    more: str


def count(stat: Stat | None) -> str:
    """A length: `12` of one seed, `12.3 ± 0.6` of several."""
    if stat is None:
        return "–"
    return f"{stat.mean:g}" if stat.std is None else stat.text(1)


def brief(stat: Stat | None) -> str:
    """The same within a sentence: no deviation where there is none."""
    return count(stat) if stat is None or stat.std else f"{stat.mean:g}"


def percent(stat: Stat | None) -> str:
    """A share: `87.1` of one seed, `87.1 ± 0.6` of several."""
    if stat is None:
        return "–"
    return Stat(100 * stat.mean, stat.std and 100 * stat.std, stat.n).text(1)


def bits(stat: Stat | None) -> str:
    """Bits per character: `1.772 ± 0.004`."""
    return "–" if stat is None else stat.text(3)


# what a run comes to, as columns: the head, and how a number is shown
COLUMNS: dict[str, tuple[str, Callable[[Stat | None], str]]] = {
    "T": ("curriculum's T", count),
    "right_trained": ("bits right, trained lengths, %", percent),
    "solved": ("solved length", count),
    "valid": ("validation", bits),
    "test": ("test", bits),
}


def numbers(group: Group, names: Sequence[str]) -> list[str]:
    """Those of a group, as its row has them."""
    return [COLUMNS[name][1](group.stat(name)) for name in names]


def heads(names: Sequence[str]) -> list[str]:
    """And what stands above them."""
    return [COLUMNS[name][0] for name in names]


# what `--monitor` measures: in short, and in full
MONITORED = {
    "snr": (
        "signal over noise",
        "signal over noise of the recurrent gradient, told apart by the lanes, of which each has "
        "its own data and signs (of one lane; the mean over L lanes has L times as much)",
    ),
    "noise": (
        "a step's noise",
        "the share of the trace's squared norm that is noise of the newest step alone, by the "
        "closed form (for KF-TBPTT of all steps)",
    ),
}


def small(stat: Stat | None) -> str:
    """`0.123 ± 0.004`."""
    return "–" if stat is None else stat.text(3)


def monitored(groups: Sequence[Group], name: str) -> str:
    """The mean over the second half."""
    says = f"{MONITORED[name][0]}, mean of the second half: {_each(groups, name, '{}', small)}."
    return says[0].upper() + says[1:]


def _each(
    groups: Sequence[Group],
    name: str,
    say: str,
    show: Callable[[Stat | None], str],
    then: str = "",
    more: Callable[[Group], str] = lambda g: "",
) -> str:
    """Of each group that has this number: the first says it in full, the others in short.

    Of more than can be read, the best ones; the tables have them all.
    """
    known = [g for g in groups if g.stat(name)]
    told = sorted(known, key=score)[:BEST] if len(known) > MANY else known
    out: list[str] = []
    for g in told:
        said = (then if out and then else say).format(show(g.stat(name)))
        out.append(f"{g.label} {said}{more(g)}")
    rest = len(known) - len(told)
    return labels.listed([*out, f"{rest} more in the table"] if rest else out)


def steps(groups: Sequence[Group]) -> str:
    """How far the runs have come."""
    lengths = sorted(int(number(run, "step") or 0) for g in groups for run in g.runs)
    low, high = lengths[0], lengths[-1]
    if low > 0.99 * high:  # segments of TBPTT round it up
        return f"after {high:,} steps"
    return f"after {low:,} to {high:,} steps" if low else f"after up to {high:,} steps"


def _open(groups: Sequence[Group]) -> list[str]:
    """A warning, if runs are not finished."""
    n, of = sum(len(g.unfinished) for g in groups), sum(len(g.runs) for g in groups)
    return [f"{n} of {of} runs {'is' if n == 1 else 'are'} not finished."] if n else []


def seeds(groups: Sequence[Group]) -> str:
    """How many there are."""
    counts = sorted({len(g.runs) for g in groups})
    if counts == [1]:
        return "one seed each"
    which = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and standard deviation over {which} seeds"


def copy_T(groups: Sequence[Group]) -> str:
    """T reached."""
    return f"The curriculum's T: {_each(groups, 'T', 'reaches T = {}', count)}, {steps(groups)}."


def copy_seconds(groups: Sequence[Group]) -> str:
    """The compute time that it took."""
    return f"Compute time for that T: {_each(groups, 'seconds', '{}', _time)}."


def _time(stat: Stat | None) -> str:
    return labels.duration(stat.mean) if stat else "–"


def copy_right(groups: Sequence[Group]) -> str:
    """Bits right by length."""
    parts = _each(groups, "right_trained", "has {} % right", percent, "{} %")
    ends = [c for g in groups if (c := right(g)) is not None]
    tried = max((int(c.x[-1]) for c in ends), default=0)
    return f"Bits right on strings of length 1 to {tried}; over the trained lengths, {parts}."


def lengths(groups: Sequence[Group]) -> str:
    """Which are trained, what becomes of the others, and which count as solved."""
    spreads = sorted({int(g.config.get("spread", Copy.spread)) for g in groups})
    below = " or ".join(map(str, spreads))
    return (
        f"Strings of T − {below} to T bits are trained, T being the curriculum's; shorter ones are "
        "no longer drawn, and are forgotten. The solved length is the largest L for which all "
        f"lengths L − {below} to L have 99 % of bits right (0: none)."
    )


def copy_summary(f: Findings) -> Summary:
    """The copy task in one breath."""
    shown = f.copy.shown

    def learnt(g: Group) -> str:
        stat = g.stat("right_trained")
        return f" with {percent(stat)} % of bits right" if stat else ""

    reached = _each(shown, "T", "reaches T = {}", brief, "T = {}", learnt)
    if not reached:
        return Summary("The copy task", "Nothing is measured yet.", "")
    more = [*_open(shown), f"T is the curriculum's, {steps(shown)}."]
    if any(map(learnt, shown)):
        more += ["Bits right are those of fresh strings of the lengths that are trained."]
        more += [lengths(shown), f"Solved: {_each(shown, 'solved', '{}', brief)}."]
    ends = {g.method: T for g in shown if (T := reach(g)) is not None}
    more += [f"No gradient of {who} spans a string longer than {T}." for who, T in ends.items()]
    theirs = labels.listed([f"{m} reaches T = {T}" for m, T in paper.COPY_T.items()])
    more.append(
        f"In the paper, with {paper.UNITS} units and {paper.LANES} lanes, {theirs}, and "
        f"{paper.COPY_STUCK} stays at its horizon."
    )
    return Summary("The copy task", f"{reached}.", " ".join(more))


def text_valid(groups: Sequence[Group]) -> str:
    """Validation bits reached."""
    parts = _each(groups, "valid", "comes down to {} bits per character", bits, "to {}")
    return f"Validation: {parts}, {steps(groups)}."


def text_seconds(groups: Sequence[Group]) -> str:
    """The compute time that it took."""
    return f"Compute time for those bits: {_each(groups, 'seconds', '{}', _time)}."


def text_summary(f: Findings) -> Summary:
    """The text in one breath."""
    shown = sorted(f.text.shown, key=score)
    names = labels.texts(g.config for g in shown)
    parts = _each(shown, "valid", "comes down to {} bits per character", bits, "to {}")
    if not parts:
        return Summary(names, "Nothing is measured yet.", "")
    tests = _each(shown, "test", "{}", bits)
    more = [*_open(shown), f"That is on validation text, {steps(shown)}."]
    more += [f"On test text: {tests}."] if tests else []
    theirs = labels.listed([f"{m} {b.valid}" for m, b in paper.PTB.items()])
    other = "" if all(map(paper.is_ptb, shown)) else ", on the Penn Treebank, another text"
    more.append(f"In the paper, on validation text: {theirs}{other}.")
    return Summary(names, f"{parts}.", " ".join(more))


def noise_time(found: Sequence[Series]) -> str:
    """The cosine early and late: flat or not."""
    spans = decades(found)
    (a, b), (c, d) = spans[min(1, len(spans) - 1)], spans[-1]  # at t = 1 nothing is noisy yet
    parts = []
    for s in found:
        early, late = s.at(a, b), s.at(c, d)
        if early is not None and late is not None:
            parts.append(f"{s.label} {early:.2f} and {late:.2f}")
    return f"Mean cosine at t = {a:,} to {b:,} and at t = {c:,} to {d:,}: {labels.listed(parts)}."


def decades(found: Sequence[Series]) -> list[tuple[int, int]]:
    """1 to 10, 11 to 100, ... as far as was measured."""
    end = max(int(s.x[-1]) for s in found)
    powers = range(max(1, math.ceil(math.log10(end))))
    return [(1 if p == 0 else 10**p + 1, min(end, 10 ** (p + 1))) for p in powers]


def noise_units(found: Sequence[Series]) -> str:
    """The cosine of the smallest and the largest network."""
    parts = [
        f"{s.label} {s.cosine[0].mean:.2f} to {s.cosine[-1].mean:.2f} (n = {s.x[0]} to {s.x[-1]})"
        for s in found
    ]
    return f"Mean cosine from the smallest to the largest network: {labels.listed(parts)}."


def noise_summary(f: Findings) -> Summary:
    """Both experiments in one breath."""
    title, more = "The noise of gradients", []
    if f.over_units:
        n = max(int(x) for s in f.over_units for x in s.x if len(s.x))
        at = {s.label: s.at(n, n) for s in f.over_units}
        where = f"with {n} units"
        more.append(noise_units(f.over_units))
    if f.over_time:
        span = decades(f.over_time)[-1]
        at = {s.label: s.at(*span) for s in f.over_time}
        where = f"after {span[0]:,} to {span[1]:,} steps"
        more.insert(0, noise_time(f.over_time))
    if not more:
        seen = {m["estimator"] for run in f.runs for m in run.metrics if "trained" in m}
        tables = f"{labels.plural(len(seen), 'method')} side by side, in a table below."
        return Summary(title, tables if seen else "Nothing is measured yet.", "")
    parts = [f"{label} {cosine:.2f}" for label, cosine in at.items() if cosine is not None]
    head = f"The cosine between estimate and exact gradient, {where}: {labels.listed(parts)}."
    return Summary(title, head, " ".join(more))

"""The outcomes in words: for the summary, and for those who cannot see the figures."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kronline.lab.analysis import labels
from kronline.lab.analysis.curves import profile
from kronline.lab.analysis.groups import Group, score
from kronline.lab.analysis.numbers import number
from kronline.lab.report.findings import Findings, Part
from kronline.lab.tasks.quantity import Profile, Quantity
from kronline.lab.variance.series import Series
from kronline.lab.wording import listed, plural

MANY, BEST = 6, 4  # of more groups than that, as many are told of


class Summary(NamedTuple):
    """An experiment's outcome."""

    title: str
    headline: str
    more: str


def heads(quantities: Sequence[Quantity]) -> list[str]:
    """What stands above their columns."""
    return [q.head for q in quantities]


def numbers(group: Group, quantities: Sequence[Quantity]) -> list[str]:
    """Those of a group, as its row has them."""
    return [group.text(q) for q in quantities]


def monitored(groups: Sequence[Group], of: Quantity) -> str:
    """The mean over the second half."""
    says = f"{of.head}, mean of the second half: {_each(groups, of)}."
    return says[0].upper() + says[1:]


def _each(
    groups: Sequence[Group],
    of: Quantity,
    say: str = "{}",
    then: str = "",
    more: Callable[[Group], str] = lambda g: "",
) -> str:
    """Of each group that has this number: the first says it in full, the others in short.

    Of more than can be read, the best ones; the tables have them all.
    """
    known = [g for g in groups if g.has(of)]
    told = sorted(known, key=score)[:BEST] if len(known) > MANY else known
    out: list[str] = []
    for g in told:
        out.append(f"{g.label} {(then if out and then else say).format(g.text(of))}{more(g)}")
    rest = len(known) - len(told)
    return listed([*out, f"{rest} more in the table"] if rest else out)


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


def curves(part: Part) -> str:
    """What was reached."""
    told = part.task.told
    reached = _each(part.shown, _reached(part), told.first, told.then)
    return f"{told.lead}: {reached}, {steps(part.shown)}."


def _reached(part: Part) -> Quantity:
    """What methods are judged by, or what was measured so far."""
    task = part.task
    return task.score if any(g.has(task.score) for g in part.shown) else task.curve


def seconds(part: Part) -> str:
    """The compute time that it took."""
    spent = [(g.label, stat.mean) for g in part.shown if (stat := g.stat("seconds"))]
    times = listed([f"{label} {labels.duration(mean)}" for label, mean in spent])
    return f"Compute time for that: {times}."


def profiles(part: Part, of: Profile) -> str:
    """In a sentence what sums them up."""
    ends = [c for g in part.shown if (c := profile(g, of)) is not None]
    tried = max((int(c.x[-1]) for c in ends), default=0)
    return f"{of.axis}, {of.x} 1 to {tried}. {of.summary.head}: {_each(part.shown, of.summary)}."


def title(part: Part) -> str:
    """What a part is about."""
    about = part.task.about(part.shown)
    return about[:1].upper() + about[1:]


def summary(part: Part) -> Summary:
    """A part in one breath."""
    task, shown = part.task, sorted(part.shown, key=score)
    reached = _each(shown, _reached(part), task.told.first, task.told.then, task.learnt)
    if not reached:
        return Summary(title(part), "Nothing is measured yet.", "")
    after = steps(shown)
    more = [*_open(shown), f"{after[0].upper()}{after[1:]}.", *task.remarks(shown)]
    return Summary(title(part), f"{reached}.", " ".join(more))


def noise_time(found: Sequence[Series]) -> str:
    """The cosine early and late: flat or not."""
    spans = decades(found)
    (a, b), (c, d) = spans[min(1, len(spans) - 1)], spans[-1]  # at t = 1 nothing is noisy yet
    parts = []
    for s in found:
        early, late = s.at(a, b), s.at(c, d)
        if early is not None and late is not None:
            parts.append(f"{s.label} {early:.2f} and {late:.2f}")
    return f"Mean cosine at t = {a:,} to {b:,} and at t = {c:,} to {d:,}: {listed(parts)}."


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
    return f"Mean cosine from the smallest to the largest network: {listed(parts)}."


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
        tables = f"{plural(len(seen), 'method')} side by side, in a table below."
        return Summary(title, tables if seen else "Nothing is measured yet.", "")
    parts = [f"{label} {cosine:.2f}" for label, cosine in at.items() if cosine is not None]
    head = f"The cosine between estimate and exact gradient, {where}: {listed(parts)}."
    return Summary(title, head, " ".join(more))

"""The outcomes in words: for the summary, and for those who cannot see the figures."""

import math
from collections.abc import Sequence

from kronline.report import labels, paper
from kronline.report.figures import reach
from kronline.report.findings import Findings
from kronline.report.groups import Group, Stat, right
from kronline.report.noise import Series


def count(stat: Stat | None) -> str:
    """A length: `12` of one seed, `12.3 ± 0.6` of several."""
    if stat is None:
        return "–"
    return f"{stat.mean:g}" if stat.std is None else stat.text(1)


def bits(stat: Stat | None) -> str:
    """Bits per character: `1.772 ± 0.004`."""
    return "–" if stat is None else stat.text(3)


def _each(
    groups: Sequence[Group], say: str, names: Sequence[str], show: object = count
) -> list[str]:
    out = []
    for g in groups:
        stats = [g.stat(name) for name in names]
        if stats[0] is not None:
            shown = [show(s) for s in stats]  # type: ignore[operator]
            out.append(f"{g.label} " + say.format(*shown))
    return out


def steps(groups: Sequence[Group]) -> str:
    """How long the runs were."""
    lengths = sorted({int(run.status.get("steps", 0)) for g in groups for run in g.runs} - {0})
    if not lengths:
        return "At the end"
    low, high = f"{lengths[0]:,}", f"{lengths[-1]:,}"
    return f"After {high} steps" if low == high else f"After {low} to {high} steps"


def seeds(groups: Sequence[Group]) -> str:
    """How many there are."""
    counts = sorted({len(g.runs) for g in groups})
    if counts == [1]:
        return "one seed each"
    which = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and standard deviation over {which} seeds"


def copy_T(groups: Sequence[Group]) -> str:
    """T reached."""
    return f"{steps(groups)}, {labels.listed(_each(groups, 'reaches T = {}', ['T']))}."


def copy_seconds(groups: Sequence[Group]) -> str:
    """T reached, and the compute time that it took."""
    parts = []
    for g in groups:
        T, seconds = g.stat("T"), g.stat("seconds")
        if T and seconds:
            parts.append(f"{g.label} reaches T = {count(T)} in {labels.duration(seconds.mean)}")
    return f"{labels.listed(parts)}."


def copy_right(groups: Sequence[Group]) -> str:
    """Lengths solved."""
    parts = _each(groups, "writes strings of length {} with 99 % of bits right", ["solved"])
    ends = [c for g in groups if (c := right(g)) is not None]
    tried = max((int(c.x[-1]) for c in ends), default=0)
    return f"Of lengths up to {tried}, {labels.listed(parts)}."


def copy_summary(f: Findings) -> str:
    """The copy task in one breath."""
    shown = f.copy.shown
    parts = []
    for g in shown:
        T, solved = g.stat("T"), g.stat("solved")
        if T is not None:
            end = f" and solves length {count(solved)}" if solved else ""
            parts.append(f"{g.label} reaches T = {count(T)}{end}")
    if not parts:
        return "Copy task: nothing is measured yet."
    text = f"{steps(shown)} of the copy task, {labels.listed(parts)}."
    for g in shown:
        if (T := reach(g)) is not None:
            text += f" The gradient of {g.label} follows no string longer than {T}."
    theirs = labels.listed([f"{T} for {m}" for m, T in paper.COPY_T.items()])
    return (
        f"{text} The paper reports T = {theirs}, and {paper.COPY_STUCK} held at its horizon, with "
        "256 units and 256 lanes."
    )


def text_valid(groups: Sequence[Group]) -> str:
    """Validation bits reached."""
    parts = _each(groups, "comes down to {} bits per character", ["valid"], bits)
    return f"{steps(groups)}, {labels.listed(parts)}."


def text_seconds(groups: Sequence[Group]) -> str:
    """The same, with the compute time that it took."""
    parts = []
    for g in groups:
        valid, seconds = g.stat("valid"), g.stat("seconds")
        if valid and seconds:
            parts.append(f"{g.label} needs {labels.duration(seconds.mean)} for {bits(valid)}")
    return f"Validation bits per character: {labels.listed(parts)}."


def text_summary(f: Findings) -> str:
    """The text in one breath."""
    shown = f.text.shown
    parts = _each(shown, "{}", ["valid"], bits)
    if not parts:
        return "Text: nothing is measured yet."
    names = labels.listed(sorted({str(g.config.get("data")) for g in shown}))
    theirs = labels.listed([f"{b.valid} for {m}" for m, b in paper.PTB.items()])
    other = "" if all(map(paper.is_ptb, shown)) else " on the Penn Treebank, another text"
    return (
        f"{steps(shown)} on {names}, validation bits per character: {labels.listed(parts)}. "
        f"The paper reports {theirs}{other}."
    )


def noise_time(found: Sequence[Series]) -> str:
    """The cosine at the start and at the end: flat or not."""
    parts = []
    for s in found:
        first, last = (s.at(*d) for d in (decades(found)[0], decades(found)[-1]))
        if first is not None and last is not None:
            parts.append(f"{s.label} has {first:.2f} and {last:.2f}")
    (a, b), (c, d) = decades(found)[0], decades(found)[-1]
    return f"Mean cosine at t = {a:,} to {b:,} and at t = {c:,} to {d:,}: {labels.listed(parts)}."


def decades(found: Sequence[Series]) -> list[tuple[int, int]]:
    """1 to 10, 11 to 100, ... as far as was measured."""
    end = max(int(s.x[-1]) for s in found)
    powers = range(max(1, math.ceil(math.log10(end))))
    return [(1 if p == 0 else 10**p + 1, min(end, 10 ** (p + 1))) for p in powers]


def noise_units(found: Sequence[Series]) -> str:
    """The cosine of the smallest and the largest network."""
    parts = [
        f"{s.label} goes from {s.cosine[0].mean:.2f} at n = {s.x[0]} to {s.cosine[-1].mean:.2f} "
        f"at n = {s.x[-1]}"
        for s in found
    ]
    return f"Mean cosine: {labels.listed(parts)}."


def noise_summary(f: Findings) -> str:
    """Both experiments in one breath."""
    parts = []
    if f.over_time:
        parts.append(noise_time(f.over_time))
    if f.over_units:
        parts.append("Over units: " + noise_units(f.over_units).removeprefix("Mean cosine: "))
    both = " ".join(parts)
    return f"The noise of the gradients, as the cosine between estimate and exact gradient. {both}"

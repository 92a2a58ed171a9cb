"""What the paper reports, and the settings with which it got there, each with its source.

The paper: Mujika, Meier & Steger, Approximating Real-Time Recurrent Learning with Random Kronecker
Factors, NeurIPS 2018.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kronline.report import labels
from kronline.report.groups import Group
from kronline.tasks.corpus import PTB_SHA256

CITATION = (
    "Asier Mujika, Florian Meier and Angelika Steger: Approximating Real-Time Recurrent Learning "
    "with Random Kronecker Factors, NeurIPS 2018"
)

# section 5.1: "solve the task on average up to T = 36 and T = 13, respectively"
COPY_T = {"KF-RTRL": 36, "UORO": 13}
# "As expected, TBPTT cannot learn dependencies that are longer than the truncation horizon"
COPY_STUCK = "TBPTT-25"


class Bits(NamedTuple):
    """Bits per character on the Penn Treebank."""

    valid: float
    test: float


# Table 1; "we do not report standard deviations, as all of them are smaller than 0.03"
PTB = {
    "KF-RTRL": Bits(1.77, 1.72),
    "UORO": Bits(2.63, 2.61),
    "TBPTT-5": Bits(1.64, 1.58),
    "TBPTT-25": Bits(1.61, 1.56),
}
PTB_STD = 0.03
RATES = tuple(10**p for p in (-2.5, -3, -3.5, -4))  # "pick the optimal learning rate from"
UNITS, LANES = 256, 256  # "a RHN with 256 units and a batch size of 256"
REPETITIONS = 100  # "We perform 100 repetitions per experiment"
SEEDS = 5  # "We repeat each experiment 5 times"


class Setting(NamedTuple):
    """A setting of the paper's, and why another value matters."""

    key: str
    words: str
    value: Any
    why: str


_NETWORK = (
    Setting(
        "cell", "network", "RHN", "a single-layer Recurrent Highway Network in all experiments"
    ),
    Setting(
        "hidden", "units", UNITS, "UORO's noise grows with the units; so does what can be held"
    ),
    Setting("lanes", "lanes (batch size)", LANES, "more lanes average the noise of more estimates"),
    Setting("optimiser", "optimiser", "adam", "β₁ = 0.9 and β₂ = 0.999, the defaults"),
    Setting("schedule", "schedule of the rate", "constant", "the paper names none"),
    Setting("clip", "gradient clipping", "none", "the paper names none; clipping adds a bias"),
    Setting("update_every", "steps between updates", "none", "at every step, or every segment"),
)
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "copy": (
        *_NETWORK,
        Setting("threshold", "T grows below", 0.15, "bits/char; lower keeps T near what is learnt"),
        Setting("spread", "lengths below T that are drawn", 5, "uniformly from T − 5 to T"),
    ),
    "text": (
        *_NETWORK,
        Setting("data", "text", "Penn Treebank", "bits/char of two texts cannot be compared"),
        Setting("reset", "probability of a reset a step", 0.01, "drops stale gradients"),
    ),
    "variance": (
        Setting("cell", "network", "RHN", "noise depends on what the cell does with its state"),
        Setting("run", "trained network", "none", "the paper's networks are untrained"),
        Setting("hidden", "units, over time", UNITS, "UORO's cosine falls with the units"),
        Setting("characters", "characters", 10_000, "how far the noise is followed"),
        Setting("steps", "steps before the look, over units", 100, "noise settles within some"),
        Setting("loss_steps", "losses that are summed", 1, "the paper looks at one L_t"),
        Setting("data", "text", "Penn Treebank", "the inputs that drive the network"),
    ),
}
NOT_STATED = "not stated"


class Difference(NamedTuple):
    """One way in which runs are not the paper's."""

    what: str
    here: str
    paper: str
    why: str


def is_ptb(group: Group) -> bool:
    """Whether the text is the paper's, by its checksum."""
    return all(
        run.about.get("data", {}).get("sha256", {}).get("train") == PTB_SHA256 for run in group.runs
    )


def differences(kind: str, groups: Sequence[Group]) -> list[Difference]:
    """From the configurations: every setting that is not the paper's, then what never is."""
    out = []
    for s in SETTINGS[kind]:
        found = [(g, g.config[s.key]) for g in groups if s.key in g.config]
        if any(v != s.value for _, v in found):
            out.append(
                Difference(s.words, _values(s.key, found), labels.value(s.key, s.value), s.why)
            )
    out += _draws(groups) if kind == "variance" else _repetitions(groups) + _length(groups)
    return out + _always(kind, groups)


def _values(key: str, found: Sequence[tuple[Group, Any]]) -> str:
    """`64`, or `64 (KF-RTRL), 128 (UORO)` where groups differ."""
    by_value: dict[str, list[str]] = {}
    for group, given in found:
        by_value.setdefault(labels.value(key, given), []).append(group.method)
    if len(by_value) == 1:
        return next(iter(by_value))
    return ", ".join(f"{v} ({'; '.join(dict.fromkeys(who))})" for v, who in by_value.items())


def _repetitions(groups: Sequence[Group]) -> list[Difference]:
    out = []
    seeds = sorted({len(g.runs) for g in groups})
    if seeds != [SEEDS]:
        here = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        why = "the mean and its deviation are less certain with fewer"
        out.append(Difference("seeds", here, str(SEEDS), why))
    rates = sorted({float(g.config["rate"]) for g in groups if "rate" in g.config}, reverse=True)
    if [labels.rate(r) for r in rates] != [labels.rate(r) for r in RATES]:
        here, grid = (", ".join(labels.rate(r) for r in rs) for rs in (rates, RATES))
        why = "the paper tunes the rate of each method"
        out.append(Difference("learning rates tried", here, grid, why))
    return out


def _draws(groups: Sequence[Group]) -> list[Difference]:
    """Networks times draws of the signs."""
    out = []
    for over, keys in (
        ("time", ("networks", "draws")),
        ("units", ("units_networks", "units_draws")),
    ):
        given = [
            (g, [g.config[k] for k in keys]) for g in groups if all(k in g.config for k in keys)
        ]
        found = [(g, n * draws * len(g.runs)) for g, (n, draws) in given]
        if any(n != REPETITIONS for _, n in found):
            why = "networks times draws of the signs; the deviation is less certain with fewer"
            here, theirs = _values("", found), str(REPETITIONS)
            out.append(Difference(f"repetitions, over {over}", here, theirs, why))
    return out


def _length(groups: Sequence[Group]) -> list[Difference]:
    steps = sorted({int(run.status.get("steps", 0)) for g in groups for run in g.runs} - {0})
    here = (
        labels.listed([f"{s:,}" for s in steps])
        if len(steps) < 3
        else (f"{steps[0]:,} to {steps[-1]:,}")
    )
    return [Difference("steps", here, NOT_STATED, "longer runs come further")] if steps else []


def _always(kind: str, groups: Sequence[Group]) -> list[Difference]:
    """What the paper's text leaves open, or what is done in another way on purpose."""
    first = groups[0].config if groups else {}
    if kind == "copy":
        here = [(g, labels.LAGS.get(str(g.config.get("delay")), "T + 1")) for g in groups]
        return [
            Difference(
                "steps between reading and writing",
                _values("", here),
                "2(T + 1) in its figure",
                "“dependencies of up to 36 steps” at T = 36 fits T + 1, as does later code",
            ),
            Difference(
                "error that raises T",
                f"an average with {first.get('smoothing', 0.999):g} of the past a step, "
                f"{first.get('restart', 0.3):g} after each growth",
                NOT_STATED,
                "as in the same group's later code",
            ),
            Difference(
                "what was learnt",
                "the curriculum's T; at the end, on fresh strings, the bits right over the lengths "
                "that are trained, and the solved length",
                "the curriculum's T",
                "T can pass a horizon by several bits with no length beyond it solved, and lengths "
                "that are no longer drawn are forgotten",
            ),
        ]
    if kind == "text":
        return [
            Difference(
                "test",
                "once, with what was best in validation",
                NOT_STATED,
                "the usual way",
            ),
            Difference(
                "parameters",
                labels.listed(
                    sorted(
                        {
                            f"{int(r.about['parameters']):,}"
                            for g in groups
                            for r in g.runs
                            if "parameters" in r.about
                        }
                    )
                )
                or NOT_STATED,
                "133K",
                "133K is (256 + 4) · 512: the copy task's recurrent weights, no bias, no readout",
            ),
        ]
    return [
        Difference(
            "exact gradient",
            "by reverse mode over all characters so far",
            "by RTRL",
            "the same numbers; RTRL takes O(n⁴) a step",
        )
    ]

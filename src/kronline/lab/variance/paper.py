"""What the paper has for the noise of gradients (section 5.3), and what differs from it."""

from collections.abc import Sequence

from kronline.lab.analysis.groups import Group
from kronline.lab.tasks.paper import UNITS, Difference, Setting, by_value

REPETITIONS = 100  # "We perform 100 repetitions per experiment"

SETTINGS = (
    Setting("cell", "network", "RHN", "noise depends on what the cell does with its state"),
    Setting("run", "trained network", "none", "the paper's networks are untrained"),
    Setting("hidden", "units, over time", UNITS, "UORO's cosine falls with the units"),
    Setting("characters", "characters", 10_000, "how far the noise is followed"),
    Setting("steps", "steps before the look, over units", 100, "noise settles within some"),
    Setting("loss_steps", "losses that are summed", 1, "the paper looks at one L_t"),
    Setting("data", "text that is read", "Penn Treebank", "the inputs that drive the network"),
)


def differences(groups: Sequence[Group]) -> list[Difference]:
    """Besides settings: repetitions, and how the exact gradient is found."""
    out = []
    for over, keys in (
        ("time", ("networks", "draws")),
        ("units", ("units_networks", "units_draws")),
    ):
        given = [
            (g, [g.config[k] for k in keys]) for g in groups if all(k in g.config for k in keys)
        ]
        found = [(g.method, n * draws * len(g.runs)) for g, (n, draws) in given]
        if any(n != REPETITIONS for _, n in found):
            why = "networks times draws of the signs; the deviation is less certain with fewer"
            here = by_value((method, f"{n:,}") for method, n in found)
            out.append(Difference(f"repetitions, over {over}", here, str(REPETITIONS), why))
    return [
        *out,
        Difference(
            "exact gradient",
            "by reverse mode over all characters so far",
            "by RTRL",
            "the same numbers; RTRL takes O(n⁴) per step",
        ),
    ]

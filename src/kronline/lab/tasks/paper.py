"""What the papers report, and the settings with which they got there.

Of the paper on KF-RTRL: Mujika, Meier & Steger, Approximating Real-Time Recurrent Learning with
Random Kronecker Factors, NeurIPS 2018.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

CITATION = (
    "Asier Mujika, Florian Meier and Angelika Steger: Approximating Real-Time Recurrent Learning "
    "with Random Kronecker Factors, NeurIPS 2018"
)
RATES = tuple(10**p for p in (-2.5, -3, -3.5, -4))  # "pick the optimal learning rate from"
UNITS, LANES = 256, 256  # "a RHN with 256 units and a batch size of 256"
SEEDS = 5  # "We repeat each experiment 5 times"
NOT_STATED = "not stated"


class Setting(NamedTuple):
    """A setting of a paper's, and why another value matters."""

    key: str
    words: str
    value: Any
    why: str


class Difference(NamedTuple):
    """One way in which runs are not the paper's."""

    what: str
    here: str
    paper: str
    why: str


def by_value(found: Iterable[tuple[str, str]]) -> str:
    """Of (method, value): `64`, or `64 (KF-RTRL), 128 (UORO; TBPTT-5)` where values differ."""
    methods: dict[str, list[str]] = {}
    for method, value in found:
        methods.setdefault(value, []).append(method)
    if len(methods) == 1:
        return next(iter(methods))
    return ", ".join(f"{v} ({'; '.join(dict.fromkeys(who))})" for v, who in methods.items())


@dataclass(frozen=True)
class Published:
    """What a paper has for a task.

    Args:
        citation: the paper.
        settings: with which it got there.
        heads: of the columns that show its numbers beside ours.
        rates: learning rates that it tried.
        seeds: how often it repeated each experiment.
        steps: for how many steps it trained; None: it does not say.
        note: on its numbers, below the table.
    """

    citation: str
    settings: tuple[Setting, ...]
    heads: tuple[str, ...]
    rates: tuple[float, ...] = RATES
    seeds: int = SEEDS
    steps: int | None = None
    note: str = ""


NETWORK = (
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

"""Runs that differ in nothing but the seed, as one: their mean, their deviation, their label."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

from kronline.lab.analysis import labels
from kronline.lab.analysis.numbers import number
from kronline.lab.analysis.stat import Stat
from kronline.lab.runs import config as configs
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.quantity import Quantity
from kronline.spec import canonical

# how a run is kept, not what is learnt
HOW = frozenset({"seed", "preset", "log_every", "save_every", "keep", "tensorboard", "monitor"})
ORDER = ("KF-RTRL", "UORO", "UORO-AVG", "TBPTT")  # as in the paper's table; others behind them


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, ordered by seed."""

    kind: str
    method: str
    config: dict[str, Any]  # without what only says how a run is kept
    runs: tuple[Run, ...]
    label: str = ""
    defaults: dict[str, Any] = field(default_factory=dict, repr=False)  # of all settings

    @property
    def seeds(self) -> list[int]:
        """One per run."""
        return [int(run.config.get("seed", 0)) for run in self.runs]

    @property
    def unfinished(self) -> list[Run]:
        """Runs that have not reached, or will not reach, their last step."""
        return [run for run in self.runs if run.state != "finished"]

    def stat(self, name: str) -> Stat | None:
        """Of one number per run, as `numbers.number` gives it."""
        return Stat.of(number(run, name) for run in self.runs)

    def has(self, quantity: Quantity) -> bool:
        """Whether it was measured."""
        return self.stat(quantity.key) is not None

    def text(self, quantity: Quantity) -> str:
        """Mean and deviation of a quantity over seeds; a dash if it was not measured."""
        stat = self.stat(quantity.key)
        return "–" if stat is None else quantity.text(stat.mean, stat.std)

    @property
    def horizon(self) -> int | None:
        """Over how many steps gradients reach, for TBPTT; else None."""
        return labels.horizon(str(self.config.get("estimator", "")))

    @property
    def abouts(self) -> list[dict[str, Any]]:
        """What each run wrote down of itself."""
        return [run.about for run in self.runs]


class Kind(Protocol):
    """What configures runs of one kind: a task, or another dataclass of settings."""

    kind: ClassVar[str]


def grouped(runs: Iterable[Run], kind: type[Kind]) -> list[Group]:
    """Runs of a kind by all but the seed, labelled; methods in the paper's order."""
    defaults = defaults_of(kind)
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.kind == kind.kind:
            found.setdefault(_key(run, defaults), []).append(run)
    out = []
    for members in found.values():
        same = sorted(members, key=lambda run: (run.config.get("seed", 0), str(run.path)))
        config = settings(same[0], defaults)
        method = labels.method(str(config.get("estimator", "")))
        out.append(Group(kind.kind, method, config, tuple(same), defaults=defaults))
    return sorted(labelled(out), key=lambda g: (rank(g.method), rank(g.label)))


def settings(run: Run, defaults: dict[str, Any]) -> dict[str, Any]:
    """What is learnt, and how: the configuration without what only says how the run is kept.

    A setting that the run's version did not have yet counts as its default, which is to do as
    before.
    """
    out = {k: v for k, v in (defaults | run.config).items() if k not in HOW}
    if "name" in run.about.get("data", {}):
        out["data"] = run.about["data"]["name"]
    return out


@cache
def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """Of all settings of a kind of run, as a run's file has them."""
    return tomllib.loads(configs.toml(kind(), kind.kind))


def _key(run: Run, defaults: dict[str, Any], without: str = "") -> str:
    """What runs of one group share; a text counts by what it is, not by how it was given."""
    own = settings(run, defaults)
    if "estimator" in own:  # `kf_rtrl` is `kf_rtrl()`
        own["estimator"] = canonical(str(own["estimator"]), "estimator")
    shared = sorted((k, v) for k, v in own.items() if k != without)
    return repr((shared, run.about.get("data", {}).get("sha256")))


def rank(method: str) -> tuple[int, list[Any]]:
    """Where a method stands among others: TBPTT-5 before TBPTT-25."""
    family = max((f for f in ORDER if method.startswith(f)), key=len, default="")
    numbers = [int(part) for part in re.findall(r"\d+", method)]
    return (ORDER.index(family) if family else len(ORDER)), [numbers, method]


def labelled(groups: Sequence[Group]) -> list[Group]:
    """With the method's name, and only the settings in which the groups differ.

    The learning rate is tuned for each method, so it is named only where a method has several.
    """
    differ = sorted(varying([g.config for g in groups]) - {"estimator", "rate"})
    out: list[Group] = []
    for g in groups:
        rates = {
            h.config.get("rate") for h in groups if h.config | {"rate": 0} == g.config | {"rate": 0}
        }
        keys = [*differ, "rate"] if len(rates) > 1 else differ
        more = [labels.setting(k, g.config.get(k), g.kind) for k in keys]
        label = ", ".join(part for part in (g.method, *more) if part)
        same = sum(h.label == label or h.label.startswith(f"{label} (") for h in out)
        out.append(replace(g, label=f"{label} ({same + 1})" if same else label))
    return out


def varying(configs: Sequence[dict[str, Any]]) -> set[str]:
    """The keys whose values are not the same in all."""
    keys = {k for c in configs for k in c}
    return {k for k in keys if any(c.get(k) != configs[0].get(k) for c in configs)}


def score(group: Group) -> tuple[bool, float, float]:
    """Less is better, by the rule of the task; behind all others if a run diverged."""
    task = TASKS[group.kind]
    diverged = any(run.state == "diverged" for run in group.runs)
    reached, arrival = group.stat(task.score.key), group.stat("arrival")
    if reached is None:
        return diverged, math.inf, math.inf
    late = arrival.mean if task.earlier and arrival else 0.0
    return diverged, reached.mean if task.lower else -reached.mean, late


class Picked(NamedTuple):
    """The groups that are shown, each at its best learning rate, and all that were tried."""

    shown: list[Group]
    tried: list[list[Group]]  # of each shown one, by rate


def best_rates(groups: Sequence[Group]) -> Picked:
    """Of groups that differ in the learning rate alone, the best one by the rule of their task."""
    families: dict[str, list[Group]] = {}
    for g in groups:
        families.setdefault(_key(g.runs[0], g.defaults, without="rate"), []).append(g)
    tried = [sorted(f, key=lambda g: -float(g.config.get("rate", 0))) for f in families.values()]
    return Picked(labelled([min(f, key=score) for f in tried]), tried)

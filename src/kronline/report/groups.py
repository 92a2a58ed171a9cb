"""Runs that differ in nothing but the seed, as one: their mean, their deviation, their label."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kronline.report import labels
from kronline.runs import config as configs
from kronline.runs.folder import Run
from kronline.runs.settings import KINDS
from kronline.variance.settings import Variance

# how a run is kept, not what is learnt
HOW = frozenset({"seed", "preset", "log_every", "save_every", "keep", "tensorboard", "monitor"})
MONITORED = ("snr", "noise")  # of `--monitor`; as one number, the mean over the second half
ORDER = ("KF-RTRL", "UORO", "UORO-AVG", "TBPTT")  # as in the paper's table; others behind them


class Stat(NamedTuple):
    """Mean and standard deviation (of a sample, n − 1) over seeds; none for a single one."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Stat | None":
        """Of the numbers among the values; None if there is none."""
        x = [float(v) for v in values if v is not None and math.isfinite(v)]
        if not x:
            return None
        return cls(float(np.mean(x)), float(np.std(x, ddof=1)) if len(x) > 1 else None, len(x))

    def text(self, digits: int) -> str:
        """`12.3 ± 0.6`."""
        shown = f"{self.mean:.{digits}f}"
        return shown if self.std is None else f"{shown} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, ordered by seed."""

    kind: str
    method: str
    config: dict[str, Any]  # without what only says how a run is kept
    runs: tuple[Run, ...]
    label: str = ""

    @property
    def seeds(self) -> list[int]:
        """One a run."""
        return [int(run.config.get("seed", 0)) for run in self.runs]

    @property
    def unfinished(self) -> list[Run]:
        """Runs that have not reached, or will not reach, their last step."""
        return [run for run in self.runs if run.state != "finished"]

    def stat(self, name: str) -> Stat | None:
        """Of one number a run: T, right_trained, solved, valid, test, seconds, step, ..."""
        return Stat.of(number(run, name) for run in self.runs)


def number(run: Run, name: str) -> float | None:
    """One number of a run, as of its last measurement; None if it was never measured."""
    if name == "valid":  # the best one
        return min((y for _, y in points(run, "valid")), default=None)
    if name == "seconds":
        return clock(run)[-1][1] if run.timing else None
    if name == "step":
        return max((m["step"] for m in run.metrics), default=0)
    if name == "arrival":  # when the last T was reached
        T = points(run, "T")
        return next(x for x, y in T if y == T[-1][1]) if T else None
    seen = points(run, name)
    if name in MONITORED:
        late = [y for x, y in seen if 2 * x > seen[-1][0]]
        return float(np.mean(late)) if late else None
    return seen[-1][1] if seen else None


def points(run: Run, name: str) -> list[tuple[float, float]]:
    """(step, value) wherever it was measured and is a number; step 0 has T = 1."""
    seen = [(m["step"], m[name]) for m in run.metrics if m.get(name) is not None]
    if name == "valid":  # the closing line repeats the best one, and says where that was
        seen = [(m.get("valid_step", m["step"]), m[name]) for m in run.metrics if name in m]
        seen = sorted(dict(seen).items())
    points = [(float(x), float(y)) for x, y in seen if math.isfinite(y)]
    return [(0.0, 1.0), *points] if name == "T" and points else points


def clock(run: Run) -> list[tuple[float, float]]:
    """(step, seconds since the start); a chunk that was done twice counts once."""
    chunks = {float(t["step"]): float(t["seconds"]) for t in run.timing}
    steps = sorted(chunks)
    seconds = np.cumsum([chunks[s] for s in steps]).tolist()
    return [(0.0, 0.0), *zip(steps, seconds, strict=True)]


# -- which runs belong together, and which are shown -----------------------------------------------


def grouped(runs: Iterable[Run], kind: str) -> list[Group]:
    """Runs of a kind by all but the seed, labelled; methods in the paper's order."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.kind == kind:
            found.setdefault(_key(run), []).append(run)
    out = []
    for members in found.values():
        same = sorted(members, key=lambda run: (run.config.get("seed", 0), str(run.path)))
        config = settings(same[0])
        out.append(
            Group(kind, labels.method(str(config.get("estimator", ""))), config, tuple(same))
        )
    return sorted(labelled(out), key=lambda g: (rank(g.method), rank(g.label)))


def settings(run: Run) -> dict[str, Any]:
    """What is learnt, and how: the configuration without what only says how the run is kept.

    A setting that the run's version did not have yet counts as its default, which is to do as
    before.
    """
    out = {k: v for k, v in (_defaults(run.kind) | run.config).items() if k not in HOW}
    if "name" in run.about.get("data", {}):
        out["data"] = run.about["data"]["name"]
    return out


@cache
def _defaults(kind: str) -> dict[str, Any]:
    """Of all settings of a kind of run, as a run's file has them."""
    known: dict[str, type] = {**KINDS, Variance.KIND: Variance}
    return tomllib.loads(configs.toml(known[kind](), kind)) if kind in known else {}


def _key(run: Run, without: str = "") -> str:
    """What runs of one group share; a text counts by what it is, not by how it was given."""
    shared = sorted((k, v) for k, v in settings(run).items() if k != without)
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
        more = [labels.setting(k, g.config.get(k)) for k in keys]
        label = ", ".join(part for part in (g.method, *more) if part)
        same = sum(h.label == label or h.label.startswith(f"{label} (") for h in out)
        out.append(replace(g, label=f"{label} ({same + 1})" if same else label))
    return out


def varying(configs: Sequence[dict[str, Any]]) -> set[str]:
    """The keys whose values are not the same in all."""
    keys = {k for c in configs for k in c}
    return {k for k in keys if any(c.get(k) != configs[0].get(k) for c in configs)}


RULE = {
    "copy": "the highest mean final T, and of equals the one that arrived earlier; rates with "
    "which a run diverged come last",
    "text": "the lowest mean best validation bits/char; rates with which a run diverged come last",
}


def score(group: Group) -> tuple[bool, float, float]:
    """Less is better, by the rule of its kind; behind all others if a run diverged."""
    worst = Stat(math.inf, None, 0)
    diverged = any(run.state == "diverged" for run in group.runs)
    if group.kind == "copy":
        T, arrival = group.stat("T") or Stat(-math.inf, None, 0), group.stat("arrival") or worst
        return diverged, -T.mean, arrival.mean
    return diverged, (group.stat("valid") or worst).mean, 0.0


class Picked(NamedTuple):
    """The groups that are shown, each at its best learning rate, and all that were tried."""

    shown: list[Group]
    tried: list[list[Group]]  # of each shown one, by rate


def best_rates(groups: Sequence[Group]) -> Picked:
    """Of groups that differ in the learning rate alone, the best one by the rule of their kind."""
    families: dict[str, list[Group]] = {}
    for g in groups:
        families.setdefault(_key(g.runs[0], without="rate"), []).append(g)
    tried = [sorted(f, key=lambda g: -float(g.config.get("rate", 0))) for f in families.values()]
    return Picked(labelled([min(f, key=score) for f in tried]), tried)

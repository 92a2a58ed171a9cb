"""All that a report says, computed from the runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kronline.lab.analysis import labels
from kronline.lab.analysis.beside import Beside
from kronline.lab.analysis.curves import Curve
from kronline.lab.analysis.groups import Group, best_rates, grouped
from kronline.lab.analysis.numbers import number
from kronline.lab.analysis.stat import Stat
from kronline.lab.report.style import Look, looks
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import TASKS, Task
from kronline.lab.variance import Variance
from kronline.lab.variance.series import Series, series


@dataclass(frozen=True)
class Part:
    """The runs of one task; of a task with a facet, those of one of its values."""

    task: type[Task]
    value: Any  # of the facet; None: the task has none
    shown: list[Group]  # each at its best learning rate
    tried: list[list[Group]]  # of each shown one, by rate

    @property
    def facet(self) -> str:
        """The facet's value in words."""
        if self.value is None:
            return ""
        return labels.setting(self.task.facet, self.value, self.task.kind)

    @property
    def name(self) -> str:
        """On the page, to link to."""
        return self.task.kind if self.value is None else f"{self.task.kind}-{self.value}"

    @property
    def groups(self) -> list[Group]:
        """Every learning rate."""
        return [g for family in self.tried for g in family]


@dataclass(frozen=True)
class Findings:
    """Runs as groups and curves."""

    runs: list[Run]
    parts: list[Part]
    noise: list[Group]  # the variance runs
    over_time: list[Series]
    over_units: list[Series]
    look: dict[str, Look]  # of every label
    beside: list[Beside] = field(default_factory=list)  # what others measured

    @classmethod
    def of(cls, runs: Iterable[Run], beside: Sequence[Beside] = ()) -> "Findings":
        """Everything at once."""
        runs = list(runs)
        parts = [part for task in TASKS.values() for part in parts_of(runs, task)]
        over_time, over_units = series(runs, "time"), series(runs, "units")
        look = looks(
            *([(g.method, g.label) for g in part.shown] for part in parts),
            [(s.method, s.label) for s in [*over_time, *over_units]],
        )
        noise = grouped(runs, Variance)
        apart = [b._replace(label=f"{b.label} (others)") if b.label in look else b for b in beside]
        return cls(runs, parts, noise, over_time, over_units, look, apart)

    def of_task(self, task: type[Task]) -> list[Part]:
        """Its parts."""
        return [part for part in self.parts if part.task is task]

    @property
    def tasks(self) -> list[type[Task]]:
        """Those that there are runs of."""
        return [task for task in TASKS.values() if self.of_task(task)]

    def others(self, part: Part) -> list[tuple[str, Curve]]:
        """Curves of others that belong to a part, as far as ours come."""
        kind = part.task.kind
        steps = [number(run, "step") or 0 for g in part.groups for run in g.runs]
        found = [(b.label, b.curve.until(max(steps))) for b in self.beside if b.kind == kind]
        return [(label, c) for label, c in found if len(c.x) > 1]

    def numbers(self) -> dict[str, Any]:
        """The page's numbers, for programs."""
        out: dict[str, Any] = {
            task.kind: [_row(g) for part in self.of_task(task) for g in part.shown]
            for task in TASKS.values()
        }
        families = [family for part in self.parts for family in part.tried]
        out["rates"] = [_row(g) for family in families if len(family) > 1 for g in family]
        out["variance"] = {"time": _rows(self.over_time), "units": _rows(self.over_units)}
        return out


def parts_of(runs: Sequence[Run], task: type[Task]) -> list[Part]:
    """A task's runs: all together, or by its facet."""
    own = [run for run in runs if run.kind == task.kind]
    if not own:
        return []
    if not task.facet:
        return [_part(task, None, own)]
    by_value: dict[str, list[Run]] = {}
    for run in own:
        value = run.config.get(task.facet, getattr(task, task.facet))
        by_value.setdefault(value, []).append(run)
    return [_part(task, value, some) for value, some in by_value.items()]


def _part(task: type[Task], value: Any, runs: Sequence[Run]) -> Part:
    return Part(task, value, *best_rates(grouped(runs, task)))


def _row(g: Group) -> dict[str, Any]:
    task = TASKS[g.kind]
    row: dict[str, Any] = {"label": g.label, "method": g.method, "rate": g.config.get("rate")}
    row |= {"seeds": g.seeds, "states": [run.state for run in g.runs]}
    row |= {task.facet: g.config[task.facet]} if task.facet else {}
    row |= {name: _stat(g.stat(name)) for name in (*(q.key for q in task.numbers), "seconds")}
    return row | {"paper": task.published(g.method, g.config)}


def _rows(found: Sequence[Series]) -> list[dict[str, Any]]:
    return [
        {"label": s.label, "x": s.x.tolist(), "cosine": [_stat(c) for c in s.cosine]} for s in found
    ]


def _stat(stat: Stat | None) -> dict[str, Any] | None:
    return stat._asdict() if stat else None

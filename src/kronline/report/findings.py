"""All that a report says, computed from the runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kronline.report import paper
from kronline.report.beside import Beside
from kronline.report.curves import Curve
from kronline.report.groups import Group, Picked, Stat, best_rates, grouped, number
from kronline.report.noise import Series, series
from kronline.report.style import Look, looks
from kronline.runs.folder import Run
from kronline.tasks.copy import NUMBERS


@dataclass(frozen=True)
class Findings:
    """Runs as groups and curves, by kind."""

    runs: list[Run]
    copy: Picked
    text: Picked
    noise: list[Group]  # the variance runs
    over_time: list[Series]
    over_units: list[Series]
    look: dict[str, Look]  # of every label
    beside: list[Beside] = field(default_factory=list)  # what others measured

    @classmethod
    def of(cls, runs: Iterable[Run], beside: Sequence[Beside] = ()) -> "Findings":
        """Everything at once."""
        runs = list(runs)
        copy, text = (best_rates(grouped(runs, kind)) for kind in ("copy", "text"))
        over_time, over_units = series(runs, "time"), series(runs, "units")
        look = looks(
            [(g.method, g.label) for g in copy.shown],
            [(g.method, g.label) for g in text.shown],
            [(s.method, s.label) for s in [*over_time, *over_units]],
        )
        noise = grouped(runs, "variance")
        apart = [b._replace(label=f"{b.label} (others)") if b.label in look else b for b in beside]
        return cls(runs, copy, text, noise, over_time, over_units, look, apart)

    def others(self, kind: str) -> list[tuple[str, Curve]]:
        """Curves of others that belong to a kind of run, as far as ours come."""
        steps = [number(run, "step") or 0 for run in self.runs if run.kind == kind]
        found = [(b.label, b.curve.until(max(steps))) for b in self.beside if b.kind == kind]
        return [(label, c) for label, c in found if len(c.x) > 1]

    def groups(self, kind: str) -> list[Group]:
        """All groups of a kind, every learning rate."""
        if kind == "variance":
            return self.noise
        return [g for family in getattr(self, kind).tried for g in family]

    def numbers(self) -> dict[str, Any]:
        """The page's numbers, for programs."""
        kinds = (("copy", self.copy, _COPY), ("text", self.text, _TEXT))
        out: dict[str, Any] = {
            kind: [_row(g, names) for g in picked.shown] for kind, picked, names in kinds
        }
        out["rates"] = [
            _row(g, names)
            for _, picked, names in kinds
            for family in picked.tried
            if len(family) > 1
            for g in family
        ]
        out["variance"] = {"time": _rows(self.over_time), "units": _rows(self.over_units)}
        return out


_COPY, _TEXT = (*NUMBERS, "seconds"), ("valid", "test", "seconds")


def _row(g: Group, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"label": g.label, "method": g.method, "rate": g.config.get("rate")}
    row |= {"seeds": g.seeds, "states": [run.state for run in g.runs]}
    row |= {name: _stat(g.stat(name)) for name in names}
    if g.kind == "copy":
        return row | {"paper": paper.COPY_T.get(g.method)}
    bits = paper.PTB.get(g.method)
    return row | {"paper": bits._asdict() if bits else None}


def _rows(found: Sequence[Series]) -> list[dict[str, Any]]:
    return [
        {"label": s.label, "x": s.x.tolist(), "cosine": [_stat(c) for c in s.cosine]} for s in found
    ]


def _stat(stat: Stat | None) -> dict[str, Any] | None:
    return stat._asdict() if stat else None

"""What came out of a sweep: every setting's numbers, and the best learning rate of each method."""

from pathlib import Path
from typing import Any

from kronline.lab.analysis.groups import Group, best_rates, grouped
from kronline.lab.runs import folder
from kronline.lab.tasks import Task
from kronline.lab.tasks.quantity import MONITORED


def results(task: type[Task], paths: list[Path]) -> dict[str, Any]:
    """For programs; `paths`: of the sweep's runs, of which some may not have begun."""
    runs = folder.find([p for p in paths if folder.is_run(p)])
    picked = best_rates(grouped(runs, task))
    counted = [q.key for q in task.numbers]

    def row(g: Group, shown: Group) -> dict[str, Any]:
        out: dict[str, Any] = {"method": shown.label, "picked": g.config == shown.config}
        out |= {"rate": g.config["rate"], "seeds": g.seeds, "states": [r.state for r in g.runs]}
        for name in (*counted, *(q.key for q in MONITORED)):
            stat = g.stat(name)
            if stat is not None or name in counted:
                out[name] = stat and {"mean": stat.mean, "std": stat.std, "n": stat.n}
        return out

    families = zip(picked.tried, picked.shown, strict=True)
    tried = [row(g, shown) for family, shown in families for g in family]
    best = [r for r in tried if r["picked"]]
    return {"kind": task.kind, "rule": task.rule, "best": best, "tried": tried}

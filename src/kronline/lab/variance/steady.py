"""All methods side by side, in the steady state: variance and cosine, beside what a step costs."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from kronline import disk
from kronline.lab import machine
from kronline.lab.analysis import labels
from kronline.lab.progress import Tracker
from kronline.lab.runs import packed
from kronline.lab.runs.folder import Run
from kronline.lab.variance.cost import UNITS, costs
from kronline.lab.variance.plan import Plan
from kronline.lab.wording import plural, short

TABLE, COST = "table.json", "cost.json"
BASE = "kf_rtrl"  # whose step is the unit of cost
NETWORKS = {False: "untrained", True: "trained"}


def measured(metrics: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per method: what was found in untrained networks, and in the trained one.

    variance: E|ĝ − g|² / E|g|², both over times, networks and draws; for a method that is biased
    its bias is in it. cosine: of single estimates.
    """
    lines: dict[str, dict[bool, list[dict[str, Any]]]] = {}
    for m in metrics:
        if m.get("experiment") == "table":
            lines.setdefault(m["estimator"], {}).setdefault(m["trained"], []).append(m)
    return [
        {"estimator": e, "method": labels.method(e)}
        | {NETWORKS[trained]: _found(some) for trained, some in by_network.items()}
        for e, by_network in lines.items()
    ]


def _found(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    size = np.array([m["size"] for m in lines])
    error = np.array([np.mean(m["error"]) for m in lines])
    cosine = np.concatenate([m["cosine"] for m in lines])
    return {
        "variance": float(np.sum(error * size) / np.sum(size)),
        "cosine": float(cosine.mean()),
        "std": float(cosine.std()),
        "estimates": len(cosine),
    }


def time_all(path: Path, plan: Plan) -> None:
    """Measure what steps cost, and keep it with the run."""
    s = plan.settings
    learners = {e: plan.learners[e, plan.units[0].n] for e in s.estimators}
    with Tracker({"timing": len(learners) * UNITS}) as tracker:
        found = costs(learners, s.lanes, lambda name, by: tracker.update("timing", by, name))
    about = {"commit": machine.commit(), "machine": machine.describe()}
    methods = {e: c._asdict() for e, c in found.items()}
    disk.write(path / COST, json.dumps({"about": about, "methods": methods}, indent=1) + "\n")


def rows(run: Run) -> list[dict[str, Any]]:
    """What was measured, and beside it time and flops as multiples of KF-RTRL's."""
    found = measured(run.metrics)
    if not found:  # the metrics are not at hand
        found = json.loads(packed.text(run.path / TABLE) or "[]")
    cost = _timed(run).get("methods", {})
    base = cost.get(BASE, {})

    def beside(estimator: str) -> dict[str, Any]:
        own = cost.get(estimator, {})
        return {
            name: own[key] / base[key] if own.get(key) is not None and base.get(key) else None
            for name, key in (("time", "seconds"), ("flops", "flops"))
        } | {"us_per_step": 1e6 * own["seconds"] if own else None}

    return [row | beside(row["estimator"]) for row in found]


def keep(run: Run, found: Sequence[dict[str, Any]]) -> None:
    """In two small files: a document, and what was measured, for when metrics are not at hand."""
    disk.write(run.path / "table.md", markdown(found, run))
    if lines := measured(run.metrics):
        disk.write(run.path / TABLE, json.dumps(lines, indent=1) + "\n")


def _timed(run: Run) -> dict[str, Any]:
    return dict(json.loads(packed.text(run.path / COST) or "{}"))


HEAD = ("method", "variance", "cosine", "variance, trained", "cosine, trained", "time", "flops")


def cells(row: dict[str, Any]) -> list[str]:
    """One row as it is written."""
    out = [row["method"]]
    for network in NETWORKS.values():
        found = row.get(network)
        out += [f"{found['variance']:.3g}", f"{found['cosine']:.3f}"] if found else ["–", "–"]
    return [*out, *("–" if row[name] is None else f"{row[name]:.2f}" for name in ("time", "flops"))]


def table(found: Sequence[dict[str, Any]], loss_steps: int) -> Table:
    """For people."""
    out = Table(title=f"The gradient of {loss_steps} losses: estimates beside the exact one")
    for name in HEAD:
        out.add_column(name, justify="left" if name == "method" else "right")
    for row in found:
        out.add_row(*cells(row))
    return out


def markdown(found: Sequence[dict[str, Any]], run: Run) -> str:
    """For a document: how it was made, and the table."""
    c, timed = run.config, _timed(run).get("about", {})
    its = c.get("run", "none")  # whose network is used; none: one that was trained for the table
    trained, given = f"for {c['train_steps']:,} steps by TBPTT-25", ""
    if its != "none":
        trained, given = f"in {short(its)}", " --run RUN"
    text = run.about.get("data", {}).get("name", "a text")
    said = (
        f"{c['cell']}, n = {c['hidden']}, reading {text}. Variance: "
        f"E|estimate − exact|² / E|exact|², of the gradient of the same {c['loss_steps']} losses "
        "for all, with respect to the cell's parameters; of a biased method, its bias is in it. "
        "Cosine: of single estimates. Losses lie at all places of a segment equally often, after "
        f"{c['steps']} to {c['characters']} steps. {c['networks']} untrained networks; one that "
        f"was trained {trained}; {c['draws']} draws each. Time and flops: of a whole training "
        f"step of {c['lanes']} lanes, KF-RTRL's is 1; the fastest of several rounds, all methods "
        "in turn."
    )
    where = f"Measured at commit {_at(run.about)}; timed at commit {_at(timed)}. Seed {c['seed']}."
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)], *map(cells, found)]
    rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    again = f"kronline variance --config config.toml{given} --out FOLDER   # or --retime FOLDER"
    return f"# The noise of all methods\n\n```sh\n{again}\n```\n\n{said}\n\n{where}\n\n{rows}"


def _at(about: dict[str, Any]) -> str:
    m, commit = about.get("machine", {}), str(about.get("commit") or "unknown")
    changed = " with changes" if commit.endswith("+") else ""
    cores = plural(int(m.get("cores") or 0), "core")
    return f"{commit[:10].rstrip('+')}{changed}, on {cores} of {m.get('cpu')}, {m.get('path')}"

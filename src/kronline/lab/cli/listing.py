"""`kronline list`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from kronline.errors import UsageError
from kronline.lab.analysis.numbers import summary
from kronline.lab.progress import wide
from kronline.lab.runs import folder
from kronline.lab.runs.train import RUNS
from kronline.lab.tasks import TASKS

NUMBERS = list(dict.fromkeys(q.key for task in TASKS.values() for q in task.numbers))


@dataclass(frozen=True)
class List:
    """Show the runs that there are, and how they stand.

    Try:
        kronline list
        kronline list runs/copy --json
        kronline list results/ptb.runs
    """

    folder: Annotated[Path, tyro.conf.Positional] = RUNS  # where to look; or a file of runs
    json: bool = False  # print one JSON object instead of the table


def list_(args: List) -> int:
    """All runs below a folder."""
    none_yet = args.folder == RUNS and not RUNS.is_dir()
    rows = [] if none_yet else [_row(path) for path in folder.inside(args.folder)]
    if args.json:
        print(json.dumps({"runs": rows}))
        return 0
    if not rows:
        first = f"kronline train {next(iter(TASKS))} --preset laptop"
        print(f"no runs in {args.folder}; `{first}` makes one")
        return 0
    table = Table()
    for column in ("run", "kind", "cell", "estimator", "state"):
        table.add_column(column, overflow="fold")
    numbers = [n for n in NUMBERS if any(n in row for row in rows)]
    for column in ("done", *numbers):
        table.add_column(column.replace("_", "_\n"), justify="right")
    for row in rows:
        cells = (row.get(c, "") for c in ("run", "kind", "cell", "estimator", "state"))
        done = f"{100 * row['step'] / row['steps']:.0f} %" if row.get("steps") else ""
        values = (row.get(name) for name in numbers)
        table.add_row(*map(str, cells), done, *("–" if v is None else f"{v:.4g}" for v in values))
    wide().print(table)
    return 0


def _row(path: Path) -> dict[str, Any]:
    try:
        run = folder.read(path)
    except UsageError as e:  # the others are shown all the same
        return {"run": str(path), "state": "damaged", "message": str(e)}
    methods = run.config.get("estimator") or ", ".join(run.config.get("estimators", []))
    return {
        "run": str(run.path),
        "kind": run.kind,
        "cell": f"{run.config.get('cell', '')} {run.config.get('hidden', '')}".strip(),
        "estimator": methods,
        "seed": run.config.get("seed"),
        "state": run.state,
        "step": run.status.get("step", 0),
        "steps": run.status.get("steps"),
        "started": run.about.get("started"),
    } | summary(run)

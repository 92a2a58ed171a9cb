"""`kronline list`: the runs that there are."""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from kronline.errors import UsageError
from kronline.lab.analysis.numbers import summary
from kronline.lab.progress import wide
from kronline.lab.runs import folder
from kronline.lab.runs.train import RUNS
from kronline.lab.tasks import TASKS

WORDS = ("kind", "cell", "estimator", "state")
NUMBERS = list(dict.fromkeys(q.key for task in TASKS.values() for q in task.numbers))
TABLE = 100  # columns of a terminal, below which each run has lines of its own


@dataclass(frozen=True)
class List:
    """Show the runs that there are, and how they stand.

    Try:
        kronline list
        kronline list runs/copy --json
        kronline list runs results/ptb.runs
    """

    # where to look: one or several folders, or files of runs
    folders: tyro.conf.Positional[tuple[Path, ...]] = (RUNS,)
    json: bool = False  # print one JSON object instead of the table


def main(args: List) -> int:
    """All runs below some folders."""
    paths: dict[Path, Path] = {}
    for given in args.folders:
        if given == RUNS and not RUNS.is_dir():  # none was made yet
            continue
        for path in folder.inside(given):
            paths.setdefault(path.resolve(), path)
    rows = [_row(path) for path in paths.values()]
    if args.json:
        print(json.dumps({"runs": rows}))
        return 0
    if not rows:
        where, first = ", ".join(map(str, args.folders)), next(iter(TASKS))
        print(f"no runs in {where}; `kronline train {first} --preset laptop` makes one")
        return 0
    console = wide()
    if console.width < TABLE:
        print("\n".join(blocks(rows, console.width)))
    else:
        console.print(table(rows))
    return 0


def table(rows: list[dict[str, Any]]) -> Table:
    """A line for each run."""
    made = Table()
    for column in ("run", *WORDS):
        made.add_column(column, overflow="fold")
    numbers = [n for n in NUMBERS if any(n in row for row in rows)]
    for column in ("done", *numbers):
        made.add_column(column.replace("_", "_\n"), justify="right")
    for row in rows:
        words = (str(row.get(c, "")) for c in ("run", *WORDS))
        values = (row.get(c) for c in numbers)
        made.add_row(*words, _done(row), *("–" if v is None else f"{v:.4g}" for v in values))
    return made


def blocks(rows: list[dict[str, Any]], columns: int) -> Iterable[str]:
    """For narrow terminals: a run's name, and below it what there is to say of it."""
    for row in rows:
        yield row["run"]
        words = [str(row[c]) for c in WORDS if row.get(c)] + [_done(row)]
        numbers = [f"{c} {row[c]:.4g}" for c in NUMBERS if row.get(c) is not None]
        # lines end between these, not within one
        said = ", ".join(word.replace(" ", "\0") for word in [*words, *numbers] if word)
        for line in textwrap.wrap(said, columns - 2, break_on_hyphens=False):
            yield f"  {line}".replace("\0", " ")


def _done(row: dict[str, Any]) -> str:
    return f"{100 * row['step'] / row['steps']:.0f} %" if row.get("steps") else ""


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

"""`kronline sweep`: train a grid, and say what came out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from kronline import disk
from kronline.lab.analysis import labels
from kronline.lab.analysis.stat import Stat
from kronline.lab.analysis.sweep import results
from kronline.lab.progress import wide
from kronline.lab.runs import config, grid
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.quantity import MONITORED

RESULT = "sweep.json"


def main(args: Any) -> int:
    """Start a sweep, or go on with it."""
    if args.print_config:
        print(config.toml(args, args.presets), end="")
        return 0
    code, result = carry_out(args)
    if result is not None:
        print(json.dumps(result)) if args.json else show(result, Path(result["sweep"]))
    return code


def carry_out(args: Any) -> tuple[int, dict[str, Any] | None]:
    """Train all members; the exit code, and the result unless it was stopped."""
    out, todo, failed, signal = grid.carry_out(args)
    if signal:
        return 128 + signal, None
    found = results(args.task, [m.path for m in todo])
    result = {"sweep": str(out)} | found | {"failed": failed}
    disk.write(out / RESULT, json.dumps(result, indent=1) + "\n")
    return (1 if failed else 0), result


def show(result: dict[str, Any], out: Path) -> None:
    """As a table."""
    task, console = TASKS[result["kind"]], wide()
    table = Table(title="mean ± standard deviation over seeds; * the rate that was picked")
    for column in ("method", "rate"):
        table.add_column(column)
    watched = [q for q in MONITORED if any(q.key in r for r in result["tried"])]
    for column in (*(q.key for q in (*task.numbers, *watched)), "runs"):
        table.add_column(column, justify="right")
    for r in result["tried"]:
        numbers = []
        for q in (*task.numbers, *watched):
            stat = r.get(q.key) and Stat(**r[q.key])
            digits = q.digits if q.factor == 1 else 3  # a share as it is, not in percent
            numbers.append(stat.text(digits) if stat else "–")
        diverged = sum(s == "diverged" for s in r["states"])
        count = f"{len(r['seeds'])}" + (f", {diverged} diverged" if diverged else "")
        rate = labels.rate(r["rate"]) + (" *" if r["picked"] else "")
        table.add_row(r["method"], rate, *numbers, count)
    console.print(table)
    if task.legend:
        print(task.legend)
    console.print(f"Picked: {result['rule']}.", highlight=False)
    for f in result["failed"]:
        console.print(f"[red]failed[/] {f['run']}: {f['message']}", highlight=False)
    console.print(f"Curves: kronline report {out}", highlight=False, soft_wrap=True)


def resume(path: Path, *, as_json: bool = False) -> int:
    """Go on with a sweep, as its own files describe it."""
    cls = grid.sweep_of(grid.task_of(path, grid.FILE))
    args = config.make(cls, config.read(cls, path / grid.FILE))
    return main(replace(args, out=path, json=as_json))

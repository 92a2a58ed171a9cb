"""`kronline compare`: train on equal terms, write the page, and say what came out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from kronline import disk
from kronline.lab import compare
from kronline.lab.compare.result import ends
from kronline.lab.progress import wide
from kronline.lab.runs import config, grid
from kronline.lab.tasks import TASKS

PAGE, RESULT = "compare.html", "compare.json"
FORMS = (
    *(("data", ".4g"), ("compute", ".4g"), ("variance", ".3g"), ("cosine", ".3f")),
    *(("time", ".2f"), ("flops", ".2f")),
)


def main(args: Any) -> int:
    """Start a comparison, or go on with it."""
    if args.print_config:
        print(config.toml(args, args.presets), end="")
        return 0
    out, result, failed, signal = compare.carry_out(args)
    if signal or result is None:
        return 128 + signal
    from kronline.lab.report import comparison  # noqa: PLC0415  matplotlib takes a second

    found = {"compare": str(out), "page": str(out / PAGE), **result.numbers(), "failed": failed}
    disk.write(out / PAGE, comparison.page(result))
    disk.write(out / RESULT, json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if args.json else show(found)
    return 1 if failed else 0


def show(found: dict[str, Any]) -> None:
    """As a table."""
    table = Table(title=f"Equal data: {found['steps']:,} steps. Equal compute: {found['budget']}")
    task = TASKS[found["kind"]]
    what, at_end = task.curve.key, [q.key for q in ends(task)]
    table.add_column("method")
    heads = (f"{what}, equal data", f"{what}, equal compute", "variance", "cosine", "time", "flops")
    for column in (*heads, *at_end, "steps"):
        table.add_column(column, justify="right")
    for row in found["rows"]:
        numbers = (_number(row[name], form) for name, form in FORMS)
        ended = (_number(row[name], ".3g") for name in at_end)
        table.add_row(row["label"], *numbers, *ended, f"{row['steps']:,}")
    console = wide()
    console.print(table)
    for f in found["failed"]:
        console.print(f"[red]failed[/] {f['run']}: {f['message']}", highlight=False)
    print(
        f"variance and cosine: of estimates of the gradient of the same {found['loss_steps']} "
        f"losses, in the networks that were trained. time, flops: {found['unit']}'s is 1."
    )
    if task.legend:
        print(task.legend)
    print(f"The page: {found['page']}")


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def resume(path: Path, *, as_json: bool = False) -> int:
    """Go on with a comparison, as its own files describe it."""
    cls = compare.compare_of(grid.task_of(path, compare.FILE))
    args = config.make(cls, config.read(cls, path / compare.FILE))
    return main(replace(args, out=path, json=as_json))

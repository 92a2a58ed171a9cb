"""`kronline compare`: time, train, measure, and write the page.

A comparison is a folder of runs, as a sweep is. Started again, it goes on where it was stopped.
"""

import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from kronline import disk
from kronline.compare import noise
from kronline.compare.result import ENDS, Result
from kronline.compare.settings import CopyCompare, TextCompare
from kronline.compare.terms import Terms, agreed
from kronline.errors import UsageError
from kronline.progress import wide
from kronline.report import labels
from kronline.runs import command, config, folder, loop, sweep, workers
from kronline.runs.workers import Member
from kronline.tasks import copy

FILE, PAGE, RESULT = "compare.toml", "compare.html", "compare.json"
KINDS: dict[str, type[Any]] = {"copy": CopyCompare, "text": TextCompare}


def main(args: Any) -> int:
    """Start a comparison, or go on with it."""
    if args.print_config:
        print(config.toml(args, args.PRESETS), end="")
        return 0
    out = args.out or folder.free(command.RUNS, f"compare-{args.KIND}")
    grid = sweep.members(args, out)
    built = {m.settings.estimator: m.settings.build() for m in _first_of_each(grid)}
    for m in _first_of_each(grid):
        command.fits(m.settings, built[m.settings.estimator])
    out.mkdir(parents=True, exist_ok=True)
    command.begin(out, args, args.PRESETS, labels.plural(len(grid), "run"))
    with folder.locked(out), loop.stopping("the runs that are at work") as stop:
        disk.write(out / FILE, config.toml(args, args.PRESETS))
        steps = min(exp.steps for exp in built.values())
        learners = {e: exp.learner for e, exp in built.items()}
        terms = agreed(out, steps, learners, args.lanes)
        todo = [_long_enough(m, terms, args.most) for m in grid]
        failed = workers.run(todo, args.workers, stop)
        result = None if stop.signal else _result(args, out, todo, terms, stop)
    if stop.signal or result is None:
        print(f"kronline: stopped; the same command goes on with {out}", file=sys.stderr)
        return 128 + stop.signal
    from kronline.compare import page  # noqa: PLC0415  matplotlib takes a second

    found = {"compare": str(out), "page": str(out / PAGE), **result.numbers(), "failed": failed}
    disk.write(out / PAGE, page.page(result))
    disk.write(out / RESULT, json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if args.json else show(found)
    return 1 if failed else 0


def _first_of_each(grid: Sequence[Member]) -> list[Member]:
    return list({m.settings.estimator: m for m in reversed(grid)}.values())[::-1]


def _long_enough(member: Member, terms: Terms, most: float) -> Member:
    steps = terms.length(member.settings.estimator, most)
    return Member(member.path, replace(member.settings, steps=steps))  # type: ignore[call-arg]


def _result(
    args: Any, out: Path, todo: Sequence[Member], terms: Terms, stop: loop.Stop
) -> Result | None:
    """What came out; None if it was stopped on the way."""
    runs = folder.find([m.path for m in todo if folder.is_run(m.path)])
    if not runs:
        raise UsageError(f"{out}: no run could be started; each one's log.txt says why")
    seed = args.seeds[0]
    trained = [r.path for r in runs if r.state == "finished" and r.config.get("seed", seed) == seed]
    parts = {"places": args.places, "loss_steps": args.loss_steps, "draws": args.draws}
    lines = noise.measured(out, trained, args.estimators, stop, **parts)
    if stop.signal:
        return None
    return Result.of(args.KIND, runs, terms, noise.summary(lines), args.loss_steps)


def show(found: dict[str, Any]) -> None:
    """As a table."""
    table = Table(title=f"Equal data: {found['steps']:,} steps. Equal compute: {found['budget']}")
    what = {"copy": "T", "text": "bits/char"}[found["kind"]]
    table.add_column("method")
    heads = (f"{what}, equal data", f"{what}, equal compute", "variance", "cosine", "time", "flops")
    ends = ENDS[found["kind"]]
    for column in (*heads, *ends, "steps"):
        table.add_column(column, justify="right")
    for row in found["rows"]:
        numbers = (_number(row[name], form) for name, form in FORMS)
        ended = (_number(row[name], ".3g") for name in ends)
        table.add_row(row["label"], *numbers, *ended, f"{row['steps']:,}")
    console = wide()
    console.print(table)
    for f in found["failed"]:
        console.print(f"[red]failed[/] {f['run']}: {f['message']}", highlight=False)
    print(
        f"variance and cosine: of estimates of the gradient of the same {found['loss_steps']} "
        f"losses, in the networks that were trained. time, flops: {found['unit']}'s is 1."
    )
    if found["kind"] == "copy":
        print(copy.LEGEND)
    print(f"The page: {found['page']}")


FORMS = (
    *(("data", ".4g"), ("compute", ".4g"), ("variance", ".3g"), ("cosine", ".3f")),
    *(("time", ".2f"), ("flops", ".2f")),
)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def resume(path: Path, *, as_json: bool = False) -> int:
    """Go on with a comparison, as its own file describes it."""
    file = path / FILE
    kind = "copy" if "threshold" in tomllib.loads(file.read_text(encoding="utf-8")) else "text"
    cls = KINDS[kind]
    return main(replace(config.make(cls, config.read(cls, file)), out=path, json=as_json))

"""`kronline train` and `kronline resume`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from kronline import processes
from kronline.errors import UsageError
from kronline.lab import compare as comparisons
from kronline.lab import variance
from kronline.lab.analysis.numbers import summary
from kronline.lab.cli import compare, sweep
from kronline.lab.runs import config, folder, grid, longer, loop, packed, split, supervise
from kronline.lab.runs import train as runs
from kronline.lab.tasks import TASKS, Task


def train(args: Any) -> int:
    """A new run."""
    if args.print_config:
        print(config.toml(args, args.kind), end="")
        return 0
    with split.joined(args):
        path, end = runs.new(args)
        return _ended(path, end, args.json)


def in_processes(args: Any, argv: Sequence[str], places: Sequence[split.Place]) -> int:
    """The same command in processes of their own."""
    if isinstance(args, Resume):
        return supervise.run(argv, places, str(args.run))
    if not isinstance(args, Task):
        return supervise.run(argv, places)
    if args.out is None and len(places) == places[0].of:  # of this machine: where is known
        path = folder.free(runs.RUNS, runs.named(args))
        return supervise.run([*argv, "--out", str(path)], places, str(path))
    return supervise.run(argv, places, str(args.out or "RUN"))


@dataclass(frozen=True)
class _Resume:
    """What is resumed."""

    run: tyro.conf.Positional[Path]  # its folder, as `kronline list` shows it
    steps: int | None = None  # in all, from now on: more than it had
    data: str | None = None  # where its text lies now, if it was moved
    json: bool = False  # print one JSON object at the end


@dataclass(frozen=True)
class Resume(split.Split, _Resume):
    """Go on with a run that was stopped or killed; it ends as if it had never been interrupted.

    With more steps a run goes on beyond its end, too, if it has --schedule constant: it becomes the
    run that would have had as many from the start.

    Try:
        kronline resume runs/copy-kf-rtrl-n64-seed0
        kronline resume runs/copy-kf-rtrl-n64-seed0 --steps 1000000
    """


def resume(args: Resume) -> int:
    """The run goes on, or all runs of a folder of several do."""
    if args.steps is not None:
        longer.only_one(args.run)
    if (args.run / grid.FILE).is_file():
        return sweep.resume(args.run, as_json=args.json)
    if (args.run / comparisons.FILE).is_file():
        return compare.resume(args.run, as_json=args.json)
    kind = folder.read(args.run).kind
    if packed.split(args.run):
        raise UsageError(runs.NO_CHECKPOINTS.format(args.run))
    if args.steps is not None and kind not in TASKS:
        raise UsageError(f"--steps is for a training; {args.run} is a run of {kind!r}")
    if kind == variance.Variance.kind:
        return variance.continue_(args.run, args.data, as_json=args.json)
    with split.joined(args):
        return _ended(args.run, runs.go_on(args.run, args.data, args.steps), args.json)


def _ended(path: Path, end: loop.End, as_json: bool) -> int:
    """Draw and say how it ended, in process 0; the exit code."""
    if not processes.first():
        return end.code
    run = folder.read(path)
    result = {"run": str(path), "state": end.state, "step": end.step, "message": end.message}
    result |= summary(run)
    if end.state == "finished":
        from kronline.lab.report import figures  # noqa: PLC0415  matplotlib takes a second

        figures.save_for_run(run)
    if as_json:
        print(json.dumps(result))
    else:
        shown = {k: v for k, v in result.items() if k not in ("run", "message", "state")}
        print(f"{path}: {end.message}")
        print(", ".join(f"{name} {value}" for name, value in shown.items()))
    if end.state == "stopped":
        print(f"kronline: go on with `kronline resume {path}`", file=sys.stderr)
    return end.code

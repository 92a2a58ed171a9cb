"""A variance run: units of work in a fixed order, each written down when it is done.

Units that are whole in metrics.jsonl are not done again. Each has keys of its own, so a run that
was stopped or killed ends byte for byte like one that was not.
"""

import json
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab import machine
from kronline.lab.progress import Tracker, wide
from kronline.lab.runs import config, folder, loop, memory, packed
from kronline.lab.runs.loop import Stop, stopping
from kronline.lab.runs.train import RUNS
from kronline.lab.variance import plan as plans
from kronline.lab.variance import steady
from kronline.lab.variance.measure import Found
from kronline.lab.variance.plan import Plan, Unit
from kronline.lab.variance.settings import Variance
from kronline.lab.variance.table import summary, tables
from kronline.lab.variance.trained import train, trained

TRAINED = "trained"  # where a table's trained network lies, in its folder


def main(args: Variance) -> int:
    """A new run; the exit code."""
    if args.print_config:
        print(config.toml(args, args.kind), end="")
        return 0
    if args.retime is not None:
        return retime(args.retime, as_json=args.json)
    plan = plans.make(args)
    args = plan.settings
    for (name, n), learner in plan.learners.items():
        memory.check(partial(learner.init, jax.random.key(0)), f"{name} with {n:,} units")
    cell = args.run.resolve().name if args.run else args.cell.rpartition(":")[2].partition("(")[0]
    path = args.out or folder.free(RUNS, f"variance-{cell}-n{args.hidden}-seed{args.seed}")
    folder.create(path, args.kind, config.toml(args, args.kind), plan.about())
    config.begin(path, args, args.kind)
    return _go(path, plan, args.json)


def continue_(path: Path, data: str | None = None, *, as_json: bool = False) -> int:
    """Go on with a run that was stopped or killed; the exit code.

    Args:
        path: the run's folder.
        data: where the text lies now, if it was moved.
        as_json: print one JSON object at the end.
    """
    run = folder.read(path)
    if run.state == "finished":
        print(f"kronline: {path} is finished", file=sys.stderr)
        return _finished(path, as_json)
    values = config.read(Variance, path / folder.CONFIG)
    plan = plans.make(config.make(Variance, values | ({"data": data} if data else {})))
    _same(run, plan)
    return _go(path, plan, as_json)


def retime(path: Path, *, as_json: bool = False) -> int:
    """Time the methods of a table once more, and show it; the exit code."""
    run = folder.read(path)
    if run.config.get("experiment") != "table":
        raise UsageError(f"{path} is no table: needed a run of `kronline variance --preset table`")
    if packed.split(path):
        raise UsageError(
            f"{path} is packed, and only read: `kronline publish --unpack {path} --out FOLDER` "
            f"makes a folder of it, and then `--retime FOLDER/{run.name}`"
        )
    settings = config.make(Variance, config.read(Variance, path / folder.CONFIG))
    steady.time_all(path, plans.make(settings))
    return _finished(path, as_json)


def _same(run: folder.Run, plan: Plan) -> None:
    """The run goes on with what it began with."""
    want, got = run.about["data"]["sha256"], plan.corpus.sha256
    if want != got:
        raise UsageError(
            f"the text of {run.path} is not the one that it began with: needed the parts with "
            f"sha256 {want}, got {got}; give it by --data"
        )
    now = {"version": __version__, "path": machine.describe()["path"]}
    then = {"version": run.about["version"], "path": run.about["machine"]["path"]}
    if now != then:
        warnings.warn(
            f"{run.path} began with {then} and goes on with {now}: it will not end bit for bit as "
            "it would have",
            stacklevel=2,
        )


class _Stopped(Exception):
    """By a signal."""


def _go(path: Path, plan: Plan, as_json: bool) -> int:
    table = plan.settings.experiment == "table"
    if table and plan.params is None:
        if code := train(path / TRAINED, plan.settings):
            return code
        plan = replace(plan, params=trained(path / TRAINED, plan.settings.data)[1])
    with folder.locked(path), stopping("the last whole measurement") as stop:
        try:
            _work(path, plan, stop)
            if table and not (path / steady.COST).exists():
                steady.time_all(path, plan)
            _status(path, plan, "finished", len(plan.units))
        except _Stopped:
            done = folder.read(path).status["step"]
            _status(path, plan, "stopped", done)
            print(f"{path}: stopped, {done} of {len(plan.units)} measurements are done")
            print(f"kronline: go on with `kronline resume {path}`", file=sys.stderr)
            return 128 + stop.signal
        except _Diverged as e:
            _status(path, plan, "diverged", e.done, str(e))
            print(f"kronline: {e}", file=sys.stderr)
            return loop.DIVERGED
        except OSError as e:
            raise UsageError(
                f"{path}: a file could not be written: {e}. Nothing that was measured is lost; "
                f"make room, or the folder writable, then: kronline resume {path}"
            ) from e
    return _finished(path, as_json)


def _work(path: Path, plan: Plan, stop: Stop) -> None:
    done, size = whole_units(path / folder.METRICS, plan.units)
    metrics = folder.Lines(path / folder.METRICS, size)
    timing = folder.Lines.up_to(path / folder.TIMING, done)
    jobs = [_Job(unit, *plan.cost(unit), stop) for unit in plan.units]
    totals = dict.fromkeys(plan.settings.estimators, 0)
    before = dict(totals)
    for i, unit in enumerate(plan.units):
        before[unit.estimator] += jobs[i].left if i < done else 0
        totals[unit.estimator] += jobs[i].left
    _status(path, plan, "running", done)
    with Tracker(totals, before) as tracker:
        for i in range(done, len(plan.units)):
            unit, job, begin = plan.units[i], jobs[i], time.perf_counter()
            job.start(tracker)
            found = plan.run(unit, job.tick)
            if problem := _problem(unit, found):
                raise _Diverged(i, problem)
            for line in unit.lines(found):
                metrics.append(line)
            job.end(float(found.cosine[-1].mean()))
            seconds = round(time.perf_counter() - begin, 3)
            head = {"step": i + 1} | unit.head(unit.times[-1])
            timing.append(head | {"seconds": seconds, "at": round(time.time(), 1)})
            _status(path, plan, "running", i + 1)


class _Job:
    """One unit's progress; stops it when a signal has come."""

    def __init__(self, unit: Unit, compiling: int, each: float, stop: Stop):
        self.unit, self.compiling, self.each, self.stop = unit, compiling, each, stop
        self.left = compiling + max(1, round(each * unit.draws * unit.times[-1]))

    def start(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._say(0, ", compiling" if self.compiling else "")

    def tick(self, done: int) -> None:
        if self.stop.signal:
            raise _Stopped
        self._say(min(self.left, self.compiling + int(done * self.each)))
        self.compiling = 0

    def end(self, cosine: float) -> None:
        self._say(self.left, f", cosine {cosine:.3f}")

    def _say(self, by: int, more: str = "") -> None:
        self.left -= by
        note = f"n = {self.unit.n}, network {self.unit.network + 1}{more}"
        self.tracker.update(self.unit.estimator, by, note)


class _Diverged(Exception):
    def __init__(self, done: int, problem: str):
        super().__init__(problem)
        self.done = done


def _problem(unit: Unit, found: Found) -> str | None:
    """What is not a number, if anything is."""
    fine = np.isfinite(found.cosine).all(1) & np.isfinite(found.error).all(1)
    if fine.all():
        return None
    t = unit.times[int(np.argmin(fine))]
    return (
        f"{unit.estimator}, n = {unit.n}, network {unit.network + 1}: at t = {t} the exact "
        "gradient is zero, or the estimate has grown beyond all bounds (as it does where recurrent "
        "weights let gradients explode). Measure fewer --characters, or leave this estimator out"
    )


def whole_units(path: Path, units: tuple[Unit, ...]) -> tuple[int, int]:
    """How many units are whole in a metrics.jsonl, and how many bytes they take."""
    if not path.exists():
        return 0, 0
    rows = path.read_bytes().split(b"\n")[:-1]  # a last line that was cut off is left out
    at = size = 0
    for done, unit in enumerate(units):
        part = rows[at : at + len(unit.times)]
        if len(part) < len(unit.times):
            return done, size
        for row, t in zip(part, unit.times, strict=True):
            if not _is(row, unit.head(t)):
                raise UsageError(
                    f"{path} is damaged: needed {json.dumps(unit.head(t))}, got {row[:200]!r}; "
                    "measure anew, into another folder"
                )
        at += len(part)
        size += sum(len(row) + 1 for row in part)
    return len(units), size


def _is(row: bytes, head: dict[str, Any]) -> bool:
    try:
        found = json.loads(row)
    except ValueError:
        return False
    return isinstance(found, dict) and {k: found.get(k) for k in head} == head


def _status(path: Path, plan: Plan, state: str, done: int, message: str = "") -> None:
    folder.set_status(path, state, step=done, steps=len(plan.units), message=message)


def _finished(path: Path, as_json: bool) -> int:
    run = folder.read(path)
    if run.config.get("experiment") == "table":
        return _steady(run, as_json)
    found = summary(run.metrics)
    if as_json:
        print(json.dumps({"run": str(path), "state": run.status["state"]} | found))
        return 0
    console = Console()
    for table in tables(found):
        console.print(table)
    console.print(
        "Mean ± standard deviation over networks and draws of the noise; the gradient of the "
        f"cell's parameters.\n{path}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _steady(run: folder.Run, as_json: bool) -> int:
    """The table, also as Markdown in the run's folder."""
    found = steady.rows(run)
    steady.keep(run, found)
    if as_json:
        about = {k: run.about[k] for k in ("version", "commit", "machine", "started")}
        kept = {"run": str(run.path), "state": run.status["state"], "about": about}
        print(json.dumps(kept | {"config": run.config, "rows": found}))
        return 0
    wide().print(steady.table(found, run.config["loss_steps"]))
    print(
        "variance: E|estimate - exact|² / E|exact|², of the cell's parameters, over times, "
        "networks and draws; the losses lie at all places of a segment equally often. cosine: "
        f"of single estimates. time and flops of a step: KF-RTRL's is 1.\n{run.path / 'table.md'}"
    )
    return 0

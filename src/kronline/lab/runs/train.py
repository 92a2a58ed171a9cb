"""A training run: start it, go on with it, load what it has learnt."""

import contextlib
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from kronline import processes
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.lab import machine
from kronline.lab.runs import checkpoint, config, folder, longer, loop, memory, training
from kronline.lab.tasks import TASKS, Experiment, Task

RUNS = Path("runs")  # where runs are made, and looked for
AT_WORK: list[Path] = []  # the run that this process works on
NO_CHECKPOINTS = (
    "{0} has no checkpoints, so it cannot go on: what is published has none. Go on with the run "
    "itself, or train anew by `kronline train --config {0}/config.toml`"
)


class Trained(NamedTuple):
    """A run that was trained: what it is made of, its parameters, and the step they are of."""

    task: Task
    exp: Experiment
    params: Params
    step: int


def new(task: Task) -> tuple[Path, loop.End]:
    """A new run, from its first step until it ends; where it lies, and how it ended."""
    _devices()
    exp = task.build()
    fits(task, exp)
    path = Path(processes.told("run", lambda: str(_made(task, exp))))
    AT_WORK[:] = [path]
    try:
        return path, loop.go(path, task, exp)
    except memory.OutOfMemory:
        folder.discard(path)
        raise


def _made(task: Task, exp: Experiment) -> Path:
    """The folder of a new run."""
    path = task.out or folder.free(RUNS, named(task))
    about: dict[str, Any] = {"parameters": _parameters(exp), "steps": exp.steps}
    if processes.several():
        about["processes"] = jax.process_count()
    folder.create(path, task.kind, config.toml(task, task.kind), about | exp.about)
    config.begin(path, task, task.kind)
    return path


def go_on(path: Path, data: str | None = None, steps: int | None = None) -> loop.End:
    """Go on with a run that was stopped or killed, from its newest checkpoint.

    Args:
        path: the run's folder.
        data: where its data lies now, if it was moved.
        steps: in all, more than it had.
    """
    run = folder.read(path)
    if run.kind not in TASKS:
        raise UsageError(f"{path} is a run of {run.kind!r}, which is not trained")
    if run.state == "finished" and steps is None:
        if processes.first():
            print(f"kronline: {path} is finished", file=sys.stderr)
        return loop.End("finished", run.status["step"], "finished")
    if run.status.get("step") and not (path / folder.CHECKPOINTS).is_dir():
        raise UsageError(NO_CHECKPOINTS.format(path))
    task = configured(run, data)
    if steps is not None:
        task = longer.settings(run, task, steps)
    _devices()
    exp = task.build()
    fits(task, exp)
    _same(run, exp)
    if steps is not None and processes.first():  # where the data lies now is not kept
        longer.write(run, replace(configured(run), steps=steps), exp)  # type: ignore[call-arg]
    AT_WORK[:] = [path]
    return loop.go(path, task, exp)


def load(path: Path | str, data: str | None = None) -> Trained:
    """A trained run, with the parameters that were best in validation, or else the newest."""
    run = folder.read(path)
    if run.kind not in TASKS:
        raise UsageError(f"{path} is a run of {run.kind!r}; needed one of {', '.join(TASKS)}")
    task = configured(run, data)
    exp = task.build()
    _same(run, exp)

    def begin() -> Any:
        return training.start(exp.learner, exp.stream, jax.random.key(0), task.lanes)

    like = checkpoint.shapes(begin, task.keeps_best)
    return Trained(task, exp, *checkpoint.latest_params(run.path, like))


def configured(run: folder.Run, data: str | None = None) -> Task:
    """The task of a run, with its settings; `data`: where its data lies now, if it was moved."""
    cls = TASKS[run.kind]
    task = config.make(cls, config.read(cls, run.path / folder.CONFIG))
    return task if data is None else task.moved(data)


def fits(task: Task, exp: Experiment) -> None:
    """Refuse a run that this machine has not the memory for."""
    lanes = task.lanes // (jax.process_count() if processes.several() else 1)
    what = f"{task.estimator} with {task.hidden:,} units and {lanes:,} lanes"
    what += " in each process" if processes.several() else ""
    memory.check(lambda: loop.alone(exp).learner.init(jax.random.key(0), lanes), what)


def named(task: Task) -> str:
    """A folder's name for a run."""
    method = "".join(c if c.isalnum() else "-" for c in task.estimator.rpartition(":")[2])
    return f"{task.kind}-{method.strip('-')}-n{task.hidden}-seed{task.seed}"


def _same(run: folder.Run, exp: Experiment) -> None:
    """The run goes on with what it began with."""
    then, now = (about.get("data", {}).get("sha256") for about in (run.about, exp.about))
    if then != now:
        raise UsageError(
            f"the data of {run.path} is not the one that it began with: needed the parts with "
            f"sha256 {then}, got {now}; give it by --data"
        )
    here = {"version": __version__, "processes": jax.process_count()} | machine.describe()
    there = {"version": run.about["version"], "processes": run.about.get("processes", 1)}
    there |= run.about["machine"]
    # sums over cores and processes are rounded differently
    names = ("version", "jax", "path", "processes")
    for name in names if processes.several() else (*names, "cores"):
        if here[name] != there[name] and processes.first():
            warnings.warn(
                f"{run.path} began with {name} {there[name]!r} and goes on with {here[name]!r}: it "
                "may not end bit for bit as it would have",
                stacklevel=2,
            )


def _devices() -> None:
    """One device per core, over which lanes are split where there is no native kernel."""
    with contextlib.suppress(RuntimeError):  # JAX has started already
        jax.config.update("jax_num_cpu_devices", machine.cores())


def _parameters(exp: Experiment) -> int:
    shapes = jax.eval_shape(lambda: loop.alone(exp).learner.init(jax.random.key(0), 1).params)
    return sum(a.size for a in jax.tree.leaves(shapes))

"""A grid of runs over the workers of a Dask cluster, of this machine or of several: a sweep.

A sweep is a folder of runs. Started again, it skips what is finished and goes on with the rest;
with more seeds or rates it trains just those that are new.
"""

import itertools
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import tyro

from kronline import disk, spec
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab.runs import config, folder, lock, loop, train
from kronline.lab.runs import members as several
from kronline.lab.runs.members import Member, Place
from kronline.lab.runs.train import RUNS
from kronline.lab.tasks import TASKS, Task
from kronline.lab.wording import plural

FILE = "sweep.toml"
ABOUT = "about.json"  # of a folder of several runs: what it is, and of which task


@dataclass(frozen=True)
class Grid:
    """What a sweep adds to a run's settings."""

    vary: tuple[str, ...] = ()  # more axes, as in: hidden=64,128 "cell=RHN,LSTM"
    workers: int | None = None  # runs at a time on this machine (default: one per core)
    cluster: str | None = None  # a Dask scheduler: its file, or tcp://HOST:PORT (default: our own)

    # told by the grid, so there is no flag for them
    estimator: tyro.conf.Suppress[str] = ""
    rate: tyro.conf.Suppress[float] = 1.0
    seed: tyro.conf.Suppress[int] = 0

    task: ClassVar[type[Task]]  # whose runs are trained
    presets: ClassVar[str]  # by which its presets are called


DOC = """{title} with every estimator, learning rate and seed.

For each method the best learning rate is picked: {rule}.

Try:
    kronline sweep {kind} --preset laptop --out runs/{kind}
    kronline sweep {kind} --preset laptop --estimators kf_rtrl "tbptt(5)" --rates 1e-3 --seeds 0 1
    kronline sweep {kind} --preset laptop --vary hidden=32,64
    kronline sweep {kind} --preset laptop --cluster scheduler.json
"""


@cache
def sweep_of(of: type[Task]) -> type[Any]:
    """What a sweep over a task can be told."""

    @dataclass(frozen=True)
    class Sweep(Grid, of):  # type: ignore[valid-type, misc]
        estimators: tuple[str, ...] = of.methods  # each with every learning rate and seed
        rates: tuple[float, ...] = of.rates  # learning rates; the best is picked for each method
        seeds: tuple[int, ...] = of.seeds  # mean and deviation are over these

        task: ClassVar[type[Task]] = of
        presets: ClassVar[str] = of.kind

    Sweep.__doc__ = DOC.format(title=of.title, rule=of.rule, kind=of.kind)
    return Sweep


def carry_out(args: Any) -> tuple[Path, list[Member], list[dict[str, str]], int]:
    """Train all members: where they lie, all of them, those that failed, and a signal or 0."""
    out = args.out or folder.free(RUNS, f"sweep-{args.task.kind}")
    todo = members(args, out)
    # what cannot work is said here, once, and not by every process
    train.fits(todo[0].settings, todo[0].settings.build())
    with at_work(out, "sweep", FILE, args, len(todo)) as (stop, held):
        failed = several.run(todo, Place(args.cluster, args.workers), held, stop)
    if stop.signal:
        print(f"kronline: stopped; the same command goes on with {out}", file=sys.stderr)
    return out, todo, failed, stop.signal


class Work(NamedTuple):
    """A folder of several runs at work."""

    stop: loop.Stop  # set by signals
    held: lock.Held  # the folder, which this process holds


@contextmanager
def at_work(out: Path, what: str, file: str, args: Any, runs: int) -> Iterator[Work]:
    """The folder of several runs, made, described, and held; signals are noted."""
    out.mkdir(parents=True, exist_ok=True)
    config.begin(out, args, args.presets, plural(runs, "run"))
    with folder.locked(out) as held, loop.stopping("the runs that are at work") as stop:
        disk.write(out / file, config.toml(args, args.presets))
        about = {"kind": what, "task": args.task.kind, "version": __version__}
        disk.write(out / ABOUT, json.dumps(about) + "\n")
        yield Work(stop, held)


def task_of(path: Path, file: str) -> type[Task]:
    """The task of a folder of several runs; `file`: what its settings are kept in."""
    if (path / ABOUT).is_file():
        kind = json.loads((path / ABOUT).read_text(encoding="utf-8")).get("task")
    else:  # of an earlier version, which did not write it down
        kind = _task_of_members(path) or _task_with_settings(path / file)
    if kind not in TASKS:
        raise UsageError(
            f"{path}: its {ABOUT} must name the task, one of {', '.join(TASKS)}, got {kind!r}; "
            f"start it again by its command, with --config {path / file} --out {path}"
        )
    return TASKS[kind]


def _task_of_members(path: Path) -> str | None:
    """Of the first run that was begun."""
    begun = (f.parent for f in sorted(path.glob(f"*/{folder.CONFIG}")))
    return next((folder.read(p).kind for p in begun if folder.is_run(p)), None)


def _task_with_settings(file: Path) -> str | None:
    """The only task that has all settings of the file but the grid's own."""
    names = set(tomllib.loads(file.read_text(encoding="utf-8")))
    own = {kind: {f.name for f in fields(sweep_of(task))} for kind, task in TASKS.items()}
    known = set().union(*own.values())
    fit = [kind for kind, settings in own.items() if names & known <= settings]
    return fit[0] if len(fit) == 1 else None


def members(args: Any, out: Path) -> list[Member]:
    """The grid, seed by seed, so that the first results compare all methods."""
    for name in ("estimators", "rates", "seeds"):
        if not getattr(args, name):
            raise UsageError(f"{name} needs at least one value")
    more = [_axis(args.task, text) for text in args.vary]
    base = {f.name: getattr(args, f.name) for f in fields(args.task)}
    base |= {"out": None, "config": None, "json": False, "print_config": False}
    found: dict[str, Member] = {}
    values = itertools.product(args.seeds, *(v for _, v in more), args.estimators, args.rates)
    for seed, *others, estimator, rate in values:
        axes = dict(zip((name for name, _ in more), others, strict=True))
        own = axes | {"estimator": estimator, "rate": rate, "seed": seed}
        settings = config.make(args.task, base | own)
        parts = [estimator, *(f"{k}{v}" for k, v in axes.items()), f"rate{rate:.3g}", f"seed{seed}"]
        name = "-".join(_plain(p) for p in parts)
        if name in found and found[name].settings != settings:
            raise UsageError(
                f"two members of the grid differ by too little to have names of their own: {name}"
            )
        found[name] = Member(out / name, settings)
    return list(found.values())


def _axis(task: type[Task], text: str) -> tuple[str, list[Any]]:
    """`hidden=64,128` as a name and values of its type."""
    name, equals, values = text.partition("=")
    if not equals or name in ("estimator", "rate", "seed"):
        raise UsageError(
            f"vary needs SETTING=VALUE,VALUE,... (estimators, rates and seeds have flags of their "
            f"own), got {text!r}"
        )
    read = []
    for part in spec.split(values, ","):
        try:
            got = config.checked(task, f"{name} = {part}", f"vary {text!r}")
        except UsageError as e:
            if "is not TOML" not in str(e):
                raise
            got = config.checked(task, f"{name} = {json.dumps(part)}", f"vary {text!r}")
        read.append(got[name])
    return name, read


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "-" for c in text).strip("-")

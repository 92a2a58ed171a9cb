"""The command `kronline`: parses, calls, prints."""

import functools
import operator
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

import jax
import tyro

from kronline.errors import UsageError
from kronline.lab import about, bench, variance
from kronline.lab.cli import compare, demo, info, listing, sweep, train, verify
from kronline.lab.compare import compare_of
from kronline.lab.report import command as report
from kronline.lab.runs import config, memory, publish, sample
from kronline.lab.runs.grid import sweep_of
from kronline.lab.tasks import TASKS

TRAIN = f"Train a network on one of the tasks: {', '.join(TASKS)}."
COMPARE = "Train several estimators on equal terms: equal data, equal compute, and their noise."
SWEEP = "Train a grid of networks over local processes, and pick the best learning rates."

# what is parsed, and what is done with it: verbs that have a task, by its name,
VERBS: dict[str, tuple[str, dict[str, type], Callable[[Any], int]]] = {
    "train": (TRAIN, dict(TASKS), train.train),
    "sweep": (SWEEP, {kind: sweep_of(task) for kind, task in TASKS.items()}, sweep.main),
    "compare": (COMPARE, {kind: compare_of(task) for kind, task in TASKS.items()}, compare.main),
}
# and those that have none
PLAIN: dict[str, tuple[type, Callable[[Any], int]]] = {
    "variance": (variance.Variance, variance.main),
    "resume": (train.Resume, train.resume),
    "list": (listing.List, listing.list_),
    "sample": (sample.Sample, sample.main),
    "report": (report.Report, report.main),
    "plot": (report.Plot, report.main),
    "publish": (publish.Publish, publish.main),
    "demo": (demo.Demo, demo.main),
    "verify": (verify.Verify, verify.verify),
    "bench": (bench.Bench, bench.main),
    "info": (info.Info, info.info),
}


def _commands(argv: Sequence[str]) -> Any:
    """All commands; those with a configuration start from the preset and file that argv names."""

    def configured(verb: str, name: str, cls: type) -> Any:
        words = argv if list(argv[:2]) == [verb, name] else []
        default: Any = config.start(cls, getattr(cls, "presets", name), words)
        return Annotated[cls, tyro.conf.subcommand(name, default=default)]

    found: list[Any] = []
    for verb, (doc, kinds, _) in VERBS.items():
        tasks = [configured(verb, name, cls) for name, cls in kinds.items()]
        made = make_dataclass(verb, [("task", functools.reduce(operator.or_, tasks))], frozen=True)
        made.__doc__ = doc
        found.append(Annotated[made, tyro.conf.subcommand(verb)])
    for name, (cls, _) in PLAIN.items():
        # the first line in the list of commands, all of it in the command's own --help
        line = None if name in argv[:1] else (cls.__doc__ or "").splitlines()[0]
        options: dict[str, Any] = {"description": line}
        if hasattr(cls, "kind"):
            options["default"] = config.start(cls, name, argv if name in argv[:1] else [])
        found.append(Annotated[cls, tyro.conf.subcommand(name, **options)])
    return functools.reduce(operator.or_, found)


def parse(argv: Sequence[str]) -> Any:
    """What a command line asks for; exits where it is wrong, or asks for help."""
    for verb, (_, kinds, _) in VERBS.items():
        if argv[:1] == [verb] and argv[1:2] and argv[1] in kinds:
            argv = config.with_none(kinds[argv[1]], argv)
    args = tyro.cli(
        _commands(argv),
        prog="kronline",
        args=argv,
        description=about.ABOUT,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    return getattr(args, "task", args)


def _run(args: Any) -> int:
    actions = {cls: act for cls, act in PLAIN.values()}
    actions |= {cls: act for _, kinds, act in VERBS.values() for cls in kinds.values()}
    return actions[type(args)](args)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run, and exit."""
    argv = sys.argv[1:] if argv is None else list(argv)
    warnings.showwarning = _warn
    try:
        code = _run(parse(argv))
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except (UsageError, OSError) as e:
        print(f"kronline: {e}", file=sys.stderr)
        code = 2
    except (MemoryError, jax.errors.JaxRuntimeError) as e:
        if not memory.ran_out(e):
            raise
        print(f"kronline: {memory.message(e)}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print(about.INTERRUPTED, file=sys.stderr)
        code = about.CODE
    sys.exit(code)


def _warn(message: Any, *_: Any, **__: Any) -> None:
    print(f"kronline: warning: {message}", file=sys.stderr)

"""The command `kronline`: parses, calls, prints."""

import functools
import inspect
import operator
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from typing import Annotated, Any

import jax
import tyro

from kronline import cache
from kronline.errors import UsageError
from kronline.lab import about, bench, variance
from kronline.lab.cli import compare, demo, export, info, learn, listing, sweep, train, verify
from kronline.lab.compare import compare_of
from kronline.lab.learn import Learn
from kronline.lab.machine import cores
from kronline.lab.report import command as report
from kronline.lab.runs import config, memory, publish, sample, split
from kronline.lab.runs.grid import sweep_of
from kronline.lab.tasks import TASKS

TRAIN = f"Train a network on one of the tasks: {', '.join(TASKS)}."
COMPARE = "Train several estimators on equal terms: equal data, equal compute, and their noise."
SWEEP = "Train a grid of networks, on this machine or a cluster, and pick the best rates."

# what is parsed, and what is done with it: verbs that have a task, by its name,
VERBS: dict[str, tuple[str, dict[str, type], Callable[[Any], int]]] = {
    "train": (TRAIN, {kind: split.train_of(task) for kind, task in TASKS.items()}, train.train),
    "sweep": (SWEEP, {kind: sweep_of(task) for kind, task in TASKS.items()}, sweep.main),
    "compare": (COMPARE, {kind: compare_of(task) for kind, task in TASKS.items()}, compare.main),
}
# and those that have none
PLAIN: dict[str, tuple[type, Callable[[Any], int]]] = {
    "learn": (Learn, learn.main),
    "variance": (variance.Variance, variance.main),
    "resume": (train.Resume, train.resume),
    "list": (listing.List, listing.main),
    "sample": (sample.Sample, sample.main),
    "export": (export.Export, export.main),
    "report": (report.Report, report.main),
    "plot": (report.Plot, report.main),
    "publish": (publish.Publish, publish.main),
    "demo": (demo.Demo, demo.main),
    "verify": (verify.Verify, verify.verify),
    "bench": (bench.Bench, bench.main),
    "info": (info.Info, info.info),
}


OPTIONS = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


def _without_none(cls: Any) -> None:
    """Help does not call None a default: an option's own text says what happens without it."""
    silent = tyro.conf.arg(help_behavior_hint="")
    empty = {field.name for field in fields(cls) if field.default is None}
    base: Any
    for base in cls.__mro__:
        if is_dataclass(base):
            own = inspect.get_annotations(base)  # type: ignore[arg-type]
            more = {name: Annotated[own[name], silent] for name in empty & set(own)}
            base.__annotations__ = own | more


for _command, _ in PLAIN.values():
    _without_none(_command)
for _several in VERBS.values():
    for _command in _several[1].values():
        _without_none(_command)


def command_of(words: Sequence[str]) -> type | None:
    """What is parsed for `kronline train copy`, say; None for words that are no whole command."""
    if len(words) == 1 and words[0] in PLAIN:
        return PLAIN[words[0]][0]
    if len(words) == 2 and words[0] in VERBS:
        return VERBS[words[0]][1].get(words[1])
    return None


def parse(argv: Sequence[str]) -> Any:
    """What a command line asks for; exits where it is wrong, or asks for help."""
    for count in (1, 2):  # each command by itself, so that errors point to its own --help
        words, rest = argv[:count], argv[count:]
        if cls := command_of(words):
            rest = config.with_none(cls, rest)
            start = _start(words[-1], cls, rest)
            more = {} if start is None else {"default": start}
            return tyro.cli(
                cls, prog=f"kronline {' '.join(words)}", args=rest, config=OPTIONS, **more
            )
    if argv[0:1] and argv[0] in VERBS:
        tyro.cli(_verb(argv[0]), prog=f"kronline {argv[0]}", args=argv[1:], config=OPTIONS)
    tyro.cli(_commands(), prog="kronline", args=argv, description=about.ABOUT, config=OPTIONS)
    raise AssertionError("every command is known")


def _start(name: str, cls: Any, argv: Sequence[str]) -> Any:
    """What the flags of a configuration start from: the preset and file that argv names."""
    if not hasattr(cls, "kind"):
        return None
    return config.start(cls, getattr(cls, "presets", name), argv)


def _verb(verb: str) -> Any:
    """A command that has one command for each task."""
    doc, kinds, _ = VERBS[verb]
    each = [
        Annotated[cls, tyro.conf.subcommand(name, default=_start(name, cls, []))]
        for name, cls in kinds.items()
    ]
    made = make_dataclass(verb, [("task", functools.reduce(operator.or_, each))], frozen=True)
    made.__doc__ = doc
    return made


def _commands() -> Any:
    """All commands, for the list of them, for completion, and for words that are none of them."""
    found: list[Any] = [Annotated[_verb(verb), tyro.conf.subcommand(verb)] for verb in VERBS]
    for name, (cls, _) in PLAIN.items():
        line = (cls.__doc__ or "").splitlines()[0]
        found.append(Annotated[cls, tyro.conf.subcommand(name, description=line)])
    return functools.reduce(operator.or_, found)


def _run(args: Any, argv: Sequence[str]) -> int:
    if places := split.places(args):
        return train.in_processes(args, argv, places)
    actions = {cls: act for cls, act in PLAIN.values()}
    actions |= {cls: act for _, kinds, act in VERBS.values() for cls in kinds.values()}
    return actions[type(args)](args)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run, and exit."""
    argv = sys.argv[1:] if argv is None else list(argv)
    warnings.showwarning = _warn
    try:
        cache.keep_programs(cores())
        code = _run(parse(argv), argv)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except (UsageError, OSError) as e:
        if not split.said_by_another():
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
    if not cache.trouble(str(message)):
        print(f"kronline: warning: {message}", file=sys.stderr)

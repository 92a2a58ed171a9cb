"""The command `kronline`: parses, calls, prints."""

import functools
import json
import operator
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, cast

import jax
import tyro
from rich.console import Console

from kronline import bench, cache, compare, demo, names, native, startup, variance
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.machine import cores
from kronline.progress import Tracker
from kronline.report import command as report
from kronline.runs import command, config, listing, memory, publish, sample, sweep
from kronline.runs.settings import CopyRun, TextRun
from kronline.runs.sweep import CopySweep, TextSweep
from kronline.verifier.suite import jobs_for, library, run


@dataclass(frozen=True)
class Verify:
    """Prove that cells and estimators do what they claim, by trying every noise pattern.

    Without options: the library's default set. Exits with 1 if a check fails.

    Try:
        kronline verify
        kronline verify --cell "RHN(2, 3)" --estimator "kf_rtrl(window=1)"
        kronline verify --cell "my_cell.py:MyCell(2, 2)" --estimator my_trace.py:estimator
    """

    cell: str | None = None  # NAME(units, inputs), or file.py:NAME; two or three units
    estimator: str | None = None  # NAME(arguments), or file.py:NAME
    all: bool = False  # the library's every cell, windows and symbols too
    symbols: bool = False  # feed the cell symbols, for one that does not take vectors
    json: bool = False  # print one JSON object instead of the table


def verify(args: Verify) -> int:
    """Run the checks that were asked for."""
    # many small programs, each run once: compiling them takes longer than running them
    jax.config.update("jax_disable_most_optimizations", True)
    if args.all and (args.cell or args.estimator):
        raise UsageError("--all is the library's whole set; leave out --cell and --estimator")
    if args.cell is None and args.estimator is None:
        jobs = library(args.all)
    else:
        cell = names.parse(args.cell or "RHN(2, 2)", names.CELLS, "cell")
        estimator = names.parse(args.estimator or "kf_rtrl", names.ESTIMATORS, "estimator")
        try:
            jobs = jobs_for(cell, estimator, args.cell, symbols=args.symbols)
        except (TypeError, AttributeError) as e:
            raise UsageError(str(e)) from e
    with Tracker({"checks": len(jobs)}) as tracker:
        report = run(jobs, lambda title: tracker.update("checks", 1, title), threads=cores())
    if args.json:
        print(report.json())
    else:
        console = Console()
        console.print(report.table())
        n, bad = len(report.checks), len(report.failed())
        console.print(f"{n - bad} of {n} checks hold." + (" [red]Not verified.[/]" if bad else ""))
        path = native.status()
        kind = "the native kernel" if path.active else "pure JAX"
        console.print(f"KF-RTRL ran on {kind} ({path.reason}).", soft_wrap=True, markup=False)
    return 0 if report.ok else 1


@dataclass(frozen=True)
class Info:
    """Show versions, devices, and whether the native kernel is used, and why.

    Try:
        kronline info
        kronline info --json
    """

    json: bool = False  # print one JSON object instead of lines


def info(args: Info) -> int:
    """What this installation runs on."""
    path, told = native.status(), cast(Any, jax.config)
    kernel = native.library() if path.active else None
    found = {
        "kronline": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": [str(d) for d in jax.devices()],
        "cores": cores(),
        "path": "native kernel" if path.active else "pure JAX",
        "reason": path.reason,
        "kernel": str(kernel.path) if isinstance(kernel, native.Library) else None,
        "programs": told.jax_compilation_cache_dir,
    }
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:9} {', '.join(value) if isinstance(value, list) else value or 'none'}")
    return 0


ABOUT = """Train recurrent networks online: unbiased gradients, memory that does not grow with time.

Begin with `kronline demo`, two minutes. Each command has a --help of its own, with examples.
`kronline --version` shows the version, `kronline --tyro-print-completion bash` (or zsh, fish) a
script that lets the shell complete commands and options; README says where it goes.
"""
TRAIN = "Train a network: the paper's copy task, or a language model on any text."
COMPARE = "Train several estimators on equal terms: equal data, equal compute, and their noise."
SWEEP = "Train a grid of networks over local processes, and pick the best learning rates."

# what is parsed, and what is done with it
TASKS: dict[str, tuple[str, dict[str, type], Callable[[Any], int]]] = {
    "train": (TRAIN, {"copy": CopyRun, "text": TextRun}, command.train),
    "sweep": (SWEEP, {"copy": CopySweep, "text": TextSweep}, sweep.main),
    "compare": (
        COMPARE,
        {"copy": compare.CopyCompare, "text": compare.TextCompare},
        compare.main,
    ),
}
PLAIN: dict[str, tuple[type, Callable[[Any], int]]] = {
    "variance": (variance.Variance, variance.main),
    "resume": (command.Resume, command.resume),
    "list": (listing.List, listing.main),
    "sample": (sample.Sample, sample.main),
    "report": (report.Report, report.main),
    "plot": (report.Plot, report.main),
    "publish": (publish.Publish, publish.main),
    "demo": (demo.Demo, demo.main),
    "verify": (Verify, verify),
    "bench": (bench.Bench, bench.main),
    "info": (Info, info),
}


OPTIONS = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


def command_of(words: Sequence[str]) -> type | None:
    """What is parsed for `kronline train copy`, say; None for words that are no whole command."""
    if len(words) == 1 and words[0] in PLAIN:
        return PLAIN[words[0]][0]
    if len(words) == 2 and words[0] in TASKS:
        return TASKS[words[0]][1].get(words[1])
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
    if argv[0:1] and argv[0] in TASKS:
        tyro.cli(_task(argv[0]), prog=f"kronline {argv[0]}", args=argv[1:], config=OPTIONS)
    tyro.cli(_commands(), prog="kronline", args=argv, description=ABOUT, config=OPTIONS)
    raise AssertionError("every command is known")


def _start(name: str, cls: Any, argv: Sequence[str]) -> Any:
    """What the flags of a configuration start from: the preset and file that argv names."""
    if not hasattr(cls, "KIND"):
        return None
    return config.start(cls, getattr(cls, "PRESETS", name), argv)


def _task(verb: str) -> Any:
    """A command that has one command for each task."""
    doc, kinds, _ = TASKS[verb]
    each = [
        Annotated[cls, tyro.conf.subcommand(name, default=_start(name, cls, []))]
        for name, cls in kinds.items()
    ]
    made = make_dataclass(verb, [("task", functools.reduce(operator.or_, each))], frozen=True)
    made.__doc__ = doc
    return made


def _commands() -> Any:
    """All commands, for the list of them, for completion, and for words that are none of them."""
    found: list[Any] = [Annotated[_task(verb), tyro.conf.subcommand(verb)] for verb in TASKS]
    for name, (cls, _) in PLAIN.items():
        line = (cls.__doc__ or "").splitlines()[0]
        found.append(Annotated[cls, tyro.conf.subcommand(name, description=line)])
    return functools.reduce(operator.or_, found)


def _run(args: Any) -> int:
    actions = {cls: act for cls, act in PLAIN.values()}
    actions |= {cls: act for _, kinds, act in TASKS.values() for cls in kinds.values()}
    return actions[type(args)](args)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run, and exit."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv == ["--version"]:
        print(f"kronline {__version__}")
        sys.exit(0)
    warnings.showwarning = _warn
    try:
        startup.over()
        cache.keep_programs(cores())
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
        print(startup.INTERRUPTED, file=sys.stderr)
        code = startup.CODE
    sys.exit(code)


def _warn(message: Any, *_: Any, **__: Any) -> None:
    if not cache.trouble(str(message)):
        print(f"kronline: warning: {message}", file=sys.stderr)

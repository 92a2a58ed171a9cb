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
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console

from kronline import bench, compare, demo, names, native, startup, variance
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.machine import cores
from kronline.progress import Tracker
from kronline.report import command as report
from kronline.runs import command, config, memory, publish, sample, sweep
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
    path = native.status()
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
    }
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:9} {', '.join(value) if isinstance(value, list) else value or 'none'}")
    return 0


ABOUT = """Train recurrent networks online: unbiased gradients, memory that does not grow with time.

Begin with `kronline demo`, two minutes. Each command has a --help of its own, with examples.
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
    "list": (command.List, command.list_),
    "sample": (sample.Sample, sample.main),
    "report": (report.Report, report.main),
    "plot": (report.Plot, report.main),
    "publish": (publish.Publish, publish.main),
    "demo": (demo.Demo, demo.main),
    "verify": (Verify, verify),
    "bench": (bench.Bench, bench.main),
    "info": (Info, info),
}


def _commands(argv: Sequence[str]) -> Any:
    """All commands; those with a configuration start from the preset and file that argv names."""

    def configured(verb: str, name: str, cls: type) -> Any:
        words = argv if list(argv[:2]) == [verb, name] else []
        default: Any = config.start(cls, getattr(cls, "PRESETS", name), words)
        return Annotated[cls, tyro.conf.subcommand(name, default=default)]

    found: list[Any] = []
    for verb, (doc, kinds, _) in TASKS.items():
        tasks = [configured(verb, name, cls) for name, cls in kinds.items()]
        made = make_dataclass(verb, [("task", functools.reduce(operator.or_, tasks))], frozen=True)
        made.__doc__ = doc
        found.append(Annotated[made, tyro.conf.subcommand(verb)])
    for name, (cls, _) in PLAIN.items():
        # the first line in the list of commands, all of it in the command's own --help
        line = None if name in argv[:1] else (cls.__doc__ or "").splitlines()[0]
        options: dict[str, Any] = {"description": line}
        if hasattr(cls, "KIND"):
            options["default"] = config.start(cls, name, argv if name in argv[:1] else [])
        found.append(Annotated[cls, tyro.conf.subcommand(name, **options)])
    return functools.reduce(operator.or_, found)


def parse(argv: Sequence[str]) -> Any:
    """What a command line asks for; exits where it is wrong, or asks for help."""
    for verb, (_, kinds, _) in TASKS.items():
        if argv[:1] == [verb] and argv[1:2] and argv[1] in kinds:
            argv = config.with_none(kinds[argv[1]], argv)
    args = tyro.cli(
        _commands(argv),
        prog="kronline",
        args=argv,
        description=ABOUT,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    return getattr(args, "task", args)


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
    print(f"kronline: warning: {message}", file=sys.stderr)

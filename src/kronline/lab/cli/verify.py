"""`kronline verify`."""

import contextlib
from dataclasses import dataclass

import jax
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kronline import Shard, native, processes, spec
from kronline.errors import UsageError
from kronline.lab.machine import cores
from kronline.lab.progress import Tracker
from kronline.lab.runs.split import Split, joined, place
from kronline.verifier import Report, jobs_for, library, run, split_jobs


@dataclass(frozen=True)
class _Verify:
    """What is verified."""

    cell: str | None = None  # NAME(units, inputs), or file.py:NAME; two or three units
    estimator: str | None = None  # NAME(arguments), or file.py:NAME
    all: bool = False  # the library's every cell, windows and symbols too
    split: bool = False  # the path of lanes split over devices, or over --processes, only
    symbols: bool = False  # feed the cell symbols, for one that does not take vectors
    json: bool = False  # print one JSON object instead of the table


@dataclass(frozen=True)
class Verify(Split, _Verify):
    """Prove that cells and estimators do what they claim, by trying every noise pattern.

    Without options: the library's default set. Exits with 1 if a check fails.

    Try:
        kronline verify
        kronline verify --cell "RHN(2, 3)" --estimator "kf_rtrl(window=1)"
        kronline verify --cell "my_cell.py:MyCell(2, 2)" --estimator my_trace.py:estimator
        kronline verify --split --processes 2
    """


def verify(args: Verify) -> int:
    """Run the checks that were asked for."""
    # many small programs, each run once: compiling them takes longer than running them
    jax.config.update("jax_disable_most_optimizations", True)
    if args.split:
        return _split(args)
    if args.processes != 1:
        raise UsageError("--processes is for --split: other proofs take one process")
    if args.all and (args.cell or args.estimator):
        raise UsageError("--all is the library's whole set; leave out --cell and --estimator")
    if args.cell is None and args.estimator is None:
        jobs = library(args.all)
    else:
        cell = spec.given(args.cell or "RHN(2, 2)", "cell")
        estimator = spec.given(args.estimator or "kf_rtrl", "estimator")
        try:
            jobs = jobs_for(cell, estimator, symbols=args.symbols)
        except (TypeError, AttributeError) as e:
            raise UsageError(str(e)) from e
    with Tracker({"checks": len(jobs)}) as tracker:
        report = run(jobs, lambda title: tracker.update("checks", 1, title), threads=cores())
    return _told(args, report)


def _split(args: Verify) -> int:
    """The path of lanes that are split: over two devices of this process, or over processes."""
    if args.all or args.cell or args.estimator:
        raise UsageError("--split has a set of its own; leave out --all, --cell and --estimator")
    if place(args) is None:
        with contextlib.suppress(RuntimeError):  # JAX has started already
            jax.config.update("jax_num_cpu_devices", 2)
    with joined(args):
        jobs = split_jobs(Shard())
        with Tracker({"checks": len(jobs)}, quiet=not processes.first()) as tracker:
            # one after another: all processes must make the same calls in the same order
            report = run(jobs, lambda title: tracker.update("checks", 1, title))
        return _told(args, report) if processes.first() else int(not report.ok)


def _told(args: Verify, report: Report) -> int:
    """The report; the exit code."""
    if args.json:
        print(report.json())
    else:
        console = Console()
        console.print(_table(report))
        n, bad = len(report.checks), len(report.failed())
        console.print(f"{n - bad} of {n} checks hold." + (" [red]Not verified.[/]" if bad else ""))
        path = native.status()
        kind = "the native kernel" if path.active else "pure JAX"
        console.print(f"KF-RTRL ran on {kind} ({path.reason}).", soft_wrap=True, markup=False)
    return 0 if report.ok else 1


def _table(report: Report) -> Table:
    table = Table(title="kronline verify")
    for column in ("check", "cell", "estimator"):
        table.add_column(column)
    for column in ("value", "limit"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for c in report.checks:
        verdict = "[green]holds[/]" if c.ok else "[bold red]FAILS[/]"
        words = map(escape, (c.name, c.cell, c.estimator))
        table.add_row(*words, f"{c.value:.2g}", c.bound, verdict)
    return table

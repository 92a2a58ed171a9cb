"""`kronline sweep`: a grid of runs over local processes, each with its share of the cores.

A sweep is a folder of runs. Started again, it skips what is finished and goes on with the rest;
with more seeds or rates it trains just those that are new.
"""

import itertools
import json
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from kronline import disk, names
from kronline.errors import UsageError
from kronline.progress import wide
from kronline.report import groups, labels
from kronline.runs import command, config, folder, loop, workers
from kronline.runs.settings import CopyRun, TextRun
from kronline.runs.workers import Member
from kronline.tasks import copy

PAPER_RATES = tuple(10**-x for x in (2.5, 3.0, 3.5, 4.0))
PAPER_SEEDS = (0, 1, 2, 3, 4)
RESULT = "sweep.json"
DIGITS = {"T": 1, "solved": 1}
NUMBERS = {"copy": copy.NUMBERS, "text": ("valid", "test")}


@dataclass(frozen=True)
class _Grid:
    """What a sweep adds to a run's settings."""

    rates: tuple[float, ...] = PAPER_RATES  # learning rates; the best one is picked for each method
    seeds: tuple[int, ...] = PAPER_SEEDS  # mean and deviation are over these
    vary: tuple[str, ...] = ()  # more axes, as in: hidden=64,128 "cell=RHN,LSTM"
    workers: int | None = None  # processes at a time (default: one a core)

    # told by the grid, so there is no flag for them
    estimator: tyro.conf.Suppress[str] = ""
    rate: tyro.conf.Suppress[float] = 1.0
    seed: tyro.conf.Suppress[int] = 0


@dataclass(frozen=True)
class CopySweep(_Grid, CopyRun):
    """The copy task with every estimator, learning rate and seed: by default the paper's grid.

    For each method the best learning rate is picked: the highest mean final T, and of equals the
    one that arrived earlier. A rate with which a run diverged is picked last.

    Try:
        kronline sweep copy --preset laptop --out runs/copy
        kronline sweep copy --preset laptop --estimators kf_rtrl "tbptt(5)" --rates 1e-3 --seeds 0 1
        kronline sweep copy --preset laptop --vary hidden=32,64 --steps 50000
    """

    # methods that are compared, by name, as --estimator of `kronline train` takes them
    estimators: tuple[str, ...] = ("kf_rtrl", "uoro", "tbptt(25)")


@dataclass(frozen=True)
class TextSweep(_Grid, TextRun):
    """A language model with every estimator, learning rate and seed: by default the paper's grid.

    For each method the best learning rate is picked: the lowest mean best validation bits/char. A
    rate with which a run diverged is picked last.

    Try:
        kronline sweep text --preset laptop --out runs/text
        kronline sweep text --data ptb --preset paper --estimators kf_rtrl "tbptt(25)" --seeds 0
    """

    # methods that are compared, by name, as --estimator of `kronline train` takes them
    estimators: tuple[str, ...] = ("kf_rtrl", "uoro", "tbptt(5)", "tbptt(25)")


KINDS: dict[str, type[Any]] = {"copy": CopySweep, "text": TextSweep}


def main(args: Any) -> int:
    """Start a sweep, or go on with it."""
    if args.print_config:
        print(config.toml(args, args.KIND), end="")
        return 0
    code, result = carry_out(args)
    if result is not None:
        print(json.dumps(result)) if args.json else show(result, Path(result["sweep"]))
    return code


def carry_out(args: Any) -> tuple[int, dict[str, Any] | None]:
    """Train all members; the exit code, and the result unless it was stopped."""
    out = args.out or folder.free(command.RUNS, f"sweep-{args.KIND}")
    todo = members(args, out)
    # what cannot work is said here, once, and not by every process
    command.fits(todo[0].settings, todo[0].settings.build())
    out.mkdir(parents=True, exist_ok=True)
    command.begin(out, args, args.KIND, labels.plural(len(todo), "run"))
    with folder.locked(out), loop.stopping("the runs that are at work") as stop:
        disk.write(out / "sweep.toml", config.toml(args, args.KIND))
        failed = workers.run(todo, args.workers, stop)
    if stop.signal:
        print(f"kronline: stopped; the same command goes on with {out}", file=sys.stderr)
        return 128 + stop.signal, None
    found = results(args.KIND, [m.path for m in todo])
    result = {"sweep": str(out)} | found | {"failed": failed}
    disk.write(out / RESULT, json.dumps(result, indent=1) + "\n")
    return (1 if failed else 0), result


def members(args: Any, out: Path) -> list[Member]:
    """The grid, seed by seed, so that the first results compare all methods."""
    for name in ("estimators", "rates", "seeds"):
        if not getattr(args, name):
            raise UsageError(f"{name} needs at least one value")
    more = [_axis(args, text) for text in args.vary]
    base_type = CopyRun if args.KIND == "copy" else TextRun
    base = {f.name: getattr(args, f.name) for f in fields(base_type)}
    base |= {"out": None, "config": None, "json": False, "print_config": False}
    found: dict[str, Member] = {}
    values = itertools.product(args.seeds, *(v for _, v in more), args.estimators, args.rates)
    for seed, *others, estimator, rate in values:
        axes = dict(zip((name for name, _ in more), others, strict=True))
        own = axes | {"estimator": estimator, "rate": rate, "seed": seed}
        settings = config.make(base_type, base | own)
        parts = [estimator, *(f"{k}{v}" for k, v in axes.items()), f"rate{rate:.3g}", f"seed{seed}"]
        name = "-".join(_plain(p) for p in parts)
        if name in found and found[name].settings != settings:
            raise UsageError(
                f"two members of the grid differ by too little to have names of their own: {name}"
            )
        found[name] = Member(out / name, settings)
    return list(found.values())


def _axis(args: Any, text: str) -> tuple[str, list[Any]]:
    """`hidden=64,128` as a name and values of its type."""
    name, equals, values = text.partition("=")
    if not equals or name in ("estimator", "rate", "seed"):
        raise UsageError(
            f"vary needs SETTING=VALUE,VALUE,... (estimators, rates and seeds have flags of their "
            f"own), got {text!r}"
        )
    parts = names.split(values, ",")
    kind = CopyRun if args.KIND == "copy" else TextRun
    read = []
    for part in parts:
        try:
            got = config.checked(kind, f"{name} = {part}", f"vary {text!r}")
        except UsageError as e:
            if "is not TOML" not in str(e):
                raise
            got = config.checked(kind, f"{name} = {json.dumps(part)}", f"vary {text!r}")
        read.append(got[name])
    return name, read


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "-" for c in text).strip("-")


# -- results ---------------------------------------------------------------------------------------


def results(kind: str, paths: list[Path]) -> dict[str, Any]:
    """Every setting's numbers, and the best learning rate of each method."""
    runs = folder.find([p for p in paths if folder.is_run(p)])
    picked = groups.best_rates(groups.grouped(runs, kind))

    def row(g: groups.Group, shown: groups.Group) -> dict[str, Any]:
        out: dict[str, Any] = {"method": shown.label, "picked": g.config == shown.config}
        out |= {"rate": g.config["rate"], "seeds": g.seeds, "states": [r.state for r in g.runs]}
        for name in (*NUMBERS[kind], *groups.MONITORED):
            stat = g.stat(name)
            if stat is not None or name in NUMBERS[kind]:
                out[name] = stat and {"mean": stat.mean, "std": stat.std, "n": stat.n}
        return out

    families = zip(picked.tried, picked.shown, strict=True)
    tried = [row(g, shown) for family, shown in families for g in family]
    best = [r for r in tried if r["picked"]]
    return {"kind": kind, "rule": groups.RULE[kind], "best": best, "tried": tried}


def show(result: dict[str, Any], out: Path) -> None:
    """As a table."""
    numbers = NUMBERS[result["kind"]]
    console = wide()
    table = Table(title="mean ± standard deviation over seeds; * the rate that was picked")
    for column in ("method", "rate"):
        table.add_column(column)
    watched = [n for n in groups.MONITORED if any(n in r for r in result["tried"])]
    for column in (*numbers, *watched, "runs"):
        table.add_column(column, justify="right")
    for r in result["tried"]:
        stats = {n: r[n] and groups.Stat(**r[n]) for n in numbers}
        shown = [s.text(DIGITS.get(n, 3)) if s else "–" for n, s in stats.items()]
        shown += [groups.Stat(**r[n]).text(3) if n in r else "" for n in watched]
        diverged = sum(s == "diverged" for s in r["states"])
        count = f"{len(r['seeds'])}" + (f", {diverged} diverged" if diverged else "")
        rate = labels.rate(r["rate"]) + (" *" if r["picked"] else "")
        table.add_row(r["method"], rate, *shown, count)
    console.print(table)
    if result["kind"] == "copy":
        print(copy.LEGEND)
    console.print(f"Picked: {result['rule']}.", highlight=False)
    for f in result["failed"]:
        console.print(f"[red]failed[/] {f['run']}: {f['message']}", highlight=False)
    console.print(f"Curves: kronline report {out}", highlight=False, soft_wrap=True)


def resume(path: Path, *, as_json: bool = False) -> int:
    """Go on with a sweep, as its own file describes it."""
    file = path / "sweep.toml"
    kind = "copy" if "threshold" in tomllib.loads(file.read_text(encoding="utf-8")) else "text"
    cls = KINDS[kind]
    return main(replace(config.make(cls, config.read(cls, file)), out=path, json=as_json))

"""`kronline publish`: runs as small folders that can be kept in a repository.

What a run measured, thinned, with its configuration, seed, commit and machine; no checkpoints. The
result is a folder of runs like any other: `kronline report` and `kronline plot` take it.
"""

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from kronline import disk
from kronline.errors import UsageError
from kronline.runs import folder
from kronline.runs.folder import Run

TABLE = ("table.md", "table.json", "cost.json")  # of `kronline variance --preset table`
RARE = ("valid", "test", "right")  # lines that have one of these are all kept


@dataclass(frozen=True)
class Publish:
    """Copy runs, thinned and without checkpoints, into a folder that is small enough to keep.

    Curves keep so many points, and every validation; times are summed up between them. Of a
    variance run all lines are kept. Names of folders on this machine are left out: data is named by
    what it is.

    Try:
        kronline publish runs/copy --out results/mine
        kronline report results/mine
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # runs, or folders that hold some, a sweep say
    out: Path = Path("results")  # where they go, a folder each
    points: int = 60  # of a curve
    unfinished: bool = False  # runs that were stopped, too, as far as they came
    json: bool = False  # print one JSON object: the folders, and how large they are together


def main(args: Publish) -> int:
    """Write the folders, and say how large they are."""
    if args.points < 2:
        raise UsageError(f"needed points >= 2, got {args.points}")
    if not args.runs:
        raise UsageError("needed at least one run, or a folder that holds some; `kronline list`")
    runs = folder.find(args.runs)
    _check(runs, args)
    places = [write(run, args.out, args.points) for run in runs]
    size = sum(f.stat().st_size for place in places for f in place.iterdir())
    if args.json:
        print(json.dumps({"runs": [str(p) for p in places], "bytes": size}))
    else:
        print(f"{args.out}: {len(places)} runs, {size / 1e3:.0f} kB")
    return 0


def _check(runs: list[Run], args: Publish) -> None:
    """All of them can be published, each in a folder of its own."""
    ended = ("finished", "diverged", *(("stopped", "killed") if args.unfinished else ()))
    others = [f"{run.name} ({run.state})" for run in runs if run.state not in ended]
    if others:
        stopped = "stopped or killed ones as far as they came, with --unfinished"
        hint = "wait for them" if args.unfinished else f"`kronline resume` them first; or {stopped}"
        raise UsageError(
            f"only runs that have ended are published, and these have not: {', '.join(others)}; "
            f"{hint}, or name the others"
        )
    twice = sorted(n for n, count in Counter(run.name for run in runs).items() if count > 1)
    if twice:
        raise UsageError(
            f"each run needs a folder of its own, and several are called {', '.join(twice)}: "
            "publish them apart, or rename their folders"
        )
    for run in runs:
        place = args.out / run.name
        if place.resolve() == run.path.resolve():
            raise UsageError(f"{run.path} would be thinned itself; choose another --out")
        if folder.is_run(place) and _asked(folder.read(place)) != _asked(run):
            raise UsageError(
                f"{place} holds another run, which {run.path} would replace: choose another --out, "
                "rename the run's folder, or remove the one that is there"
            )


def _asked(run: Run) -> tuple[str, dict[str, Any]]:
    """What makes it the same run: kind and configuration, but for steps, which may have grown."""
    asked = tomllib.loads(_portable(run))
    return run.kind, {name: value for name, value in asked.items() if name != "steps"}


def write(run: Run, out: Path, points: int) -> Path:
    """One run, over what was there of it."""
    place = out / run.name
    place.mkdir(parents=True, exist_ok=True)
    metrics, timing = run.metrics, run.timing
    if run.kind != "variance":  # each line of which is a network of its own
        metrics = thinned(metrics, points)
        timing = _summed(timing, [m["step"] for m in metrics])
    disk.write(place / folder.METRICS, _lines(metrics))
    disk.write(place / folder.TIMING, _lines(timing))
    disk.write(place / folder.ABOUT, json.dumps(run.about, indent=1) + "\n")
    disk.write(place / folder.STATUS, json.dumps(run.status) + "\n")
    for name in TABLE:
        if (run.path / name).is_file():
            disk.write(place / name, (run.path / name).read_text(encoding="utf-8"))
    disk.write(place / folder.CONFIG, _portable(run))
    return place


def thinned(metrics: list[dict[str, Any]], points: int) -> list[dict[str, Any]]:
    """Evenly, with the first and the last one, and all that are rare."""
    often = [m for m in metrics if not any(name in m for name in RARE)]
    some = np.linspace(0, len(often) - 1, points).round().astype(int)
    kept = {id(often[i]) for i in some if often}
    return [m for m in metrics if id(m) in kept or any(name in m for name in RARE)]


def _summed(timing: list[dict[str, Any]], steps: list[int]) -> list[dict[str, Any]]:
    """Seconds between those steps; a chunk that was done twice counts once."""
    chunks = {t["step"]: t["seconds"] for t in timing}
    out, last = [], 0
    for step in sorted(set(steps)):
        seconds = sum(s for at, s in chunks.items() if last < at <= step)
        out.append({"step": step, "seconds": round(seconds, 3)})
        last = step
    return out


def _portable(run: Run) -> str:
    """The configuration, data and networks named by what they are, not by where they lay."""
    text = (run.path / folder.CONFIG).read_text(encoding="utf-8")
    ptb = run.about.get("data", {}).get("name") == "Penn Treebank"
    for key in ("data", "run"):
        given = tomllib.loads(text).get(key, "")
        if "/" in given:
            name = "ptb" if key == "data" and ptb else Path(given).name
            text = text.replace(json.dumps(given), json.dumps(name))
    return text


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)

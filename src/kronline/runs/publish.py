"""`kronline publish`: runs as small folders that can be kept in a repository.

What a run measured, thinned, with its configuration, seed, commit and machine; no checkpoints. The
result is a folder of runs like any other: `kronline report` and `kronline plot` take it.
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from kronline import disk
from kronline.errors import UsageError
from kronline.runs import folder
from kronline.runs.folder import Run

RARE = ("valid", "test", "solved")  # lines that have one of these are all kept


@dataclass(frozen=True)
class Publish:
    """Copy runs, thinned and without checkpoints, into a folder that is small enough to keep.

    Curves keep so many points, and every validation; times are summed up between them. Of a
    variance run all lines are kept. Names of folders on this machine are left out: data is named by
    what it is.

    Try:
        kronline publish runs/sweep --out results/copy
        kronline report results/copy
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
    ended = ("finished", "diverged", *(("stopped",) if args.unfinished else ()))
    unfinished = [run.name for run in runs if run.state not in ended]
    if unfinished:
        raise UsageError(
            f"only finished runs are published, and these are not: {', '.join(unfinished)}; "
            "`kronline resume` them first, or name the others; with --unfinished, those that were "
            "stopped are published as far as they came"
        )
    places = [write(run, args.out, args.points) for run in runs]
    size = sum(f.stat().st_size for place in places for f in place.iterdir())
    if args.json:
        print(json.dumps({"runs": [str(p) for p in places], "bytes": size}))
    else:
        print(f"{args.out}: {len(places)} runs, {size / 1e3:.0f} kB")
    return 0


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
    """The configuration, its data named by what it is, not by where it lay."""
    text = (run.path / folder.CONFIG).read_text(encoding="utf-8")
    data = tomllib.loads(text).get("data", "none")
    if data == "none" or "/" not in data:
        return text
    name = "ptb" if run.about.get("data", {}).get("name") == "Penn Treebank" else Path(data).name
    return text.replace(json.dumps(data), json.dumps(name))


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)

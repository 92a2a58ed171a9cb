"""`kronline publish`: runs packed into one small text file that can be kept in a repository.

What a run measured, thinned, with its configuration, seed, commit and machine; no checkpoints.
`kronline report`, `kronline plot` and `kronline list` take the file as they take a folder of runs.
"""

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from kronline.errors import UsageError
from kronline.lab.runs import folder, packed
from kronline.lab.runs.folder import Run

TABLE = ("table.md", "table.json", "cost.json")  # of `kronline variance --preset table`
RARE = ("valid", "test", "right")  # lines that have one of these are all kept


@dataclass(frozen=True)
class Publish:
    """Pack runs, thinned and without checkpoints, into one text file that is small enough to keep.

    Curves keep so many points, and every validation; times are summed up between them. Of a
    variance run all lines are kept. Names of folders on this machine are left out: data is named by
    what it is. Runs that are in the file already stay there.

    Try:
        kronline publish runs/copy --out results/mine
        kronline report results/mine.runs
        kronline plot 'results/mine.runs:kf_rtrl*'
        kronline publish --unpack results/mine.runs --out mine
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # runs, or folders that hold some, a sweep say
    out: Path = Path("published")  # the file; .runs is added. With --unpack: the folder
    points: int = 60  # of a curve
    unfinished: bool = False  # runs that were stopped, too, as far as they came
    unpack: bool = False  # the other way: of files of runs, FILE.runs, make a folder for each run
    json: bool = False  # print one JSON object: the runs, and how large they are together


def main(args: Publish) -> int:
    """Write the file, or the folders, and say how large it is."""
    if args.points < 2:
        raise UsageError(f"needed points >= 2, got {args.points}")
    if not args.runs:
        raise UsageError("needed at least one run, or a folder that holds some; `kronline list`")
    runs = folder.find(args.runs)
    if args.unpack:
        out, places = args.out, packed.unpack([run.path for run in runs], args.out)
        size = sum(f.stat().st_size for place in places for f in place.iterdir())
    else:
        out = _file(args.out)
        _check(runs, out, args.unfinished)
        there = packed.read(out) if out.exists() else {}
        out.parent.mkdir(parents=True, exist_ok=True)
        packed.write(out, there | {run.name: files(run, args.points) for run in runs})
        places = [packed.member(out, run.name) for run in runs]
        size = out.stat().st_size
    if args.json:
        print(json.dumps({"runs": [str(p) for p in places], "bytes": size}))
    else:
        print(f"{out}: {len(places)} run{'s' * (len(places) != 1)}, {size / 1e3:.0f} kB")
    return 0


def _file(out: Path) -> Path:
    """Where the runs go."""
    if out.is_dir():
        raise UsageError(f"needed the name of a file, got the folder {out}: `--out {out / 'mine'}`")
    return out if out.suffix == packed.SUFFIX else out.with_name(out.name + packed.SUFFIX)


def _check(runs: list[Run], out: Path, unfinished: bool) -> None:
    """All of them can be published, each under a name of its own."""
    ended = ("finished", "diverged", *(("stopped", "killed") if unfinished else ()))
    others = [f"{run.name} ({run.state})" for run in runs if run.state not in ended]
    if others:
        stopped = "stopped or killed ones as far as they came, with --unfinished"
        hint = "wait for them" if unfinished else f"`kronline resume` them first; or {stopped}"
        raise UsageError(
            f"only runs that have ended are published, and these have not: {', '.join(others)}; "
            f"{hint}, or name the others"
        )
    twice = sorted(n for n, count in Counter(run.name for run in runs).items() if count > 1)
    if twice:
        raise UsageError(
            f"each run needs a name of its own, and several are called {', '.join(twice)}: "
            "publish them apart, or rename their folders"
        )
    for run in runs:
        place = packed.member(out, run.name)
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


def files(run: Run, points: int) -> dict[str, str]:
    """What is kept of a run: texts by the names of their files."""
    metrics, timing = run.metrics, run.timing
    if run.kind != "variance":  # each line of which is a network of its own
        metrics = thinned(metrics, points)
        timing = _summed(timing, [m["step"] for m in metrics])
    kept = {
        folder.CONFIG: _portable(run),
        folder.ABOUT: json.dumps(run.about, indent=1) + "\n",
        folder.STATUS: json.dumps(run.status) + "\n",
        folder.METRICS: _lines(metrics),
        folder.TIMING: _lines(timing),
    }
    tables = {name: packed.text(run.path / name) for name in TABLE}
    return kept | {name: text for name, text in tables.items() if text is not None}


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
    text = packed.text(run.path / folder.CONFIG) or ""
    ptb = run.about.get("data", {}).get("name") == "Penn Treebank"
    for key in ("data", "run"):
        given = tomllib.loads(text).get(key, "")
        if "/" in given:
            name = "ptb" if key == "data" and ptb else Path(given).name
            text = text.replace(json.dumps(given), json.dumps(name))
    return text


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)

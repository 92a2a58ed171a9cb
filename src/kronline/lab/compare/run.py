"""A comparison: time, train and measure.

A comparison is a folder of runs, as a sweep is. Started again, it goes on where it was stopped.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kronline.errors import UsageError
from kronline.lab.compare import noise
from kronline.lab.compare.result import Result
from kronline.lab.compare.terms import Terms, agreed
from kronline.lab.runs import folder, grid, loop, train
from kronline.lab.runs import members as several
from kronline.lab.runs.members import Member, Place
from kronline.lab.runs.train import RUNS

FILE = "compare.toml"


class Ended(NamedTuple):
    """How a comparison ended."""

    path: Path
    result: Result | None  # None: it was stopped
    failed: list[dict[str, str]]
    signal: int


def carry_out(args: Any) -> Ended:
    """Start a comparison, or go on with it."""
    out = args.out or folder.free(RUNS, f"compare-{args.task.kind}")
    members = grid.members(args, out)
    built = {m.settings.estimator: m.settings.build() for m in _first_of_each(members)}
    for m in _first_of_each(members):
        train.fits(m.settings, built[m.settings.estimator])
    with grid.at_work(out, "compare", FILE, args, len(members)) as (stop, held):
        steps = min(exp.steps for exp in built.values())
        learners = {e: exp.learner for e, exp in built.items()}
        terms = agreed(out, steps, learners, args.lanes)
        todo = [_long_enough(m, terms, args.most) for m in members]
        failed = several.run(todo, Place(args.cluster, args.workers), held, stop)
        result = None if stop.signal else _result(args, out, todo, terms, stop)
    if result is None:
        print(f"kronline: stopped; the same command goes on with {out}", file=sys.stderr)
    return Ended(out, result, failed, stop.signal)


def _first_of_each(members: Sequence[Member]) -> list[Member]:
    return list({m.settings.estimator: m for m in reversed(members)}.values())[::-1]


def _long_enough(member: Member, terms: Terms, most: float) -> Member:
    steps = terms.length(member.settings.estimator, most)
    return Member(member.path, replace(member.settings, steps=steps))  # type: ignore[call-arg]


def _result(
    args: Any, out: Path, todo: Sequence[Member], terms: Terms, stop: loop.Stop
) -> Result | None:
    """What came out; None if it was stopped on the way."""
    runs = folder.find([m.path for m in todo if folder.is_run(m.path)])
    if not runs:
        raise UsageError(f"{out}: no run could be started; each one's log.txt says why")
    seed = args.seeds[0]
    trained = [r.path for r in runs if r.state == "finished" and r.config.get("seed", seed) == seed]
    parts = {"places": args.places, "loss_steps": args.loss_steps, "draws": args.draws}
    lines = noise.measured(out, trained, args.estimators, stop, **parts)
    if stop.signal:
        return None
    return Result.of(args.task, runs, terms, noise.summary(lines), args.loss_steps)

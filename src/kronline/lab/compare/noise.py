"""The gradient of the same losses by every estimator, in networks that were trained."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from kronline import Learner, spec
from kronline.estimators import Model, Params
from kronline.lab.analysis.numbers import number
from kronline.lab.progress import Tracker
from kronline.lab.runs import folder, train
from kronline.lab.runs.loop import Stop
from kronline.lab.variance import exact
from kronline.lab.variance.measure import measure
from kronline.lab.variance.plan import STILL
from kronline.lab.variance.stream import Stream

FILE = "noise.jsonl"


class Look(NamedTuple):
    """What all networks are looked at with."""

    data: Stream
    times: tuple[int, ...]
    loss_steps: int
    draws: int


class Network(NamedTuple):
    """A trained one, and its exact gradients."""

    learner: Learner
    params: Params
    exact: Any


def network(path: Path, look: Look) -> Network:
    """Of a finished run."""
    _, exp, params, _ = train.load(path)
    model = Model(exp.learner.cell, exp.learner.readout)
    true = exact.gradients(model, params, look.data, look.times, look.loss_steps)
    return Network(exp.learner, params, true)


def chosen(runs: Sequence[Path], places: int, loss_steps: int, draws: int, longest: int) -> Look:
    """The same for all networks; `longest`: a segment, which has to be read to its end."""
    task, exp, _, _ = train.load(runs[0])
    reached = [number(folder.read(run), task.curve.key) or 1.0 for run in runs]
    steps, times = task.probe(exp, reached, places, loss_steps, longest)
    return Look(Stream(*steps), times, loss_steps, draws)


def measured(
    path: Path,
    runs: Sequence[Path],
    estimators: Sequence[str],
    stop: Stop,
    *,
    places: int,
    loss_steps: int,
    draws: int,
) -> list[dict[str, Any]]:
    """Every estimator in every network, a line each; what was measured before is kept.

    One that takes the whole run as its segment is exact, and left out.
    """
    done = {(m["estimator"], m["network"]): m for m in folder.lines(path / FILE)}
    made = {e: spec.given(e, "estimator") for e in estimators}
    made = {e: x for e, x in made.items() if x.span is not None}
    todo = [(e, run) for e in made for run in runs]  # programs differ in the estimator alone
    if not todo:
        return []
    longest = max(x.span for x in made.values())
    look = chosen(runs, places, loss_steps, draws, longest)
    networks = {run: network(run, look) for run in runs}
    file = folder.Lines(path / FILE, _whole(path / FILE))
    with Tracker({"noise": len(todo)}) as tracker:
        for e, run in todo:
            if stop.signal:
                break
            if (e, run.name) not in done:
                found = _found(networks[run], made[e], look)
                line = {"estimator": e, "network": run.name, **found}
                file.append(line)
                done[e, run.name] = line
            tracker.update("noise", 1, f"{e} in {run.name}")
    file.close()
    wanted = {(e, run.name) for e, run in todo}
    return [line for key, line in done.items() if key in wanted]


def _whole(path: Path) -> int:
    """Bytes of the lines that are whole."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def _found(net: Network, estimator: Any, look: Look) -> dict[str, Any]:
    learner = replace(net.learner, estimator=estimator, optimiser=STILL)
    parts = (learner, net.params, look.data, look.times, net.exact, jax.random.key(0), look.draws)
    found = measure(*parts, loss_steps=look.loss_steps, blocks=False)
    return {
        "cosine": np.round(found.cosine.astype(float), 5).tolist(),
        "error": [float(f"{e:.6g}") for e in found.error.mean(1)],
        "size": [float(f"{s:.6g}") for s in found.size],
    }


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By estimator, over all networks and places: variance and cosine, as in the noise table.

    Networks count alike, however large their gradients are.
    """
    out = {}
    for e, some in itertools.groupby(sorted(lines, key=_by), key=_by):
        own = list(some)
        variance = [np.dot(m["error"], m["size"]) / np.sum(m["size"]) for m in own]
        cosine = [np.mean(m["cosine"]) for m in own]
        out[e] = {"variance": float(np.mean(variance)), "cosine": float(np.mean(cosine))}
    return out


def _by(line: dict[str, Any]) -> str:
    return str(line["estimator"])

"""The path of lanes that are split over devices, and over processes, by enumeration.

Every noise pattern is a lane, all with the same data. Patterns are equally likely, so that the
gradient which the library sums over devices and processes is the mean over ALL patterns: it must be
the exact gradient.
"""

from typing import Any

import jax
import numpy as np

from kronline import cells
from kronline.cells.base import Cell
from kronline.estimators.base import Estimator
from kronline.estimators.methods import kf_rtrl, kf_tbptt, uoro
from kronline.lanes import Shard
from kronline.learner import Learner
from kronline.noise import patterns, repeat
from kronline.show import show
from kronline.verifier.enumeration import ROUNDING, by_segment, whole_segments
from kronline.verifier.problem import READOUT, STILL, Problem, flat, relative
from kronline.verifier.report import Check

STEPS = 3
CELLS: tuple[Cell, ...] = (cells.RHN(2, 2), cells.LSTM(1, 2))
ESTIMATORS: tuple[Estimator, ...] = (kf_rtrl(), kf_tbptt(2, pairs=1), uoro(), kf_rtrl(window=1))


def split(cell: Cell, estimator: Estimator, layout: Shard) -> list[Check]:
    """The mean gradient over all noise patterns, a lane each, summed over devices and processes.

    Args:
        cell: small, so that all noise patterns can be enumerated.
        estimator: that draws signs.
        layout: whose devices are used; their number must be a power of two.
    """
    problem = Problem(cell, whole_segments(STEPS, estimator))
    learner = Learner(cell, READOUT, estimator, STILL, layout=layout, dtype="float64")
    segments = problem.steps // (estimator.span or problem.steps)
    noise, probs = patterns(repeat(learner.draws(1, problem.steps), segments))
    lanes = len(probs)
    own = layout.mine(lanes)
    # (patterns, segments, one lane, ...) -> (segments, lanes, ...), of this process's lanes
    noise = jax.tree.map(lambda a: np.moveaxis(a[own, :, 0], 0, 1), noise)
    count = own.stop - own.start
    data = {name: np.repeat(a, count, axis=1) for name, a in problem.data.items()}
    joined: Any = layout.join((data, noise), axis=1)
    _, grads = learner.gradients(problem.start(learner, lanes), **joined[0], noise=joined[1])
    error = relative(flat(layout.own(grads, None), 1), by_segment(problem, estimator))
    where = f"{layout.mesh().size} devices of {jax.process_count()} process(es)"
    title = f"mean gradient, {lanes} patterns, a lane each, {where}"
    return [Check(title, show(cell), show(estimator), error, ROUNDING)]


def split_jobs(layout: Shard) -> list[Any]:
    """What `kronline verify --split` proves."""

    def job(cell: Cell, e: Estimator) -> Any:
        return f"{show(cell)}, {show(e)}", lambda: split(cell, e, layout)

    return [job(cell, e) for cell in CELLS for e in ESTIMATORS[: 4 if cell == CELLS[0] else 2]]

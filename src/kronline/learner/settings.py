"""What a learner's settings must be, said before anything is compiled."""

from typing import TYPE_CHECKING

import optax

from kronline.cells import Cell
from kronline.estimators import Estimator
from kronline.lanes import Layout
from kronline.learner import own_loss
from kronline.readout import Readout
from kronline.regularise import Regulariser

if TYPE_CHECKING:
    from kronline.learner.learner import Learner


def check(learner: "Learner") -> None:
    """That every setting is of its kind, and that they go together."""
    wanted = {
        "cell": (Cell, "a cell such as RHN(64, 4)"),
        "readout": (Readout | None, "a Readout such as softmax(4), or None"),
        "estimator": (Estimator, "an Estimator such as kf_rtrl()"),
        "optimiser": (optax.GradientTransformation, "an optax optimiser: optax.adam(1e-3)"),
        "layout": (Layout, "Vmap(), Loop() or Shard()"),
    }
    for name, (kind, what) in wanted.items():
        if not isinstance(value := getattr(learner, name), kind):
            raise TypeError(f"{name} must be {what}, got {value!r}")
    try:
        hash(learner)
    except TypeError as e:
        raise TypeError(
            f"cells, estimators and traces must be hashable, such as frozen dataclasses: {e}"
        ) from e
    if learner.dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {learner.dtype!r}")
    learner.estimator.check(learner.cell)
    for r in learner.regularisers:
        if not isinstance(r, Regulariser):
            raise TypeError(f"regularisers must be such as (row_norm(1.0),), got {r!r} in it")
        r.check(learner.cell, learner.readout, learner.estimator)
    if not isinstance(learner.delay, int) or learner.delay < 0:
        raise ValueError(f"delay must be a number of steps, 0 or more, got {learner.delay!r}")
    span, every = learner.estimator.span, learner.update_every
    if learner.delay and (span is None or learner.readout is None):
        what = "bptt" if learner.readout else "a loss of one's own"
        raise ValueError(f"{what} takes no delay, got delay={learner.delay}; use delay=0")
    if every is not None and (every < 1 or span is None or every % span):
        raise ValueError(
            f"update_every must be a multiple of the estimator's window ({span or 'all'}), "
            f"got {every}"
        )
    if learner.readout is None:
        own_loss.of(learner.engine)  # early, with the reason

"""What is handed to a learner, checked: before a program is looked up, in words of the caller's."""

from typing import Any

import numpy as np

from kronline import checks
from kronline.estimators import Segment
from kronline.learner.engine import Engine
from kronline.learner.state import State
from kronline.noise import Draws, Noise, repeat


def inputs(
    engine: Engine, state: State, x: Any, reset: Any, lanes: int | None = None
) -> tuple[Any, Any]:
    """Inputs and resets of one step of all lanes, or of so many of them."""
    checks.alive("this state", state.s, state.params)
    lead = (state.s.shape[0] if lanes is None else lanes,)
    x = checks.stream(engine.cell, x, lead, engine.dtype)
    return x, checks.flags("reset", reset, lead)


def draws(engine: Engine, lanes: int, steps: int | None) -> Draws:
    """The noise of one segment of all lanes; `steps` long, where the segment is the whole run."""
    k = engine.estimator.span or steps
    if k is None:
        raise ValueError("this estimator's segment is the whole run: say how many steps")
    return repeat(engine.estimator.draws(engine.model, engine.shapes(), k), lanes)


def segment(
    engine: Engine,
    state: State,
    x: Any,
    y: Any,
    reset: Any,
    weight: Any,
    noise: Noise,
    lead: tuple[int, ...] = (),
) -> Segment:
    """The data, all parts of it and the noise checked; leading axes ((steps,) lanes)."""
    checks.alive("this state", state.s, state.params)
    if isinstance(x, Segment):
        x, y, reset, weight = x
    lanes, k = lead[-1] if lead else state.s.shape[0], engine.estimator.span
    if not lead:
        x, lead = checks.steps(x, lanes)
    if y is None:
        y, weight = checks.no_targets(engine.readout, lead), np.zeros(lead, np.float32)
    seg = checks.segment(engine.cell, engine.readout, lead, x, y, reset, weight, engine.dtype)
    steps = lead[0] if len(lead) > 1 else 1
    if state.pending is not None:
        checks.same_kind(seg.x, state.pending.x, len(lead))
    if state.buffer is not None:
        checks.same_kind((seg.x, seg.y), (state.buffer.steps.x, state.buffer.steps.y), len(lead))
        if noise is not None:
            raise ValueError("noise cannot be given to a buffered state; init without example")
    elif state.pending is None and steps % (k or 1):
        raise ValueError(
            f"{engine.estimator.name} learns from segments of {k} steps: needed a multiple of "
            f"{k} steps, got {steps}; cut the data, or use init(key, lanes, example=(x, y)) "
            "to carry unfinished segments over"
        )
    if noise is not None:
        each = draws(engine, lanes, steps)
        checks.given_noise(noise, repeat(each, steps // (k or steps)) if lead[1:] else each)
    return seg

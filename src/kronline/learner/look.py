"""What does not learn: the forward pass, an evaluation, the share of noise."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kronline.estimators import Params, Seen, Segment
from kronline.lanes import over_lanes
from kronline.learner.engine import Engine
from kronline.learner.state import Out, State, out


def forward(engine: Engine, params: Params, s: Array, seg: Segment) -> tuple[Array, Seen]:
    """The forward pass of all lanes: final states, losses and predictions (lanes, k).

    Without targets, `seg.y = None`, losses are 0.
    """
    cell, readout = engine.cell, engine.readout
    assert readout is not None

    def lane(params: Params, lane: Any) -> tuple[Any, Any]:
        def step(s: Array, now: Segment) -> tuple[Array, Seen]:
            s = cell.step(params.cell, jnp.where(now.reset, jnp.zeros_like(s), s), now.x)
            prediction = readout.predict(params.readout, cell.output(s))
            loss = s.dtype.type(0) if now.y is None else readout.loss(prediction, now.y)
            return s, Seen(jnp.asarray(loss), prediction)

        return jax.lax.scan(step, *lane), ()

    return over_lanes(lane, engine.layout)(params, (s, seg))[0]


@partial(jax.jit, static_argnums=(0, 3))
def evaluate(engine: Engine, params: Params, seg: Segment, predictions: bool) -> Out:
    """Losses (steps, lanes) from the zero state."""
    seg = engine.typed(seg)
    s = jnp.zeros((seg.reset.shape[1], engine.cell.size), jnp.dtype(engine.dtype))
    _, seen = forward(engine, params, s, jax.tree.map(lambda a: a.swapaxes(0, 1), seg))
    return jax.tree.map(lambda a: a.swapaxes(0, 1), out(seen, predictions))


@partial(jax.jit, static_argnums=0)
def noise_share(engine: Engine, state: State, x: Any, reset: Any) -> Array | None:
    """The share of noise in each lane's trace, after one more step."""

    def lane(params: Params, lane: Any) -> tuple[Any, Any]:
        return engine.estimator.noise_share(engine.model, params, *lane), ()

    lanes = (state.s, state.memory, engine.floats(x), reset)
    return over_lanes(lane, engine.layout)(state.params, lanes)[0]

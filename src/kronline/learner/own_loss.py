"""Learning with a loss of one's own: a step, then δ = ∂L/∂(output), then the gradient."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline import checks
from kronline.estimators import OwnLoss, Params
from kronline.lanes import over_lanes
from kronline.learner.engine import Engine
from kronline.learner.state import State
from kronline.noise import Noise, for_lanes, keys, tick


def of(engine: Engine) -> OwnLoss:
    """How the engine's estimator learns from a loss of one's own."""
    if engine.readout is not None:
        raise TypeError(
            "advance and pull are for a loss of one's own, and this learner has a readout; "
            "make it with readout=None, or use run and step"
        )
    return engine.estimator.with_own_loss(engine.cell)


def kept_input(engine: Engine, example: Any, lanes: int) -> Any:
    """One lane's input, for an estimator that keeps inputs; else None."""
    if not of(engine).keeps_input:
        return None
    if example is None:
        raise ValueError(
            f"{engine.estimator.name} keeps the newest inputs until their loss is known, so that "
            "it must know their kind; use init(key, lanes, example=x) with the x of one step"
        )
    x = checks.stream(engine.cell, example, (lanes,), engine.dtype)
    return engine.inputs(x)[0]


@partial(jax.jit, static_argnums=(0, 1))
def advance(
    engine: Engine, own: OwnLoss, state: State, x: Any, reset: Any, noise: Noise
) -> tuple[State, Float[Array, "lanes h"]]:
    """One step of every lane, and the cell's outputs."""
    dtype = jnp.dtype(engine.dtype)
    if noise is None:
        (key,) = keys(state.key, state.clock, 1)
        noise = for_lanes(key, own.draws(engine.model, state.params), state.s.shape[0], dtype)
        state = state._replace(clock=tick(state.clock, 1))
    noise = jax.tree.map(lambda a: jnp.asarray(a, dtype), noise)

    def lane(params: Params, lane: Any) -> tuple[Any, Any]:
        return own.advance(engine.model, params, *lane), ()

    lanes = (state.s, state.memory, engine.inputs(x), jnp.asarray(reset) | state.anew, noise)
    (s, memory), _ = over_lanes(lane, engine.layout)(state.params, lanes)
    anew = ~jnp.isfinite(s).all(1)
    return state._replace(s=s, memory=memory, anew=anew), jax.vmap(engine.cell.output)(s)


@partial(jax.jit, static_argnums=(0, 1, 4))
def pull(
    engine: Engine, own: OwnLoss, state: State, delta: Float[Array, "lanes h"], average: bool
) -> Any:
    """The cell's gradient, averaged over lanes, or each lane's own."""

    def lane(params: Params, lane: Any) -> tuple[Any, Any]:
        s, memory, delta = lane
        (d,) = jax.vjp(engine.cell.output, s)[1](delta)
        return (), own.pull(engine.model, params, memory, d)

    lanes = (state.s, state.memory, delta)
    _, grads = over_lanes(lane, engine.layout, average=average)(state.params, lanes)
    return engine.cell.project(grads) if average else jax.vmap(engine.cell.project)(grads)


@partial(jax.jit, static_argnums=0)
def update(engine: Engine, state: State, grads: Params) -> State:
    """Gradients handed to the optimiser."""
    return engine.updated(state, grads)

"""Steps that come one by one, for an estimator that learns from segments of k > 1."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kronline.estimators import Segment
from kronline.learner.engine import Engine
from kronline.learner.look import forward
from kronline.learner.state import Buffer, Out, State, out


def empty(engine: Engine, state: State, now: Segment) -> Buffer:
    """A buffer for steps of the kind of `now` (lanes, ...)."""
    k = engine.estimator.span
    assert k is not None

    def room(a: Array) -> Array:
        return jnp.zeros((a.shape[0], k, *a.shape[1:]), a.dtype)

    steps = jax.tree.map(room, engine.typed(now))
    return Buffer(jnp.zeros((), jnp.int32), jnp.array(state.s), steps)


def _step(engine: Engine, state: State, now: Segment, *, predictions: bool) -> tuple[State, Out]:
    """One step: predict at once, and learn when the segment is full."""
    buffer, k = state.buffer, engine.estimator.span
    assert buffer is not None and k is not None
    at = buffer.filled
    single = jax.tree.map(lambda a: a[:, None], now)
    ahead, seen = forward(engine, state.params, state.s, single)
    start = jnp.where(at == 0, state.s, buffer.start)
    steps = jax.tree.map(lambda full, a: full.at[:, at].set(a), buffer.steps, now)
    state = state._replace(buffer=Buffer((at + 1) % k, start, steps))

    def learn(state: State) -> State:
        state, noise = engine.drawn(state._replace(s=start), k, 1)
        noise = jax.tree.map(lambda a: a[0], noise)
        state, grads, _, _ = engine.segment(state, steps, noise)
        return engine.updated(state, grads)

    state = jax.lax.cond(at + 1 == k, learn, lambda st: st._replace(s=ahead), state)
    return state, out(jax.tree.map(lambda a: a[:, 0], seen), predictions)


def _run(engine: Engine, state: State, seg: Segment, predictions: bool) -> tuple[State, Out]:
    """Steps (steps, lanes), one after another."""
    step = partial(_step, engine, predictions=predictions)
    return jax.lax.scan(step, state, engine.typed(seg))


def _single(engine: Engine, state: State, seg: Segment) -> tuple[State, Out]:
    """One step (lanes,)."""
    return _step(engine, state, engine.typed(seg), predictions=True)


run = jax.jit(_run, static_argnums=(0, 3))
run_in_place = jax.jit(_run, static_argnums=(0, 3), donate_argnums=1)
step = jax.jit(_single, static_argnums=0)
step_in_place = jax.jit(_single, static_argnums=0, donate_argnums=1)

"""One step at a time: of all lanes or of some, with targets at once, later, or not at all.

A step of a lane passes, in this order, through what waits for its target (`Pending`, for a learner
with a delay), through the buffer of an unfinished segment (`Buffer`, for a window of k > 1), and
into the engine. Each of the two is there only where it is needed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from kronline import checks
from kronline.estimators import Seen, Segment
from kronline.learner.engine import Engine, along, has_target
from kronline.learner.look import forward
from kronline.learner.state import Buffer, Out, Pending, State, out
from kronline.noise import Noise

Active = Bool[Array, " lanes"] | None  # lanes that have an event; None: all
Apart = Callable[[Callable[[State], Any], State], Any]

LANES = ("s", "memory", "anew", "buffer", "pending")  # what of a state has an axis of lanes


# -- room for what waits ---------------------------------------------------------------------------


def with_room(engine: Engine, state: State, example: Any, delay: int) -> State:
    """With room for steps that have to wait, of the kind of `example` = (x, y), where any do."""
    if delay and example is None:
        raise ValueError(
            "a learner with a delay keeps inputs until their targets come: it must know their "
            "kind; use init(key, lanes, example=(x, y)) with x and y of one step"
        )
    if example is None or (engine.estimator.span == 1 and not delay):
        return state
    if engine.estimator.span is None:
        raise ValueError("bptt has no window to buffer; use run, or tbptt(k)")
    lead, (x, y) = (state.s.shape[0],), example
    now = checks.segment(engine.cell, engine.readout, lead, x, y, None, None, engine.dtype)
    if delay:
        state = state._replace(pending=pending(engine, state, now.x, delay))
    if engine.estimator.span > 1:
        state = state._replace(buffer=buffer(engine, state, now))
    return state


def buffer(engine: Engine, state: State, now: Segment) -> Buffer:
    """An empty buffer for steps of the kind of `now` (lanes, ...)."""
    k, lanes = engine.estimator.span, state.s.shape[0]
    assert k is not None
    steps = jax.tree.map(lambda a: _room(a, k), engine.typed(now))
    return Buffer(jnp.zeros(lanes, jnp.int32), jnp.array(state.s), steps)


def pending(engine: Engine, state: State, x: Any, delay: int) -> Pending:
    """No input yet, of those of the kind of x (lanes, ...), that wait for `delay` steps."""
    lanes = state.s.shape[0]
    return Pending(
        ahead=jnp.array(state.s),
        x=_room(engine.inputs(x), delay),
        reset=jnp.zeros((lanes, delay), bool),
        filled=jnp.zeros(lanes, jnp.int32),
    )


def _room(a: Array, steps: int) -> Array:
    return jnp.zeros((a.shape[0], steps, *a.shape[1:]), a.dtype)


# -- a step ----------------------------------------------------------------------------------------


def at_once(part: Callable[[State], Any], state: State) -> Any:
    """A part of a step as it is: the state, and what else comes out of it."""
    return part(state)


def taken(
    engine: Engine,
    state: State,
    now: Segment,
    noise: Noise = None,
    active: Active = None,
    apart: Apart = at_once,
) -> tuple[State, Seen]:
    """One step of every lane that is active; data (lanes, ...), in the learner's types.

    Args:
        engine, state, now, noise, active: of the step.
        apart: how the parts of a step that is learnt from at once are run, see `live.py`.
    """
    if state.pending is not None:
        return _delayed(engine, state, now, noise, active)
    if state.buffer is not None:
        return _buffered(engine, state, now, active)
    return _plain(engine, state, now, noise, active, apart)


def _plain(
    engine: Engine, state: State, now: Segment, noise: Noise, active: Active, apart: Apart
) -> tuple[State, Seen]:
    """Learnt from at once."""
    seg = jax.tree.map(lambda a: a[:, None], now)
    if noise is None:
        state, noise = apart(lambda state: engine.drawn(state, 1, 1), state)
        noise = jax.tree.map(lambda a: a[0], noise)
    noise = jax.tree.map(lambda a: jnp.asarray(a, jnp.dtype(engine.dtype)), noise)
    state, grads, seen, _ = engine.segment(state, seg, noise, active=active)
    learns = _learns(now, active)
    state, _ = apart(lambda state: (engine.updated(state, grads, learns), ()), state)
    return state, jax.tree.map(lambda a: a[:, 0], seen)


def _buffered(engine: Engine, state: State, now: Segment, active: Active) -> tuple[State, Seen]:
    """Predicted at once, and learnt from when the lane's segment is full."""
    held, k = state.buffer, engine.estimator.span
    assert held is not None and k is not None
    now = now._replace(reset=now.reset | state.anew)
    ahead, seen = _forward(engine, state, state.s, now)
    start = jnp.where(along(held.filled == 0, state.s), state.s, held.start)
    here = jnp.arange(k)[None] == held.filled[:, None]
    steps = jax.tree.map(
        lambda full, a: jnp.where(_at(here, full), a[:, None], full), held.steps, now
    )
    full = held.filled + 1 == k
    waits = Buffer(jnp.where(full, 0, held.filled + 1), start, steps)
    moved = state._replace(buffer=waits, anew=jnp.zeros_like(state.anew))
    if active is not None:  # the others keep all that they have
        full, (ahead, waits, anew) = (
            full & active,
            _kept(active, (ahead, waits, moved.anew), (state.s, held, state.anew)),
        )
        moved = state._replace(buffer=waits, anew=anew)

    def learn(state: State) -> State:
        state, noise = engine.drawn(state._replace(s=start), k, 1)
        noise = jax.tree.map(lambda a: a[0], noise)
        state, grads, _, _ = engine.segment(state, steps, noise, active=full)
        state = engine.updated(state, grads, jnp.any(full[:, None] & (steps.weight != 0)))
        return state._replace(s=jnp.where(along(full, ahead), state.s, ahead))

    state = jax.lax.cond(jnp.any(full), learn, lambda st: st._replace(s=ahead), moved)
    return state, seen


def _delayed(
    engine: Engine, state: State, now: Segment, noise: Noise, active: Active
) -> tuple[State, Seen]:
    """Predicted from the newest state; learnt from where the target belongs, d steps behind.

    The lane's state and trace meet each step exactly as those of a learner without a delay, once
    its target is there. What a prediction rests on, the state ahead, is by the parameters of the
    time at which each of its steps was taken.
    """
    held = state.pending
    assert held is not None
    lost = ~jnp.isfinite(held.ahead).all(1)
    ahead, seen = _forward(engine, state, held.ahead, now._replace(reset=now.reset | lost))
    delay = held.reset.shape[1]
    ripe = held.filled == delay
    old = now._replace(x=jax.tree.map(lambda a: a[:, 0], held.x), reset=held.reset[:, 0])

    def shifted(a: Array, new: Array) -> Array:
        return jnp.concatenate([a[:, 1:], new[:, None]], axis=1)

    waits = Pending(
        ahead,
        jax.tree.map(shifted, held.x, now.x),
        shifted(held.reset, now.reset),
        jnp.minimum(held.filled + 1, delay),
    )
    if active is not None:
        ripe, waits = ripe & active, _kept(active, waits, held)
    behind, learnt = taken(engine, state._replace(pending=None), old, noise, ripe)
    loss = jnp.where(ripe, learnt.loss, 0)
    return behind._replace(pending=waits), Seen(loss, seen.prediction)


def _forward(engine: Engine, state: State, s: Array, now: Segment) -> tuple[Array, Seen]:
    """New states, and what is seen (lanes, ...), without learning."""
    single = jax.tree.map(lambda a: a[:, None], now)
    ahead, seen = forward(engine, state.params, s, single)
    return ahead, jax.tree.map(lambda a: a[:, 0], seen)


def _learns(now: Segment, active: Active) -> Bool[Array, ""]:
    if active is None:
        return has_target(now)
    return jnp.any(active & (now.weight != 0))


def _kept(active: Bool[Array, " lanes"], new: Any, old: Any) -> Any:
    """The new ones of active lanes, the old ones of the others."""
    return jax.tree.map(lambda n, o: jnp.where(along(active, n), n, o), new, old)


def _at(here: Bool[Array, "lanes k"], full: Array) -> Bool[Array, "lanes k ..."]:
    return here.reshape(*here.shape, *(1,) * (full.ndim - 2))


# -- programs --------------------------------------------------------------------------------------


def _run(engine: Engine, state: State, seg: Segment, predictions: bool) -> tuple[State, Out]:
    """Steps (steps, lanes), one after another, where something waits."""

    def step(state: State, now: Segment) -> tuple[State, Out]:
        state, seen = taken(engine, state, now)
        return state, out(seen, predictions)

    return jax.lax.scan(step, state, engine.typed(seg))


def _step(engine: Engine, state: State, seg: Segment, noise: Noise) -> tuple[State, Out]:
    """One step (lanes,)."""
    state, seen = taken(engine, state, engine.typed(seg), noise)
    return state, out(seen, predictions=True)


def some_lanes(
    engine: Engine,
    padded: bool,
    state: State,
    at: Int[Array, " m"],
    seg: Segment,
    noise: Noise,
    apart: Apart = at_once,
) -> tuple[State, Seen]:
    """One step of the lanes `at`; of the others nothing is read or written.

    Args:
        engine: of the learner.
        padded: whether some of `at` are beyond the last lane: they count for nothing.
        state: of all lanes.
        at: which lanes, each once.
        seg, noise: (m, ...).
        apart: as for `taken`.
    """
    own = {name: getattr(state, name) for name in LANES}
    lanes = state.s.shape[0]
    active = at < lanes if padded else None
    part = jax.tree.map(lambda a: a.at[at].get(mode="clip"), own)
    new, seen = taken(engine, state._replace(**part), engine.typed(seg), noise, active, apart)
    back = jax.tree.map(
        lambda a, b: a.at[at].set(b, mode="drop", unique_indices=True),
        own,
        {name: getattr(new, name) for name in LANES},
    )
    return new._replace(**back), seen


def _some(
    engine: Engine, padded: bool, state: State, at: Int[Array, " m"], seg: Segment, noise: Noise
) -> tuple[State, Out]:
    state, seen = some_lanes(engine, padded, state, at, seg, noise)
    return state, out(seen, predictions=True)


def seen(engine: Engine, state: State, at: Int[Array, " m"] | None, x: Any, reset: Any) -> Array:
    """Predictions of one step (lanes,) that is not taken."""
    s = state.s if state.pending is None else state.pending.ahead
    anew = state.anew if state.pending is None else ~jnp.isfinite(s).all(1)
    if at is not None:
        s, anew = s.at[at].get(mode="clip"), anew.at[at].get(mode="clip")
    now = Segment(engine.inputs(x), None, jnp.asarray(reset) | anew, jnp.zeros(s.shape[0], s.dtype))
    return _forward(engine, state, s, now)[1].prediction


def places(data: Any, at: np.ndarray, lanes: int) -> tuple[Any, np.ndarray, bool]:
    """Data and places of some lanes, their number rounded up to a power of two.

    Places beyond the last lane are dropped; the flag says whether there are such.
    """
    more = min(1 << (int(at.size) - 1).bit_length(), lanes) - at.size
    if not more:
        return data, at.astype(np.int32), False
    data = jax.tree.map(lambda a: checks.padded(a, more), data)
    return data, np.r_[at, lanes : lanes + more].astype(np.int32), True


def nothing(engine: Engine, lanes: int) -> Out:
    """What a step without any event gives."""
    assert engine.readout is not None
    dtype = jnp.dtype(engine.dtype)
    return Out(jnp.zeros(lanes, dtype), jnp.zeros((lanes, engine.readout.outputs), dtype))


peek = jax.jit(seen, static_argnums=0)
run = jax.jit(_run, static_argnums=(0, 3))
run_in_place = jax.jit(_run, static_argnums=(0, 3), donate_argnums=1)
step = jax.jit(_step, static_argnums=0)
step_in_place = jax.jit(_step, static_argnums=0, donate_argnums=1)
some = jax.jit(_some, static_argnums=(0, 1))
some_in_place = jax.jit(_some, static_argnums=(0, 1), donate_argnums=2)

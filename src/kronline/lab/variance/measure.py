"""One network, one estimator, many draws of its noise: how near the estimates come to the gradient.

Draws are lanes that read the same text with noise of their own. Between the times that are looked
at the traces are only pushed on; a look reads every lane's gradient, and goes on from before it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline.estimators import Online, Params
from kronline.lab.variance.stream import Stream, stream
from kronline.learner import Learner, State
from kronline.traces import UORO

Tick = Callable[[int], None]  # told how many steps times lanes were done since it was last called
BYTES = 1 << 28  # of traces that are worked on at once, unless a single one has more
BLOCKS = (4, 16, 64)  # steps that are pushed over at once, and to which late times are rounded


class Found(NamedTuple):
    """How near, time by time and draw by draw."""

    cosine: Float[np.ndarray, "times draws"]  # of the angle to the exact gradient
    error: Float[np.ndarray, "times draws"]  # |ĝ − g|² / |g|²
    size: Float[np.ndarray, " times"]  # |g|²


def log_spaced(last: int, count: int, span: int = 1, loss_steps: int = 1) -> tuple[int, ...]:
    """`count` times up to `last`, evenly spaced in the logarithm; fewer, if there are not as many.

    All are multiples of `span`, so that every window ends there. Late ones are rounded up (by less
    than 1/16), so that what lies between them is whole blocks.
    """
    first = math.ceil(loss_steps / span) * span
    last = last // span * span

    def rounded(t: float) -> int:
        fine = max(f for f in (1, *BLOCKS) if 16 * f * span <= t or f == 1)
        return min(last, first + math.ceil((t - first) / (span * fine) - 1e-9) * span * fine)

    for points in range(count, 4 * count):
        times = sorted({rounded(t) for t in np.geomspace(first, last, points)})
        if len(times) >= count:
            break
    return tuple(times)


def measure(
    learner: Learner,
    params: Params,
    text: Stream | Int[np.ndarray, " characters"],
    times: Sequence[int],
    exact: Any,
    key: Key[Array, ""],
    draws: int,
    *,
    loss_steps: int = 1,
    blocks: bool = True,
    tick: Tick = lambda done: None,
) -> Found:
    """Estimates of the gradient of L_t beside the exact one, at growing times t.

    Args:
        learner: the cell, the readout and the estimator, with any optimiser.
        params: the cell's and the readout's are used; they stay as they are.
        text: symbols, or any stream; reading starts at the first, from the zero state.
        times: growing. The losses up to one of them may lie anywhere in the estimator's segments:
            the gradient is that of the segments which they lie in, all other losses left out.
        exact: from `exact.gradients`, for the same times.
        key: of the noise (and of the estimator's own parameters, if it has any).
        draws: independent repetitions.
        loss_steps: how many losses are summed, those up to t.
        blocks: push over many steps at once, where the trace can; programs for that take longer to
            compile, and pay where traces are large or the way is long.
        tick: for progress.
    """
    most = max(1, BYTES // max(1, lane_bytes(learner)))
    lanes = max(d for d in range(1, min(draws, most) + 1) if draws % d == 0)
    pushers = _pushers(learner, blocks)
    data = stream(text)
    parts = [
        _group(
            learner,
            pushers,
            _start(learner, params, jax.random.fold_in(key, i), lanes),
            data,
            times,
            exact,
            loss_steps,
            tick,
        )
        for i in range(draws // lanes)
    ]
    cosine, error = (np.concatenate(some, axis=1) for some in zip(*parts, strict=True))
    return Found(cosine, error, np.asarray(jax.vmap(_dot)(exact, exact)))


def lane_bytes(learner: Learner) -> int:
    """Of one lane's trace."""
    shapes = jax.eval_shape(lambda: learner.init(jax.random.key(0), 1).memory)
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(shapes))


def _start(learner: Learner, params: Params, key: Key[Array, ""], lanes: int) -> State:
    """All lanes at the beginning of the text."""
    like = jax.eval_shape(lambda: learner.init(key, 1).params.estimator)
    own = learner.init(key).params.estimator if jax.tree.leaves(like) else like
    params = jax.tree.map(jnp.array, params)  # a copy, since the state's memory is worked in
    return learner.start(params._replace(estimator=own), key, lanes)


def _group(
    learner: Learner,
    pushers: dict[int, Learner],
    state: State,
    data: Stream,
    times: Sequence[int],
    exact: Any,
    loss_steps: int,
    tick: Tick,
) -> tuple[np.ndarray, np.ndarray]:
    """Some of the draws, side by side: their cosines and errors."""
    span = learner.estimator.span
    assert span is not None
    lanes, at, found = state.s.shape[0], 0, []
    for i, t in enumerate(times):
        first = (t - loss_steps) // span * span  # where the segment of the first loss begins
        seen = math.ceil((t - first) / span) * span  # steps that a look takes
        for block, pusher in pushers.items():
            count = (first - at) // block
            if count:
                state = _pushed(pusher, state, data, jnp.int32(at), jnp.int32(count))
                at += count * block
        here = jax.tree.map(lambda a, i=i: a[i], exact)
        losses = (t - loss_steps - at, t - at)
        found.append(_look(learner, state, data, jnp.int32(at), here, seen, losses))
        jax.block_until_ready(found[-1])
        tick(lanes * (t - (times[i - 1] if i else 0)))
    cosine, error = (np.asarray(some) for some in map(jnp.stack, zip(*found, strict=True)))
    return cosine, error


def _pushers(learner: Learner, blocks: bool) -> dict[int, Learner]:
    """How many steps can be pushed over at once, and by which learner; the largest first."""
    estimator = learner.estimator
    if not isinstance(estimator, Online) or estimator.window not in (None, 1):
        assert estimator.span is not None
        return {estimator.span: learner}
    # UORO takes many steps at once with two passes over its memory; others gain nothing
    most = max(BLOCKS) if blocks and isinstance(estimator.trace, UORO) else 1
    sizes = [b for b in reversed(BLOCKS) if b <= most]
    larger = {b: replace(learner, estimator=replace(estimator, window=b)) for b in sizes}
    return larger | {1: learner}


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _pushed(
    learner: Learner, state: State, data: Stream, at: Int[Array, ""], segments: Int[Array, ""]
) -> State:
    """Over so many segments; gradients are not made, since nobody takes them."""
    k = learner.estimator.span
    assert k is not None

    def one(i: Array, state: State) -> State:
        x, y, reset, _ = _read(data, at + i * k, k, state.s.shape[0])
        return learner.gradients(state, x, y, reset=reset)[0]

    return jax.lax.fori_loop(0, segments, one, state)


@partial(jax.jit, static_argnums=(0, 5))
def _look(
    learner: Learner,
    state: State,
    data: Stream,
    at: Int[Array, ""],
    exact: Any,
    steps: int,
    losses: tuple[Any, Any],
) -> tuple[Float[Array, " lanes"], Float[Array, " lanes"]]:
    """Cosine and relative squared error of every lane's gradient, `steps` steps from here."""
    lanes, k = state.s.shape[0], learner.estimator.span
    x, y, reset, weight = _read(data, at, steps, lanes)
    t = jnp.arange(steps)[:, None]
    weight = jnp.where((t >= losses[0]) & (t < losses[1]), weight, 0).astype(learner.dtype)
    _, grads = learner.gradients(
        state, x, y, reset=reset, weight=weight, average=False
    )  # (segments, lanes, ...)
    estimate = jax.tree.map(lambda g: k * g.sum(0), grads.cell)

    def lane(estimate: Any) -> tuple[Array, Array]:
        dot, own, there = _dot(estimate, exact), _dot(estimate, estimate), _dot(exact, exact)
        cosine = jnp.where(own > 0, dot / jnp.sqrt(jnp.where(own > 0, own, 1) * there), 0)
        off = jax.tree.map(jnp.subtract, estimate, exact)
        return cosine, _dot(off, off) / there

    return jax.vmap(lane)(estimate)


def _read(data: Stream, at: Array, steps: int, lanes: int) -> Stream:
    """The next steps, the same for all lanes."""

    def every(a: Array) -> Array:
        piece = jax.lax.dynamic_slice_in_dim(a, at, steps)
        return jnp.broadcast_to(piece[:, None], (steps, lanes, *piece.shape[1:]))

    return Stream(*map(every, data))


def _dot(a: Any, b: Any) -> Float[Array, ""]:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.sum(jnp.stack([jnp.sum(x * y) for x, y in pairs]))

"""The exact gradient of the loss at many times: reverse mode over the prefix, never RTRL.

One time costs O(t n²), where RTRL would cost O(t n⁴). Times differ only in the loss weights, so the
forward pass is made once for all of them, and the passes back are taken side by side.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kronline.cells import LinearCell
from kronline.estimators import Model, Params, Segment, exact_segment
from kronline.lab.variance.stream import Stream, stream
from kronline.linearised import written_out

BYTES = 1 << 30  # about what the passes back may take at once


def gradients(
    model: Model,
    params: Params,
    text: Stream | Int[np.ndarray, " characters"],
    times: Sequence[int],
    loss_steps: int = 1,
) -> Any:
    """`d (L_{t−loss_steps+1} + ... + L_t) / d θ` for each time t, on a leading axis.

    θ are the cell's parameters. L_t is the loss of predicting character t + 1 of the text.

    Args:
        model: cell and readout.
        params: where the gradient is taken.
        text: symbols, or any stream; reading starts at the first, from the zero state.
        times: growing, each >= loss_steps and below the text's length.
        loss_steps: how many losses are summed.
    """
    parts, data = [], stream(text)
    for steps, some in itertools.groupby(times, partial(_length, max(times))):
        piece, ends = data.cut(0, steps), np.array(list(some), np.int32)
        groups = math.ceil(len(ends) * _bytes(model, steps) / BYTES)
        wide = np.resize(ends, (groups, math.ceil(len(ends) / groups)))  # the last is filled up
        found = [_some(model, params, piece, jnp.asarray(group), loss_steps) for group in wide]
        parts.append(jax.tree.map(lambda a: a[: len(ends)], _joined(found)))  # noqa: B023
    return _joined(parts)


def _joined(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def _length(longest: int, t: int) -> int:
    """Of the prefix that is gone through for a time t: one of a few, so that few are compiled."""
    return longest if longest // 8 < t else _length(longest // 8, t)


@partial(jax.jit, static_argnums=(0, 4))
def _some(
    model: Model,
    params: Params,
    data: Stream,
    times: Int[Array, " times"],
    loss_steps: int,
) -> Any:
    dtype = jax.tree.leaves(params.cell)[0].dtype
    start, steps = jnp.zeros(model.cell.size, dtype), data.x.shape[0]
    t = 1 + jnp.arange(steps)

    def one(end: Int[Array, ""]) -> Any:
        weight: Float[Array, " k"] = ((t > end - loss_steps) & (t <= end)).astype(dtype)
        seg = Segment(data.x, data.y, data.reset, weight * data.weight.astype(dtype))
        grads = exact_segment(model, params, start, seg)[1]
        return model.cell.project(written_out(grads.cell))

    return jax.vmap(one)(times)


def _bytes(model: Model, steps: int) -> int:
    """About what the pass back from one time takes."""
    cell, readout = model
    assert readout is not None
    numbers = cell.size + readout.outputs
    if isinstance(cell, LinearCell):
        numbers += sum(math.prod(w.shape[1:]) for w in cell.weights().values())
    return 2 * 4 * steps * numbers  # once as they are made, and once in the order of the product

"""The exact part of a gradient: what flows inside a segment, by reverse mode."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.cells.base import LinearCell
from kronline.estimators.base import Model, Params, Seen, Segment, no_gradient
from kronline.linearised import Vector
from kronline.linearised import gradients as gr
from kronline.readout import Readout


def exact_segment(
    model: Model,
    params: Params,
    s: Vector,
    seg: Segment,
    future: Callable[[Vector], Vector] | None = None,
) -> tuple[Vector, Params, Vector, Seen, Float[Array, "k N"]]:
    """The gradient of a segment's losses through its own steps, by reverse mode.

    Where weights enter as linear maps, only the sensitivities of their z are propagated; with the
    feature vectors they give the gradient as one product over steps (and lanes).

    Args:
        model, params, s, seg: the segment, and the state before it.
        future: a guess of ∂L/∂s at the end of the segment, for later losses.

    Returns:
        the state at the end; gradients; δ0 = ∂L/∂s; what was seen; the states before each step.
    """
    cell, readout = model
    assert readout is not None
    k = seg.reset.shape[0]
    visible = isinstance(cell, LinearCell)
    waits = jnp.any(seg.reset) & (jnp.cumsum(seg.reset) == 0)  # steps before the first reset
    idle = _idle(readout, waits, seg.weight)

    def loss(moved: Any, do: Float[Array, "k o"], s: Vector) -> Any:
        def step(s: Vector, inputs: Any) -> Any:
            (x, y, reset, weight), dz, do, still = inputs
            s = jnp.where(reset, jnp.zeros_like(s), s)
            feats: dict[str, Array] = {}
            if isinstance(cell, LinearCell):
                new, feats = cell.traced(params.cell, dz, s, x)
            else:
                held = jax.lax.stop_gradient(moved)
                now = jax.tree.map(lambda h, p: jnp.where(still, h, p), held, moved)
                new = cell.step(now, s, x)
            h = cell.output(new)
            prediction = readout.predict(params.readout, h) + do
            value = readout.loss(prediction, y)
            weighted = readout.objective(value, weight, h)
            return new, (weighted, Seen(value, prediction), feats, h, s)

        end, out = jax.lax.scan(step, s, (seg, moved if visible else (), do, idle))
        weighted, seen, feats, h, before = out
        total = weighted.sum()
        if future is not None:
            total = total + jax.lax.stop_gradient(future(end)) @ end
        return total, (end, seen, feats, h, before)

    moved = params.cell
    if isinstance(cell, LinearCell):
        moved = {n: jnp.zeros((k, *w.shape[1:]), s.dtype) for n, w in cell.weights().items()}
    do = jnp.zeros((k, readout.outputs), s.dtype)
    (g, do, d0), (end, seen, feats, h, before) = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(
        moved, do, s
    )
    # factors that do not depend on the losses are cleared by their values, not by the weights: so
    # they are shared where segments differ in their weights only
    h, feats = jax.tree.map(lambda a: _cleared(_along(waits, a) & ~jnp.isfinite(a), a), (h, feats))
    do, d0 = _cleared(idle[:, None], do), _cleared(idle[0], d0)
    if visible:
        g = jax.tree.map(lambda a: _cleared(_along(idle, a), a), g)
    g_cell = {name: gr.Outer(feats[name], g[name]) for name in g} if visible else g
    return end, Params(g_cell, readout.gradients(h, do), no_gradient(params)), d0, seen, before


def _idle(
    readout: Readout, waits: Bool[Array, " k"], weight: Float[Array, " k"]
) -> Bool[Array, " k"]:
    """The steps before a segment's first reset, if all their losses have weight 0.

    Their gradient is zero; it is set to zero explicitly, since their derivatives may not be finite.
    """
    return waits & ~jnp.any(waits & ~readout.silent(weight))


def _along(steps: Bool[Array, " k"], a: Float[Array, "k ..."]) -> Bool[Array, "k ..."]:
    """Flags per step, with as many axes as `a`."""
    return steps.reshape(-1, *(1,) * (a.ndim - 1))


def _cleared(where: Bool[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """`a`, with 0 where the flag is set."""
    return jnp.where(where, jnp.zeros_like(a), a)

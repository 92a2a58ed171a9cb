"""Gradients that stay factored until lanes and steps are summed.

Most gradients here are sums of outer products, `Σ_p left_p ⊗ right_p`. Written out per lane they
would cost lanes × |W| numbers; kept as factors, the sum over lanes, steps and terms is one matrix
product (`total`), made in one place (`lanes/over.py`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.linearised.layers import spread

# a pytree in the shape of the parameters; leaves are arrays, `Outer`, `Weighted`, `Placed` or `Sum`
Grads = Any


class Outer(NamedTuple):
    """`Σ_p left[p] ⊗ right[p]`: a gradient of the shape (m, *o), as factors."""

    left: Float[Array, "*lanes p m"]
    right: Float[Array, "..."]


class Weighted(NamedTuple):
    """`Σ_p weights[p] terms[p]`: a gradient as a combination of existing arrays."""

    weights: Float[Array, "*lanes p"]
    terms: Float[Array, "..."]


class Added(NamedTuple):
    """A part of a gradient that is the sum over all lanes already: only `total` may read it.

    So for a trace that adds up what it reads where it reads it (`lanes.adding`): no lane's own part
    is written out.
    """

    whole: Float[Array, "*lanes m g n"]  # the sum, the same for all lanes
    odd: Float[Array, "*lanes"]  # 0, or NaN where the lane's own part is not finite


@partial(jax.tree_util.register_dataclass, data_fields=("part",), meta_fields=("gates", "of"))
@dataclass(frozen=True)
class Placed:
    """A gradient of some gates of a weight, zero for the others: these are written out last."""

    part: Float[Array, "*lanes m g n"] | Added
    gates: tuple[int, ...]
    of: int  # r, all gates

    def among_all(self, part: Float[Array, "m g n"]) -> Float[Array, "m r n"]:
        """The same for another part, or a sum of parts: with zeros for the other gates."""
        return spread(part, self.gates, self.of, 1)


class Sum(NamedTuple):
    """`Σ parts`, of different kinds: a gradient that is not yet added up."""

    parts: tuple[Any, ...]


def outer(left: Float[Array, " m"], right: Float[Array, "..."]) -> Outer:
    """One term, `left ⊗ right`."""
    return Outer(left[None], right[None])


def is_leaf(g: Any) -> bool:
    """For tree functions: a factored gradient is a leaf."""
    return isinstance(g, Outer | Weighted | Placed | Added | Sum)


def dense(g: Any) -> Array:
    """The gradient of one lane, written out."""
    if isinstance(g, Outer):
        return jnp.tensordot(g.left, g.right, axes=(0, 0))
    if isinstance(g, Weighted):
        return jnp.tensordot(g.weights, g.terms, axes=(0, 0))
    if isinstance(g, Placed):
        return g.among_all(dense(g.part))
    if isinstance(g, Added):
        raise TypeError("a lane's own gradient is not here: ask for it by `adding(False)`")
    if isinstance(g, Sum):
        return sum(map(dense, g.parts[1:]), dense(g.parts[0]))
    return g


def add(a: Grads, b: Grads) -> Grads:
    """`a + b`; factors are concatenated, not multiplied out."""

    def leaf(x: Any, y: Any) -> Any:
        if isinstance(x, Outer) and isinstance(y, Outer):
            return Outer(*(jnp.concatenate(pair) for pair in zip(x, y, strict=True)))
        if is_leaf(x) and is_leaf(y):
            return Sum((x, y))
        return dense(x) + dense(y)

    return jax.tree.map(leaf, a, b, is_leaf=is_leaf)


def joined(exact: Grads, past: Grads | None) -> Grads:
    """`exact + past`; weights that nothing is remembered of are missing in the latter."""
    if past is None:
        return exact
    if not isinstance(exact, dict):
        return add(exact, past)
    return {name: add(g, past[name]) if name in past else g for name, g in exact.items()}


def side_by_side(grads: Grads) -> Grads:
    """The sum over a leading axis (steps, copies) of one lane's gradients, still as factors."""

    def leaf(g: Any) -> Any:
        if isinstance(g, Sum):
            return Sum(tuple(map(leaf, g.parts)))
        if isinstance(g, Placed):
            return replace(g, part=dense(g.part).sum(0))
        if not is_leaf(g):
            return g.sum(0)
        return type(g)(*(a.reshape(-1, *a.shape[2:]) for a in g))

    return jax.tree.map(leaf, grads, is_leaf=is_leaf)


def scaled(grads: Grads, c: Any) -> Grads:
    """`c` times the gradient; of a factored one, only one factor is multiplied."""

    def leaf(g: Any) -> Any:
        if isinstance(g, Sum):
            return Sum(tuple(map(leaf, g.parts)))
        if isinstance(g, Outer):
            return g._replace(right=c * g.right)
        if isinstance(g, Placed):
            return replace(g, part=c * g.part)
        return g._replace(weights=c * g.weights) if isinstance(g, Weighted) else c * g

    return jax.tree.map(leaf, grads, is_leaf=is_leaf)


def unless_zero(delta: Float[Array, " N"], grads: Grads) -> Grads:
    """The gradient `δ·G`, set to 0 where δ = 0: there G may be infinite, before a reset."""
    live = jnp.any(delta != 0)
    return jax.tree.map(lambda a: jnp.where(live, a, jnp.zeros_like(a)), grads)


def total(grads: Grads) -> Grads:
    """Sum over a leading lane axis: one product per weight matrix."""

    def leaf(g: Any) -> Array:
        if isinstance(g, Outer):
            left = g.left.reshape(-1, g.left.shape[-1])
            right = g.right.reshape(-1, *g.right.shape[g.left.ndim - 1 :])
            return jnp.tensordot(left, right, axes=(0, 0))
        if isinstance(g, Weighted):
            return jnp.tensordot(g.weights, g.terms, axes=g.weights.ndim)
        if isinstance(g, Added):
            return g.whole[0]
        if isinstance(g, Placed):
            return g.among_all(leaf(g.part))
        if isinstance(g, Sum):
            return sum(map(leaf, g.parts[1:]), leaf(g.parts[0]))
        return jnp.tensordot(jnp.ones(g.shape[0], g.dtype), g, axes=1)  # faster than g.sum(0)

    return jax.tree.map(leaf, grads, is_leaf=is_leaf)


def norm2(grads: Grads) -> Float[Array, ""]:
    """`‖g‖²` of one lane's gradient, from its factors where that is less work."""

    def leaf(g: Any) -> Float[Array, ""]:
        if isinstance(g, Outer):
            p, m = g.left.shape
            right = g.right.reshape(p, -1)
            if p * (m + right.shape[1]) <= m * right.shape[1]:
                # ‖Σ_p l_p ⊗ r_p‖² = Σ_pq ⟨l_p, l_q⟩⟨r_p, r_q⟩
                return jnp.sum((g.left @ g.left.T) * (right @ right.T))
        return jnp.sum(dense(g) ** 2)

    return jnp.sum(jnp.stack([leaf(g) for g in jax.tree.leaves(grads, is_leaf=is_leaf)]))


def finite_norm(arrays: Any) -> Bool[Array, ""]:
    """Whether `‖a‖²` is finite: products of a with itself, so that a² is not written out."""
    return jnp.isfinite(sum(jnp.vdot(a, a) for a in jax.tree.leaves(arrays)))


def written_out(grads: Grads) -> Grads:
    """All leaves of one lane's gradient as arrays."""
    return jax.tree.map(dense, grads, is_leaf=is_leaf)


def own_parts(grads: Grads) -> list[Array]:
    """What a lane's gradient is made of, of its own: all are finite if, and only if, it is."""

    def added(g: Any) -> bool:
        return isinstance(g, Added)

    return [g.odd if added(g) else g for g in jax.tree.leaves(grads, is_leaf=added)]


def not_finite(arrays: Any) -> Bool[Array, ""]:
    """Whether a number of a gradient, or of its factors, is NaN or infinite."""
    # 0·a is 0 for a finite a, else NaN: one sum without a branch
    parts = [jnp.sum(0 * a) for a in jax.tree.leaves(arrays)]
    return ~jnp.isfinite(sum(parts, start=jnp.zeros(())))

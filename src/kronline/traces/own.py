"""What the two cheapest traces share: of G, only the entries of a weight's own unit.

For unit-wise cells, where a weight moves nothing else within one step: one number a weight and
slot, `e[a,i,k,j] = ds[a,j]/dW[i,k,j]`.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.grads import Weighted
from kronline.jacobians import Kronecker, Lin, UnitH, UnitM
from kronline.lanes import looped
from kronline.traces.uoro_block import CACHED

Own = Float[Array, "q m r n"]  # e


class Move(NamedTuple):
    """One step: `e ← block e + D ĥ`."""

    feats: Float[Array, " m"]  # ĥ
    D: Float[Array, "q r n"]
    block: Float[Array, "q q n"]  # how a unit's slots move its own new ones, [to, from]
    keep: Bool[Array, "q r"] | None = None  # slots that a gate's weights may move; None: all


def unit_wise(lin: Lin) -> tuple[Float[Array, " m"], UnitH]:
    """ĥ and H of a unit-wise cell's step; D is H's own."""
    assert isinstance(lin, Kronecker)
    assert isinstance(lin.H, UnitH)
    assert isinstance(lin.groups["W"].M, UnitM)
    return lin.groups["W"].feats, lin.H


def step(e: Own, move: Move, reset: Bool[Array, ""] | None = None) -> Own:
    """One step, perhaps after a reset."""

    def one(e: Own, move: Move, reset: Bool[Array, ""] | None) -> tuple[Own, tuple[()]]:
        return _moved(e if reset is None else jnp.where(reset, 0, e), move), ()

    return looped(one, CACHED)(e, move, reset)[0]


def pull(e: Own, delta: Float[Array, " N"]) -> Weighted:
    """`δ·e`."""
    return _summable(_read(e, delta.reshape(e.shape[0], e.shape[-1])))


def _moved(e: Own, move: Move) -> Own:
    feats, D, block, keep = move

    def slot(a: int) -> Float[Array, "m r n"]:
        old = sum(block[a, b][None, None] * e[b] for b in range(len(D)))
        if keep is not None:
            old = jnp.where(keep[a][None, :, None], old, 0)
        return old + feats[:, None, None] * D[a][None]

    return jnp.stack([slot(a) for a in range(len(D))])


def _read(e: Own, delta: Float[Array, "q n"]) -> Float[Array, "m r n"]:
    return jnp.asarray(sum(d[None, None] * e_a for d, e_a in zip(delta, e, strict=True)))


def _summable(g: Float[Array, "m r n"]) -> Weighted:
    """A gradient whose sum over lanes is a product, which is the fastest way to make it."""
    return Weighted(jnp.ones(1, g.dtype), g[None])

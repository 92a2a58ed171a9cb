"""What RFLO and SnAp-1 share: of G, only the entries of a weight's own unit.

For unit-wise cells, where a weight moves nothing else within one step: one number per weight and
slot, `e[a,i,k,j] = ds[a,j]/dW[i,k,j]`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import DiagonalH, Kronecker, Lin, UnitM, UnitWise

Own = Float[Array, "q m r n"]  # e


class Move(NamedTuple):
    """One step: `e ← block e + D ĥ`."""

    feats: Float[Array, " m"]  # ĥ
    D: Float[Array, "q r n"]
    block: Float[Array, "q q n"]  # how a unit's slots move its own new ones, [to, from]
    keep: Bool[Array, "q r"] | None = None  # slots that a gate's weights may move; None: all


def block(lin: Lin, *, direct: bool) -> Float[Array, "q q n"]:
    """How a unit's slots move its own new ones: H_jj, or directly, not through W."""
    assert isinstance(lin, Kronecker)
    assert isinstance(lin.H, UnitWise | DiagonalH)
    return lin.H.E if direct else lin.H.own_units()


def move(
    lin: Lin, name: str, block: Float[Array, "q q n"], keep: Bool[Array, "q r"] | None = None
) -> Move:
    """One step of one weight of a unit-wise cell."""
    assert isinstance(lin, Kronecker)
    group = lin.groups[name]
    assert isinstance(group.M, UnitM)
    return Move(group.feats, group.M.D, block, keep)


def step(e: Own, move: Move) -> Own:
    """One step."""
    nowhere, never = jnp.zeros_like(move.D[:, 0]), jnp.zeros((), bool)
    return lane_by_lane(partial(_step_pull, before=False))(e, move, never, nowhere)[0]


def step_pull(
    e: Own, move: Move, reset: Bool[Array, ""], delta: Float[Array, " N"], *, before: bool
) -> tuple[Own, Float[Array, "m r n"]]:
    """One step, after a reset if there is one, and `δ·e` after (or before) it, in one pass."""
    slots = delta.reshape(e.shape[0], e.shape[-1])
    return lane_by_lane(partial(_step_pull, before=before))(e, move, reset, slots)


def pull(e: Own, delta: Float[Array, " N"]) -> Float[Array, "m r n"]:
    """`δ·e`."""
    return _read(e, delta.reshape(e.shape[0], e.shape[-1]))


def _step_pull(
    e: Own, move: Move, reset: Bool[Array, ""], delta: Float[Array, "q n"], before: bool
) -> tuple[Own, Float[Array, "m r n"]]:
    def begin(e: Own) -> tuple[Own, Any]:
        return _moved(jnp.zeros_like(e), move), jnp.zeros_like(e[0]) if before else ()

    def go_on(e: Own) -> tuple[Own, Any]:
        return _moved(e, move), _read(e, delta) if before else ()

    # two branches, so that XLA computes the new e apart from the old one, in the cache
    new, old = jax.lax.cond(reset, begin, go_on, e)
    return new, old if before else _read(new, delta)


def _moved(e: Own, move: Move) -> Own:
    """`e ← block e + D ĥ`, elementwise, which XLA does fastest."""
    feats, D, block, keep = move
    old = sum(block[:, b, None, None] * e[b][None] for b in range(len(e)))
    if keep is not None:
        old = jnp.where(keep[:, None, :, None], old, 0)
    return old + feats[None, :, None, None] * D[:, None]


def _read(e: Own, delta: Float[Array, "q n"]) -> Float[Array, "m r n"]:
    return jnp.asarray(sum(d[None, None] * e_a for d, e_a in zip(delta, e, strict=True)))

"""What the two cheapest traces share: of G, only the entries of a weight's own unit.

For unit-wise cells, where a weight moves nothing else within one step: one number a weight and
slot, `e[a,i,k,j] = ds[a,j]/dW[i,k,j]`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.jacobians import Group, Kronecker, Lin, UnitH, UnitM

Own = Float[Array, "q m r n"]  # e


def parts(lin: Lin) -> tuple[Group, UnitH]:
    """A unit-wise cell's only group, and its H."""
    assert isinstance(lin, Kronecker)
    assert isinstance(lin.H, UnitH)
    return lin.groups["W"], lin.H


def step(
    e: Own, group: Group, block: Float[Array, "q q n"], keep: Bool[Array, "q r"] | None = None
) -> Own:
    """`e ← block e + D ĥ`, in one pass over e.

    Args:
        e: before the step.
        group: ĥ and D.
        block: how a unit's slots move its own new slots, [to, from].
        keep: the slots that a gate's weights may move; None: all.
    """
    assert isinstance(group.M, UnitM)
    feats, D = group.feats, group.M.D

    def slot(a: int) -> Float[Array, "m r n"]:
        old = sum(block[a, b][None, None] * e[b] for b in range(D.shape[0]))
        if keep is not None:
            old = jnp.where(keep[a][None, :, None], old, 0)
        return old + feats[:, None, None] * D[a][None]

    return jnp.stack([slot(a) for a in range(D.shape[0])])


def pull(e: Own, delta: Float[Array, " N"]) -> Float[Array, "m r n"]:
    """`δ·G`."""
    slots = delta.reshape(e.shape[0], e.shape[-1])
    return sum(d[None, None] * e_a for d, e_a in zip(slots, e, strict=True))

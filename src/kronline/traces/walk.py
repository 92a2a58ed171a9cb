"""A segment of k steps, walked backwards: what KF-TBPTT pushes its trace with.

    P_k ← I;   step t contributes ĥ_t ⊗ (P_t D_t);   P_{t−1} ← P_t H_t, or 0 at a reset.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline import native
from kronline.jacobians import Kronecker, Sensitivity, StateJac, UnitH, UnitM
from kronline.lanes import looped
from kronline.traces.base import Steps


class Walk(NamedTuple):
    """The steps of a segment, linearised together; weights, which they share, are not stacked."""

    lins: Kronecker  # with the steps on a leading axis of each array but the weights and masks
    resets: Bool[Array, " k"]



def linearised(steps: Steps) -> Walk:
    """All steps of a segment at once."""
    one = steps.at(0)
    assert isinstance(one, Kronecker)
    axes = jax.tree.map(lambda _: 0, one)
    groups = {name: replace(g, mask=None) for name, g in axes.groups.items()}
    H = replace(axes.H, W=None) if isinstance(axes.H, UnitH) else axes.H
    axes = replace(axes, groups=groups, H=H)
    return Walk(jax.vmap(steps.at, out_axes=axes)(jnp.arange(steps.length)), steps.resets)


def _at(stacked: Any, t: Any) -> Any:
    """H or M of step t."""
    if isinstance(stacked, UnitH):
        return replace(stacked, D=stacked.D[t], E=stacked.E[t])
    return jax.tree.map(lambda a: a[t], stacked)


def few_rows(walk: Walk, P: Float[Array, "q N"]) -> tuple[Array, Float[Array, "k q N"]]:
    """For a few rows of P: those at the end, and those at each step."""

    def back(P: Array, t: Any) -> tuple[Array, Array]:
        return jnp.where(walk.resets[t], jnp.zeros_like(P), _at(walk.lins.H, t).few(P)), P

    return jax.lax.scan(back, P, jnp.arange(walk.resets.shape[0]), reverse=True)


def gathered(
    walk: Walk, name: str, right: Float[Array, "k+p p"], A: Float[Array, "N p r n"]
) -> Float[Array, "N p r n"]:
    """`A_i ← Σ_t right_ti P_t D_t + P_0 Σ_j right_ji A_j`, of one weight."""
    H, M = walk.lins.H, walk.lins.groups[name].M
    plain = looped(_gathered)
    rest = (H, M, walk.resets, right)
    if not (isinstance(H, UnitH) and isinstance(M, UnitM)):
        return plain(A, *rest)[0]
    if not native.usable(H.reads, H, right, A):
        return plain(A, *rest)[0]
    return native.either(_kernel, lambda *args: plain(*args)[0], A, *rest)


def _kernel(A: Array, H: UnitH, M: UnitM, resets: Array, right: Array) -> Array:
    """By the native kernel, for unit-wise cells: M is H's own D."""
    return native.walk(H.W, H.D, H.E, H.reads, resets.astype(A.dtype), right, A)


def _gathered(
    A: Array, H: StateJac, M: Sensitivity, resets: Array, right: Array
) -> tuple[Array, tuple[()]]:
    """In pure JAX."""
    k, N = resets.shape[0], A.shape[0]

    def back(carry: tuple[Array, Array], t: Any) -> tuple[tuple[Array, Array], None]:
        P, B = carry
        B = B + _at(M, t).lmul(P)[:, None] * right[t][None, :, None, None]
        P = jnp.where(resets[t], jnp.zeros_like(P), _at(H, t).rmm(P))
        return (P, B), None

    start = (jnp.eye(N, dtype=A.dtype), jnp.zeros_like(A))
    (P, B), _ = jax.lax.scan(back, start, jnp.arange(k), reverse=True)
    # after a reset nothing is left of the old pairs, whatever they hold
    old = jnp.where(jnp.any(resets), 0, jnp.einsum("Njrn,ji->Nirn", A, right[k:]))
    return B + jnp.tensordot(P, old, axes=1), ()

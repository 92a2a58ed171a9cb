"""A segment of k steps, from its last to its first, merged into r pairs.

    P_k ← I;   step t leaves ĥ_t ⊗ (P_t D_t);   P_{t−1} ← P_t H_t, or 0 at a reset;
    the old pairs leave u_i ⊗ (P_0 A_i).

How the k + r terms are mixed is chosen from inner products, which for the right factors are taken
over some of their rows only: the mean is exact for every choice.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kronline import native
from kronline.lanes import lane_by_lane
from kronline.linearised import Kronecker, Sensitivity, StateJac, WeightJac
from kronline.traces.base import Steps, since_reset
from kronline.traces.mixing import Mix, balanced


class Pairs(NamedTuple):
    """`G' = Σ_i U_i ⊗ A_i` for one weight matrix."""

    U: Array  # (p, m)
    A: Array  # (N, p, r, n)


class MergeInfo(NamedTuple):
    """Variance and size of a merge, estimated from the rows that were compared."""

    # at most the largest number that the precision has
    variance: Float[Array, ""]  # what it adds
    before: Float[Array, ""]  # ‖P_0 G'‖² of the old pairs
    after: Float[Array, ""]  # ‖G'‖² of the new ones


def linearised(steps: Steps) -> Kronecker:
    """All steps of a segment, stacked on a leading axis; weights, which they share, are not."""
    one = steps.at(0)
    assert isinstance(one, Kronecker)
    axes: Any = jax.tree.map(lambda _: 0, one)
    groups = {name: replace(g, mask=None) for name, g in axes.groups.items()}
    H = replace(axes.H, **dict.fromkeys(axes.H.shared))
    axes = replace(axes, groups=groups, H=H)
    all_steps: Any = jax.vmap(steps.at, out_axes=axes)(jnp.arange(steps.length))
    return all_steps


def merge_segment(
    pairs: Pairs,
    jac: WeightJac,
    H: StateJac,
    resets: Bool[Array, " k"],
    signs: Float[Array, " K-1"],
    delta: Float[Array, " N"],
    *,
    rows: int,
    start: bool,
) -> tuple[Pairs, MergeInfo, Float[Array, "p r n"]]:
    """The pairs after k steps; what is known of the merge; and `δ·A`, at the start or the end.

    Args:
        pairs: before the k steps.
        jac, H: of the k steps, stacked, as `linearised` gives them.
        resets: where the past is cut, before a step.
        signs: for all terms but one.
        delta: δ.
        rows: how many rows of the right factors are compared.
        start: δ·A of the old A, not of the new one.
    """
    # what a reset has cut off is left out, even where it is not finite
    old = jnp.broadcast_to(~jnp.any(resets), (len(pairs.U),))
    U = jnp.concatenate([jac.feats, pairs.U])
    U = jnp.where(jnp.concatenate([since_reset(resets), old])[:, None], U, 0)
    plain = lane_by_lane(partial(_merge, rows=rows, start=start))
    args = (pairs.A, U, jac.M, H, resets, signs, delta)
    A, (U, merged, dA) = H.merge_segment(plain, *args, rows=rows, start=start)
    return Pairs(U, A), MergeInfo(*merged), dA


def _merge(
    A: Float[Array, "N p r n"],
    U: Float[Array, "K m"],
    M: Sensitivity,
    H: StateJac,
    resets: Bool[Array, " k"],
    signs: Float[Array, " K-1"],
    delta: Float[Array, " N"],
    *,
    rows: int,
    start: bool,
) -> tuple[Array, tuple[Array, MergeInfo, Array]]:
    """`merge_segment` in pure JAX."""
    N, p = A.shape[:2]
    B = terms(A, M, H, resets)
    some = B[:, (2 * jnp.arange(rows) + 1) * N // (2 * rows)].reshape(len(B), -1)
    ((mix, merged),) = chosen([(U, some)], N / rows, signs, p)
    mixed = jnp.einsum("jNrn,ji->Nirn", B, mix.right)
    dA = pulled(delta, A if start else mixed)
    return mixed, (mix.left.T @ U, merged, dA)


def chosen(
    factors: Sequence[tuple[Float[Array, "K m"], Float[Array, "K x"]]],
    share: float,
    signs: Float[Array, " K-1"],
    pairs: int,
) -> list[tuple[Mix, MergeInfo]]:
    """How K products are mixed into r, and what is known of that, for each of some weights.

    Args:
        factors: of each weight, the left factors, of which the last r belong to the old pairs; and
            the right factors, or some of their rows.
        share: how many times as many rows there are.
        signs: for all but one.
        pairs: r.
    """
    scaled = [scales(U, B) for U, B in factors]
    grams = []
    for (U, B), scale in zip(factors, scaled, strict=True):
        u, b = U * scale.u[:, None], B * scale.b[:, None]
        grams.append((u @ u.T, b @ b.T * share))
    # all weights at once: one small program, not one for each
    Gus, Gbs = (jnp.stack(G) for G in zip(*grams, strict=True))
    mixes = jax.vmap(lambda Gu, Gb: _mix(Gu, Gb, signs, pairs))(Gus, Gbs)
    out = []
    for i, ((Gu, Gb), scale) in enumerate(zip(grams, scaled, strict=True)):
        left, right, variance = (a[i] for a in mixes)
        before = jnp.sum(Gu[-pairs:, -pairs:] * Gb[-pairs:, -pairs:])
        after = jnp.sum((left.T @ Gu @ left) * (right.T @ Gb @ right))
        info = MergeInfo(*(scale.undone(a) for a in (variance, before, after)))
        mix = Mix(scale.left[:, None] * left, scale.right[:, None] * right, variance)
        out.append((mix, info))
    return out


def _mix(
    Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], signs: Float[Array, " K-1"], pairs: int
) -> Mix:
    """`balanced`, by the native kernel where there is one."""

    def kernel(Gu: Array, Gb: Array, signs: Array) -> Mix:
        return Mix(*native.mix(Gu, Gb, signs, pairs))

    def plain(Gu: Array, Gb: Array, signs: Array) -> Mix:
        return balanced(Gu, Gb, signs, pairs)

    if not native.usable((), Gu, Gb, signs):
        return plain(Gu, Gb, signs)
    return native.choose(kernel, plain, Gu, Gb, signs)


def carried_noise(
    noise: Float[Array, ""], energy: Float[Array, ""], info: MergeInfo, cut: Bool[Array, ""]
) -> Float[Array, ""]:
    """Noise is carried over as pairs are: `v ← v ‖P G'‖²/‖G'‖² + what the merge adds`.

    Args:
        noise, energy: v and ‖G'‖² before the segment.
        info: of the merge.
        cut: whether a reset cuts the past.
    """
    most = jnp.finfo(noise.dtype).max
    share = jnp.where(energy > 0, info.before / jnp.where(energy > 0, energy, 1), 0)
    kept = jnp.where(cut, 0, jnp.minimum(share, most) * noise)
    return jnp.minimum(kept + info.variance, most)


def least_error(noise: Float[Array, ""], energy: Float[Array, ""]) -> Float[Array, ""]:
    """The weight of pairs with the least squared error, `‖G‖²/‖G'‖² = 1 − v/‖G'‖²`."""
    return jnp.clip(1 - noise / jnp.where(energy > 0, energy, 1), 0, 1)


class Scales(NamedTuple):
    """Powers of two that keep squares from overflowing; all 1 unless a number is very large.

    `Σ (scale.u_j U_j) ⊗ (scale.b_j B_j) = 2^−e Σ U_j ⊗ B_j`.
    """

    u: Float[Array, " K"]
    b: Float[Array, " K"]
    left: Float[Array, " K"]  # what the mix of the scaled factors is multiplied with
    right: Float[Array, " K"]
    e: Int[Array, ""]

    def undone(self, square: Float[Array, ""]) -> Float[Array, ""]:
        """A square, 4^e times as large, but at most the largest number."""
        most = jnp.finfo(square.dtype).max
        once = jnp.minimum(jnp.ldexp(square, self.e), most)
        return jnp.minimum(jnp.ldexp(once, self.e), most)


def scales(U: Float[Array, "K m"], B: Float[Array, "K x"]) -> Scales:
    """For factors U_j and B_j; each may use a sixth of the exponents, so that squares fit."""
    room = jnp.finfo(U.dtype).maxexp // 6

    def excess(a: Float[Array, "K x"]) -> Int[Array, " K"]:
        return jnp.maximum(jnp.frexp(jnp.max(jnp.abs(a), axis=1))[1] - room, 0)

    eu, eb = excess(U), excess(B)
    e = jnp.max(eu + eb)
    # a smaller product must stay smaller: by 2^(eu + eb − e), half of it in either factor
    less = e - eu - eb
    u, b = eu + less // 2, eb + less - less // 2
    one = jnp.ones(len(U), U.dtype)
    return Scales(
        u=jnp.ldexp(one, -u),
        b=jnp.ldexp(one, -b),
        left=jnp.ldexp(one, e // 2 - u),
        right=jnp.ldexp(one, e - e // 2 - b),
        e=e,
    )


def terms(
    A: Float[Array, "N p r n"], M: Sensitivity, H: StateJac, resets: Bool[Array, " k"]
) -> Float[Array, "k+p N r n"]:
    """The right factors of what a segment leaves: `P_t D_t` of its steps, `P_0 A_i` of the past."""
    N = A.shape[0]

    def back(P: Float[Array, "N N"], t: Any) -> tuple[Array, Array]:
        # P ← P H
        return jnp.where(resets[t], jnp.zeros_like(P), _at(H, t).rmm(P)), P

    P, Ps = jax.lax.scan(back, jnp.eye(N, dtype=A.dtype), jnp.arange(len(resets)), reverse=True)
    # after a reset the old pairs count as zero, even where they are not finite
    old = jnp.where(jnp.any(resets), 0, jnp.tensordot(P, A, axes=1))
    new = jax.vmap(lambda M, P: M.lmul(P))(M, Ps)
    new = jnp.where(since_reset(resets)[:, None, None, None], new, 0)
    return jnp.concatenate([new, old.swapaxes(0, 1)])


def pulled(delta: Float[Array, " N"], A: Float[Array, "N p r n"]) -> Float[Array, "p r n"]:
    """`δ·A_i`; zero where δ is zero, even where A is not finite."""
    return jnp.where(jnp.any(delta != 0), jnp.tensordot(delta, A, axes=1), 0)


def _at(H: StateJac, t: Any) -> StateJac:
    """H of step t."""
    one = jax.tree.map(lambda a: a[t], H)
    return replace(one, **{name: getattr(H, name) for name in H.shared})

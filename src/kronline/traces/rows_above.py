"""The rows of the layers above a weight, over a segment: what `cross_layer.py` keeps of a stack.

    P_k ← 1;   step t leaves ĥ_t ⊗ (P_t M_t);   P_{t−1} ← P_t H_t, or 0 at a reset;
    what was before leaves u_i ⊗ (P_0 (a_i; A_i)).

The rows P of one layer are diagonal in that layer itself (S), and dense in the layers below it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.linearised import Layer, LayerWeight
from kronline.linearised.layers import spread, times
from kronline.traces.base import Steps, since_reset
from kronline.traces.in_layer import Move
from kronline.traces.segment_merge import carried_noise, chosen

ROWS = 16  # in so many of the rows above, about, right factors are compared

Above = tuple[Float[Array, "p R r n"], ...]  # p right factors, one array per layer above


class Pairs(NamedTuple):
    """One weight: `Σ_i U_i ⊗ A_i` on the rows of the layers above, and on its own layer's."""

    U: Float[Array, "p m"]
    A: Above
    own: Float[Array, "p c g n"]  # diagonal; empty for a weight that belongs to no layer
    noise: Float[Array, ""]  # the mean of ‖G' − G‖², by the closed form
    energy: Float[Array, ""]  # ‖G'‖²


class Rows(NamedTuple):
    """Where the rows of one weight are."""

    first: int  # the first layer above it
    owner: int | None  # the layer that it belongs to, and where in it
    weight: LayerWeight | None


class Back(NamedTuple):
    """What is carried back over a segment, of the rows of each layer."""

    S: dict[int, Float[Array, "c c n"]]  # before the segment: in the layer itself
    P: dict[int, tuple[Float[Array, "R c n"], ...]]  # and in those below
    PM: dict[str, tuple[Float[Array, "k R r n"], ...]]  # of each weight, for each layer above it
    resets: Bool[Array, " k"]

    @property
    def cut(self) -> Bool[Array, ""]:
        """Whether a reset cuts off what was before."""
        return jnp.any(self.resets)

    def moved(
        self,
        A: Above,
        own: Float[Array, "p c g n"] | None,
        rows: Rows,
        every: Sequence[int] | None = None,
    ) -> Above:
        """`P_0 (a; A)`: what was before the segment leaves in the layers above.

        Args:
            A, own: right factors of a weight, on the rows above and on its own layer's.
            rows: where these are.
            every: only for one in so many units of each layer; None: for all.
        """
        out = []
        for i, old in enumerate(A):
            u = rows.first + i
            step = 1 if every is None else every[i]
            S = _one_in(step, self.S[u], 2)
            (c, _, n), p = S.shape, len(old)
            mine = _one_in(step, old.reshape(p, c, -1, *old.shape[2:]), 2)
            # Σ_b S[a,b,j] A[b,j]
            left = sum(S[None, :, b, :, None, None] * mine[:, None, b] for b in range(c))
            left = jnp.asarray(left).reshape(p, c * n, *old.shape[2:])
            below = [_one_in(step, P.reshape(c, -1, *P.shape[1:]), 1) for P in self.P[u]]
            below = [P.reshape(c * n, *P.shape[2:]) for P in below]
            for P, low in zip(below[rows.first :], A, strict=False):
                left = left + jnp.einsum("RQ,pQrn->pRrn", P.reshape(c * n, -1), low)
            if own is not None and rows.owner is not None and rows.weight is not None:
                P = below[rows.owner]
                through = sum(P[None, :, a, None] * own[:, None, a] for a in range(P.shape[1]))
                left = left + spread(jnp.asarray(through), rows.weight.gates, rows.weight.of, 2)
            out.append(jnp.where(self.cut, 0, left))  # also where they are not finite
        return tuple(out)


def _one_in(step: int, a: Array, axis: int) -> Array:
    return jax.lax.slice_in_dim(a, step // 2, None, step, axis)


def carried_back(layers: tuple[Layer, ...], rows: dict[str, Rows], steps: Steps) -> Back:
    """The rows of all layers above a weight, from the segment's last step to its first."""
    tops = range(min(r.first for r in rows.values()), len(layers))
    moved = {u: tuple(name for name, r in rows.items() if r.first <= u) for u in tops}
    alive = since_reset(steps.resets)
    dtype = jnp.result_type(*(a for a in jax.tree.leaves(steps.given) if _is_float(a)))

    def end(layer: Layer, u: int) -> Any:
        c, n = len(layer.kept), layer.units
        S = jnp.broadcast_to(jnp.eye(c, dtype=dtype)[..., None], (c, c, n))
        return S, tuple(jnp.zeros((c * n, len(low.kept), low.units), dtype) for low in layers[:u])

    def back(P: Any, t: Any) -> tuple[Any, Any]:
        new, PM = {}, {}
        for u in tops:
            new[u], PM[u] = steps.rows(t, layers, u, *P[u], moved[u])
        new = jax.tree.map(lambda a: jnp.where(steps.resets[t], 0, a), new)
        return new, jax.tree.map(lambda a: jnp.where(alive[t], a, 0), PM)

    ends = {u: end(layers[u], u) for u in tops}
    P, PM = jax.lax.scan(back, ends, jnp.arange(steps.length), reverse=True)
    return Back(
        {u: P[u][0] for u in tops},
        {u: P[u][1] for u in tops},
        {name: tuple(PM[u][name] for u in tops[r.first - tops[0] :]) for name, r in rows.items()},
        steps.resets,
    )


def _is_float(a: Any) -> bool:
    return bool(jnp.issubdtype(a.dtype, jnp.floating))


def summed(
    A: Above,
    back: Back,
    name: str,
    rows: Rows,
    feats: Float[Array, "k m"],
    e: Float[Array, "m c g n"] | None,
) -> Above:
    """All rows above, for a weight of few inputs: `A_i ← P_0 (e_i; A_i) + Σ_t ĥ_t[i] P_t M_t`."""
    h = jnp.where(since_reset(back.resets)[:, None], feats, 0)
    left = back.moved(A, e, rows)
    return tuple(
        old + jnp.tensordot(h, new, axes=(0, 0))
        for old, new in zip(left, back.PM[name], strict=True)
    )


def merged(
    old: dict[str, Pairs],
    back: Back,
    rows: dict[str, Rows],
    feats: dict[str, Float[Array, "k m"]],
    moves: dict[str, Move],
    signs: Any,
) -> dict[str, Pairs]:
    """The k steps' terms and the old pairs of every weight, merged into as many pairs."""
    if not old:
        return {}
    factors = {n: _factors(old[n], back, n, rows[n], feats[n], moves.get(n)) for n in old}
    pairs = len(next(iter(old.values())).U)
    mixes = chosen([(f.U, f.some) for f in factors.values()], 1.0, signs, pairs)
    out, k = {}, len(back.resets)
    for (name, f), (mix, info) in zip(factors.items(), mixes, strict=True):
        new, kept = jnp.split(mix.right, [k])
        before = old[name]
        # what is mixed first is moved once per new pair
        A = tuple(jnp.tensordot(kept, a, axes=(0, 0)) for a in before.A)
        own = jnp.tensordot(kept, before.own, axes=(0, 0))
        left = back.moved(A, own, rows[name])
        A = tuple(
            a + jnp.tensordot(new, b, axes=(0, 0)) for a, b in zip(left, back.PM[name], strict=True)
        )
        out[name] = Pairs(
            mix.left.T @ f.U,
            A,
            jnp.tensordot(mix.right, f.own, axes=(0, 0)),
            carried_noise(before.noise, before.energy, info, back.cut),
            info.after,
        )
    return out


class Factors(NamedTuple):
    """The k + p terms of one weight: their left factors, and some rows of the right ones."""

    U: Float[Array, "K m"]
    own: Float[Array, "K c g n"]
    some: Float[Array, "K x"]


def _factors(
    old: Pairs,
    back: Back,
    name: str,
    rows: Rows,
    feats: Float[Array, "k m"],
    move: Move | None,
) -> Factors:
    p = len(old.U)
    alive = jnp.concatenate([since_reset(back.resets), jnp.broadcast_to(~back.cut, (p,))])
    U = jnp.where(alive[:, None], jnp.concatenate([feats, old.U]), 0)
    own = jnp.zeros((len(U), *old.own.shape[1:]), U.dtype)
    if move is not None:
        kept = jnp.where(back.cut, 0, times(move.S[None], old.own))
        own = jnp.concatenate([move.SD, kept])
    # rows of a few units of each layer stand for all
    shapes = [back.S[rows.first + i].shape[1:] for i in range(len(old.A))]
    every = [max(1, n * c * len(shapes) // ROWS) for c, n in shapes]
    left = back.moved(old.A, old.own, rows, every)
    parts = [own.reshape(len(U), -1)]
    for (c, n), step, new, past in zip(shapes, every, back.PM[name], left, strict=True):
        now = _one_in(step, new.reshape(len(new), c, n, *new.shape[2:]), 2)
        both = jnp.concatenate([a.reshape(len(a), -1) for a in (now, past)])
        parts.append(both * (n / now.shape[2]) ** 0.5)
    return Factors(U, own, jnp.concatenate(parts, axis=1))

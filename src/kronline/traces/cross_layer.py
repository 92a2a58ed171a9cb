"""The unbiased trace of a stack: rows inside a layer exact, rows between layers by Kronecker pairs.

In a stack of layers whose units read no other unit's state, the rows of G that belong to a weight's
own layer are held exactly (`in_layer.py`). The rows of the layers above it are r Kronecker pairs,

    G_above ≈ Σ_i u_i ⊗ A_i,      δ·G = δ_own·e + Σ_i u_i ⊗ (δ_above A_i),

merged once per segment as KF-TBPTT merges all of G (`segment_merge.py`). What a step leaves in the
layers above also comes from the weight's own layer, so each pair has own rows, too, which are
diagonal; they are never read. The rows P that are carried back through the segment are those of
the layers above: H, block lower triangular, is not formed. The mean is exact, since the mean of
either part is; all noise is in the rows between layers. One layer has no such rows, and no noise.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kronline.linearised import Grads, Layer, LayerWeight, Outer, Structure
from kronline.linearised import gradients as gr
from kronline.linearised.layers import spread
from kronline.noise import Draw, Draws
from kronline.traces import in_layer
from kronline.traces.base import Read, Steps, since_reset
from kronline.traces.segment_merge import carried_noise, chosen, least_error, pulled


class Above(NamedTuple):
    """One weight: `Σ_i U_i ⊗ A_i` on the rows of the layers above, and on its own layer's."""

    U: Float[Array, "p m"]
    A: Float[Array, "R p r n"]
    own: Float[Array, "p c g n"]  # diagonal; empty for a weight that belongs to no layer
    noise: Float[Array, ""]  # the mean of ‖G' − G‖², by the closed form
    energy: Float[Array, ""]  # ‖G'‖²


class Rows(NamedTuple):
    """The rows of one weight that are estimated, and those of its own layer."""

    first: int  # of all rows that are carried back, the first
    places: tuple[int, ...]  # in the state
    layer: Layer | None
    weight: LayerWeight | None


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("traces", "above", "tail"),
    meta_fields=("rows", "places"),
)
@dataclass(frozen=True)
class Crossed:
    """What is carried over from one segment to the next."""

    traces: in_layer.Traces
    above: dict[str, Above]
    tail: Float[Array, ""]  # the weight of the trace's part; may be replaced between segments
    rows: tuple[tuple[str, Rows], ...]
    places: tuple[int, ...]  # all rows that are carried back

    def read(self, delta: Float[Array, " N"], *, auto: bool) -> Grads:
        """`δ_own·e + Σ_i u_i ⊗ (δ_above A_i)`, weighted."""
        dA = {n: pulled(delta[np.array(r.places)], self.above[n].A) for n, r in self.rows}
        return self.weighted(self.traces.read(self.tail * delta), dA, auto=auto)

    def weighted(self, own: Grads, dA: dict[str, Float[Array, "p r n"]], *, auto: bool) -> Grads:
        """The same from products with δ, `own` weighted; `auto`: pairs get that of least error."""
        out = dict(own)
        for name, d in dA.items():
            weight, a = self.tail, self.above[name]
            if auto:
                weight = weight * least_error(a.noise, a.energy)
            part = Outer(a.U, weight * d)
            out[name] = gr.add(out[name], part) if name in out else part
        return out


def start(structure: Structure, pairs: int, tail: float | Literal["auto"]) -> Crossed:
    """G = 0."""
    layers, params = structure.layers, structure.params
    lowest = min(structure.above.values())
    sizes = [layer.places.size for layer in layers]
    places = [place for layer in layers[lowest:] for place in layer.places.ravel().tolist()]
    owner = {w.name: (layer, w) for layer in layers for w in layer.weights}
    rows, above = [], {}
    for name, first in structure.above.items():
        if first == len(layers):
            continue
        at, W = sum(sizes[lowest:first]), params[name]
        layer, w = owner.get(name, (None, None))
        rows.append((name, Rows(at, tuple(places[at:]), layer, w)))
        own = (pairs, 0, 0, 0)
        if layer is not None and w is not None:
            own = (pairs, len(layer.kept), len(w.gates), layer.units)
        above[name] = Above(
            jnp.zeros((pairs, W.shape[0]), W.dtype),
            jnp.zeros((len(places) - at, pairs, *W.shape[1:]), W.dtype),
            jnp.zeros(own, W.dtype),
            *jnp.zeros((2,), W.dtype),
        )
    dtype = jax.tree.leaves(params)[0].dtype
    weight = jnp.asarray(1.0 if tail == "auto" else tail, dtype)
    return Crossed(in_layer.start(structure), above, weight, tuple(rows), tuple(places))


def draws(structure: Structure, k: int, pairs: int) -> Draws:
    """A sign for each of k + r terms but one; weights share them, each is unbiased by itself."""
    return () if structure.diagonal else Draw((k + pairs - 1,))


def segment(
    memory: Crossed,
    steps: Steps,
    signs: Any,
    delta: Float[Array, " N"],
    read: Read,
    *,
    auto: bool,
) -> tuple[Grads, Crossed]:
    """`δ·G` at the segment's start, and the push over its k steps."""
    d0, newest = in_layer.newest_apart(steps, delta, read)
    met = steps.met()
    moves = in_layer.moves(met, steps.resets)
    own, traces = in_layer.pushed(memory.traces, steps, moves, memory.tail * d0)
    dA = {n: pulled(d0[np.array(r.places)], memory.above[n].A) for n, r in memory.rows}
    past = gr.unless_zero(d0, memory.weighted(own, dA, auto=auto))
    past = past if newest is None else gr.joined(newest, past)
    if not memory.rows:
        return past, replace(memory, traces=traces)
    P, PM = _carried_back(memory, steps, d0.size)
    above = {}
    for name, rows in memory.rows:
        move = moves.get(name)
        above[name] = _merged(
            memory.above[name], rows, P, PM[name], met.feats[name], move, steps.resets, signs
        )
    return past, replace(memory, traces=traces, above=above)


def _carried_back(memory: Crossed, steps: Steps, N: int) -> tuple[Array, dict[str, Array]]:
    """Rows P of the layers above, before the segment; `P M` of every step and weight."""
    dtype = memory.tail.dtype
    kept = np.concatenate([layer.places.ravel() for layer in memory.traces.layers])

    def back(P: Float[Array, "R N"], t: Any) -> tuple[Array, Any]:
        PH, PM = steps.rows(t, P, kept)
        return jnp.where(steps.resets[t], 0, PH), {n: PM[n][r.first :] for n, r in memory.rows}

    eye = jnp.zeros((len(memory.places), N), dtype)
    eye = eye.at[np.arange(len(memory.places)), np.array(memory.places)].set(1)
    return jax.lax.scan(back, eye, jnp.arange(steps.length), reverse=True)


def _merged(
    old: Above,
    rows: Rows,
    P: Float[Array, "R N"],
    PM: Float[Array, "k R r n"],
    feats: Float[Array, "k m"],
    move: in_layer.Move | None,
    resets: Bool[Array, " k"],
    signs: Float[Array, " K-1"],
) -> Above:
    """One weight: the k steps' terms and the old pairs, merged into as many pairs."""
    cut, counts = jnp.any(resets), since_reset(resets)
    p = len(old.U)
    U = jnp.concatenate([feats, old.U])
    alive = jnp.concatenate([counts, jnp.broadcast_to(~cut, (p,))])
    U = jnp.where(alive[:, None], U, 0)

    # what the old pairs leave in the layers above: from there, and from the weight's own layer
    P = P[rows.first :]
    left = jnp.tensordot(P[:, np.array(rows.places)], old.A, axes=1)
    own = jnp.zeros((len(U), 0), U.dtype)
    if move is not None and rows.layer is not None and rows.weight is not None:
        through = P[:, rows.layer.places]  # (R, c, n)
        crossed = jnp.einsum("Rcn,pcgn->Rpgn", through, old.own)
        left = left + spread(crossed, rows.weight.gates, rows.weight.of, 2)
        kept = jax.vmap(partial(in_layer.times, move.S))(old.own)
        own = jnp.concatenate([move.SD, jnp.where(cut, 0, kept)]).reshape(len(U), -1)
    B = jnp.concatenate([PM, left.swapaxes(0, 1)])
    B = jnp.where(alive[:, None, None, None], B, 0)  # also where they are not finite

    every = jnp.concatenate([B.reshape(len(U), -1), own], axis=1)
    mix, info = chosen(U, every, 1.0, signs, p)
    return Above(
        mix.left.T @ U,
        jnp.einsum("jRrn,ji->Rirn", B, mix.right),
        (mix.right.T @ own).reshape(old.own.shape),
        carried_noise(old.noise, old.energy, info, cut),
        info.after,
    )

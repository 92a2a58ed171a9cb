"""The unbiased trace of a stack: rows inside a layer exact, rows between layers by Kronecker pairs.

In a stack of layers whose units read no other unit's state, the rows of G that belong to a weight's
own layer are held exactly (`in_layer.py`). Of the rows of the layers above it,

    G_above ≈ Σ_i u_i ⊗ A_i,      δ·G = δ_own·e + Σ_i u_i ⊗ (δ_above A_i),

those of a weight with no more than r inputs are exact, too: the u_i are the unit vectors. Those of
all others are r Kronecker pairs, merged once per segment as KF-TBPTT merges all of G
(`segment_merge.py`). What a step leaves in the layers above also comes from the weight's own layer,
so each pair has own rows, too, which are diagonal; they are never read. Rows are carried back
through a segment one layer at a time (`rows_above.py`): H, block lower triangular, is not formed.
The mean is exact, since the mean of either part is; all noise is in the rows between layers. One
layer has no such rows, and no noise.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import Grads, Layer, Outer, Structure
from kronline.linearised import gradients as gr
from kronline.noise import Draw, Draws
from kronline.traces import in_layer
from kronline.traces.base import Read, Steps
from kronline.traces.rows_above import Above, Pairs, Rows, carried_back, merged, summed
from kronline.traces.segment_merge import least_error

CACHED = 1 << 23  # bytes of right factors that are worked on at once


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("traces", "few", "pairs", "tail"),
    meta_fields=("rows",),
)
@dataclass(frozen=True)
class Crossed:
    """What is carried over from one segment to the next."""

    traces: in_layer.Traces
    few: dict[str, Above]  # of weights with at most r inputs: one A per input, exact
    pairs: dict[str, Pairs]
    tail: Float[Array, ""]  # the weight of the trace's part; may be replaced between segments
    rows: tuple[tuple[str, Rows], ...]

    def read(self, delta: Float[Array, " N"], *, auto: bool) -> Grads:
        """`δ_own·e + Σ_i u_i ⊗ (δ_above A_i)`, weighted."""
        dA = _pulled(self.few, self.pairs, _of_layers(self.traces.layers, delta))
        return with_own(self.traces.read(self.tail * delta), self.weighted(dA, auto=auto))

    def weighted(self, dA: dict[str, Float[Array, "p r n"]], *, auto: bool) -> Grads:
        """`Σ_i u_i ⊗ (δ_above A_i)`, weighted; `auto`: pairs get the weight of least error."""
        out = {}
        for name, d in dA.items():
            weight = self.tail
            if name in self.few:
                part = Outer(jnp.eye(len(d), dtype=d.dtype), weight * d)
            else:
                pairs = self.pairs[name]
                if auto:
                    weight = weight * least_error(pairs.noise, pairs.energy)
                part = Outer(pairs.U, weight * d)
            out[name] = part
        return out


def with_own(own: Grads, above: Grads) -> Grads:
    """The gradients from the rows inside a layer and from those above it, added up."""
    return own | {name: gr.add(own[name], g) if name in own else g for name, g in above.items()}


def start(structure: Structure, pairs: int, tail: float | Literal["auto"]) -> Crossed:
    """G = 0."""
    layers, params = structure.layers, structure.params
    owner = {w.name: (i, w) for i, layer in enumerate(layers) for w in layer.weights}
    rows: list[tuple[str, Rows]] = []
    few, many = {}, {}
    for name, first in structure.above.items():
        if first == len(layers):
            continue
        at, w = owner.get(name, (None, None))
        rows.append((name, Rows(first, at, w)))
        W = params[name]
        p = min(pairs, W.shape[0])
        A = tuple(
            jnp.zeros((p, len(layer.kept) * layer.units, *W.shape[1:]), W.dtype)
            for layer in layers[first:]
        )
        if _is_few(W, pairs):
            few[name] = A
            continue
        own = (p, 0, 0, 0)
        if at is not None and w is not None:
            own = (p, len(layers[at].kept), len(w.gates), layers[at].units)
        U = jnp.zeros((p, W.shape[0]), W.dtype)
        many[name] = Pairs(U, A, jnp.zeros(own, W.dtype), *jnp.zeros((2,), W.dtype))
    dtype = jax.tree.leaves(params)[0].dtype
    weight = jnp.asarray(1.0 if tail == "auto" else tail, dtype)
    return Crossed(in_layer.start(structure), few, many, weight, tuple(rows))


def _is_few(W: Any, pairs: int) -> bool:
    """Whether a weight has no more inputs than there are pairs, which then hold all of its rows."""
    return W.shape[0] <= pairs


def draws(structure: Structure, k: int, pairs: int) -> Draws:
    """A sign for each of k + r terms but one; weights share them, each is unbiased by itself."""
    noisy = [
        name
        for name, first in structure.above.items()
        if first < len(structure.layers) and not _is_few(structure.params[name], pairs)
    ]
    return Draw((k + pairs - 1,)) if noisy else ()


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
    few, pairs = memory.few, memory.pairs
    dA: dict[str, Array] = {}
    if memory.rows:
        feats = {name: met.feats[name] for name, _ in memory.rows}
        moved = {name: moves[name] for name, r in memory.rows if r.owner is not None}
        e = {name: memory.traces.e[name] for name in moved if name in memory.few}
        ds = _of_layers(traces.layers, d0)
        (few, pairs), dA = _pushed(memory, steps, feats, moved, e, signs, ds)
    # `own` is zero where δ is, by itself
    past = with_own(own, gr.unless_zero(d0, memory.weighted(dA, auto=auto)))
    past = past if newest is None else gr.joined(newest, past)
    return past, replace(memory, traces=traces, few=few, pairs=pairs)


def _of_layers(layers: tuple[Layer, ...], delta: Float[Array, " N"]) -> list[Float[Array, " R"]]:
    """δ of the rows of each layer."""
    return [layer.state(delta).reshape(-1) for layer in layers]


def _pulled(
    few: dict[str, Above], pairs: dict[str, Pairs], deltas: list[Float[Array, " R"]]
) -> dict[str, Float[Array, "p r n"]]:
    """`δ_above A_i` of every weight; zero where δ is zero, even where A is not finite."""

    def one(A: Above) -> Array:
        d = deltas[len(deltas) - len(A) :]
        parts = [jnp.einsum("R,pRrn->prn", d, a) for d, a in zip(d, A, strict=True)]
        live = jnp.any(jnp.stack([jnp.any(d != 0) for d in d]))
        return jnp.where(live, sum(parts[1:], parts[0]), 0)

    return {name: one(A) for name, A in (few | {n: p.A for n, p in pairs.items()}).items()}


def _pushed(
    memory: Crossed,
    steps: Steps,
    feats: dict[str, Float[Array, "k m"]],
    moves: dict[str, in_layer.Move],
    e: in_layer.Own,
    signs: Any,
    deltas: list[Float[Array, " R"]],
) -> tuple[tuple[dict[str, Above], dict[str, Pairs]], dict[str, Array]]:
    """All weights' rows between layers after the steps; and `δ·A` before them. One pass over A."""
    layers, rows = memory.traces.layers, dict(memory.rows)

    def one(own: Any, given: Any, resets: Any, rest: Any) -> tuple[Any, Any]:
        (few, pairs), (feats, moves, e, signs, deltas) = own, rest
        dA = _pulled(few, pairs, deltas)
        back = carried_back(layers, rows, steps._replace(given=given, resets=resets))
        few = {n: summed(few[n], back, n, rows[n], feats[n], e.get(n)) for n in few}
        return (few, merged(pairs, back, rows, feats, moves, signs)), dA

    rest = (feats, moves, e, signs, deltas)
    return lane_by_lane(one, CACHED)((memory.few, memory.pairs), steps.given, steps.resets, rest)

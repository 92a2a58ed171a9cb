"""Exact traces inside layers whose units read no other unit's state (`linearised/layers.py`).

    e_W[a,i,k,j] ← Σ_b E[a,b,j] e_W[b,i,k,j] + D[a,k,j] ĥ_i,      e = ds[a,j]/dW[i,k,j],

one number per weight and slot. That is all of G for a cell of one such layer, where `rtrl()` keeps
it instead of G; in a stack it is the rows of G that belong to the weight's own layer. Over a
segment of k steps, with `S_t = E_k ··· E_{t+1}`, which is q × q per unit,

    e ← S_0 e + Σ_t ĥ_t ⊗ (S_t D_t):

one pass over e per segment, and one matrix product for all of its steps.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline import native
from kronline.lanes import added, adding, lane_by_lane
from kronline.linearised import Grads, Layer, LayerWeight, Met, Structure
from kronline.linearised import gradients as gr
from kronline.linearised.layers import times
from kronline.noise import Noise
from kronline.show import called
from kronline.traces.base import Read, Steps, Trace, since_reset

Own = dict[str, Float[Array, "m c g n"]]  # e of each weight; slots and gates that count
Part = Float[Array, "m g n"] | gr.Added  # δ·e of one weight
CACHED = 1 << 24  # bytes of e that are worked on at once


@partial(jax.tree_util.register_dataclass, data_fields=("e",), meta_fields=("layers",))
@dataclass(frozen=True)
class Traces:
    """The exact traces of all layers."""

    e: Own
    layers: tuple[Layer, ...]

    def read(self, delta: Float[Array, " N"]) -> Grads:
        """`δ·e` of every weight of a layer."""
        return self.written({n: read_out(self.e[n], d) for n, d in self.deltas(delta).items()})

    def deltas(self, delta: Float[Array, " N"]) -> dict[str, Float[Array, "c n"]]:
        """δ of each weight's own layer."""
        return {w.name: layer.state(delta) for layer in self.layers for w in layer.weights}

    def written(self, read: dict[str, Part]) -> Grads:
        """`δ·e` in the shape of each weight: zero for gates that nothing is remembered of."""
        # as a sum of one part, to which the exact part's factors can be added unmultiplied
        return {
            w.name: gr.Sum((gr.Placed(read[w.name], w.gates, w.of),))
            for layer in self.layers
            for w in layer.weights
        }


def start(structure: Structure) -> Traces:
    """e = 0."""

    def zero(layer: Layer, w: LayerWeight) -> Float[Array, "m c g n"]:
        W = structure.params[w.name]
        return jnp.zeros((W.shape[0], len(layer.kept), len(w.gates), layer.units), W.dtype)

    e = {w.name: zero(layer, w) for layer in structure.layers for w in layer.weights}
    return Traces(e, structure.layers)


@final
@dataclass(frozen=True)
class InLayer(Trace[Traces]):
    """Exact inside every layer of a stack; what flows from one layer's past to another is ignored.

    For cells made of layers whose units read no other unit's state. A weight's effect on the states
    of the layers above it is followed within a segment only; so is that of weights which belong to
    no layer (an embedding, a block's maps). In a cell of one layer nothing is left out: this is
    RTRL, in O(q |W|) memory and O(q² |W|) time.

    Example:
        >>> import kronline as kl
        >>> kl.Online(kl.InLayer(), window=10).name
        'spatial(10)'

    Reference: Zucchet et al., Online learning of long-range dependencies, NeurIPS 2023.
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """By its own name, with a window."""
        return called("spatial", window) if isinstance(window, int) else super().spec(window)

    def check(self, structure: Structure) -> None:
        """Layers must be diagonal."""
        if not structure.layers:
            raise TypeError(
                "spatial needs a cell made of layers whose units read no other unit's state (LRU, "
                f"RTU, ELSTM, MinGRU, MinLSTM, blocks and stacks of these), got {structure.cell}; "
                "use kf_tbptt, snap or tbptt, which take any LinearCell"
            )

    def ignores(self, structure: Structure) -> str:
        """Paths between layers that are older than the segment."""
        return "" if structure.diagonal else "older paths from a weight to layers above its own"

    def needs_newest(self, structure: Structure) -> bool:
        """Where a slot is not kept, a gate not remembered, or a weight belongs to no layer."""
        return partial_rows(structure)

    def init(self, structure: Structure) -> Traces:
        """e = 0."""
        return start(structure)

    def pull(self, memory: Traces, delta: Float[Array, " N"]) -> Grads:
        """`δ·e`."""
        return memory.read(delta)

    def segment(
        self, memory: Traces, steps: Steps, noise: Noise, delta: Float[Array, " N"], read: Read
    ) -> tuple[Grads, Traces]:
        """`δ·e` at the segment's start, and the push over its steps, in one pass over e."""
        d0, newest = newest_apart(steps, delta, read)
        past, new = pushed(memory, steps, moves(steps.met(), steps.resets), d0)
        return gr.joined(newest, past) if newest is not None else past, new


def partial_rows(structure: Structure) -> bool:
    """Whether the traces of the layers lack rows or weights of G that the newest loss may need."""
    slots = sum(len(layer.kept) * layer.units for layer in structure.layers)
    gates = [w for layer in structure.layers for w in layer.weights if len(w.gates) == w.of]
    return slots < structure.size or len(gates) < len(structure.above)


def newest_apart(
    steps: Steps, delta: Float[Array, " N"], read: Read
) -> tuple[Float[Array, " N"], Grads | None]:
    """δ before the segment; and, for a δ after its only step that is to be read whole, `δ F`."""
    if read == "start":
        return delta, None
    assert steps.length == 1
    older, newest = steps.at(0).vjp(delta)
    return jnp.where(steps.resets[0], 0, older), newest if read == "end" else None


# -- the push over a segment ---------------------------------------------------------------------


class Move(NamedTuple):
    """What k steps do to the traces of one weight."""

    feats: Float[Array, "k m"]  # ĥ_t
    SD: Float[Array, "k c g n"]  # S_t D_t
    S: Float[Array, "c c n"]  # S_0


def moves(met: Met, resets: Bool[Array, " k"]) -> dict[str, Move]:
    """What the steps of a segment, stacked, do to every weight of a layer."""
    found, counts = {}, since_reset(resets)
    for layer in met.layers:
        S, S0 = _later(layer.E, resets)
        for name, D in layer.D.items():
            # steps before a later reset are left out, even where they are not finite
            feats = jnp.where(counts[:, None], met.feats[name], 0)
            found[name] = Move(feats, jnp.where(counts[:, None, None, None], times(S, D), 0), S0)
    return found


def _later(
    E: Float[Array, "k c c n"], resets: Bool[Array, " k"]
) -> tuple[Float[Array, "k c c n"], Float[Array, "c c n"]]:
    """`S_t = E_k ··· E_{t+1}` of every step, and `S_0`; zero before a reset."""
    one = jnp.broadcast_to(jnp.eye(E.shape[1], dtype=E.dtype)[..., None], E.shape[1:])

    def back(S: Float[Array, "c c n"], now: Any) -> tuple[Array, Array]:
        E, reset = now
        return jnp.where(reset, 0, times(S, E)), S

    if len(E) == 1:
        return one[None], back(one, (E[0], resets[0]))[0]
    S0, S = jax.lax.scan(back, one, (E, resets), reverse=True)
    return S, S0


def pushed(
    memory: Traces, steps: Steps, moves: dict[str, Move], d0: Float[Array, " N"]
) -> tuple[Grads, Traces]:
    """`δ·e` before the steps, zero where δ is; and e after them. One pass over e."""
    deltas, cut = memory.deltas(d0), jnp.any(steps.resets)
    done = {n: _pushed(e, moves[n], cut, deltas[n]) for n, e in memory.e.items()}
    past = memory.written({name: read for name, (_, read) in done.items()})
    return past, replace(memory, e={n: e for n, (e, _) in done.items()})


def _pushed(
    e: Float[Array, "m c g n"],
    move: Move,
    cut: Bool[Array, ""],
    delta: Float[Array, "c n"],
) -> tuple[Float[Array, "m c g n"], Part]:
    """One weight, by the native kernel where there is one; δ·e added up where that is enough."""
    add = adding.value

    def plain(*args: Any) -> tuple[Array, Part]:
        e, read = lane_by_lane(_plain, CACHED)(*args)
        return e, gr.Added(added(read), jnp.sum(0 * read)) if add else read

    def kernel(e: Array, feats: Array, SD: Array, S: Array, cut: Array, delta: Array) -> Any:
        args = (feats, SD, S, cut.astype(e.dtype), delta, e)
        if not add:
            return native.push_traces(*args)
        e, *read = native.push_traces_added(*args)
        return e, gr.Added(*read)

    args = (e, *move, cut, delta)
    if e.shape[1] > native.MOST_SLOTS or not native.usable((), e, *move, delta):
        return plain(*args)
    found: tuple[Array, Part] = native.choose(kernel, plain, *args)
    return found


def _plain(
    e: Float[Array, "m c g n"],
    feats: Float[Array, "k m"],
    SD: Float[Array, "k c g n"],
    S: Float[Array, "c c n"],
    cut: Bool[Array, ""],
    delta: Float[Array, "c n"],
) -> tuple[Float[Array, "m c g n"], Float[Array, "m g n"]]:
    """The same in pure JAX: `e ← S_0 e + Σ_t ĥ_t ⊗ (S_t D_t)`, and `δ·e` of the old e."""
    read = jnp.where(jnp.any(delta != 0), read_out(e, delta), 0)  # also where e is not finite
    parts = [S[None, :, b, None] * e[:, None, b] for b in range(e.shape[1])]
    old = jnp.where(cut, 0, sum(parts[1:], parts[0]))  # also where e is not finite
    if len(feats) == 1:
        return old + feats[0][:, None, None, None] * SD, read
    return old + jnp.tensordot(feats, SD, axes=(0, 0)), read


def read_out(e: Float[Array, "m c g n"], delta: Float[Array, "c n"]) -> Float[Array, "m g n"]:
    """`δ·e`."""
    parts = [delta[None, a, None] * e[:, a] for a in range(e.shape[1])]
    return sum(parts[1:], parts[0])

"""The trace of KF-TBPTT and OK-TBPTT: r Kronecker products per weight, a segment at a time.

What a segment leaves, k + r terms, is merged into r (`segment_merge.py`, `mixing.py`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.errors import whole_numbers
from kronline.linearised import Grads, Lin, Outer, Structure
from kronline.linearised import gradients as gr
from kronline.noise import Draw, Draws
from kronline.show import called
from kronline.traces import cross_layer, in_layer, segment_merge
from kronline.traces.base import Read, Steps, Trace, ratio
from kronline.traces.cross_layer import Crossed
from kronline.traces.kf import needs_linear_maps
from kronline.traces.segment_merge import Pairs

ROWS = 16  # in so many rows, at most, right factors are compared


class Carried(NamedTuple):
    """What is carried over from one segment to the next."""

    pairs: dict[str, Pairs]
    tail: Float[Array, ""]  # the weight of the trace's part; may be replaced between segments
    # at most the largest number that the precision has
    noise: dict[str, Float[Array, ""]]  # v: the mean of ‖G' − G‖², by the closed form
    energy: dict[str, Float[Array, ""]]  # ‖G'‖²


@final
@dataclass(frozen=True)
class KFTBPTT(Trace[Carried | Crossed]):
    """`G' = Σ_i u_i ⊗ A_i`, r pairs per weight, merged once per segment; `E[G'] = G`.

    For linear cells. Takes one product of N × N by N × n per step (for a unit-wise cell a fraction
    of KF-RTRL's `H A`), and `P A_i` once per segment. Inner products of right factors are estimated
    from a few of their rows: they only choose the mix, and every mix is unbiased.

    Of a cell made of layers whose units read no other unit's state, the rows inside a layer are
    exact, and so are those between layers of weights with no more than r inputs; the others are
    pairs (`cross_layer.py`).

    Args:
        pairs: r.
        tail: the weight of this part of the gradient. 1: unbiased. 0: what lies before the segment
            is ignored, as in TBPTT. "auto": the weight with the least squared error,
            ‖G‖²/(‖G‖² + v), from the closed-form variance; biased, for less noise.

    Example:
        >>> import kronline as kl
        >>> kl.Online(kl.KFTBPTT(pairs=4), window=25).name
        'kf_tbptt(25, pairs=4)'

    Reference: the merge is that of Benzing et al., ICML 2019, for more terms.
    """

    pairs: int = 1
    tail: float | Literal["auto"] = 1.0

    def __post_init__(self) -> None:
        whole_numbers(self, "pairs")
        if self.tail != "auto" and not (isinstance(self.tail, int | float) and 0 <= self.tail <= 1):
            raise ValueError(f"tail must be between 0 and 1, or 'auto', got {self.tail!r}")
        if self.tail != "auto":
            object.__setattr__(self, "tail", float(self.tail))

    def spec(self, window: int | Literal["all"] | None) -> str:
        """KF-TBPTT."""
        if not isinstance(window, int):
            return super().spec(window)
        tail = None if self.tail == 1 else self.tail
        return called("kf_tbptt", window, pairs=self.pairs, tail=tail)

    def check(self, structure: Structure) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(structure)

    def ignores(self, structure: Structure) -> str:
        """With a tail below 1, a part of what lies before the segment."""
        if self.tail == "auto":
            return "the part of the past that noise drowns"
        return "" if self.tail == 1 else f"{1 - self.tail:.3g} of the past before a segment"

    def needs_newest(self, structure: Structure) -> bool:
        """In layers, where rows that the next step does not depend on are left out."""
        return bool(structure.layers) and in_layer.partial_rows(structure)

    def init(self, structure: Structure) -> Carried | Crossed:
        """G = 0."""
        if structure.layers:
            return cross_layer.start(structure, self.pairs, self.tail)
        size, params = structure.size, structure.params
        pairs = {
            name: Pairs(
                jnp.zeros((self.pairs, W.shape[0]), W.dtype),
                jnp.zeros((size, self.pairs, *W.shape[1:]), W.dtype),
            )
            for name, W in params.items()
        }
        zero = {name: jnp.zeros((), W.dtype) for name, W in params.items()}
        dtype = jax.tree.leaves(params)[0].dtype
        return Carried(
            pairs, jnp.asarray(1.0 if self.tail == "auto" else self.tail, dtype), zero, zero
        )

    def draws(self, structure: Structure, k: int) -> Draws:
        """A sign for each of k + r terms but one."""
        if structure.layers:
            return cross_layer.draws(structure, k, self.pairs)
        return {name: Draw((k + self.pairs - 1,)) for name in structure.params}

    def pull(self, memory: Carried | Crossed, delta: Float[Array, " N"]) -> Grads:
        """`Σ_i u_i ⊗ (δ A_i)`, weighted."""
        if isinstance(memory, Crossed):
            return memory.read(delta, auto=self.tail == "auto")
        dA = {name: segment_merge.pulled(delta, p.A) for name, p in memory.pairs.items()}
        return self._weighted(memory, dA)

    def _weighted(self, memory: Carried, dA: dict[str, Float[Array, "p r n"]]) -> Grads:
        """`Σ_i u_i ⊗ dA_i`, times the tail's weight."""

        def part(name: str, p: Pairs) -> Outer:
            weight = memory.tail
            if self.tail == "auto":
                share = segment_merge.least_error(memory.noise[name], memory.energy[name])
                weight = weight * share
            return Outer(p.U, weight * dA[name])

        return {name: part(name, p) for name, p in memory.pairs.items()}

    def reset(self, memory: Carried | Crossed, flag: Bool[Array, ""]) -> Carried | Crossed:
        """G = 0 where flag is set; the weight stays."""
        zero = super().reset(memory, flag)
        if isinstance(zero, Crossed):
            return replace(zero, tail=memory.tail)
        return zero._replace(tail=memory.tail)

    def noise_share(self, memory: Carried | Crossed, lin: Lin) -> Float[Array, ""]:
        """The share of all steps so far, by the closed form; in layers, of the estimated rows."""
        if isinstance(memory, Crossed):
            parts = [(a.noise, a.energy) for a in memory.pairs.values()]
            return ratio(*(sum(part, jnp.zeros(())) for part in zip(*parts, strict=True)))
        return ratio(*(sum(part.values(), jnp.zeros(())) for part in (memory.noise, memory.energy)))

    def segment(
        self,
        memory: Carried | Crossed,
        steps: Steps,
        noise: Any,
        delta: Float[Array, " N"],
        read: Read,
    ) -> tuple[Grads, Carried | Crossed]:
        """`δ0·G` at a segment's start, and the push over its k steps, in one pass over A."""
        if isinstance(memory, Crossed):
            auto = self.tail == "auto"
            return cross_layer.segment(memory, steps, noise, delta, read, auto=auto)
        d0 = delta
        if read == "past":  # (δH)·G, or nothing after a reset
            d0 = jnp.where(steps.resets[0], 0, steps.at(0).vjp(delta)[0])
        past, new = self._pushed(memory, steps, noise, d0)
        return (self.pull(new, delta) if read == "end" else past), new

    def _pushed(
        self, memory: Carried, steps: Steps, noise: Any, d0: Float[Array, " N"]
    ) -> tuple[Grads, Carried]:
        lins = segment_merge.linearised(steps)
        merge = partial(segment_merge.merge_segment, rows=min(d0.size, ROWS), start=True)
        cut = jnp.any(steps.resets)
        pairs, v, energy, dA = {}, {}, {}, {}
        for name, old in memory.pairs.items():
            pairs[name], now, dA[name] = merge(
                old, lins.groups[name], lins.H, steps.resets, noise[name], d0
            )
            before = (memory.noise[name], memory.energy[name])
            v[name], energy[name] = segment_merge.carried_noise(*before, now, cut), now.after
        past = gr.unless_zero(d0, self._weighted(memory, dA))
        return past, Carried(pairs, memory.tail, v, energy)

"""The trace of KF-TBPTT and OK-TBPTT: r Kronecker products a weight, pushed over a whole segment.

The segment is walked backwards with P ← I: step s contributes `ĥ_s ⊗ (P D_s)`, then P ← P H_s; at
the end the old pairs contribute `u_i ⊗ (P A_i)`. These k + r terms are merged into r.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.grads import Grads, Outer
from kronline.jacobians import Group, Lin
from kronline.noise import Draw, Draws
from kronline.traces import walk
from kronline.traces.base import Steps, Trace
from kronline.traces.kf import needs_linear_maps
from kronline.traces.ok import Pairs, balanced

SKETCH = 16  # rows, at most, in which right factors are compared


class Carried(NamedTuple):
    """What is carried over from one segment to the next."""

    pairs: dict[str, Pairs]
    tail: Float[Array, ""]  # the weight of the trace's part; may be replaced at any time
    noise: dict[str, Float[Array, ""]]  # v: the mean of ‖G' − G‖², by the closed form
    energy: dict[str, Float[Array, ""]]  # ‖G'‖²


@dataclass(frozen=True)
class Tail(Trace):
    """`G' = Σ_i u_i ⊗ A_i`, r pairs a weight, merged once a segment; `E[G'] = G`. For linear cells.

    Takes one product of N × N by N × n a step (for a unit-wise cell a fraction of KF-RTRL's `H A`),
    and `P A_i` once a segment. How alike two right factors are is measured on a sketch, a few rows
    that are walked ahead: it only serves to choose the mix, which is unbiased whatever is chosen.

    Args:
        pairs: r.
        tail: the weight of this part of the gradient. 1: unbiased. 0: what lies before the segment
            is ignored, as in TBPTT. "auto": the weight with the least squared error,
            ‖G‖²/(‖G‖² + v), from the closed-form variance; biased, for less noise.
    """

    pairs: int = 1
    tail: float | Literal["auto"] = 1.0

    def __post_init__(self) -> None:
        whole_numbers(self, "pairs")
        if self.tail != "auto" and not (isinstance(self.tail, int | float) and 0 <= self.tail <= 1):
            raise ValueError(f"tail must be between 0 and 1, or 'auto', got {self.tail!r}")

    def check(self, cell: Cell) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(cell)

    def init(self, size: int, params: Any) -> Carried:
        """Nothing."""
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

    def segment_draws(self, size: int, params: Any, k: int) -> Draws:
        """A sign for each of k + r terms but one."""
        return {name: Draw((k + self.pairs - 1,)) for name in params}

    def draws(self, size: int, params: Any) -> Draws:
        """Of a single step."""
        return self.segment_draws(size, params, 1)

    def step(self, memory: Carried, lin: Lin, noise: Any) -> Carried:
        """A segment of one step, without a reset."""
        return self.push(memory, Steps(1, lambda _: lin, jnp.zeros(1, bool)), noise)

    def pull(self, memory: Carried, delta: Float[Array, " N"]) -> Grads:
        """`Σ_i u_i ⊗ (δ A_i)`, weighted."""

        def part(name: str, p: Pairs) -> Outer:
            weight = memory.tail
            if self.tail == "auto":
                v, energy = memory.noise[name], memory.energy[name]
                weight = weight * jnp.clip(1 - v / jnp.where(energy > 0, energy, 1), 0, 1)
            return Outer(p.U, jnp.tensordot(weight * delta, p.A, axes=1))

        return {name: part(name, p) for name, p in memory.pairs.items()}

    def reset(self, memory: Carried, flag: Bool[Array, ""]) -> Carried:
        """G = 0 where flag is set; the weight stays."""
        zero = super().reset(memory, flag)
        return zero._replace(tail=memory.tail)

    def push(self, memory: Carried, steps: Steps, noise: Any) -> Carried:
        """Over the k steps of a segment."""
        segment = walk.linearised(steps)
        state = segment.lins.state[0]
        rows = walk.few_rows(segment, sketch(state.size, state.dtype))
        cut = jnp.any(steps.resets)
        old, new = memory, {}
        for name, pairs in memory.pairs.items():
            terms = _terms(pairs, rows, segment.lins.groups[name], cut)
            left, right, v, energy = _chosen(
                terms, noise[name], old.noise[name], old.energy[name], self.pairs
            )
            A = walk.gathered(segment, name, right, pairs.A)
            new[name] = Pairs(left.T @ terms.U, A), v, energy
        pairs, v, energy = ({name: n[i] for name, n in new.items()} for i in range(3))
        return Carried(pairs, memory.tail, v, energy)


class Terms(NamedTuple):
    """The k + p terms that a segment leaves: of its steps, then of the old pairs."""

    U: Float[Array, "k+p m"]
    Gb: Float[Array, "k+p k+p"]  # inner products of the right factors, by the sketch


def sketch(N: int, dtype: Any) -> Float[Array, "q N"]:
    """Some rows of random signs, always the same ones; all N unit vectors where N is small."""
    if N <= SKETCH:
        return jnp.eye(N, dtype=dtype)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (SKETCH, N))
    return jnp.asarray(signs / np.sqrt(SKETCH), dtype)


def _terms(
    pairs: Pairs, rows: tuple[Array, Array], group: Group, cut: Bool[Array, ""]
) -> Terms:
    """The terms of one weight; after a reset nothing is left of the old pairs."""
    end, each = rows
    new = jax.vmap(lambda P, M: M.lmul(P))(each, group.M)  # (k, q, r, n)
    old = jnp.where(cut, 0, jnp.tensordot(end, pairs.A, axes=1).swapaxes(0, 1))
    Q = jnp.concatenate([new, old]).reshape(len(new) + len(old), -1)
    return Terms(jnp.concatenate([group.feats, pairs.U]), Q @ Q.T)


def _chosen(
    terms: Terms,
    signs: Float[Array, " K-1"],
    v: Float[Array, ""],
    energy: Float[Array, ""],
    p: int,
) -> tuple[Array, Array, Float[Array, ""], Float[Array, ""]]:
    """How the terms are mixed; the new v and ‖G'‖², by the sketch."""
    left, right, variance = balanced(terms.U, terms.Gb, signs, p)
    Gu = terms.U @ terms.U.T
    # noise is carried over as the pairs are: v ← v ‖P G'‖²/‖G'‖² + what the merge adds
    has = jnp.sum(Gu[-p:, -p:] * terms.Gb[-p:, -p:])
    v = v * jnp.where(energy > 0, has / jnp.where(energy > 0, energy, 1), 0) + variance
    return left, right, v, jnp.sum((left.T @ Gu @ left) * (right.T @ terms.Gb @ right))

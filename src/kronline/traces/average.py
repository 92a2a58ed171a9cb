"""The mean of independent copies of a trace: KF-RTRL-AVG, and the like for any other."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.linearised import grads as gr
from kronline.linearised.grads import Grads
from kronline.linearised.jacobians import Lin
from kronline.noise import Draws, Noise, repeat
from kronline.traces.base import Memory, Steps, Trace


@dataclass(frozen=True)
class Average(Trace):
    """`G' = (G'_1 + ... + G'_r)/r`: copies that differ in their noise only.

    Ignores what the trace ignores. Its noise's variance is 1/r of one copy's, at r times the memory
    and time; a step is linearised once for all copies. Copies are one more axis of lanes for the
    work on the trace, so that they take the same fast path.

    Args:
        trace: what there are copies of.
        copies: r.

    Reference: the baseline of Benzing et al., Optimal Kronecker-Sum Approximation of Real Time
    Recurrent Learning, ICML 2019 (KF-RTRL-AVG); for UORO that of Mujika et al., 2018.
    """

    trace: Trace
    copies: int

    def __post_init__(self) -> None:
        whole_numbers(self, "copies")

    def check(self, cell: Cell) -> None:
        """As the trace says."""
        self.trace.check(cell)

    def ignores(self, cell: Cell) -> str:
        """As the trace says."""
        return self.trace.ignores(cell)

    def init(self, size: int, params: Any) -> Memory:
        """The trace's memory, with a leading axis of copies."""
        return self._copied(self.trace.init(size, params))

    def begin(self, cell: Cell, params: Any) -> Memory:
        """The same."""
        return self._copied(self.trace.begin(cell, params))

    def draws(self, size: int, params: Any) -> Draws:
        """For every copy its own."""
        return repeat(self.trace.draws(size, params), self.copies)

    def segment_draws(self, size: int, params: Any, k: int) -> Draws:
        """For every copy its own, copies first."""
        return repeat(self.trace.segment_draws(size, params, k), self.copies)

    def step(self, memory: Memory, lin: Lin, noise: Noise) -> Memory:
        """Each copy by itself."""
        return jax.vmap(lambda m, z: self.trace.step(m, lin, z))(memory, noise)

    def push(self, memory: Memory, steps: Steps, noise: Noise) -> Memory:
        """Each copy by itself."""
        return jax.vmap(lambda m, z: self.trace.push(m, steps, z))(memory, noise)

    def push_pull(
        self,
        memory: Memory,
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[Memory, Grads]:
        """One step of each copy, as the trace does it; the mean of what they read."""

        def copy(memory: Memory, noise: Noise) -> tuple[Memory, Grads]:
            return self.trace.push_pull(memory, steps, noise, delta, before=before)

        memory, grads = jax.vmap(copy)(memory, noise)
        return memory, self._mean(grads)

    def pull(self, memory: Memory, delta: Float[Array, " N"]) -> Grads:
        """The mean of `δ·G'_i`."""
        return self._mean(jax.vmap(lambda m: self.trace.pull(m, delta))(memory))

    def reset(self, memory: Memory, flag: Bool[Array, ""]) -> Memory:
        """All copies."""
        return jax.vmap(lambda m: self.trace.reset(m, flag))(memory)

    @property
    def closed_form(self) -> bool:
        """As the trace says."""
        return self.trace.closed_form

    def variance(self, memory: Memory, lin: Lin) -> Float[Array, ""] | None:
        """`Σ Var_i / r²`, where one copy's is known."""
        each = jax.vmap(lambda m: self.trace.variance(m, lin))(memory)
        return None if each is None else jnp.sum(each) / self.copies**2

    def _copied(self, memory: Memory) -> Memory:
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (self.copies, *a.shape)), memory)

    def _mean(self, grads: Grads) -> Grads:
        return gr.scaled(gr.side_by_side(grads), 1 / self.copies)

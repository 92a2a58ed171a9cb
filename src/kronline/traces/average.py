"""The mean of independent copies of a trace: KF-RTRL-AVG, and the like for any other."""

from dataclasses import dataclass
from typing import Literal, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.errors import whole_numbers
from kronline.lanes import adding
from kronline.linearised import Grads, Lin, Structure
from kronline.linearised import gradients as gr
from kronline.noise import Draws, Noise, repeat
from kronline.show import called
from kronline.traces.base import Memory, Read, Steps, Trace
from kronline.traces.kf import KF


@final
@dataclass(frozen=True)
class Average(Trace[Memory]):
    """`G' = (G'_1 + ... + G'_r)/r`: copies that differ in their noise only.

    Ignores what the trace ignores. The variance of its noise is 1/r of one copy's, at r times the
    memory and time; a step is linearised once for all copies. For the work on the trace, copies are
    one more axis of lanes, so that they take the same fast path.

    Args:
        trace: of which there are copies.
        copies: r.

    Example:
        >>> import kronline as kl
        >>> kl.Online(kl.Average(kl.OK(2), copies=3)).name
        'Online(Average(OK(pairs=2), 3))'

    Reference: the baseline of Benzing et al., Optimal Kronecker-Sum Approximation of Real Time
    Recurrent Learning, ICML 2019 (KF-RTRL-AVG); for UORO that of Mujika et al., 2018.
    """

    trace: Trace[Memory]
    copies: int

    def __post_init__(self) -> None:
        whole_numbers(self, "copies")
        if not isinstance(self.trace, Trace):
            raise TypeError(f"Average needs a trace such as UORO(), got {self.trace!r}")

    def spec(self, window: int | Literal["all"] | None) -> str:
        """`kf_rtrl(copies=r)`; others by their parts."""
        if isinstance(self.trace, KF) and self.copies > 1:
            return called("kf_rtrl", window=window, copies=self.copies)
        return super().spec(window)

    def check(self, structure: Structure) -> None:
        """As the trace says."""
        self.trace.check(structure)

    def ignores(self, structure: Structure) -> str:
        """As the trace says."""
        return self.trace.ignores(structure)

    def init(self, structure: Structure) -> Memory:
        """The trace's memory, with a leading axis of copies."""
        one = self.trace.init(structure)
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (self.copies, *a.shape)), one)

    def draws(self, structure: Structure, k: int) -> Draws:
        """Independent draws for every copy, copies first."""
        return repeat(self.trace.draws(structure, k), self.copies)

    def segment(
        self, memory: Memory, steps: Steps, noise: Noise, delta: Float[Array, " N"], read: Read
    ) -> tuple[Grads, Memory]:
        """Each copy by itself, as the trace does it; the mean of what they read."""

        def copy(memory: Memory, noise: Noise) -> tuple[Grads, Memory]:
            return self.trace.segment(memory, steps, noise, delta, read)

        with adding(False):  # over lanes, not over copies
            grads, memory = jax.vmap(copy)(memory, noise)
        return self._mean(grads), memory

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

    def variance(self, memory: Memory, lin: Lin) -> Float[Array, ""]:
        """`Σ Var_i / r²`."""
        return jnp.sum(jax.vmap(lambda m: self.trace.variance(m, lin))(memory)) / self.copies**2

    def _mean(self, grads: Grads) -> Grads:
        return gr.scaled(gr.side_by_side(grads), 1 / self.copies)

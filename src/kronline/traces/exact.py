"""Exact RTRL (Williams & Zipser, 1989): G itself."""

from dataclasses import dataclass
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import Grads, Kronecker, Lin, Structure
from kronline.noise import Noise
from kronline.show import called
from kronline.traces import in_layer
from kronline.traces.base import Read, Steps, Stepwise

G = Any  # an array (N, *shape) per parameter, or `in_layer.Traces`


@final
@dataclass(frozen=True)
class Exact(Stepwise[G]):
    """`G ← H G + F`: exact, in O(N |θ|) memory and O(N² |θ|) time. For any cell.

    Of a cell of one layer whose units read no other unit's state, only the numbers that differ from
    zero are kept, q per weight, in O(q² |θ|) time (`in_layer.py`).

    Example:
        >>> import kronline as kl
        >>> kl.Exact().init(kl.RHN(3, 2).structure())["W"].shape  # (N, *shape)
        (3, 6, 2, 3)

    Reference: Williams & Zipser, A Learning Algorithm for Continually Running Fully Recurrent
    Neural Networks, Neural Computation 1989.
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """RTRL."""
        return called("rtrl", window=window)

    def needs_newest(self, structure: Structure) -> bool:
        """Where slots or weights that the next step does not depend on are left out."""
        return structure.diagonal and in_layer.partial_rows(structure)

    def init(self, structure: Structure) -> G:
        """One array (N, *shape) per parameter; for one diagonal layer (slots, *shape)."""
        if structure.diagonal:
            return in_layer.start(structure)
        size = structure.size
        return jax.tree.map(lambda p: jnp.zeros((size, *p.shape), p.dtype), structure.params)

    def step(self, memory: G, lin: Lin, noise: Noise) -> G:
        """`G ← H G + F`   (eq. 3)."""
        return _step(memory, lin, jnp.zeros_like(lin.state))[0]

    def step_pull(
        self,
        memory: G,
        lin: Lin,
        reset: Bool[Array, ""],
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, G]:
        """One step; `δ·G` is computed in the same pass as G."""
        if past:
            return super().step_pull(memory, lin, reset, noise, delta, past=past)
        new, read = _step(self.reset(memory, reset), lin, delta)
        return read, new

    def segment(
        self, memory: G, steps: Steps, noise: Noise, delta: Float[Array, " N"], read: Read
    ) -> tuple[Grads, G]:
        """Step after step, or for one diagonal layer all steps at once."""
        if isinstance(memory, in_layer.Traces):
            return in_layer.InLayer().segment(memory, steps, noise, delta, read)
        return super().segment(memory, steps, noise, delta, read)

    def pull(self, memory: G, delta: Float[Array, " N"]) -> Grads:
        """`δ·G`."""
        if isinstance(memory, in_layer.Traces):
            return memory.read(delta)
        return jax.tree.map(lambda G: jnp.tensordot(delta, G, axes=1), memory)


def _step(G: G, lin: Lin, delta: Float[Array, " N"]) -> tuple[G, Grads]:
    """`G ← H G + F`, and `δ·G`."""
    if isinstance(lin, Kronecker):
        return lane_by_lane(_kronecker_step)(G, lin, delta)
    H, F = lin.dense()
    G = jax.tree.map(lambda G, F: jnp.tensordot(H, G, axes=1) + F, G, F)
    return G, jax.tree.map(lambda G: jnp.tensordot(delta, G, axes=1), G)


def _kronecker_step(
    G: dict[str, Array], lin: Kronecker, delta: Float[Array, " N"]
) -> tuple[dict[str, Array], Grads]:
    """The same, with H and F as sparse as they are; `δ·G` is read as `δ·HG + δ·F`."""
    HG = {k: lin.H.mm(G[k]) for k in G}
    M = {k: jax.lax.optimization_barrier(g.M.dense()) for k, g in lin.groups.items()}
    read = {
        k: jnp.tensordot(delta, HG[k], axes=1) + g.times(g.M.vm(delta))
        for k, g in lin.groups.items()
    }
    return {k: HG[k] + g.times(M[k]) for k, g in lin.groups.items()}, read

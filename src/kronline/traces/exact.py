"""Exact RTRL (Williams & Zipser, 1989): G itself."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.lanes import looped
from kronline.linearised.grads import Grads
from kronline.linearised.jacobians import Kronecker, Lin
from kronline.noise import Noise
from kronline.traces.base import Memory, Steps, Trace


@dataclass(frozen=True)
class Exact(Trace):
    """`G ← H G + F`: exact, in O(N |θ|) memory and O(N² |θ|) time. For any cell."""

    def init(self, size: int, params: Any) -> Memory:
        """One array (N, *shape) a parameter."""
        return jax.tree.map(lambda p: jnp.zeros((size, *p.shape), p.dtype), params)

    def step(self, memory: Memory, lin: Lin, noise: Noise) -> Memory:
        """`G ← H G + F`   (eq. 3)."""
        return _step(memory, lin, jnp.zeros_like(lin.state))[0]

    def push_pull(
        self,
        memory: Memory,
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[Memory, Grads]:
        """One step; δ is multiplied with G where G is made."""
        if before or (type(self).step, type(self).pull) != (Exact.step, Exact.pull):
            return super().push_pull(memory, steps, noise, delta, before=before)
        return _step(self.reset(memory, steps.resets[0]), steps.at(0), delta)

    def pull(self, memory: Memory, delta: Float[Array, " N"]) -> Grads:
        """`δ·G`."""
        return jax.tree.map(lambda G: jnp.tensordot(delta, G, axes=1), memory)


def _step(G: Memory, lin: Lin, delta: Float[Array, " N"]) -> tuple[Memory, Grads]:
    """`G ← H G + F`, and `δ·G`."""
    if isinstance(lin, Kronecker):
        return looped(_kronecker_step)(G, lin, delta)
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

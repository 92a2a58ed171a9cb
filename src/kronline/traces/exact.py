"""Exact RTRL (Williams & Zipser, 1989): G itself."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.grads import Grads
from kronline.jacobians import Lin
from kronline.noise import Noise
from kronline.traces.base import Memory, Trace


@dataclass(frozen=True)
class Exact(Trace):
    """`G ← H G + F`: exact, in O(N |θ|) memory and O(N² |θ|) time. For any cell."""

    def init(self, size: int, params: Any) -> Memory:
        """One array (N, *shape) a parameter."""
        return jax.tree.map(lambda p: jnp.zeros((size, *p.shape), p.dtype), params)

    def step(self, memory: Memory, lin: Lin, noise: Noise) -> Memory:
        """`G ← H G + F`   (eq. 3)."""
        H, F = lin.dense()
        return jax.tree.map(lambda G, F: jnp.tensordot(H, G, axes=1) + F, memory, F)

    def pull(self, memory: Memory, delta: Float[Array, " N"]) -> Grads:
        """`δ·G`."""
        return jax.tree.map(lambda G: jnp.tensordot(delta, G, axes=1), memory)

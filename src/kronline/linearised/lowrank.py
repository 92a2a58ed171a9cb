"""H of a cell whose recurrent weights have low rank."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.linearised.statejac import StateJac


@partial(jax.tree_util.register_dataclass, data_fields=("left", "V", "E"), meta_fields=("reads",))
@dataclass(frozen=True)
class LowRankH(StateJac):
    """H of a cell that reads its state through ρ numbers, `y = h V`: `left Vᵀ`, plus diagonals.

    H[(a,i),(b,j)] = Σ_p left[(a,i),p] V[(b,j),p] + δ_ij E[a,b,i].
    """

    shared = ("V",)

    left: Float[Array, "N rho"]  # ∂s'/∂y
    V: Float[Array, "bn rho"]
    E: Float[Array, "q q n"]
    reads: tuple[int, ...]

    def _read(self, slots: Float[Array, "q n c"]) -> Float[Array, "bn c"]:
        return jnp.concatenate([slots[b] for b in self.reads])

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A = left (Vᵀ A) + E A`: 2 (qn + bn) ρ flops per column of A."""
        q, _, n = self.E.shape
        slots = A.reshape(q, n, -1)
        out = (self.left @ (self.V.T @ self._read(slots))).reshape(q, n, -1)
        for b in range(q):
            out = out + self.E[:, b, :, None] * slots[b][None]
        return out.reshape(A.shape)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H = (P left) Vᵀ + P E`, with as few flops as `mm`."""
        q, _, n = self.E.shape
        slots = P.reshape(-1, q, n)
        through = ((P @ self.left) @ self.V.T).reshape(-1, len(self.reads), n)
        direct = jnp.einsum("pai,abi->pbi", slots, self.E)
        return direct.at[:, np.array(self.reads)].add(through).reshape(P.shape)

    def scaled(self, c: Float[Array, ""]) -> "LowRankH":
        """`c H`, in O(n ρ)."""
        return LowRankH(c * self.left, self.V, c * self.E, self.reads)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        return self.mm(jnp.eye(self.left.shape[0], dtype=self.left.dtype))

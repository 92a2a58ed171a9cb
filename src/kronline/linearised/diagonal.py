"""H of a unit-wise cell in which no unit reads another unit's state."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kronline.linearised.statejac import StateJac


@partial(jax.tree_util.register_dataclass, data_fields=("E",), meta_fields=())
@dataclass(frozen=True)
class DiagonalH(StateJac):
    """Block-diagonal: `H[(a,i),(b,j)] = δ_ij E[a,b,i]`. Products cost O(q² n) per column."""

    E: Float[Array, "q q n"]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`."""
        q, _, n = self.E.shape
        slots = A.reshape(q, n, -1)
        out = sum(self.E[:, b, :, None] * slots[b][None] for b in range(q))
        return jnp.asarray(out).reshape(A.shape)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`."""
        q, _, n = self.E.shape
        slots = P.reshape(-1, q, n)
        out = sum(slots[:, a, None] * self.E[None, a] for a in range(q))
        return jnp.asarray(out).reshape(P.shape)

    def entries(self, to: Int[Array, "n p 1"], of: Int[Array, "n 1 p"]) -> Float[Array, "n p p"]:
        """Some entries `H[to, of]`."""
        n = self.E.shape[-1]
        (a, i), (b, j) = divmod(to, n), divmod(of, n)
        return jnp.where(i == j, self.E[a, b, i], 0)

    def own_units(self) -> Float[Array, "q q n"]:
        """`H_jj`: E itself."""
        return self.E

    def scaled(self, c: Float[Array, ""]) -> "DiagonalH":
        """`c H`, in O(n)."""
        return DiagonalH(c * self.E)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        q, _, n = self.E.shape
        return self.mm(jnp.eye(q * n, dtype=self.E.dtype))

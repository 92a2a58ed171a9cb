"""H of a unit-wise cell whose units, in blocks, read some of the blocks only.

The paper leaves open how to make `H·A`, its only cubic product, cheaper. Block-sparse weights are
one way; weights of low rank (`lowrank.py`) are another.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.linearised.sensitivity import Vector
from kronline.linearised.unitwise import UnitWise


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("W", "D", "E"),
    meta_fields=("reads", "offsets"),
)
@dataclass(frozen=True)
class BlockH(UnitWise):
    """H of a unit-wise cell whose units, in R blocks of B, read some of the blocks only.

    Block i reads blocks i, i + o, i + o', ... (modulo R), the same offsets for all, itself first.
    So every block row and block column of H has the same number of blocks.
    """

    W: Float[Array, "R r B K"]  # for each block of units, the weights from the K numbers it reads
    D: Float[Array, "q r n"]
    E: Float[Array, "q q n"]
    reads: tuple[int, ...]
    offsets: tuple[int, ...]  # 0 first

    def _sizes(self) -> tuple[int, int, int, int]:
        """q, R, B and K."""
        R, _, B, K = self.W.shape
        return self.D.shape[0], R, B, K

    def _blocks(self) -> Float[Array, "R q B K"]:
        """The blocks of H that exist, with the diagonal E added."""
        q, R, B, K = self._sizes()
        r, reads = self.D.shape[1], len(self.reads)
        D = self.D.reshape(q, r, R, B, 1).transpose(2, 1, 0, 3, 4)  # (R, r, q, B, 1)
        # written out gate by gate, so that XLA makes one loop
        H = sum(self.W[:, k, None] * D[:, k] for k in range(r))
        E = self.E[:, np.array(self.reads)].reshape(q, reads, R, B).transpose(2, 0, 3, 1)
        itself = np.zeros((B, reads, K // reads), bool)  # block i reads itself first
        itself[np.arange(B), :, np.arange(B)] = True
        own = jnp.where(itself[None, None], E[..., None], 0)
        return H + own.reshape(R, q, B, K)

    def _met(self, slots: Float[Array, "q n c"]) -> Float[Array, "R K c"]:
        """For each block, the rows that it reads."""
        q, R, B, K = self._sizes()
        of = _shifted(R, self.offsets)[:, None]  # (R, 1, o)
        return slots.reshape(q, R, B, -1)[np.array(self.reads)[:, None], of].reshape(R, K, -1)

    @property
    def offsets_read(self) -> tuple[int, ...]:
        """The same for all blocks."""
        return self.offsets

    def _unread(self) -> list[int]:
        return [b for b in range(self.D.shape[0]) if b not in self.reads]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`: 2 (qn) K flops per column of A, if a unit reads K of bn numbers."""
        q, R, B, K = self._sizes()
        slots = A.reshape(q, R * B, -1)
        out = self._blocks().reshape(R, q * B, K) @ self._met(slots)
        out = out.reshape(R, q, B, -1).swapaxes(0, 1).reshape(slots.shape)
        for b in self._unread():  # the diagonal columns
            out = out + self.E[:, b, :, None] * slots[b][None]
        return out.reshape(A.shape)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`, as `(Hᵀ Pᵀ)ᵀ` by the blocks of Hᵀ, with as few flops as `mm`."""
        q, R, B, _ = self._sizes()
        reads, o, slots = len(self.reads), len(self.offsets), P.T.reshape(q, R, B, -1)
        # block j of the result is a sum over blocks j, j − o, j − o', ...
        of = _shifted(R, tuple(-o for o in self.offsets))
        met = slots[np.arange(q), of[..., None]].reshape(R, o * q * B, -1)
        H = self._blocks().reshape(R, q, B, reads, o, B).transpose(0, 4, 3, 5, 1, 2)
        H = H[of, np.arange(o)].transpose(0, 2, 3, 1, 4, 5)  # (R, b, B, o, q, B)
        out = H.reshape(R, reads * B, -1) @ met
        read = out.reshape(R, reads, B, -1).swapaxes(0, 1).reshape(reads, R * B, -1)
        columns = [
            read[self.reads.index(b)]
            if b in self.reads
            else jnp.sum(slots.reshape(q, R * B, -1) * self.E[:, b, :, None], axis=0)
            for b in range(q)
        ]
        return jnp.concatenate(columns).T

    def mv(self, v: Vector) -> Vector:
        """`H v = D (v W) + E v`, without building H."""
        q, r, n = self.D.shape
        slots = v.reshape(q, n)
        dz = jnp.einsum("Rs,Rkis->kRi", self._met(slots[..., None])[..., 0], self.W).reshape(r, n)
        out = jnp.einsum("aki,ki->ai", self.D, dz) + jnp.einsum("abi,bi->ai", self.E, slots)
        return out.reshape(v.shape)

    def rmm_few(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H = (P D) Wᵀ + P E`, without building H."""
        q, R, B, _ = self._sizes()
        p, slots = len(P), P.reshape(-1, q, R * B)
        out = jnp.einsum("pai,abi->pbi", slots, self.E)
        dz = jnp.einsum("pai,aki->pki", slots, self.D).reshape(p, -1, R, B)
        back = jnp.einsum("Rkis,pkRi->Rps", self.W, dz)
        back = back.reshape(R, p, len(self.reads), len(self.offsets), B)
        # what block i read at offset o belongs to block i + o
        of = _shifted(R, tuple(-o for o in self.offsets))
        to = back[of, :, :, np.arange(len(self.offsets))].sum(1)  # (R, p, b, B)
        to = to.transpose(1, 2, 0, 3).reshape(p, -1, R * B)
        return out.at[:, np.array(self.reads)].add(to).reshape(P.shape)

    def scaled(self, c: Float[Array, ""]) -> "BlockH":
        """`c H`, in O(n)."""
        return BlockH(self.W, c * self.D, c * self.E, self.reads, self.offsets)

    def own_units(self) -> Float[Array, "q q n"]:
        """E, and the weights from the unit itself, which are in the blocks with offset 0."""
        (_, r, n), (_, R, B, _) = self.D.shape, self._sizes()
        W = self.W.reshape(R, r, B, len(self.reads), len(self.offsets), B)[:, :, :, :, 0]
        diagonals = jnp.einsum("Rkjbj->bkRj", W).reshape(-1, r, n)
        through_W = jnp.einsum("akj,bkj->abj", self.D, diagonals)
        return self.E.at[:, np.array(self.reads)].add(through_W)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        q, _, n = self.D.shape
        return self.mm(jnp.eye(q * n, dtype=self.D.dtype))


def _shifted(R: int, offsets: tuple[int, ...]) -> np.ndarray:
    """(R, o): block i + o, modulo R, for each block i and offset o."""
    return (np.arange(R)[:, None] + np.array(offsets)) % R

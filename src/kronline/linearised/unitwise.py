"""H of a unit-wise cell: the paper's class of networks."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kronline import native
from kronline.linearised.sensitivity import Sensitivity, UnitM, Vector
from kronline.linearised.statejac import StateJac


class UnitWise(StateJac):
    """H of a unit-wise cell, with all of its weights or with some."""

    shared = ("W",)

    W: Array  # the weights of the slots that are read
    D: Float[Array, "q r n"]  # ∂s'/∂z, unit by unit
    E: Float[Array, "q q n"]  # ∂s'/∂s, not through the weights
    reads: tuple[int, ...]

    @abstractmethod
    def own_units(self) -> Float[Array, "q q n"]:
        """`H_jj`: how a unit's slots move its own, by E and by the unit's weights from itself."""

    @property
    @abstractmethod
    def offsets_read(self) -> tuple[int, ...]:
        """For the kernel: which blocks a block of units reads; empty: all units read all."""

    def merge_pair(
        self,
        plain: Callable[..., Any],
        pair: Any,
        jac: Any,
        c: Float[Array, ""],
        delta: Vector,
        *,
        before: bool,
    ) -> Any:
        """By the native kernel where there is one: M is H's own D."""
        rest = (jac, self, c, delta)
        if not (type(jac.M) is UnitM and native.usable(self.reads, pair, *rest)):
            return plain(pair, *rest)

        def kernel(pair: Any, jac: Any, H: UnitWise, c: Array, delta: Array) -> Any:
            parts = (H.W, H.D, H.E, H.reads, jac.feats, delta, c)
            u, A, norm, dA = native.merge_pair(*parts, *pair, before=before, offsets=H.offsets_read)
            return type(pair)(u, A, norm), dA

        return native.choose(kernel, plain, pair, *rest)


@partial(jax.tree_util.register_dataclass, data_fields=("W", "D", "E"), meta_fields=("reads",))
@dataclass(frozen=True)
class UnitH(UnitWise):
    """H of a unit-wise cell: `H[(a,i),(b,j)] = Σ_k D[a,k,i] W[(b,j),k,i] + δ_ij E[a,b,i]`.

    The first term exists only for the slots b that the linear maps read, so only these columns are
    dense: an LSTM's H is 2n × n dense plus diagonals, not 2n × 2n.
    """

    W: Float[Array, "b n r n"]  # the rows of the weights that multiply the slots that are read
    D: Float[Array, "q r n"]
    E: Float[Array, "q q n"]
    reads: tuple[int, ...]

    def read_columns(self) -> Float[Array, "b n q n"]:
        """The columns of the slots that are read, transposed, with the diagonal E added."""
        n, E = self.D.shape[-1], self.E[:, np.array(self.reads)].swapaxes(0, 1)
        # Hᵀ, since W's last axis is H's first; written out gate by gate, so that XLA makes one loop
        H = sum(self.W[:, :, None, k] * self.D[None, None, :, k] for k in range(self.D.shape[1]))
        eye = jnp.eye(n, dtype=bool)[None, :, None]
        return H + jnp.where(eye, E[:, None], 0)

    @property
    def offsets_read(self) -> tuple[int, ...]:
        """All units read all."""
        return ()

    def _unread(self) -> list[int]:
        return [b for b in range(self.D.shape[0]) if b not in self.reads]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`: 2 (qn)(bn) flops per column of A for b read slots, not 2 (qn)²."""
        q, _, n = self.D.shape
        slots = A.reshape(q, n, -1)
        read = jnp.concatenate([slots[b] for b in self.reads])
        H = self.read_columns().reshape(len(self.reads) * n, q * n)
        out = jnp.tensordot(H, read, axes=(0, 0)).reshape(q, n, -1)
        for b in self._unread():  # the diagonal columns
            out = out + self.E[:, b, :, None] * slots[b][None]
        return out.reshape(A.shape)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`, with as few flops as `mm`; by the native kernel where there is one."""
        if not native.usable(self.reads, self, P):
            return self._rmm(P)

        def kernel(H: UnitH, P: Array) -> Array:
            return native.rmm(H.W, H.D, H.E, H.reads, P)

        return native.choose(kernel, UnitH._rmm, self, P)

    def _rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H` in pure JAX."""
        q, _, n = self.D.shape
        slots = P.reshape(-1, q, n)
        H = self.read_columns().reshape(len(self.reads) * n, q * n)
        read = jnp.tensordot(P, H, axes=(1, 1)).reshape(-1, len(self.reads), n)
        columns = [
            read[:, self.reads.index(b)]
            if b in self.reads
            else jnp.sum(slots * self.E[None, :, b], axis=1)
            for b in range(q)
        ]
        return jnp.stack(columns, axis=1).reshape(P.shape)

    def entries(self, to: Int[Array, "n p 1"], of: Int[Array, "n 1 p"]) -> Float[Array, "n p p"]:
        """Some entries `H[to, of]`, without writing all of H out."""
        n = self.D.shape[-1]
        (a, i), (b, j) = divmod(to, n), divmod(of, n)
        slots = range(self.D.shape[0])
        place = np.array([self.reads.index(s) if s in self.reads else -1 for s in slots])
        read = jnp.asarray(place)[b]  # of the slot among those that are read
        direct = jnp.where(i == j, self.E[a, b, i], 0)
        return jnp.where(read < 0, direct, self.read_columns()[read, j, a, i])

    def merge_segment(
        self,
        plain: Callable[..., Any],
        A: Array,
        U: Array,
        M: Sensitivity,
        H: StateJac,
        resets: Array,
        signs: Array,
        delta: Vector,
        *,
        rows: int,
        start: bool,
    ) -> Any:
        """By the native kernel where there is one: M is H's own D."""
        args = (A, U, M, H, resets, signs, delta)
        if not (type(M) is UnitM and native.usable(self.reads, H, U, signs, delta, A)):
            return plain(*args)

        def kernel(
            A: Array, U: Array, M: UnitM, H: UnitH, resets: Array, signs: Array, delta: Array
        ) -> Any:
            parts = (H.W, H.D, H.E, H.reads, resets.astype(A.dtype), signs, delta, U, A)
            out = native.merge_segment(*parts, sample=rows, start=start)
            return out.A, (out.U, tuple(out.info), out.dA)

        def tupled(*args: Any) -> Any:  # both paths must return trees of the same type
            A, (U, merged, dA) = plain(*args)
            return A, (U, tuple(merged), dA)

        return native.choose(kernel, tupled, *args)

    def mv(self, v: Vector) -> Vector:
        """`H v = D (v W) + E v`, in O(n²) without building H."""
        q, _, n = self.D.shape
        slots = v.reshape(q, n)
        dz = jnp.einsum("bj,bjki->ki", slots[np.array(self.reads)], self.W)
        out = jnp.einsum("aki,ki->ai", self.D, dz) + jnp.einsum("abi,bi->ai", self.E, slots)
        return out.reshape(v.shape)

    def rmm_few(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H = (P D) Wᵀ + P E`, in O(n²) per row without building H."""
        q, _, n = self.D.shape
        slots = P.reshape(-1, q, n)
        out = jnp.einsum("pai,abi->pbi", slots, self.E)
        dz = jnp.einsum("pai,aki->pki", slots, self.D)
        back = jnp.einsum("bjki,pki->pbj", self.W, dz)
        return out.at[:, np.array(self.reads)].add(back).reshape(P.shape)

    def own_units(self) -> Float[Array, "q q n"]:
        """E, and W's diagonals."""
        through_W = jnp.einsum("akj,bkj->abj", self.D, jnp.einsum("bjkj->bkj", self.W))
        return self.E.at[:, np.array(self.reads)].add(through_W)

    def scaled(self, c: Float[Array, ""]) -> "UnitH":
        """`c H`, in O(n)."""
        return UnitH(self.W, c * self.D, c * self.E, self.reads)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        q, _, n = self.D.shape
        return self.mm(jnp.eye(q * n, dtype=self.D.dtype))

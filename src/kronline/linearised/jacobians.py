"""One step of a cell to first order: `ds' = H ds + F dθ`, never denser than it must be.

A weight matrix that enters the step only as `z = feats @ W` gives, exactly, `∂s'/∂W = feats ⊗ M`
with `M = ∂s'/∂z` (the paper's Lemma 1, freed from its restriction to unit-wise cells). `Kronecker`
holds these groups and H; `OpaqueLin` is for cells whose weights enter in any other way: it only
multiplies by H and F.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline import native
from kronline.linearised.grads import Grads, outer

Vector = Float[Array, " N"]


class Sensitivity(ABC):
    """`M = ∂s'/∂z`, of shape (N, r, n): how the new state moves with one group's z."""

    @abstractmethod
    def vm(self, d: Vector) -> Float[Array, "r n"]:
        """`d M`."""

    @abstractmethod
    def norm2(self) -> Float[Array, ""]:
        """`‖M‖²`."""

    @abstractmethod
    def inner(self, A: Float[Array, "N r n"]) -> Float[Array, ""]:
        """`⟨A, M⟩`."""

    @abstractmethod
    def added(self, A: Float[Array, "N r n"], c: Float[Array, ""]) -> Float[Array, "N r n"]:
        """`A + c M`."""

    @abstractmethod
    def dense(self) -> Float[Array, "N r n"]:
        """M, written out."""

    @abstractmethod
    def lmul(self, P: Float[Array, "p N"]) -> Float[Array, "p r n"]:
        """`P M`."""


@partial(jax.tree_util.register_dataclass, data_fields=("M",), meta_fields=())
@dataclass(frozen=True)
class DenseM(Sensitivity):
    """M of a group whose z may touch every unit within the step."""

    M: Float[Array, "N r n"]

    def vm(self, d: Vector) -> Float[Array, "r n"]:
        """`d M`."""
        return jnp.tensordot(d, self.M, axes=1)

    def norm2(self) -> Float[Array, ""]:
        """`‖M‖²`."""
        return jnp.sum(self.M**2)

    def inner(self, A: Float[Array, "N r n"]) -> Float[Array, ""]:
        """`⟨A, M⟩`."""
        return jnp.sum(A * self.M)

    def added(self, A: Float[Array, "N r n"], c: Float[Array, ""]) -> Float[Array, "N r n"]:
        """`A + c M`."""
        return A + c * self.M

    def dense(self) -> Float[Array, "N r n"]:
        """M itself."""
        return self.M

    def lmul(self, P: Float[Array, "p N"]) -> Float[Array, "p r n"]:
        """`P M`."""
        return jnp.tensordot(P, self.M, axes=1)


@partial(jax.tree_util.register_dataclass, data_fields=("D",), meta_fields=())
@dataclass(frozen=True)
class UnitM(Sensitivity):
    """M of a unit-wise cell: `M[(a,i),(k,j)] = δ_ij D[a,k,i]`, the paper's diagonal D."""

    D: Float[Array, "q r n"]

    def _blocks(self, A: Float[Array, "N r n"]) -> Float[Array, "q n r n"]:
        q, r, n = self.D.shape
        return A.reshape(q, n, r, n)

    def vm(self, d: Vector) -> Float[Array, "r n"]:
        """`d M`, in O(n)."""
        q, _, n = self.D.shape
        return jnp.einsum("ai,aki->ki", d.reshape(q, n), self.D)

    def norm2(self) -> Float[Array, ""]:
        """`‖M‖² = ‖D‖²`."""
        return jnp.sum(self.D**2)

    def inner(self, A: Float[Array, "N r n"]) -> Float[Array, ""]:
        """`⟨A, M⟩`, in O(n)."""
        return jnp.sum(jnp.einsum("aiki->aki", self._blocks(A)) * self.D)

    def added(self, A: Float[Array, "N r n"], c: Float[Array, ""]) -> Float[Array, "N r n"]:
        """`A + c M`."""
        eye = jnp.eye(self.D.shape[-1], dtype=bool)[None, :, None, :]
        return (self._blocks(A) + jnp.where(eye, c * self.D[:, None], 0)).reshape(A.shape)

    def dense(self) -> Float[Array, "N r n"]:
        """M, written out."""
        q, r, n = self.D.shape
        zero = jnp.zeros((q * n, r, n), self.D.dtype)
        return self.added(zero, jnp.ones((), self.D.dtype))

    def lmul(self, P: Float[Array, "p N"]) -> Float[Array, "p r n"]:
        """`P M`: P's columns, scaled."""
        q, _, n = self.D.shape
        return jnp.einsum("paj,akj->pkj", P.reshape(-1, q, n), self.D)


class StateJac(ABC):
    """`H = ∂s'/∂s`, as the products that the traces need."""

    shared: ClassVar[tuple[str, ...]] = ()  # fields that are weights, the same at every step

    @abstractmethod
    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`."""

    @abstractmethod
    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`."""

    @abstractmethod
    def scaled(self, c: Float[Array, ""]) -> "StateJac":
        """`c H`, without a pass over what H is multiplied with."""

    def mv(self, v: Vector) -> Vector:
        """`H v`."""
        return self.mm(v[:, None])[:, 0]

    def vm(self, d: Vector) -> Vector:
        """`d H`."""
        return self.few(d[None])[0]

    def few(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H` for so few rows that H is not worth being built."""
        return self.rmm(P)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        raise TypeError(f"{type(self).__name__} cannot be written out")


@partial(jax.tree_util.register_dataclass, data_fields=("H",), meta_fields=())
@dataclass(frozen=True)
class DenseH(StateJac):
    """H of a cell without further structure."""

    H: Float[Array, "N N"]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`."""
        return jnp.tensordot(self.H, A, axes=1)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`."""
        return P @ self.H

    def scaled(self, c: Float[Array, ""]) -> "DenseH":
        """`c H`."""
        return DenseH(c * self.H)

    def dense(self) -> Float[Array, "N N"]:
        """H itself."""
        return self.H


class UnitWise(StateJac):
    """H of a unit-wise cell, whichever of its weights exist."""

    shared = ("W",)

    D: Float[Array, "q r n"]  # ∂s'/∂z, unit by unit
    E: Float[Array, "q q n"]  # ∂s'/∂s, not through the weights

    @abstractmethod
    def own(self) -> Float[Array, "q q n"]:
        """`H_jj`: how a unit's slots move its own, by E and by the unit's weights from itself."""


@partial(jax.tree_util.register_dataclass, data_fields=("W", "D", "E"), meta_fields=("reads",))
@dataclass(frozen=True)
class UnitH(UnitWise):
    """H of a unit-wise cell: `H[(a,i),(b,j)] = Σ_k D[a,k,i] W[(b,j),k,i] + δ_ij E[a,b,i]`.

    The first term exists only for the slots b that the linear maps read, so only these columns are
    dense: an LSTM's H is 2n × n dense plus diagonals, not 2n × 2n.
    """

    W: Float[Array, "b n r n"]  # the rows of the weights that meet the slots that are read
    D: Float[Array, "q r n"]
    E: Float[Array, "q q n"]
    reads: tuple[int, ...]

    def _read(self) -> Float[Array, "b n q n"]:
        """The columns of the slots that are read, transposed; the diagonal E is folded in."""
        n, E = self.D.shape[-1], self.E[:, np.array(self.reads)].swapaxes(0, 1)
        # Hᵀ, since W's last axis is H's first; written out gate by gate, so that XLA makes one loop
        H = sum(self.W[:, :, None, k] * self.D[None, None, :, k] for k in range(self.D.shape[1]))
        eye = jnp.eye(n, dtype=bool)[None, :, None]
        return H + jnp.where(eye, E[:, None], 0)

    def _unread(self) -> list[int]:
        return [b for b in range(self.D.shape[0]) if b not in self.reads]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`: 2 (qn)(bn) flops a column of A for b read slots, not 2 (qn)²."""
        q, _, n = self.D.shape
        slots = A.reshape(q, n, -1)
        read = jnp.concatenate([slots[b] for b in self.reads])
        H = self._read().reshape(len(self.reads) * n, q * n)
        out = jnp.tensordot(H, read, axes=(0, 0)).reshape(q, n, -1)
        for b in self._unread():  # the diagonal columns
            out = out + self.E[:, b, :, None] * slots[b][None]
        return out.reshape(A.shape)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`, with the same savings; by the native kernel where there is one."""
        if not native.usable(self.reads, self, P):
            return self._rmm(P)

        def kernel(H: UnitH, P: Array) -> Array:
            return native.rmm(H.W, H.D, H.E, H.reads, P)

        return native.either(kernel, UnitH._rmm, self, P)

    def _rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H` in pure JAX."""
        q, _, n = self.D.shape
        slots = P.reshape(-1, q, n)
        H = self._read().reshape(len(self.reads) * n, q * n)
        read = jnp.tensordot(P, H, axes=(1, 1)).reshape(-1, len(self.reads), n)
        columns = [
            read[:, self.reads.index(b)]
            if b in self.reads
            else jnp.sum(slots * self.E[None, :, b], axis=1)
            for b in range(q)
        ]
        return jnp.stack(columns, axis=1).reshape(P.shape)

    def mv(self, v: Vector) -> Vector:
        """`H v = D (v W) + E v`, in O(n²) without building H."""
        q, _, n = self.D.shape
        slots = v.reshape(q, n)
        dz = jnp.einsum("bj,bjki->ki", slots[np.array(self.reads)], self.W)
        out = jnp.einsum("aki,ki->ai", self.D, dz) + jnp.einsum("abi,bi->ai", self.E, slots)
        return out.reshape(v.shape)

    def few(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H = (P D) Wᵀ + P E`, in O(n²) a row without building H."""
        q, _, n = self.D.shape
        slots = P.reshape(-1, q, n)
        out = jnp.einsum("pai,abi->pbi", slots, self.E)
        dz = jnp.einsum("pai,aki->pki", slots, self.D)
        back = jnp.einsum("bjki,pki->pbj", self.W, dz)
        return out.at[:, np.array(self.reads)].add(back).reshape(P.shape)

    def own(self) -> Float[Array, "q q n"]:
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


@partial(jax.tree_util.register_dataclass, data_fields=("feats", "M", "mask"), meta_fields=())
@dataclass(frozen=True)
class Group:
    """One weight matrix: `z = feats @ W`, so that `∂s'/∂W = feats ⊗ M`."""

    feats: Float[Array, " m"]  # ĥ
    M: Sensitivity
    mask: Float[Array, "m r #n"] | None = None  # 0 where a weight does not exist

    def times(self, dM: Float[Array, "*N r n"]) -> Float[Array, "*N m r n"]:
        """`ĥ ⊗ dM`, written out, for the weights that exist."""
        feats = self.feats.reshape((1,) * (dM.ndim - 2) + (-1, 1, 1))
        out = feats * jnp.expand_dims(dM, -3)
        if self.mask is None:
            return out
        return out * self.mask.reshape((1,) * (out.ndim - 3) + self.mask.shape)


class Lin(ABC):
    """One step, linearised where it was taken."""

    state: Vector  # s', the new state

    @abstractmethod
    def jvp(self, v: Vector) -> Vector:
        """`H v`."""

    @abstractmethod
    def vjp(self, d: Vector) -> tuple[Vector, Grads]:
        """`(d H, d F)`."""

    @abstractmethod
    def times_F(self, d: Vector) -> Grads:
        """`d F`, written out, in the shape of the parameters."""

    @abstractmethod
    def dense(self) -> tuple[Float[Array, "N N"], Grads]:
        """`(H, F)`, written out: F has a leaf (N, *shape) for each weight."""


@partial(jax.tree_util.register_dataclass, data_fields=("state", "groups", "H"), meta_fields=())
@dataclass(frozen=True)
class Kronecker(Lin):
    """A step whose weights enter as groups of linear maps: F_g = feats_g ⊗ M_g."""

    state: Vector
    groups: dict[str, Group]
    H: StateJac

    def jvp(self, v: Vector) -> Vector:
        """`H v`."""
        return self.H.mv(v)

    def vjp(self, d: Vector) -> tuple[Vector, Grads]:
        """`(d H, d F)`, the latter as factors, `ĥ ⊗ (d M)`; masks are left to `project`."""
        return self.H.vm(d), {k: outer(g.feats, g.M.vm(d)) for k, g in self.groups.items()}

    def times_F(self, d: Vector) -> Grads:
        """`d F`, written out."""
        return {k: g.times(g.M.vm(d)) for k, g in self.groups.items()}

    def dense(self) -> tuple[Float[Array, "N N"], Grads]:
        """`(H, F)`."""
        return self.H.dense(), {k: g.times(g.M.dense()) for k, g in self.groups.items()}


@dataclass(frozen=True)
class OpaqueLin(Lin):
    """Any differentiable step, as products with its Jacobians."""

    state: Vector
    push: Callable[[Vector], Vector]
    back: Callable[[Vector], tuple[Vector, Grads]]

    def jvp(self, v: Vector) -> Vector:
        """`H v`."""
        return self.push(v)

    def vjp(self, d: Vector) -> tuple[Vector, Grads]:
        """`(d H, d F)`."""
        return self.back(d)

    def times_F(self, d: Vector) -> Grads:
        """`d F`."""
        return self.back(d)[1]

    def dense(self) -> tuple[Float[Array, "N N"], Grads]:
        """`(H, F)`, by N reverse passes."""
        return jax.vmap(self.back)(jnp.eye(self.state.size, dtype=self.state.dtype))

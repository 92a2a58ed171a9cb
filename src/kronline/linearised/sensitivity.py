"""`M = ∂s'/∂z`: how the new state moves with the z of one weight matrix."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
        if q == 1:  # whose rounding is that of all runs so far
            return jnp.einsum("ai,aki->ki", d.reshape(q, n), self.D)
        # in one loop, where einsum would multiply many tiny matrices
        parts = [d[None, i * n : (i + 1) * n] * self.D[i] for i in range(q)]
        return sum(parts[1:], parts[0])

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


@partial(jax.tree_util.register_dataclass, data_fields=("D",), meta_fields=())
@dataclass(frozen=True)
class OwnM(UnitM):
    """The same for numbers that each unit has of its own: their D is not the one in H."""

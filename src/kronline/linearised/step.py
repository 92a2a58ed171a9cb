"""One step of a cell to first order: `ds' = H ds + F dθ`, with H and F as sparse as they are.

A weight matrix that enters the step only as `z = feats @ W` gives, exactly, `∂s'/∂W = feats ⊗ M`
with `M = ∂s'/∂z` (the paper's Lemma 1, without its restriction to unit-wise cells). `Kronecker`
holds one such factor per weight matrix, and H; `OpaqueLin` is for cells whose weights enter in any
other way: it only multiplies by H and F.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.linearised.gradients import Grads, outer
from kronline.linearised.layers import Layer, LayerJac, Met
from kronline.linearised.sensitivity import Sensitivity, Vector
from kronline.linearised.statejac import StateJac


@partial(jax.tree_util.register_dataclass, data_fields=("feats", "M", "mask"), meta_fields=())
@dataclass(frozen=True)
class WeightJac:
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
    """One step, linearised at its state, input and parameters."""

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


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("state", "groups", "H", "layers", "back"),
    meta_fields=(),
)
@dataclass(frozen=True)
class Kronecker(Lin):
    """A step whose weights enter as groups of linear maps: F_g = feats_g ⊗ M_g."""

    state: Vector
    groups: dict[str, WeightJac]
    H: StateJac
    layers: tuple[LayerJac, ...] = ()  # of a cell made of layers whose units read no other's state
    # d ↦ (d H, d M of every weight) by a reverse pass; None: from H and M. Where nothing else of H
    # and M is asked for, XLA leaves them out
    back: Callable[[Vector], tuple[Vector, dict[str, Array]]] | None = None

    def jvp(self, v: Vector) -> Vector:
        """`H v`."""
        return self.H.mv(v)

    def vjp(self, d: Vector) -> tuple[Vector, Grads]:
        """`(d H, d F)`, the latter as factors, `ĥ ⊗ (d M)`; masks are left to `project`."""
        if self.back is not None:
            older, dM = self.back(d)
            return older, {k: outer(g.feats, dM[k]) for k, g in self.groups.items()}
        return self.H.vm(d), {k: outer(g.feats, g.M.vm(d)) for k, g in self.groups.items()}

    def rows(self, P: Float[Array, "p N"]) -> tuple[Float[Array, "p N"], dict[str, Array]]:
        """`P H`, and `P M` of every weight (p, r, n)."""
        return self.H.rmm(P), {k: g.M.lmul(P) for k, g in self.groups.items()}

    def rows_of(
        self,
        layers: tuple[Layer, ...],
        u: int,
        S: Float[Array, "c c n"],
        P: tuple[Float[Array, "R c n"], ...],
        names: tuple[str, ...],
    ) -> tuple[Any, dict[str, Array]]:
        """As `LinearCell.rows`, from H and M."""
        c, _, n = S.shape
        full = jnp.zeros((c * n, self.state.size), S.dtype)
        # row (a, j), column (b, j)
        own = jnp.einsum("abj,ji->ajbi", S, jnp.eye(n, dtype=S.dtype))
        for layer, part in zip(layers, (*P, own), strict=False):
            full = full.at[:, layer.places.reshape(-1)].set(part.reshape(c * n, -1))
        PH, PM = self.rows(full)
        new = layers[u].state(PH).reshape(c, n, c, n)
        S = jnp.diagonal(new, axis1=1, axis2=3)
        return (S, tuple(layer.state(PH) for layer in layers[:u])), {n: PM[n] for n in names}

    @property
    def met(self) -> Met:
        """The layers, and ĥ of every weight."""
        return Met(self.layers, {k: g.feats for k, g in self.groups.items()})

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

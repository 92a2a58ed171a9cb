"""Recurrent weights of low rank."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline import linearised as jac
from kronline.cells.base import LinearCell, Params, mask_of, masked
from kronline.cells.init import Init, Orthogonal, Weight
from kronline.cells.pieces import Input, Linear, apply, features
from kronline.cells.unit import UnitCell
from kronline.errors import whole_numbers
from kronline.linearised import LowRankH, Vector


@dataclass(frozen=True)
class LowRank(LinearCell):
    """A unit-wise cell that reads its state through ρ numbers: `y = h V`, `z = [y, x, 1] U`.

    Its recurrent weights are V times a part of U, so of rank ρ, one V for all gates. A weight of V
    touches every unit: outside the paper's Lemma 1, and still exactly unbiased with one Kronecker
    pair for V and one for U.

    V starts with orthogonal columns of such a length that z starts about as large as with a matrix
    of full rank; U starts as the cell inside says.

    Args:
        cell: whose units these are.
        rank: ρ.

    Example:
        >>> import kronline as kl
        >>> kl.LowRank(kl.RHN(256, 50), rank=16).weights()["V"].shape
        (256, 1, 16)
    """

    cell: UnitCell
    rank: int

    def __post_init__(self) -> None:
        if not isinstance(self.cell, UnitCell):
            raise TypeError(
                f"LowRank needs a unit-wise cell (a UnitCell), got {_called(self.cell)}; "
                "LowRank(RHN(64, 4), rank=16), for instance"
            )
        whole_numbers(self, "rank")
        if self.cell.own or not self.cell.reads:
            raise ValueError(
                f"LowRank needs a cell that reads its state, and whose units have no numbers of "
                f"their own, got {self.cell}; without LowRank its recurrence is diagonal already"
            )
        if self.rank > self.cell.recurrent:
            raise ValueError(
                f"LowRank needs rank <= {self.cell.recurrent}, the numbers that the cell reads of "
                f"its state, got {self.rank}; without LowRank the rank is full"
            )
        mask = self.cell.weights()["W"].mask
        if mask is not None and (mask[: self.cell.recurrent] != mask[:1]).any():
            raise ValueError(
                f"LowRank needs a cell whose recurrent weights all exist, or none of a gate's, got "
                f"{self.cell}; leave sparse=... out"
            )

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """As the cell inside."""
        return self.cell.inputs

    @property
    def size(self) -> int:
        """As the cell inside."""
        return self.cell.size

    @property
    def outputs(self) -> int:
        """As the cell inside."""
        return self.cell.outputs

    def output(self, s: Vector) -> Float[Array, " h"]:
        """As the cell inside."""
        return self.cell.output(s)

    def weights(self) -> dict[str, Weight]:
        """V (bn, 1, ρ) and U (ρ + d + 1, r, n)."""
        W = self.cell.weights()["W"]
        mask = W.mask
        if mask is not None:
            mask = np.concatenate([mask[: self.rank], mask[W.recurrent :]])
        return {
            "V": Weight(W.recurrent, 0, False, ("y",), self.rank),
            "U": Weight(self.rank, W.inputs, W.bias, W.gates, W.units, mask),
        }

    def initialiser(self, name: str) -> Init:
        """V's own, or as the cell says."""
        if name == "V":
            return Orthogonal((self.cell.recurrent / self.rank) ** 0.5)
        return self.cell.initialiser("W")

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """`y = h V`, `z = [y, x, 1] U`, then unit by unit."""
        h, *rest = self.cell.pieces(s, x)
        z = linear("U", linear("V", h)[0], *rest)
        return self.cell.units(z, s.reshape(-1, self.cell.hidden)).reshape(-1)

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """`∂s'/∂y = D U`, N × ρ; H as that times Vᵀ, never written out here."""
        weights, slots = self.weights(), s.reshape(-1, self.cell.hidden)
        U, V = masked(params["U"], weights["U"]), params["V"][:, 0]
        h, *rest = self.cell.pieces(s, x)
        met = (jnp.asarray(h) @ V, *rest)
        z = apply(U, met)
        D, E = self.cell.derivatives(z, slots)
        # ∂s'_a/∂y = Σ_k D[a,k] U_k
        left = jnp.einsum("aki,pki->aip", D, U[: self.rank]).reshape(-1, self.rank)
        mask = mask_of(weights["U"], U.dtype)
        groups = {
            "V": jac.WeightJac(jnp.asarray(h), jac.DenseM(left[:, None])),
            "U": jac.WeightJac(features(met, U.dtype), jac.UnitM(D), mask),
        }
        H = LowRankH(left, V, E, self.cell.read_slots)
        return jac.Kronecker(self.cell.units(z, slots).reshape(-1), groups, H)


def _called(thing: Any) -> str:
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__

"""Recurrent Highway Networks (Zilly et al., 2016): the paper's one-layer cell, and depth L."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax.nn import sigmoid
from jaxtyping import Array, Float

from kronline.cells.base import LinearCell
from kronline.cells.init import Init, Normal, Weight, needs_initialiser
from kronline.cells.pieces import Input, Linear, encode
from kronline.cells.unit import UnitCell
from kronline.errors import whole_numbers
from kronline.linearised import Vector

Activation = Literal["sigmoid", "tanh"]


def _highway(z: Array, h: Array, activation: Activation) -> Array:
    """`h' = g·t + h·(1−t)`, elementwise; z holds the candidate's and the transform gate's z."""
    # the paper's stand-in for tanh(z) is 2σ(z) − 1 (footnote 1)
    g = jnp.tanh(z[0]) if activation == "tanh" else 2 * sigmoid(z[0]) - 1
    t = sigmoid(z[1])
    return g * t + h * (1 - t)


def _check_activation(activation: str) -> None:
    if activation not in ("sigmoid", "tanh"):
        raise ValueError(f"activation must be 'sigmoid' (2σ(z)−1) or 'tanh', got {activation!r}")


@dataclass(frozen=True)
class RHN(UnitCell):
    """The paper's RHN of depth one: `g = 2σ(z1) − 1`, `t = σ(z2)`, `h' = g·t + h·(1−t)`.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.
        activation: "sigmoid" for the paper's 2σ(z)−1, "tanh" for the usual one.

    Example:
        >>> import kronline as kl
        >>> kl.RHN(3, 2).weights()["W"].shape  # (3 + 2 + 1, gates, units)
        (6, 2, 3)

    Reference: Zilly, Srivastava, Koutník & Schmidhuber, Recurrent Highway Networks, 2016.
    """

    activation: Activation = field(default="sigmoid", kw_only=True)
    gates: ClassVar[tuple[str, ...]] = ("g", "t")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_activation(self.activation)

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        return _highway(z, s[0], self.activation)


@dataclass(frozen=True)
class DeepRHN(LinearCell):
    """An RHN of recurrence depth L: a parameter touches many units within one step.

    Outside the paper's Lemma 1, and still exactly unbiased with one Kronecker pair per layer. The
    input enters at the first layer only.

    Args:
        hidden: units, n.
        inputs: length of an input vector, or number of symbols.
        depth: L.
        bias: whether each layer's features end in a constant 1.
        activation: as for `RHN`.
        init_weights: how the weights start.

    Example:
        >>> import kronline as kl
        >>> list(kl.DeepRHN(3, 2, depth=2).weights())
        ['layer0', 'layer1']

    Reference: Zilly, Srivastava, Koutník & Schmidhuber, Recurrent Highway Networks, 2016.
    """

    hidden: int
    inputs: int
    depth: int = 2
    bias: bool = field(default=True, kw_only=True)
    activation: Activation = field(default="sigmoid", kw_only=True)
    init_weights: Init = field(default=Normal(), kw_only=True)

    def __post_init__(self) -> None:
        _check_activation(self.activation)
        whole_numbers(self, "hidden", "inputs", "depth")
        needs_initialiser("DeepRHN", self.init_weights)

    @property
    def size(self) -> int:
        """`N = n`."""
        return self.hidden

    def weights(self) -> dict[str, Weight]:
        """One matrix per layer."""
        return {
            f"layer{d}": Weight(
                self.hidden, 0 if d else self.inputs, self.bias, ("g", "t"), self.hidden
            )
            for d in range(self.depth)
        }

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """L highway layers; each reads the one before it."""
        one = (jnp.ones(1, s.dtype),) if self.bias else ()
        for d in range(self.depth):
            x_piece = () if d else (encode(x, self.inputs),)
            s = _highway(linear(f"layer{d}", s, *x_piece, *one), s, self.activation)
        return s

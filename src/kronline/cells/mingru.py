"""minGRU: a GRU whose gate sees the input only."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.nn import sigmoid
from jaxtyping import Array, Float

from kronline.cells.init import FanIn, Init
from kronline.cells.unit import UnitCell


def positive(x: Float[Array, ""]) -> Float[Array, ""]:
    """`x + ½` for x >= 0, `σ(x)` below: continuous, and above 0."""
    return jnp.where(x >= 0, x + 0.5, sigmoid(x))


@dataclass(frozen=True)
class MinGRU(UnitCell):
    """`h' = (1−σ(z)) h + σ(z) g(h̃)`: an average of what was seen, with weights from the input.

    g(x) is x + ½ for x >= 0 and σ(x) below, as published, so that h stays above 0.

    Args:
        hidden, inputs, bias, init_weights: as for every `UnitCell`.

    Example:
        >>> import kronline as kl
        >>> kl.MinGRU(3, 2).weights()["W"].shape  # (inputs + 1, gates, units)
        (3, 2, 3)

    Reference: Feng et al., Were RNNs All We Needed?, 2024.
    """

    init_weights: Init = field(default=FanIn(), kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("z", "h")
    reads: ClassVar[tuple[str, ...]] = ()
    shows: ClassVar[tuple[str, ...] | None] = ("h",)

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        gate = sigmoid(z[0])
        return (1 - gate) * s[0] + gate * positive(z[1])

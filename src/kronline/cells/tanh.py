"""Tanh RNN, and its leaky form."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.unit import UnitCell


@dataclass(frozen=True)
class Tanh(UnitCell):
    """`h' = tanh(ĥ W)`: a plain recurrent network.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.

    Example:
        >>> import kronline as kl
        >>> kl.Tanh(3, 2).weights()["W"].shape  # (3 + 2 + 1, gates, units)
        (6, 1, 3)

    Reference: Elman, Finding Structure in Time, 1990.
    """

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        return jnp.tanh(z[0])


@dataclass(frozen=True)
class LeakyTanh(UnitCell):
    """`h' = (1−α) h + α tanh(ĥ W)`.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.
        leak: α.

    Example:
        >>> import kronline as kl
        >>> kl.LeakyTanh(3, 2, leak=0.1).size
        3

    Reference: Jaeger et al., Optimization and Applications of Echo State Networks with
    Leaky-Integrator Neurons, 2007.
    """

    leak: float = 0.3  # α

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.leak <= 1:
            raise ValueError(f"LeakyTanh needs 0 < leak <= 1, got {self.leak}")

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        return (1 - self.leak) * s[0] + self.leak * jnp.tanh(z[0])

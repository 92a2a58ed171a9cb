"""LSTM, as in the paper's appendix ("Extending KF-RTRL to LSTMs")."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.nn import sigmoid
from jaxtyping import Array, Float

from kronline.cells.unit import UnitCell


@dataclass(frozen=True)
class LSTM(UnitCell):
    """`c' = σ(f)·c + σ(i)·tanh(g)`, `h' = σ(o)·tanh(c')`; only h is read by the linear maps.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.

    Example:
        >>> import kronline as kl
        >>> cell = kl.LSTM(3, 2)
        >>> cell.size, cell.outputs  # c and h of each unit; the readout sees h
        (6, 3)

    Reference: Hochreiter & Schmidhuber, Long Short-Term Memory, 1997, with forget gates (Gers et
    al., 2000).
    """

    gates: ClassVar[tuple[str, ...]] = ("f", "i", "o", "g")
    slots: ClassVar[tuple[str, ...]] = ("c", "h")

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        f, i, o, g = z
        c = sigmoid(f) * s[0] + sigmoid(i) * jnp.tanh(g)
        return c, sigmoid(o) * jnp.tanh(c)

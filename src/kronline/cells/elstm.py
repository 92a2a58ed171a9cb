"""eLSTM: an LSTM in which a unit's gates see the unit's own memory only."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.nn import sigmoid
from jaxtyping import Array, Float

from kronline.cells.init import FanIn, Init, Normal
from kronline.cells.unit import UnitCell


@dataclass(frozen=True)
class ELSTM(UnitCell):
    """`c' = f c + (1−f) z`, `h' = o c'`, with f, o = σ(·) and z = tanh(·): a diagonal recurrence.

    Where an LSTM's gates read all units, these read the input and w c, with a weight w of the
    unit's own: f and z read c, o reads c'. Only c is remembered; h is what the readout sees.

    Args:
        hidden, inputs, bias, init_weights: as for every `UnitCell`.
        init_own: how w_z, w_f and w_o start.

    Example:
        >>> import kronline as kl
        >>> cell = kl.ELSTM(3, 2)
        >>> cell.size, cell.outputs
        (6, 3)

    Reference: Irie, Gopalakrishnan & Schmidhuber, Exploring the Promise and Limits of Real-Time
    Recurrent Learning, ICLR 2024.
    """

    init_weights: Init = field(default=FanIn(), kw_only=True)
    init_own: Init = field(default=Normal(0.1), kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("z", "f", "o")
    slots: ClassVar[tuple[str, ...]] = ("c", "h")
    reads: ClassVar[tuple[str, ...]] = ()
    shows: ClassVar[tuple[str, ...] | None] = ("h",)
    own: ClassVar[tuple[str, ...]] = ("w_z", "w_f", "w_o")

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"], own: Float[Array, " p"]) -> Any:
        """One unit."""
        w_z, w_f, w_o = own
        f = sigmoid(z[1] + w_f * s[0])
        c = f * s[0] + (1 - f) * jnp.tanh(z[0] + w_z * s[0])
        return c, sigmoid(z[2] + w_o * c) * c

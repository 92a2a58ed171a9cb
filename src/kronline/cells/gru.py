"""GRU, in both of its forms."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid
from jaxtyping import Array, Float

from kronline.cells.base import LinearCell
from kronline.cells.init import Init, Normal, Weight, needs_initialiser
from kronline.cells.pieces import Input, Linear, encode
from kronline.cells.unit import UnitCell
from kronline.errors import whole_numbers
from kronline.linearised import Vector


@dataclass(frozen=True)
class GRU(UnitCell):
    """Reset-after GRU: `c = tanh(z_x + σ(r)·z_h)`, `h' = (1−σ(u))·c + σ(u)·h`. Unit-wise.

    z_x sees the input and a bias, z_h the state and a bias of its own: two masked maps.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.

    Example:
        >>> import kronline as kl
        >>> kl.GRU(3, 2).weights()["W"].gates
        ('r', 'u', 'x', 'h')

    Reference: Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014, with the
    reset gate behind the matrix, as in common fast implementations.
    """

    gates: ClassVar[tuple[str, ...]] = ("r", "u", "x", "h")

    def mask(self) -> np.ndarray:
        """(m, r, 1): the candidate's two maps split h and x between them; both have a bias.

        Files of before z_h had one hold 0 in its place, as for every weight that does not exist.
        """
        seen = self.hidden + self.inputs
        mask = np.ones((seen + int(self.bias), 4, 1))
        mask[: self.hidden, 2] = 0
        mask[self.hidden : seen, 3] = 0
        return mask

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        r, u, x, h = z
        candidate = jnp.tanh(x + sigmoid(r) * h)
        return (1 - sigmoid(u)) * candidate + sigmoid(u) * s[0]


@dataclass(frozen=True)
class ResetBeforeGRU(LinearCell):
    """The first published GRU: `c = tanh([σ(r)·h, x, 1] W_c)`, `h' = (1−σ(u))·c + σ(u)·h`.

    The reset gate acts before the candidate's matrix, so that r's weights touch every unit: outside
    the paper's Lemma 1, and still exactly unbiased with two Kronecker pairs.

    Args:
        hidden: units, n.
        inputs: length of an input vector, or number of symbols.
        bias: whether features end in a constant 1.
        init_weights: how the weights start.

    Example:
        >>> import kronline as kl
        >>> list(kl.ResetBeforeGRU(3, 2).weights())
        ['gates', 'candidate']

    Reference: Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014.
    """

    hidden: int
    inputs: int
    bias: bool = field(default=True, kw_only=True)
    init_weights: Init = field(default=Normal(), kw_only=True)

    def __post_init__(self) -> None:
        whole_numbers(self, "hidden", "inputs")
        needs_initialiser("ResetBeforeGRU", self.init_weights)

    @property
    def size(self) -> int:
        """`N = n`."""
        return self.hidden

    def weights(self) -> dict[str, Weight]:
        """The gates' matrix and the candidate's."""
        rows = (self.hidden, self.inputs, self.bias)
        return {
            "gates": Weight(*rows, ("r", "u"), self.hidden),
            "candidate": Weight(*rows, ("c",), self.hidden),
        }

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """Two linear maps, the second of features that depend on the first."""
        rest = (encode(x, self.inputs), *((jnp.ones(1, s.dtype),) if self.bias else ()))
        r, u = sigmoid(linear("gates", s, *rest))
        candidate = jnp.tanh(linear("candidate", r * s, *rest)[0])
        return (1 - u) * candidate + u * s

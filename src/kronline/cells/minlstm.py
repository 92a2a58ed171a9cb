"""minLSTM: an LSTM whose gates see the input only."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from jax.nn import log_sigmoid, sigmoid
from jaxtyping import Array, Float

from kronline.cells.init import FanIn, Init
from kronline.cells.mingru import positive
from kronline.cells.unit import UnitCell


@dataclass(frozen=True)
class MinLSTM(UnitCell):
    """`h' = f/(f+i) h + i/(f+i) g(h̃)` with gates f, i from the input only; g as for `MinGRU`.

    Args:
        hidden, inputs, bias, init_weights: as for every `UnitCell`.

    Example:
        >>> import kronline as kl
        >>> kl.MinLSTM(3, 2).weights()["W"].gates
        ('f', 'i', 'h')

    Reference: Feng et al., Were RNNs All We Needed?, 2024.
    """

    init_weights: Init = field(default=FanIn(), kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("f", "i", "h")
    reads: ClassVar[tuple[str, ...]] = ()
    shows: ClassVar[tuple[str, ...] | None] = ("h",)

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        # σ(f)/(σ(f) + σ(i)) = σ(log σ(f) − log σ(i)), which is finite everywhere
        f = sigmoid(log_sigmoid(z[0]) - log_sigmoid(z[1]))
        return f * s[0] + (1 - f) * positive(z[2])

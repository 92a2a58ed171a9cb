"""Leaky integrate-and-fire units, with a surrogate derivative: spiking networks."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.init import Init, Spectral
from kronline.cells.unit import UnitCell


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def spike(u: Float[Array, ""], sharpness: float) -> Float[Array, ""]:
    """1 where u > 0, else 0; as if its derivative were `1/(1 + sharpness·|u|)²`."""
    return (u > 0).astype(u.dtype)


@spike.defjvp
def _surrogate(sharpness: float, at: Any, along: Any) -> tuple[Array, Array]:
    (u,), (du,) = at, along
    return spike(u, sharpness), du / (1 + sharpness * jnp.abs(u)) ** 2


@dataclass(frozen=True)
class LIF(UnitCell):
    """`v' = (1−α) v + ĥ W − ϑ s`, `s' = 1 if v' > ϑ else 0`: a membrane v and its spikes s.

    A spike lowers the membrane by the threshold ϑ in the next step. Only spikes are read, by the
    other units and by the readout. A spike has no useful derivative: forward and reverse mode both
    take `1/(1 + sharpness·|v'/ϑ − 1|)² / ϑ` for ds'/dv', which is never zero. So RTRL still equals
    BPTT, and "unbiased" refers to that surrogate gradient. The derivative of the reset is kept.
    With `reservoir()` this is a liquid state machine (Maass et al., 2002).

    Weights start larger than other cells', by `Spectral()`; with small ones no unit ever fires.

    Args:
        hidden, inputs, bias, init_weights, sparse: as for every `UnitCell`.
        leak: α, the part of the membrane's potential that is lost in a step.
        threshold: ϑ.
        sharpness: of the surrogate derivative.

    Example:
        >>> import kronline as kl
        >>> kl.LIF(3, 2).size  # v and s of each unit
        6

    References: Neftci, Mostafa & Zenke, Surrogate gradient learning in spiking neural networks,
    2019; the derivative is that of Zenke & Ganguli, SuperSpike, 2018.
    """

    leak: float = 0.1
    threshold: float = 1.0
    sharpness: float = 5.0
    init_weights: Init = field(default=Spectral(), kw_only=True)

    slots: ClassVar[tuple[str, ...]] = ("v", "s")
    reads: ClassVar[tuple[str, ...]] = ("s",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.leak <= 1 and self.threshold > 0 and self.sharpness > 0):
            raise ValueError(
                "LIF needs 0 <= leak <= 1, threshold > 0 and sharpness > 0, got "
                f"{self.leak}, {self.threshold} and {self.sharpness}"
            )

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit."""
        v = (1 - self.leak) * s[0] + z[0] - self.threshold * s[1]
        return v, spike(v / self.threshold - 1, self.sharpness)

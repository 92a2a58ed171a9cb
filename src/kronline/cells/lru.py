"""LRU: a linear recurrent unit with a complex eigenvalue of its own."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.init import FanIn, Init, Ring
from kronline.cells.unit import UnitCell


def rotated(
    nu: Float[Array, ""], theta: Float[Array, ""], s: Float[Array, " 2"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`ρ e^{iφ} (a + ib)`, as its two parts; ρ = exp(−e^ν), φ = e^θ."""
    rho, phi = jnp.exp(-jnp.exp(nu)), jnp.exp(theta)
    (a, b), cos, sin = s, jnp.cos(phi), jnp.sin(phi)
    return rho * (a * cos - b * sin), rho * (a * sin + b * cos)


@dataclass(frozen=True)
class LRU(UnitCell):
    """`s' = ρ e^{iφ} s + e^γ (u_r + i u_i)`, s = a + ib: linear, with a diagonal recurrence.

    Each unit has ρ = exp(−e^ν), φ = e^θ and γ of its own, all learnt; u = [x, 1] W. Everything is
    real: two slots a and b, which the readout sees. The recurrence is stable for any ν. Being
    linear, it needs a nonlinear map behind it: `Block(LRU(64, 64), 64)`.

    Args:
        hidden: complex units, n.
        inputs, bias, init_weights: as for every `UnitCell`.
        init_own: how ν, θ and γ start.

    Example:
        >>> import kronline as kl
        >>> cell = kl.LRU(3, 2)
        >>> cell.size, cell.outputs, cell.weights()["own"].gates
        (6, 6, ('nu', 'theta', 'gamma'))

    References: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences, ICML
    2023; learnt online by Zucchet et al., Online learning of long-range dependencies, NeurIPS 2023.
    """

    init_weights: Init = field(default=FanIn(0.5**0.5), kw_only=True)
    init_own: Init = field(default=Ring(), kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("u_r", "u_i")
    slots: ClassVar[tuple[str, ...]] = ("a", "b")
    reads: ClassVar[tuple[str, ...]] = ()
    shows: ClassVar[tuple[str, ...] | None] = ("a", "b")
    own: ClassVar[tuple[str, ...]] = ("nu", "theta", "gamma")

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"], own: Float[Array, " p"]) -> Any:
        """One unit."""
        nu, theta, gamma = own
        a, b = rotated(nu, theta, s)
        return a + jnp.exp(gamma) * z[0], b + jnp.exp(gamma) * z[1]

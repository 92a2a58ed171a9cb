"""RTU: a recurrent trace unit, the real form of a complex unit, linear or with tanh inside."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.init import FanIn, Init, Ring
from kronline.cells.lru import rotated
from kronline.cells.unit import UnitCell


@dataclass(frozen=True)
class RTU(UnitCell):
    """`s' = f(ρ e^{iφ} s + √(1−ρ²) (u_1 + i u_2))`, f on both parts; ρ = exp(−e^ν), φ = e^θ.

    As an LRU, with the size of the input derived from ρ instead of learnt, and a tanh inside the
    recurrence if wanted.

    Args:
        hidden: complex units, n.
        inputs, bias, init_weights: as for every `UnitCell`.
        activation: f: "linear" or "tanh".
        init_own: how ν and θ start.

    Example:
        >>> import kronline as kl
        >>> kl.RTU(3, 2, activation="tanh").size
        6

    Reference: Elelimy, White, Bowling & White, Real-Time Recurrent Learning using Trace Units in
    Reinforcement Learning, NeurIPS 2024.
    """

    activation: Literal["linear", "tanh"] = field(default="linear", kw_only=True)
    init_weights: Init = field(default=FanIn(0.5**0.5), kw_only=True)
    init_own: Init = field(default=Ring(), kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("u_1", "u_2")
    slots: ClassVar[tuple[str, ...]] = ("a", "b")
    reads: ClassVar[tuple[str, ...]] = ()
    shows: ClassVar[tuple[str, ...] | None] = ("a", "b")
    own: ClassVar[tuple[str, ...]] = ("nu", "theta")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation not in ("linear", "tanh"):
            raise ValueError(f"RTU needs activation 'linear' or 'tanh', got {self.activation!r}")

    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"], own: Float[Array, " p"]) -> Any:
        """One unit."""
        nu, theta = own
        a, b = rotated(nu, theta, s)
        # √(1 − ρ²) = √(1 − exp(−2 e^ν)), without cancellation where ρ is near 1
        scale = jnp.sqrt(-jnp.expm1(-2 * jnp.exp(nu)))
        new = a + scale * z[0], b + scale * z[1]
        return new if self.activation == "linear" else (jnp.tanh(new[0]), jnp.tanh(new[1]))

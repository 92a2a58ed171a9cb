"""RFLO (Murray, 2019): only what a unit remembers by itself."""

from dataclasses import dataclass
from typing import Literal, final

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.linearised import Grads, Lin, Structure
from kronline.noise import Noise
from kronline.show import called
from kronline.traces import own_unit
from kronline.traces.base import Stepwise

E = dict[str, own_unit.Own]


@final
@dataclass(frozen=True)
class RFLO(Stepwise[E]):
    """`e ← E e + D ĥ`: biased, without what flows through recurrent weights. Unit-wise cells.

    E is how a unit's old slots move its new ones directly, not through W: 1−α for a leaky unit, the
    forget gate for an LSTM's c. It is 0 for a plain tanh unit: there this is `G = F`, the newest
    step alone. One number per weight and slot (G's entries of the weight's own unit; the others are
    zero): O(q |θ|) memory and time.

    Example:
        >>> import kronline as kl
        >>> kl.RFLO().init(kl.LSTM(3, 2).structure())["W"].shape  # (slots, *shape)
        (2, 6, 4, 3)

    Reference: Murray, Local online learning in recurrent networks with random feedback, eLife 2019;
    the eligibility traces of e-prop (Bellec et al., 2020) are the same. Both also send errors back
    through random weights; here δ is the loss's own.
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """RFLO."""
        return called("rflo", window=window)

    def check(self, structure: Structure) -> None:
        """Units must be visible."""
        if structure.slots is None:
            raise TypeError(
                "rflo follows each unit's own memory and needs a unit-wise cell (a UnitCell), got "
                f"{structure.cell}; use snap, kf_rtrl, uoro or tbptt"
            )

    def ignores(self, structure: Structure) -> str:
        """Every path but the direct one, if there is another."""
        return "" if structure.diagonal else "all that flows through recurrent weights"

    def init(self, structure: Structure) -> E:
        """e = 0."""
        q, params = structure.slots or 1, structure.params
        return {name: jnp.zeros((q, *W.shape), W.dtype) for name, W in params.items()}

    def step(self, memory: E, lin: Lin, noise: Noise) -> E:
        """`e ← E e + D ĥ`."""
        direct = own_unit.block(lin, direct=True)
        return {n: own_unit.step(e, own_unit.move(lin, n, direct)) for n, e in memory.items()}

    def step_pull(
        self,
        memory: E,
        lin: Lin,
        reset: Bool[Array, ""],
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, E]:
        """One step; `δ·e` is computed in the same pass as e."""
        delta, direct = lin.vjp(delta)[0] if past else delta, own_unit.block(lin, direct=True)
        done = {
            n: own_unit.step_pull(e, own_unit.move(lin, n, direct), reset, delta, before=past)
            for n, e in memory.items()
        }
        return {n: read for n, (_, read) in done.items()}, {n: e for n, (e, _) in done.items()}

    def pull(self, memory: E, delta: Float[Array, " N"]) -> Grads:
        """`δ·e`."""
        return {name: own_unit.pull(e, delta) for name, e in memory.items()}

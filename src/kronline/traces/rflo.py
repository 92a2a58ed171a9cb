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
        """Every path but the direct one."""
        return "all that flows through recurrent weights"

    def init(self, structure: Structure) -> E:
        """e = 0."""
        W = structure.params["W"]
        return {"W": jnp.zeros((structure.slots or 1, *W.shape), W.dtype)}

    def step(self, memory: E, lin: Lin, noise: Noise) -> E:
        """`e ← E e + D ĥ`."""
        return {"W": own_unit.step(memory["W"], _direct(lin))}

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
        delta = lin.vjp(delta)[0] if past else delta
        e, read = own_unit.step_pull(memory["W"], _direct(lin), reset, delta, before=past)
        return {"W": read}, {"W": e}

    def pull(self, memory: E, delta: Float[Array, " N"]) -> Grads:
        """`δ·e`."""
        return {"W": own_unit.pull(memory["W"], delta)}


def _direct(lin: Lin) -> own_unit.Move:
    """`E`: how a unit moves itself, without W."""
    feats, H = own_unit.unit_wise(lin)
    return own_unit.Move(feats, H.D, H.E)

"""RFLO (Murray, 2019): only what a unit remembers by itself."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import Cell, UnitCell
from kronline.linearised.grads import Grads
from kronline.linearised.jacobians import Lin
from kronline.noise import Noise
from kronline.traces import own
from kronline.traces.base import Steps, Trace


@dataclass(frozen=True)
class RFLO(Trace):
    """`e ← E e + D ĥ`: biased, without what flows through recurrent weights. Unit-wise cells.

    E is how a unit's old slots move its new ones directly, not through W: 1−α for a leaky unit, the
    forget gate for an LSTM's c. A plain tanh unit has none, and there this is `G = F`, the newest
    step alone. One number a weight and slot (G's entries of the weight's own unit; the others are
    zero, since nothing else is reached): O(q |θ|) memory and time.

    Reference: Murray, Local online learning in recurrent networks with random feedback, eLife 2019;
    the eligibility traces of e-prop (Bellec et al., 2020) are the same. Both also send errors back
    through random weights; here δ is the loss's own.
    """

    def check(self, cell: Cell) -> None:
        """Units must be visible."""
        if not isinstance(cell, UnitCell):
            raise TypeError(
                "rflo follows each unit's own memory and needs a unit-wise cell (a UnitCell), got "
                f"{type(cell).__name__}; use snap, kf_rtrl, uoro or tbptt"
            )

    def ignores(self, cell: Cell) -> str:
        """Every path but the direct one."""
        return "all that flows through recurrent weights"

    def init(self, size: int, params: Any) -> dict[str, own.Own]:
        """e = 0."""
        W = params["W"]
        return {"W": jnp.zeros((size // W.shape[-1], *W.shape), W.dtype)}

    def step(self, memory: dict[str, own.Own], lin: Lin, noise: Noise) -> dict[str, own.Own]:
        """`e ← E e + D ĥ`."""
        return {"W": own.step(memory["W"], _direct(lin))}

    def push_pull(
        self,
        memory: dict[str, own.Own],
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[dict[str, own.Own], Grads]:
        """One step; δ is multiplied with e where e is made."""
        if (type(self).step, type(self).pull) != (RFLO.step, RFLO.pull):
            return super().push_pull(memory, steps, noise, delta, before=before)
        lin = steps.at(0)
        delta = lin.vjp(delta)[0] if before else delta
        move = _direct(lin)
        e, read = own.step_pull(memory["W"], move, steps.resets[0], delta, before=before)
        return {"W": e}, {"W": read}

    def pull(self, memory: dict[str, own.Own], delta: Float[Array, " N"]) -> Grads:
        """`δ·e`."""
        return {"W": own.pull(memory["W"], delta)}


def _direct(lin: Lin) -> own.Move:
    """A unit's own memory, without W."""
    feats, H = own.unit_wise(lin)
    return own.Move(feats, H.D, H.E)

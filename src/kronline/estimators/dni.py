"""Synthetic gradients (DNI): a learnt guess of the gradient of future losses."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment
from kronline.estimators.window import exact_segment
from kronline.linearised import Vector
from kronline.linearised import gradients as gr
from kronline.noise import Draws, Noise
from kronline.show import called
from kronline.traces.base import Memory


@dataclass(frozen=True)
class DNI(Estimator):
    """TBPTT-k, continued beyond the end of its segment by an affine map of the state there.

    The map `ŷ(s) = [s, 1] B` predicts ∂L/∂s of all future losses. A segment from s_0 to s_k gives

        dθ = ∂/∂θ ( Σ_t weight_t L_t + ŷ(s_k)·s_k )        ŷ(s_k) held fixed
        y0 = ∂/∂s_0 of the same                             the target: bootstrapped by ŷ(s_k)
        dB = [s_0, 1] ⊗ (ŷ(s_0) − y0)                       the gradient of ½‖ŷ(s_0) − y0‖²

    dθ for the cell, dB for the map; the optimiser takes both. B is shared by all lanes, and starts
    at zero, where this is TBPTT-k. A reset right after s_0 makes y0 zero: the map learns the mean
    over all futures, resets included. Where s_0 has overflowed before a reset, zero is used in its
    place.

    Reference: Jaderberg et al., Decoupled Neural Interfaces using Synthetic Gradients, 2017.
    """

    k: int = 5

    def __post_init__(self) -> None:
        whole_numbers(self, "k")

    @property
    def name(self) -> str:
        """`dni(k)`."""
        return called("dni", self.k)

    @property
    def span(self) -> int:
        """The window."""
        return self.k

    def ignores(self, cell: Cell) -> str:
        """What the map cannot express."""
        return "what an affine map of the state cannot tell of the future"

    def init_params(self, key: Array, model: Model, dtype: Any) -> dict[str, Array]:
        """B = 0: the predicted gradient is zero."""
        return {"B": jnp.zeros((model.cell.size + 1, model.cell.size), dtype)}

    def init(self, model: Model, params: Params) -> Memory:
        """Nothing is remembered."""
        return ()

    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """No noise."""
        return ()

    def segment(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """Over one segment."""
        B = params.estimator["B"]
        # y0 = ∂/∂s0 (Σ weight L + ŷ(s_k)·s_k)
        end, grads, y0, seen, _ = exact_segment(model, params, s, seg, lambda s: _one(s) @ B)
        # dB = [s0, 1] ⊗ (ŷ(s0) − y0)
        s = jnp.where(jnp.any(seg.reset) & _overflows(s, B), jnp.zeros_like(s), s)
        dB = gr.outer(_one(s), _one(s) @ B - y0)
        return end, memory, grads._replace(estimator={"B": dB}), seen


def _overflows(s: Vector, B: Float[Array, "N1 N"]) -> Bool[Array, ""]:
    """Whether `[s, 1] ⊗ ŷ(s)` is not finite."""
    left = _one(s)
    return ~jnp.isfinite(jnp.max(jnp.abs(left)) * jnp.max(jnp.abs(left @ B)))


def _one(s: Vector) -> Float[Array, " N1"]:
    """`[s, 1]`."""
    return jnp.append(s, jnp.ones((), s.dtype))

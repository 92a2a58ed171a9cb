"""Nothing is remembered: with a window of k steps this is TBPTT-k."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from kronline.cells.base import Cell
from kronline.linearised.grads import Grads
from kronline.linearised.jacobians import Lin
from kronline.noise import Noise
from kronline.traces.base import Memory, Steps, Trace


@dataclass(frozen=True)
class Nothing(Trace):
    """`G ≈ 0`: biased, by all that lies before the window."""

    def ignores(self, cell: Cell) -> str:
        """The past."""
        return "all that lies before the window"

    def init(self, size: int, params: Any) -> Memory:
        """No memory."""
        return ()

    def step(self, memory: Memory, lin: Lin, noise: Noise) -> Memory:
        """Forget."""
        return memory

    def pull(self, memory: Memory, delta: Float[Array, " N"]) -> Grads:
        """`δ·0`: no gradient at all."""
        return None

    def push(self, memory: Memory, steps: Steps, noise: Noise) -> Memory:
        """Forget."""
        return memory

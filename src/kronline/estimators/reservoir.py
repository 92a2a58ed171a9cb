"""A reservoir: recurrent weights that are drawn once and never learnt."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kronline.cells.base import Cell, LinearCell
from kronline.cells.init import Spectral
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment
from kronline.linearised import Vector
from kronline.noise import Draws, Noise
from kronline.show import called
from kronline.traces.base import Memory


@dataclass(frozen=True)
class Reservoir(Estimator):
    """The cell's gradient is zero and its weights stay as they were drawn; the readout learns.

    Args:
        spectral_radius: the cell starts from `Spectral(spectral_radius, input_scale)`, in place of
            its own initialisation; None: from its own.
        input_scale: of the weights of inputs.
    """

    spectral_radius: float | None = 0.9
    input_scale: float = 1.0

    def __post_init__(self) -> None:
        self._drawn()

    def _drawn(self) -> Spectral | None:
        if self.spectral_radius is None:
            return None
        return Spectral(self.spectral_radius, self.input_scale)

    @property
    def name(self) -> str:
        """`reservoir(radius)`."""
        radius = None if self.spectral_radius is None else float(self.spectral_radius)
        scale = None if self.input_scale == 1 else float(self.input_scale)
        return called("reservoir", radius, input_scale=scale)

    @property
    def span(self) -> int:
        """An update every step."""
        return 1

    def check(self, cell: Cell) -> None:
        """A spectral radius needs visible weights."""
        if self.spectral_radius is not None and not isinstance(cell, LinearCell):
            raise TypeError(
                "reservoir(spectral_radius) needs a cell whose recurrent weights are visible (a "
                f"LinearCell), got {type(cell).__name__}; use reservoir(None), which leaves the "
                "cell's own initialisation as it is"
            )

    def ignores(self, cell: Cell) -> str:
        """All but the readout."""
        return "the cell's whole gradient"

    def init_cell(self, key: Array, cell: Cell, dtype: Any) -> Any:
        """Recurrent weights of the chosen spectral radius."""
        draw = self._drawn()
        if draw is None:
            return super().init_cell(key, cell, dtype)
        assert isinstance(cell, LinearCell)
        weights = cell.weights()
        keys = jax.random.split(key, len(weights))
        pairs = zip(keys, weights.items(), strict=True)
        return cell.project({name: draw(k, w, dtype) for k, (name, w) in pairs})

    def allowed(self, updates: Params) -> Params:
        """Zero for the cell, also where the optimiser moves without a gradient (weight decay)."""
        return updates._replace(cell=jax.tree.map(jnp.zeros_like, updates.cell))

    def init(self, model: Model, params: Params) -> Memory:
        """Nothing is remembered but the state."""
        return ()

    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """No noise."""
        return ()

    def segment(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """One step forward; the readout's gradient."""
        cell, readout = model
        assert readout is not None
        x, y, reset, weight = jax.tree.map(lambda a: a[0], seg)
        s = cell.step(params.cell, jnp.where(reset, jnp.zeros_like(s), s), x)
        loss, prediction, _, g = readout.differentiate(params.readout, cell.output(s), y, weight)
        still = jax.tree.map(jnp.zeros_like, params.cell)
        return s, memory, Params(still, g), Seen(loss[None], prediction[None])

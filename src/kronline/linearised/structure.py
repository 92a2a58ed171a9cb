"""What a trace is told of a cell before the first step: sizes and shapes, not the cell itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kronline.linearised.layers import Layer

# Where H (N, N) and, for each weight matrix, M (N, r, n) may differ from zero
Pattern = tuple[np.ndarray, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Structure:
    """The structure of a cell's steps.

    Args:
        cell: what the cell is called, for errors.
        size: N, how many numbers the state has.
        params: the parameters, or their shapes: a pytree whose leaves have `shape` and `dtype`.
        linear: whether every weight enters as `z = feats @ W`, so that steps are `Kronecker`.
        slots: q, for a unit-wise cell (its H is `UnitWise`); None for any other.
        pattern: where H and M may differ from zero, for any parameters; computed when called. None
            where weights are not visible.
        layers: for a cell made of layers whose units read no other unit's state (H is then block
            lower triangular, and each layer's own block is diagonal), lowest first; else empty.
        above: for each weight of such a cell, the first layer that it moves beyond its own units;
            the number of layers, if there is none.
    """

    cell: str
    size: int
    params: Any
    linear: bool = False
    slots: int | None = None
    pattern: Callable[[], Pattern] | None = None
    layers: tuple[Layer, ...] = ()
    above: dict[str, int] = field(default_factory=dict)

    @property
    def diagonal(self) -> bool:
        """Whether the exact traces of its layers are all of G that a later loss depends on."""
        return len(self.layers) > 0 and min(self.above.values()) == len(self.layers)

    def needs_linear_maps(self, who: str, else_: str) -> None:
        """Raise TypeError for a cell whose weights are not visible as linear maps.

        Args:
            who: what needs them, as the beginning of a sentence: "Kronecker factors need".
            else_: what to use instead.
        """
        if not self.linear:
            raise TypeError(
                f"{who} a cell whose weights enter as z = feats @ W (a UnitCell or another "
                f"LinearCell), got {self.cell}, whose step is opaque; use {else_}"
            )

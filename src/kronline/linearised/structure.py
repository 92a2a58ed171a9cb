"""What a trace is told of a cell before the first step: sizes and shapes, not the cell itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """

    cell: str
    size: int
    params: Any
    linear: bool = False
    slots: int | None = None
    pattern: Callable[[], Pattern] | None = None

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

"""A cell with its structure hidden."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from kronline.cells.base import Cell, Params
from kronline.cells.pieces import Input
from kronline.linearised import Vector


@dataclass(frozen=True)
class Opaque(Cell):
    """A cell with its structure hidden: only products with its Jacobians are available.

    For tests and comparisons: the estimators that take any cell give the same gradient for it.

    Args:
        cell: any cell.

    Example:
        >>> import kronline as kl
        >>> kl.Opaque(kl.GRU(3, 2)).structure().linear
        False
    """

    cell: Cell

    def __post_init__(self) -> None:
        if not isinstance(self.cell, Cell):
            raise TypeError(f"Opaque needs a cell such as GRU(64, 4), got {self.cell!r}")

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """As the cell inside."""
        return self.cell.inputs

    @property
    def size(self) -> int:
        """As the cell inside."""
        return self.cell.size

    @property
    def outputs(self) -> int:
        """As the cell inside."""
        return self.cell.outputs

    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> Params:
        """As the cell inside."""
        return self.cell.init(key, dtype)

    def step(self, params: Params, s: Vector, x: Input) -> Vector:
        """As the cell inside."""
        return self.cell.step(params, s, x)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """As the cell inside."""
        return self.cell.output(s)

"""What a weight can move within so many steps: a cell's structure, whatever its parameters are."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from kronline.cells.base import LinearCell
from kronline.linearised.jacobians import Kronecker

POINTS = 16  # random places at which Jacobians are looked at


@functools.lru_cache(maxsize=64)
def reached(cell: LinearCell, order: int) -> dict[str, np.ndarray]:
    """Which entries of the state each z of each weight matrix moves within `order` steps.

    Returns:
        (N, r, n) booleans a weight matrix.
    """
    H, M = _pattern(cell)
    if order == 1:
        return M
    before = reached(cell, order - 1)
    return {n: M[n] | (np.tensordot(H.astype(float), before[n], axes=1) > 0) for n in M}


@functools.lru_cache(maxsize=64)
def _pattern(cell: LinearCell) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Where H and M may differ from zero.

    They are looked at in random places: an entry that is zero in all of these is always zero. What
    the parameters in use are does not matter.
    """
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(POINTS, *shape)).astype(np.float32)

    def look(at: tuple[Any, Array, Array]) -> tuple[Array, dict[str, Array]]:
        weights, s, x = at
        lin = cell.linearise(cell.project(weights), s, x)
        assert isinstance(lin, Kronecker)
        return lin.H.dense() != 0, {name: g.M.dense() != 0 for name, g in lin.groups.items()}

    weights = {n: normal(*w.shape) / np.float32(w.rows**0.5) for n, w in cell.weights().items()}
    points = (weights, normal(cell.size), normal(cell.inputs))
    with jax.ensure_compile_time_eval():  # also where a program is being compiled
        found = jax.jit(lambda at: jax.lax.map(look, at))(points)
    return jax.tree.map(lambda a: np.asarray(a).any(0), found)

"""Constraints and penalties, beside the loss, that might make gradients less noisy.

H carries noise from step to step. It depends on the recurrent weights and on the slopes of the
activations. So the weights can be bounded, the activations kept small, or the variance itself, for
which KF-RTRL and others have a formula, be added to the loss.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.cells.base import Cell, LinearCell
from kronline.estimators.base import Estimator, Model, Params
from kronline.linearised import Vector, decompositions
from kronline.linearised.gradients import Grads
from kronline.readout import Readout
from kronline.show import called
from kronline.traces.base import Memory

Block = Float[Array, "b r n"]  # the recurrent weights of r gates


@dataclass(frozen=True)
class Regulariser:
    """A constraint or a penalty. Subclasses replace one of three methods; the others do nothing.

    `constrained`: the weights after an update. `read`: the loss of a step. `gradient`: the gradient
    of a lane.
    """

    def check(self, cell: Cell, readout: Readout | None, estimator: Estimator) -> None:
        """Raise TypeError, with what to use instead, where this does not apply."""
        return None

    def constrained(self, cell: Cell, weights: Any) -> Any:
        """The cell's weights after an update; those that are allowed stay as they are."""
        return weights

    def read(self, readout: Readout) -> Readout:
        """The readout, with an additional term in its loss."""
        return readout

    def gradient(
        self,
        estimator: Estimator,
        model: Model,
        params: Params,
        s: Vector,
        memory: Memory,
        x: Any,
        reset: Any,
    ) -> Grads | None:
        """An additional gradient of the cell's weights, per step; of one lane."""
        return None


def _positive(thing: Any, name: str) -> None:
    value = getattr(thing, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    object.__setattr__(thing, name, float(value))


@dataclass(frozen=True)
class Constraint(Regulariser, ABC):
    """A bound on the recurrent weights of each gate, kept by a projection after every update."""

    limit: float

    def __post_init__(self) -> None:
        _positive(self, "limit")

    def check(self, cell: Cell, readout: Readout | None, estimator: Estimator) -> None:
        """Weights must be visible as linear maps."""
        if not isinstance(cell, LinearCell):
            raise TypeError(
                f"{type(self).__name__} needs a cell whose recurrent weights are visible (a "
                f"LinearCell), got {type(cell).__name__}; use activation, which takes any cell"
            )

    def constrained(self, cell: Cell, weights: Any) -> Any:
        """The nearest weights that are allowed."""
        assert isinstance(cell, LinearCell)
        rows = {name: w.recurrent for name, w in cell.weights().items()}
        return {
            name: W.at[: rows[name]].set(self.nearest(W[: rows[name]])) if rows[name] else W
            for name, W in weights.items()
        }

    @abstractmethod
    def nearest(self, W: Block) -> Block:
        """The nearest block that is allowed."""


@dataclass(frozen=True)
class RowNorm(Constraint):
    """`‖W[:, k, j]‖ <= limit` for the recurrent weights into each unit j and gate k."""

    @property
    def name(self) -> str:
        """As it is written."""
        return called("row_norm", self.limit)

    def nearest(self, W: Block) -> Block:
        """Columns that are longer are scaled to the limit."""
        norm = jnp.sqrt(jnp.sum(W**2, axis=0, keepdims=True))
        return jnp.where(norm > self.limit, W * (self.limit / jnp.maximum(norm, self.limit)), W)


@dataclass(frozen=True)
class SpectralNorm(Constraint):
    """`σ(W[:, k, :]) <= limit` for all singular values of the recurrent weights of each gate k."""

    @property
    def name(self) -> str:
        """As it is written."""
        return called("spectral", self.limit)

    def check(self, cell: Cell, readout: Readout | None, estimator: Estimator) -> None:
        """Of a gate's recurrent weights all must exist, or none."""
        super().check(cell, readout, estimator)
        assert isinstance(cell, LinearCell)
        for name, w in cell.weights().items():
            if w.mask is not None and w.recurrent and np.ptp(w.mask[: w.recurrent], (0, 2)).any():
                raise TypeError(
                    f"spectral needs gates whose recurrent weights all exist, got {name!r} of "
                    f"{type(cell).__name__}, where some do not; use row_norm, which leaves them out"
                )

    def nearest(self, W: Block) -> Block:
        """Larger singular values become the limit; an SVD only where there may be one."""
        gates = W.swapaxes(0, 1)
        G = gates.swapaxes(1, 2) @ gates
        # σ_max⁸ <= tr (WᵀW)⁴ <= n σ_max⁸
        G2 = G @ G
        bound = jnp.max(jnp.sum(G2**2, axis=(1, 2)))
        gates = jax.lax.cond(bound > self.limit**8, self._clipped, lambda g: g, gates)
        return gates.swapaxes(0, 1)

    def _clipped(self, gates: Float[Array, "r b n"]) -> Float[Array, "r b n"]:
        U, s, V = jax.vmap(decompositions.svd)(gates)
        over = jnp.maximum(s - self.limit, 0)
        less = gates - (U * over[:, None, :]) @ V
        return jnp.where(s[:, :1, None] > self.limit, less, gates)


@dataclass(frozen=True)
class Activation(Regulariser):
    """`weight · ‖h‖²` of the cell's output h, added to the loss of every step.

    It does not depend on the loss weights. Its gradient is the estimator's, as of any other loss;
    reported losses do not include it.
    """

    weight: float

    @property
    def name(self) -> str:
        """As it is written."""
        return called("activation", self.weight)

    def __post_init__(self) -> None:
        _positive(self, "weight")

    def check(self, cell: Cell, readout: Readout | None, estimator: Estimator) -> None:
        """There must be a loss to add it to."""
        if readout is None:
            raise TypeError(
                "activation needs a readout, whose loss it is added to, got None; with a loss of "
                "your own, add 2·weight·h to the δ that you hand to pull"
            )

    def read(self, readout: Readout) -> Readout:
        """With the penalty."""
        return replace(readout, penalty=readout.penalty + self.weight)


@dataclass(frozen=True)
class NoisePenalty(Regulariser):
    """`weight · log(1 + v/‖HG' + F‖²)`, v the closed-form variance that a step adds to the trace.

    Its gradient is that of v alone, `weight · ∂v/(v + ‖HG' + F‖²)`: state, trace and the squared
    mean are constants, so only this step's noise counts. Evaluated at the first step of every
    segment. In pure JAX, without the kernel: with 64 units and 8 lanes, each step takes six to
    eight times as long.
    """

    weight: float

    @property
    def name(self) -> str:
        """As it is written."""
        return called("noise", self.weight)

    def __post_init__(self) -> None:
        _positive(self, "weight")

    def check(self, cell: Cell, readout: Readout | None, estimator: Estimator) -> None:
        """There must be a formula."""
        if not estimator.closed_form:
            raise TypeError(
                "noise needs an estimator whose variance is known as a formula, got "
                f"{estimator.name}; use kf_rtrl(), reverse_kf(), ok() or uoro()"
            )

    def gradient(
        self,
        estimator: Estimator,
        model: Model,
        params: Params,
        s: Vector,
        memory: Memory,
        x: Any,
        reset: Any,
    ) -> Grads:
        """Nothing where there is no noise: in the first step after a reset."""

        def penalty(cell: Any) -> Float[Array, ""]:
            now = estimator.moments(model, params._replace(cell=cell), s, memory, x, reset)
            assert now is not None
            return self.weight * jnp.log1p(now.variance / now.mean2)

        value, grads = jax.value_and_grad(penalty)(params.cell)
        return jax.tree.map(lambda g: jnp.where(value > 0, g, 0), grads)


def row_norm(limit: float) -> RowNorm:
    """Bound the norm of the recurrent weights into each unit and gate: `‖W[:, k, j]‖ <= limit`.

    Args:
        limit: the largest norm.

    Returns:
        the constraint, for `Learner(regularisers=(...,))`.

    Example:
        >>> import kronline as kl
        >>> kl.regularise.row_norm(1.0)
        RowNorm(limit=1.0)
    """
    return RowNorm(limit)


def spectral(limit: float) -> SpectralNorm:
    """Bound the largest singular value of each gate's recurrent weights: `σ(W[:, k, :]) <= limit`.

    Takes an SVD per gate and update where weights are near the limit. If other work shares the
    cores, set OPENBLAS_NUM_THREADS=1: LAPACK's threads wait by spinning (`kronline sweep` sets it).

    Args:
        limit: the largest singular value.

    Returns:
        the constraint, for `Learner(regularisers=(...,))`.

    Example:
        >>> import kronline as kl
        >>> kl.regularise.spectral(0.9)
        SpectralNorm(limit=0.9)
    """
    return SpectralNorm(limit)


def activation(weight: float) -> Activation:
    """Add `weight · ‖h‖²`, of the cell's output h, to the loss of every step.

    Args:
        weight: of the penalty.

    Returns:
        the penalty, for `Learner(regularisers=(...,))`.

    Example:
        >>> import kronline as kl
        >>> kl.regularise.activation(0.01)
        Activation(weight=0.01)
    """
    return Activation(weight)


def noise(weight: float) -> NoisePenalty:
    """Add `weight · log(1 + v/‖HG' + F‖²)`, v the variance that a step adds to the trace.

    Args:
        weight: of the penalty.

    Returns:
        the penalty, for `Learner(regularisers=(...,))`.

    Example:
        >>> import kronline as kl
        >>> kl.regularise.noise(0.1)
        NoisePenalty(weight=0.1)
    """
    return NoisePenalty(weight)

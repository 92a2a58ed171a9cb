"""What an estimator is: pure functions of one lane, which give the gradient of a segment."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.cells.base import Cell
from kronline.linearised import Vector
from kronline.noise import Draws, Noise
from kronline.readout import Readout
from kronline.traces.base import Memory, Moments

if TYPE_CHECKING:
    from kronline.estimators.own_loss import OwnLoss


class Model(NamedTuple):
    """What is differentiated: a cell and what reads it."""

    cell: Cell
    readout: Readout | None  # None: users with a loss of their own


class Params(NamedTuple):
    """All that is learnt: parameters of the cell, of the readout, and of the estimator.

    Example:
        >>> import jax, optax, kronline as kl
        >>> learner = kl.Learner(kl.Tanh(2, 3), kl.softmax(3), kl.rtrl(), optax.sgd(0.1))
        >>> params = learner.init(jax.random.key(0)).params
        >>> params.cell["W"].shape, params.readout["V"].shape
        ((6, 1, 2), (3, 3))
    """

    cell: Any
    readout: Any
    estimator: Any = ()  # for estimators that learn something themselves


class Segment(NamedTuple):
    """k time steps of one lane; in the learner, of all lanes, with further leading axes."""

    x: Any  # (k, ...) inputs
    y: Any  # (k, ...) targets
    reset: Bool[Array, " k"]  # before its step: the state starts anew, the past is cut
    weight: Float[Array, " k"]  # of each step's loss; as users give them, both may be None


class Seen(NamedTuple):
    """What a segment gives besides its gradient."""

    loss: Float[Array, " k"]  # without the weights
    prediction: Float[Array, "k o"]


class Estimator(ABC):
    """A gradient estimator: pure functions of one lane. `Online` is the general one.

    Subclasses are frozen dataclasses, and give `name`, `span`, `init`, `draws` and `segment`.

    Example:
        >>> import kronline as kl
        >>> estimator = kl.tbptt(25)
        >>> isinstance(estimator, kl.Estimator), estimator.span
        (True, 25)
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """As it is called."""

    @property
    @abstractmethod
    def span(self) -> int | None:
        """How many steps a segment has; None: a whole run is one segment."""

    def check(self, cell: Cell) -> None:
        """Raise TypeError, with what to use instead, for a cell that cannot be followed."""
        return None

    def ignores(self, cell: Cell) -> str:
        """What is left out on purpose, in words, for an estimator that is biased; else nothing."""
        return ""

    def init_cell(self, key: Array, cell: Cell, dtype: Any) -> Any:
        """The cell's parameters at the start: by default, as the cell says."""
        return cell.init(key, dtype)

    def allowed(self, updates: Params) -> Params:
        """The optimiser's updates, with those of fixed parameters set to zero."""
        return updates

    def init_params(self, key: Array, model: Model, dtype: Any) -> Any:
        """The estimator's own parameters, learnt with the others; none by default."""
        return ()

    @abstractmethod
    def init(self, model: Model, params: Params) -> Memory:
        """One lane's memory at the start."""

    @abstractmethod
    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """The noise of one segment of one lane."""

    @abstractmethod
    def segment(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """Over one segment: new state, new memory, gradients of `Σ weight·loss`, what was seen."""

    def with_own_loss(self, cell: Cell) -> "OwnLoss":
        """This estimator for a loss of one's own, where δ is known only after the step.

        Args:
            cell: what it follows.

        Raises:
            TypeError: for an estimator that needs δ earlier.
        """
        raise TypeError(
            f"{self.name} cannot be used with a loss of one's own, since its gradient needs the "
            "losses of a whole segment; use kf_rtrl(), uoro(), rtrl() or others with no window or "
            "window=1, immediate(), or rolling_tbptt(k)"
        )

    @property
    def closed_form(self) -> bool:
        """Whether the variance of one step of the trace is known as a formula."""
        return False

    def moments(
        self, model: Model, params: Params, s: Vector, memory: Memory, x: Any, reset: Any
    ) -> Moments | None:
        """Variance and mean of the trace after one more step; None where no formula is known.

        The variance can be differentiated with respect to the cell's parameters; the squared mean
        is a constant.
        """
        return None

    def noise_share(
        self, model: Model, params: Params, s: Vector, memory: Memory, x: Any, reset: Any
    ) -> Float[Array, ""] | None:
        """How much of E‖G'‖² is noise, after one more step; None where no formula is known."""
        return None


def no_gradient(params: Params) -> Any:
    """A zero gradient, for an estimator without parameters of its own."""
    return jax.tree.map(jnp.zeros_like, params.estimator)

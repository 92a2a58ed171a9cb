"""Readouts: a linear map of the cell's output, and a loss. Its gradient is exact."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from kronline.errors import whole_numbers
from kronline.linearised.gradients import Grads, Outer
from kronline.show import called, parts

Loss = Callable[[Float[Array, " o"], Any], Float[Array, ""]]


def cross_entropy(logits: Float[Array, " o"], symbol: Int[Array, ""]) -> Float[Array, ""]:
    """`−log softmax(logits)[symbol]`, in nats."""
    return jax.nn.logsumexp(logits) - logits[symbol]


def squared_error(prediction: Float[Array, " o"], target: Float[Array, " o"]) -> Float[Array, ""]:
    """`½‖prediction − target‖²`."""
    return jnp.sum((prediction - target) ** 2) / 2


@final
@dataclass(frozen=True)
class Readout:
    """`prediction = [h, 1] V`, and `loss(prediction, target)`, a scalar.

    Final: for another kind of readout, use `Learner(cell, None, ...)` with `advance`, `pull` and
    `update`.

    Args:
        outputs: how many numbers are predicted.
        loss: any differentiable function of one prediction and one target.
        targets: what targets are, so that they can be checked: "symbols" below `outputs`, "vectors"
            of that length, or "any".
        std: the weights start from N(0, std²).

    Example: the absolute error.
        >>> import jax.numpy as jnp, kronline as kl
        >>> kl.Readout(2, lambda prediction, target: jnp.sum(jnp.abs(prediction - target))).outputs
        2
    """

    outputs: int
    loss: Loss
    targets: Literal["symbols", "vectors", "any"] = "any"
    std: float = 0.01
    # c of c‖h‖², added to each step's loss; set by a learner's regularisers
    penalty: float = field(default=0.0, repr=False, metadata={"derived": True})

    def __post_init__(self) -> None:
        whole_numbers(self, "outputs")
        if not callable(self.loss):
            raise TypeError(f"loss must be a function (prediction, target), got {self.loss!r}")

    @property
    def name(self) -> str:
        """As it is written: `softmax(4)`, `linear(1)`, or by its parts."""
        std = None if self.std == Readout.std else float(self.std)
        for make in (softmax, linear):
            if replace(self, penalty=0.0) == make(self.outputs, std=self.std):
                return called(make.__name__, self.outputs, std=std)
        return parts(self)

    def init(self, key: Key[Array, ""], features: int, dtype: Any) -> dict[str, Array]:
        """`V (h+1, o)`."""
        return {"V": self.std * jax.random.normal(key, (features + 1, self.outputs), dtype)}

    def features(self, h: Float[Array, " h"]) -> Float[Array, " h1"]:
        """`[h, 1]`."""
        return jnp.concatenate([h, jnp.ones(1, h.dtype)])

    def predict(self, params: dict[str, Array], h: Float[Array, " h"]) -> Float[Array, " o"]:
        """`[h, 1] V`."""
        return self.features(h) @ params["V"]

    def differentiate(
        self, params: dict[str, Array], h: Float[Array, " h"], target: Any, weight: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, " o"], Float[Array, " h"], Grads]:
        """The loss (without its weight), the prediction, and weight · d loss / d (h, params).

        A penalty on h is in the derivative, not in the loss. For a weight of 0 the derivative of
        the loss is 0, even where h or the loss is not finite.
        """
        prediction = self.predict(params, h)
        loss, back = jax.vjp(lambda o: self.loss(o, target), prediction)
        (do,) = back(weight.astype(loss.dtype))
        do, seen = (jnp.where(weight != 0, a, jnp.zeros_like(a)) for a in (do, h))
        dh = params["V"][:-1] @ do
        if self.penalty:
            dh = dh + 2 * self.penalty * h
        return loss, prediction, dh, self.gradients(seen[None], do[None])

    def silent(self, weight: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Where a step of this loss weight adds nothing to what is minimised."""
        return (weight == 0) & (self.penalty == 0)

    def objective(
        self, loss: Float[Array, ""], weight: Float[Array, ""], h: Float[Array, " h"]
    ) -> Float[Array, ""]:
        """What one step adds to what is minimised: its loss, weighted, and a penalty on h."""
        weighted = loss * weight.astype(loss.dtype)
        # c‖h‖² does not depend on the weight of the loss
        return weighted + self.penalty * jnp.sum(h**2) if self.penalty else weighted

    def gradients(self, h: Float[Array, "k h"], do: Float[Array, "k o"]) -> Grads:
        """`Σ_t [h_t, 1] ⊗ do_t`, for the sensitivities do of k predictions."""
        return {"V": Outer(jax.vmap(self.features)(h), do)}


def softmax(symbols: int, *, std: float = 0.01) -> Readout:
    """A distribution over symbols: `loss = −log softmax([h, 1] V)[target]`, in nats.

    Args:
        symbols: how many; targets are integers below that.
        std: the weights start from N(0, std²).

    Returns:
        the readout.

    Example:
        >>> import kronline as kl
        >>> kl.softmax(4).targets
        'symbols'
    """
    return Readout(symbols, cross_entropy, "symbols", std)


def linear(outputs: int, *, std: float = 0.01) -> Readout:
    """Real-valued predictions: `loss = ½‖[h, 1] V − target‖²`.

    Args:
        outputs: how many numbers are predicted; targets are vectors of that length.
        std: the weights start from N(0, std²).

    Returns:
        the readout.

    Example:
        >>> import kronline as kl
        >>> kl.linear(2).targets
        'vectors'
    """
    return Readout(outputs, squared_error, "vectors", std)

"""What a learner carries from step to step, and what comes out of it."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, Key, UInt32

from kronline.estimators import Params, Seen, Segment
from kronline.learner.monitor import Spread
from kronline.traces import Memory


class Buffer(NamedTuple):
    """Steps that wait for their segment to be full, for `step` with a window of k > 1."""

    filled: Int[Array, ""]
    start: Float[Array, "lanes N"]  # the states at the segment's start
    steps: Segment  # (lanes, k, ...)


class State(NamedTuple):
    """All that the next step needs: a pytree, so that it can be jitted, vmapped and saved.

    Example:
        >>> import jax, optax, kronline as kl
        >>> learner = kl.Learner(kl.LSTM(3, 2), kl.linear(1), kl.kf_rtrl(), optax.sgd(0.1))
        >>> learner.init(jax.random.key(0), lanes=4).s.shape  # (lanes, N)
        (4, 6)
    """

    params: Params
    opt: Any  # the optimiser's state, as optax has it
    s: Float[Array, "lanes N"]
    memory: Memory  # (lanes, ...), as the estimator has it
    key: Key[Array, ""]  # of the noise
    clock: UInt32[Array, "2"]  # segments that noise was drawn for
    buffer: Buffer | None = None


class Out(NamedTuple):
    """What `run` and `step` return besides the state, per step and lane.

    Example:
        >>> import jax, numpy as np, optax, kronline as kl
        >>> learner = kl.Learner(kl.Tanh(2, 3), kl.softmax(3), kl.immediate(), optax.sgd(0.1))
        >>> state, x = learner.init(jax.random.key(0), lanes=4), np.zeros((5, 4), int)
        >>> learner.run(state, x, x, predictions=True)[1].prediction.shape
        (5, 4, 3)
    """

    loss: Float[Array, "*steps lanes"]  # without the loss weights
    prediction: Float[Array, "*steps lanes o"] | None = None
    norm: Float[Array, " segments"] | None = None  # of each segment's gradient
    spread: Spread | None = None  # signal and noise per segment; None for one lane


def out(seen: Seen, predictions: bool) -> Out:
    """Losses, and predictions if they are wanted."""
    return Out(seen.loss, seen.prediction if predictions else None)

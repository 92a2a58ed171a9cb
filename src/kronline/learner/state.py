"""What a learner carries from step to step, and what comes out of it."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int, UInt32

from kronline.estimators import Params, Seen, Segment
from kronline.learner.monitor import Spread
from kronline.traces import Memory


class Buffer(NamedTuple):
    """Steps that wait for their segment to be full, for `step` with a window of k > 1."""

    filled: Int[Array, " lanes"]
    start: Float[Array, "lanes N"]  # the states at the segment's start
    steps: Segment  # (lanes, k, ...)


class Pending(NamedTuple):
    """Inputs that wait for their targets, for a learner with a delay of d steps.

    The state `s` and the trace of a lane stay d steps behind; `ahead` is where predictions are
    made.
    """

    ahead: Float[Array, "lanes N"]
    x: Any  # (lanes, d, ...), the oldest first
    reset: Bool[Array, "lanes d"]
    filled: Int[Array, " lanes"]  # how many of the d wait


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
    key: UInt32[Array, " words"]  # of the noise: `jax.random.key_data` of a key
    clock: UInt32[Array, "2"]  # segments that noise was drawn for
    anew: Bool[Array, " lanes"]  # lanes that overflowed: they start anew at their next step
    skipped: Int[Array, ""]  # updates that were left out, since they were not finite
    buffer: Buffer | None = None
    pending: Pending | None = None

    def axes(self) -> "State":
        """The axis of lanes of every array, in this structure: 0, or -1 where there is none."""
        lanes = ("s", "memory", "anew", "buffer", "pending")
        parts = self._asdict().items()
        return State(
            **{k: jax.tree.map(lambda _, k=k: 0 if k in lanes else -1, v) for k, v in parts}
        )


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

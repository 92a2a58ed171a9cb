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
    """All that the next step needs: a pytree, so that it can be jitted, vmapped and saved."""

    params: Params
    opt: Any  # the optimiser's state, as optax has it
    s: Float[Array, "lanes N"]
    memory: Memory  # (lanes, ...), as the estimator has it
    key: Key[Array, ""]  # of the noise
    clock: UInt32[Array, "2"]  # segments that noise was drawn for
    buffer: Buffer | None = None


class Out(NamedTuple):
    """What came out, per step and lane."""

    loss: Float[Array, "*steps lanes"]  # without the loss weights
    prediction: Float[Array, "*steps lanes o"] | None = None
    norm: Float[Array, " segments"] | None = None  # of each segment's gradient
    spread: Spread | None = None  # of the lanes' gradients, per segment; of several lanes


def out(seen: Seen, predictions: bool) -> Out:
    """What was seen, with the predictions only if they are wanted."""
    return Out(seen.loss, seen.prediction if predictions else None)

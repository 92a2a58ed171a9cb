"""The training loop: a task, a learner, and stretches of steps as one compiled program each."""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from kronline.estimators.base import Segment
from kronline.learner import Learner, Spread, State

BLOCK = 20  # steps after which a task is told how it went, unless segments are longer


class Task(Protocol):
    """A stream, which may react to how well it is learnt."""

    def init(self, key: Key[Array, ""], lanes: int) -> Any:
        """Where the stream starts."""

    def batch(self, state: Any, data: Any, steps: int) -> tuple[Any, Segment]:
        """The next steps, (steps, lanes), out of the data that the task needs, if any."""

    def feedback(self, state: Any, bits: Float[Array, "steps lanes"]) -> Any:
        """Told the losses of these steps, in bits."""


class Training(NamedTuple):
    """A run between two stretches: all that goes on."""

    learner: State
    task: Any


class Stretch(NamedTuple):
    """What was seen on the way."""

    bits: Float[Array, " steps"]  # the mean over lanes
    norm: Float[Array, " segments"]  # of the gradients
    spread: Spread | None = None  # of the lanes' gradients, a segment
    share: Float[Array, ""] | None = None  # of noise in the traces at the end, mean over lanes


def start(learner: Learner, task: Task, key: Key[Array, ""], lanes: int) -> Training:
    """A run at its beginning."""
    k_learner, k_task = jax.random.split(key)
    return Training(learner.init(k_learner, lanes), task.init(k_task, lanes))


@partial(jax.jit, static_argnums=(0, 1, 4, 5), donate_argnums=3)
def stretch(
    learner: Learner, task: Task, data: Any, training: Training, steps: int, monitor: bool = False
) -> tuple[Training, Stretch]:
    """Many steps with no return to the host; `monitor`: and how noisy their gradients were."""
    k = learner.estimator.span or steps
    if steps < 1 or steps % k:
        raise ValueError(
            f"{learner.estimator.name} learns from segments of {k} steps: needed a multiple of {k} "
            f"steps, got {steps}"
        )

    # several short segments at a time, so that data and noise are drawn for all of them at once
    segments = steps // k
    block = k * max(d for d in range(1, max(1, BLOCK // k) + 1) if segments % d == 0)

    def one(training: Training, _: None) -> tuple[Training, Stretch]:
        stream, seg = task.batch(training.task, data, block)
        more = {"norms": True, "monitor": monitor}
        state, out = learner.run(
            training.learner, seg.x, seg.y, reset=seg.reset, weight=seg.weight, **more
        )
        bits = out.loss / jnp.log(2.0)
        assert out.norm is not None
        training = Training(state, task.feedback(stream, bits))
        return training, Stretch(bits.mean(1), out.norm, out.spread)

    training, seen = jax.lax.scan(one, training, None, steps // block)
    seen = jax.tree.map(lambda a: a.reshape(-1), seen)
    if monitor:  # a look at the next step, without its resets; it is not taken
        _, ahead = task.batch(training.task, data, 1)
        share = learner.noise_share(training.learner, ahead.x[0])
        seen = seen._replace(share=None if share is None else share.mean())
    return training, seen

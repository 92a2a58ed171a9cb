"""Many steps of learning from a stream as one compiled program: a stretch."""

from functools import partial
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Key

from kronline import Learner
from kronline.lab.tasks import Stream, Training
from kronline.lanes import many_processes, placed
from kronline.learner import Spread

BLOCK = 20  # steps after which a stream is told how it went, unless segments are longer


class Stretch(NamedTuple):
    """What was seen on the way."""

    loss: Float[Array, " steps"]  # as the stream measures it, the mean over lanes
    norm: Float[Array, " segments"]  # of the gradients
    spread: Spread | None = None  # of the lanes' gradients, a segment
    share: Float[Array, ""] | None = None  # of noise in the traces at the end, mean over lanes


def start(learner: Learner, stream: Stream, key: Key[Array, ""], lanes: int) -> Training:
    """A run at its beginning."""
    k_learner, k_task = jax.random.split(key)
    if not many_processes(learner.layout):
        return Training(learner.init(k_learner, lanes), stream.init(k_task, lanes))

    @jax.jit
    def begin(key: Array) -> Any:
        return _placed(learner, stream, stream.init(key, lanes), lanes)

    return Training(learner.init(k_learner, lanes), begin(k_task))


def axes(learner: Learner, stream: Stream, lanes: int) -> Training:
    """The axis of lanes of every array of a run of several lanes: -1 where there is none."""
    like = jax.eval_shape(lambda: learner.init(jax.random.key(0), lanes))
    return Training(like.axes(), _task_axes(stream, lanes))


def _task_axes(stream: Stream, lanes: int) -> Any:
    """Of a stream's state: the axis that is shorter with a lane less."""
    many, fewer = (
        jax.eval_shape(lambda n=n: stream.init(jax.random.key(0), n)) for n in (lanes, lanes - 1)
    )

    def axis(a: Any, b: Any) -> int:
        differ = [i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
        return differ[0] if differ else -1

    return jax.tree.map(axis, many, fewer)


def _placed(learner: Learner, stream: Stream, task: Any, lanes: int) -> Any:
    """A stream's state, where it belongs in a program of many processes."""
    if not many_processes(learner.layout):
        return task
    return jax.tree.map(
        lambda a, axis: placed(learner.layout, a, None if axis < 0 else axis),
        task,
        _task_axes(stream, lanes),
    )


@partial(jax.jit, static_argnums=(0, 1, 4, 5), donate_argnums=3)
def stretch(
    learner: Learner,
    stream: Stream,
    data: Any,
    training: Training,
    steps: int,
    monitor: bool = False,
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
    lanes = training.learner.s.shape[0]

    def one(training: Training, _: None) -> tuple[Training, Stretch]:
        task, seg = stream.batch(training.task, data, block)
        seg = placed(learner.layout, seg, 1)
        more = {"norms": True, "monitor": monitor}
        state, out = learner.run(training.learner, seg, **more)
        loss = stream.measured(out.loss)
        assert out.norm is not None
        task = _placed(learner, stream, stream.feedback(task, loss), lanes)
        return Training(state, task), Stretch(loss.mean(1), out.norm, out.spread)

    training, seen = jax.lax.scan(one, training, None, steps // block)
    seen = jax.tree.map(lambda a: a.reshape(-1), seen)
    if monitor:  # a look at the next step, without its resets; it is not taken
        _, ahead = stream.batch(training.task, data, 1)
        share = learner.noise_share(training.learner, ahead.x[0])
        seen = seen._replace(share=None if share is None else share.mean())
    return training, placed(learner.layout, seen, None)

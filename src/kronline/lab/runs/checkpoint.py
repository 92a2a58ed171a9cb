"""Checkpoints of a run: everything that goes on, in files that are whole or absent.

A checkpoint also knows how long metrics.jsonl was when it was written. What was measured after it
is cut off on resuming, and measured again. In a run of many processes each writes and reads its own
lanes (`Across`); process 0 writes last, and then it is a checkpoint.
"""

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kronline import Learner, Shard, checkpoint, disk, processes
from kronline.checkpoint import parts
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.lab.runs.folder import CONFIG
from kronline.lab.tasks import Best, Training

LEARNER = "training.learner"  # where in what is saved the learner's state lies


class Saved(NamedTuple):
    """A run at a chunk's end."""

    training: Training
    best: Best | None = None


class Point(NamedTuple):
    """A checkpoint and what its header says."""

    saved: Saved
    step: int
    metrics: int  # bytes of metrics.jsonl that belong to it
    best_step: int = 0


class Across(NamedTuple):
    """How a run's arrays lie over many processes."""

    layout: Shard
    axes: Saved  # of lanes, of every array; -1: it has none
    lanes: int

    def own(self, saved: Saved) -> Saved:
        """This process's part, and all that has no axis of lanes, as arrays of its own."""
        best = jax.tree.map(lambda _: -1, saved.best)
        return jax.tree.map(self._own, saved, Saved(self.axes.training, best))

    def _own(self, a: Any, axis: int) -> Any:
        if axis < 0:
            return a.addressable_data(0)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            data = [np.asarray(jax.random.key_data(s.data)) for s in a.addressable_shards]
            kind = jax.random.key_impl(a)
            return jax.random.wrap_key_data(jnp.asarray(np.concatenate(data, axis)), impl=kind)
        return self.layout.own(a, axis)

    def seen(self, training: Training) -> Training:
        """What has no axis of lanes, as arrays of this process, to be measured; the rest as is."""
        return jax.tree.map(
            lambda a, axis: a if axis >= 0 else a.addressable_data(0), training, self.axes.training
        )

    def joined(self, saved: Saved) -> Saved:
        """The reverse, of the training; what was best stays with each process."""
        training = jax.tree.map(
            lambda a, axis: self.layout.join(a, None if axis < 0 else axis),
            saved.training,
            self.axes.training,
        )
        return saved._replace(training=training)

    def like(self, saved: Saved) -> Saved:
        """The shapes of this process's part."""
        here = self.layout.mine(self.lanes)

        def part(a: Any, axis: int) -> Any:
            shape = list(a.shape)
            if axis >= 0:
                shape[axis] = here.stop - here.start
            return jax.ShapeDtypeStruct(shape, a.dtype)

        return jax.tree.map(part, saved, self.axes)

    def part(self) -> parts.Own:
        """What is read of a checkpoint."""
        named = {name: axis for name, axis in disk.named(self.axes).items() if axis >= 0}
        return parts.Own(named, self.layout.mine(self.lanes))


def write(
    run: Path,
    point: Point,
    learner: Learner,
    optimiser: dict[str, Any],
    keep: int,
    across: Across | None = None,
) -> Path:
    """One more checkpoint, which `kronline.load` opens too; all but the newest `keep` are deleted.

    Args:
        run: the run's folder.
        point: what is saved; in a run of many processes, this process's part.
        learner: whose state is in it.
        optimiser: the fingerprint of the learner's.
        keep: how many checkpoints there may be.
        across: how it is split over processes; None: there is one.
    """
    path = checkpoint.at_step(run, point.step)
    path.parent.mkdir(exist_ok=True)
    about: dict[str, Any] = {
        "step": point.step,
        "metrics": point.metrics,
        "best_step": point.best_step,
    }
    if across is not None:
        if not processes.first():
            _write_part(path, point.saved, across)
            return path
        about |= {"split": _gathered(path, across)}
    checkpoint.write(path, point.saved, learner, at=LEARNER, optimiser=optimiser, **about)
    for old in checkpoint.files(run)[keep:]:
        parts.remove(old)
    return path


def _write_part(path: Path, saved: Saved, across: Across) -> None:
    """The lanes of a process other than 0, which is told when they are on disk."""
    axes, lanes = across.part()
    arrays = {name: np.asarray(a) for name, a in disk.named(saved).items() if name in axes}
    sha256 = parts.write(path, jax.process_index(), arrays)
    said = json.dumps([lanes.start, lanes.stop, sha256])
    processes.put(f"{path.name} {jax.process_index()}", said)


def _gathered(path: Path, across: Across) -> dict[str, Any]:
    """In process 0: wait until all others have written, and note what."""
    axes, lanes = across.part()
    found: list[Any] = [[lanes.start, lanes.stop, None]]
    for process in range(1, jax.process_count()):
        name = f"{path.name} {process}"
        found.append(json.loads(processes.got(name)))
        processes.forget(name)
    split = parts.Split(axes, [f[:2] for f in found], [f[2] for f in found])
    return split._asdict()


def newest(run: Path, like: Saved, across: Across | None = None) -> Point | None:
    """The newest checkpoint that is whole; None if there is none.

    Damaged ones are put aside under another name, with a warning.

    Args:
        run: the run's folder.
        like: shapes of what was saved.
        across: how it is to be split over processes; None: there is one.

    Raises:
        UsageError: if a whole one does not fit: the configuration was changed, and it is not lost.
    """
    if processes.first():
        for beside in (run / checkpoint.FOLDER).glob(".*"):
            beside.unlink(missing_ok=True)  # a kill left it half-written
        for part in parts.orphans(run / checkpoint.FOLDER, checkpoint.files(run)):
            part.unlink(missing_ok=True)
    processes.meet()
    for path in checkpoint.files(run):
        problem, read_ = "one of its parts is damaged", None
        try:
            read_ = checkpoint.read(path, across and across.part())
        except ValueError as e:
            problem = str(e)
        if processes.highest(read_ is None):  # for all, if for one
            if processes.first():
                aside = path.with_suffix(".damaged")
                path.rename(aside)
                warnings.warn(
                    f"{problem}; put aside as {aside.name}, going on from the one before it",
                    stacklevel=2,
                )
            continue
        assert read_ is not None
        if across is None:
            return _point(path, like, *read_)
        point = _point(path, across.like(like), *read_)
        return point._replace(saved=across.joined(point.saved))
    return None


def read(path: Path, like: Saved) -> Point:
    """One checkpoint."""
    return _point(path, like, *checkpoint.read(path))


def _point(path: Path, like: Saved, header: dict[str, Any], arrays: disk.Arrays) -> Point:
    try:
        saved = disk.filled(path, like, arrays, header["keys"])
    except ValueError as e:
        raise UsageError(f"{e}; was its {CONFIG} changed, or kronline? Then start anew") from e
    return Point(saved, header["step"], header["metrics"], header["best_step"])


def latest_params(run: Path, like: Saved) -> tuple[Params, int]:
    """The parameters to use: those best in validation, or the newest; and the step they are of."""
    problem: Exception | None = None
    for path in checkpoint.files(run):
        try:
            point = read(path, like)
        except ValueError as e:
            problem = e
            continue
        if point.saved.best is not None and point.best_step:
            return point.saved.best.params, point.best_step
        return point.saved.training.learner.params, point.step
    raise UsageError(f"{run} has no checkpoint yet: {problem or 'train it for longer'}")


def not_finite(saved: Saved) -> str | None:
    """The name of an array that holds NaN or infinity; None if all is well.

    In a run of many processes: of any process's part.
    """
    found = _not_finite(saved)
    if processes.highest(found is not None) and found is None:
        return "what another process has"
    return found


def _not_finite(saved: Saved) -> str | None:
    for name, leaf in disk.named(saved.training).items():
        if jnp.issubdtype(leaf.dtype, jax.numpy.floating) and not np.isfinite(leaf).all():
            return name
    return None


def step_of(file: Path) -> int:
    """By its name."""
    return int(file.stem.removeprefix("step-"))


def shapes(training: Any, with_best: bool) -> Saved:
    """What a checkpoint of this run holds."""
    like = jax.eval_shape(training)
    bits: Any = jax.ShapeDtypeStruct((), np.float32)
    best = Best(like.learner.params, bits) if with_best else None
    return Saved(like, best)

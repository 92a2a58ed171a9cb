"""Checkpoints of a run: everything that goes on, in files that are whole or absent.

A checkpoint also knows how long metrics.jsonl was when it was written. What was measured after it
is cut off on resuming, and measured again.
"""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from kronline import Learner, checkpoint, disk
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


def write(run: Path, point: Point, learner: Learner, optimiser: dict[str, Any], keep: int) -> Path:
    """One more checkpoint, which `kronline.load` opens too; all but the newest `keep` are deleted.

    Args:
        run: the run's folder.
        point: what is saved.
        learner: whose state is in it.
        optimiser: the fingerprint of the learner's.
        keep: how many checkpoints there may be.
    """
    path = checkpoint.at_step(run, point.step)
    path.parent.mkdir(exist_ok=True)
    about = {"step": point.step, "metrics": point.metrics, "best_step": point.best_step}
    checkpoint.write(path, point.saved, learner, at=LEARNER, optimiser=optimiser, **about)
    for old in checkpoint.files(run)[keep:]:
        old.unlink(missing_ok=True)
    return path


def newest(run: Path, like: Saved) -> Point | None:
    """The newest checkpoint that is whole; None if there is none.

    Damaged ones are put aside under another name, with a warning.

    Args:
        run: the run's folder.
        like: shapes of what was saved.

    Raises:
        UsageError: if a whole one does not fit: the configuration was changed, and it is not lost.
    """
    for beside in (run / checkpoint.FOLDER).glob(".*"):
        beside.unlink(missing_ok=True)  # a kill left it half-written
    for path in checkpoint.files(run):
        try:
            read_ = checkpoint.read(path)
        except ValueError as e:
            aside = path.with_suffix(".damaged")
            path.rename(aside)
            warnings.warn(
                f"{e}; put aside as {aside.name}, going on from the one before it", stacklevel=2
            )
            continue
        return _point(path, like, *read_)
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
    """The name of an array that holds NaN or infinity; None if all is well."""
    for name, leaf in disk.named(saved.training).items():
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating) and not np.isfinite(leaf).all():
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

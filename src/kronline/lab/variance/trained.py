"""Trained networks: from text runs, or trained here first."""

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

from kronline.errors import UsageError
from kronline.estimators.base import Params
from kronline.lab.runs import command, folder
from kronline.lab.runs.settings import TextRun
from kronline.lab.tasks.corpus import Corpus
from kronline.lab.variance.settings import Variance
from kronline.learner import Learner

METHOD = "tbptt(25)"  # none of those whose noise is looked at
RATE = 10**-2.5


def trained(run: Path, data: str | None = None) -> tuple[Learner, Params, Corpus]:
    """A run's network as it did best in validation, and the text that it was trained on.

    Args:
        run: the folder of a text run.
        data: where the text lies now, if it was moved.
    """
    experiment, params, _ = command.load(run, data)
    if experiment.corpus is None:
        raise UsageError(f"{run} is no text run: needed one of `kronline train text`")
    return experiment.learner, params, experiment.corpus


def as_trained(s: Variance, run: Path) -> Variance:
    """The settings with the cell and the size of that run's network."""
    its = folder.read(run).config
    return replace(s, cell=str(its["cell"]), hidden=int(its["hidden"]))


def train(at: Path, s: Variance) -> int:
    """Train the network of a table, unless it lies there already; an exit code.

    Args:
        at: where its run lies, or is to lie.
        s: the table's settings.
    """
    steps, often = s.train_steps, max(1, s.train_steps // 10)
    run = TextRun(
        out=at,
        cell=s.cell,
        hidden=s.hidden,
        estimator=METHOD,
        rate=RATE,
        lanes=s.lanes,
        seed=s.seed,
        data=s.data,
        steps=steps,
        log_every=often,
        save_every=steps,
        valid_every=often,
    )
    with contextlib.redirect_stdout(sys.stderr):  # what is found is printed by the table
        if not folder.is_run(at):
            return command.train(run)
        return command.resume(command.Resume(at, data=s.data)) if _unfinished(at) else 0


def _unfinished(at: Path) -> bool:
    return folder.read(at).state != "finished"

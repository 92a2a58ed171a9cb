"""Trained networks, from text runs."""

from pathlib import Path

from kronline.errors import UsageError
from kronline.learner import Learner
from kronline.online import Params
from kronline.runs import command
from kronline.tasks.corpus import Corpus


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

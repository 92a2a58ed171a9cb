"""Trained networks: from text runs, or trained here first."""

from dataclasses import replace
from pathlib import Path

from kronline import Learner
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.lab.runs import folder
from kronline.lab.runs import train as runs
from kronline.lab.tasks.corpus import Corpus
from kronline.lab.tasks.text import TextTask
from kronline.lab.variance.settings import Variance

METHOD = "tbptt(25)"  # none of those whose noise is looked at
RATE = 10**-2.5


def trained(run: Path, data: str | None = None) -> tuple[Learner, Params, Corpus]:
    """A run's network as it did best in validation, and the text that it was trained on.

    Args:
        run: the folder of a text run.
        data: where the text lies now, if it was moved.
    """
    task, exp, params, _ = runs.load(run, data)
    if not isinstance(task, TextTask):
        raise UsageError(f"{run} is no text run: needed one of `kronline train text`")
    return exp.learner, params, exp.source


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
    task = TextTask(
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
    if not folder.is_run(at):
        end = runs.new(task)[1]
    elif folder.read(at).state != "finished":
        end = runs.go_on(at, s.data)
    else:
        return 0
    return end.code

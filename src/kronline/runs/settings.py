"""What a training run can be told, and the learner, task and data that it means."""

import abc
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import optax

from kronline import lanes as layouts
from kronline import names
from kronline.errors import UsageError
from kronline.learner import Learner
from kronline.readout import softmax
from kronline.tasks.copy import SYMBOLS, Copy
from kronline.tasks.corpus import Corpus, read
from kronline.tasks.text import Text
from kronline.train import Task


class Experiment(NamedTuple):
    """A configuration made real."""

    learner: Learner
    task: Task
    data: Any  # the training text, on the device; nothing for a task that makes its own
    steps: int
    corpus: Corpus | None = None


@dataclass(frozen=True)
class Train(abc.ABC):
    """What all training runs have in common."""

    preset: str = ""  # paper or laptop: a whole configuration; what else is given overrides it
    config: Path | None = None  # a TOML file; overrides the preset, and flags override it
    out: Path | None = None  # the run's folder (default: a new one in runs/)
    cell: str = "RHN"  # RHN, Tanh, LSTM, GRU, DeepRHN(depth=2), ..., or file.py:NAME
    hidden: int = 128  # units
    estimator: str = "kf_rtrl"  # kf_rtrl, uoro(copies=4), tbptt(25), ..., or file.py:NAME
    optimiser: str = "adam"  # adam, adamw, sgd(momentum=0.9), rmsprop, radam
    rate: float = 10**-3  # learning rate
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # of the rate, down to zero
    clip: float | None = None  # the gradient's norm is clipped to this
    # row_norm(1), spectral(1), activation(0.01), noise(0.1); several with + between them
    regulariser: str | None = None
    lanes: int = 16  # streams that are learnt from at once
    update_every: int | None = None  # steps between updates (default: as the estimator gives them)
    seed: int = 0  # of weights, noise and data: the same seed gives the same run
    log_every: int = 1000  # steps between lines of metrics; a stop signal waits for the next one
    save_every: int = 10_000  # steps between checkpoints
    keep: int = 2  # how many checkpoints are kept
    # write a TensorBoard log, too (needs the extra: kronline[tensorboard])
    tensorboard: bool = False
    monitor: bool = False  # measure how noisy gradients are, too: snr and noise in the metrics
    print_config: bool = False  # print the resolved configuration, with reasons, and stop
    json: bool = False  # print one JSON object at the end

    KIND: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name in ("hidden", "lanes", "log_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise UsageError(f"rate must be a positive number, got {self.rate}")
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip must be a positive number or none, got {self.clip}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed must be between 0 and 2^32 - 1, got {self.seed}")

    @abc.abstractmethod
    def build(self) -> Experiment:
        """The run, ready to start."""

    def learner(self, symbols: int, steps: int) -> Learner:
        """The network and how it learns."""
        cell = names.parse(self.cell, names.CELLS, "cell", self.hidden, symbols)
        estimator = names.parse(self.estimator, names.ESTIMATORS, "estimator")
        updates = max(1, steps // (self.update_every or estimator.span or steps))
        rate: Any = {
            "constant": self.rate,
            "linear": optax.linear_schedule(self.rate, 0.0, updates),
            "cosine": optax.cosine_decay_schedule(self.rate, updates),
        }[self.schedule]
        optimiser = names.parse(self.optimiser, names.OPTIMISERS, "optimiser", rate)
        regularisers = tuple(
            names.parse(text, names.REGULARISERS, "regulariser")
            for text in (names.split(self.regulariser, "+") if self.regulariser else ())
        )
        if self.clip is not None:
            optimiser = optax.chain(optax.clip_by_global_norm(self.clip), optimiser)
        try:
            return Learner(
                cell,
                softmax(symbols),
                estimator,
                optimiser,
                layout=layouts.best(self.lanes),
                update_every=self.update_every,
                regularisers=regularisers,
            )
        except (TypeError, ValueError) as e:
            raise UsageError(str(e)) from e


@dataclass(frozen=True)
class CopyRun(Train):
    """Learn to write out a binary string that was read before (section 5.1 of the paper).

    The curriculum's T starts at 1 and grows by one whenever the error is small. Strings have T - 5
    to T bits; shorter ones are no longer drawn, and are forgotten. Reports T; right_trained, the
    share of bits right at the end over those lengths; and solved, the largest length L of which all
    lengths L - 5 to L have 99 % of bits right. The run is a folder; stop it with Ctrl-C, go on with
    `kronline resume`.

    Try:
        kronline train copy --preset laptop
        kronline train copy --preset laptop --estimator "tbptt(5)" --seed 1
        kronline train copy --config my.toml --cell LSTM --rate 0.001
    """

    steps: int = 100_000  # characters that each lane reads
    delay: Literal["short", "paper"] = "short"  # lag T + 1, or 2(T + 1) as in the paper's figure
    threshold: float = 0.15  # bits/char below which T grows
    spread: int = 5  # lengths are drawn from T - spread to T; shorter ones are forgotten
    smoothing: float = 0.999  # of the error: an exponential mean, a step
    restart: float = 0.3  # which is set to this after each growth
    max_length: int = 64  # where T stops growing

    KIND: ClassVar[str] = "copy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise UsageError(f"steps must be >= 1, got {self.steps}")
        self.task()

    def task(self) -> Copy:
        """The stream."""
        return Copy(
            self.delay,
            self.threshold,
            self.spread,
            self.smoothing,
            self.restart,
            self.max_length,
        )

    def build(self) -> Experiment:
        """The run, ready to start."""
        learner = self.learner(SYMBOLS, self.steps)
        return Experiment(learner, self.task(), (), _whole(self.steps, learner))


@dataclass(frozen=True)
class TextRun(Train):
    """Learn to predict the next character of a text (section 5.2 of the paper).

    Reports bits per character: on the training stream as it comes, on the validation text now and
    then, on the test text at the end, with the parameters that were best in validation. The run is
    a folder; stop it with Ctrl-C, go on with `kronline resume`, and try `kronline sample`.

    Try:
        kronline train text --preset laptop
        kronline train text --data book.txt --cell LSTM --epochs 3
        kronline train text --data ptb --estimator "tbptt(25)" --preset paper
    """

    # a folder, three files a,b,c, one file, or ptb; none: the topics of Python's own help
    data: str | None = None
    epochs: float = 3.0  # how often the training text is read
    steps: int | None = None  # characters that each lane reads, instead of epochs
    reset: float = 0.01  # probability, a step and lane, that state and trace start anew
    valid_every: int = 10_000  # steps between validations

    KIND: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"steps must be >= 1, got {self.steps}")
        if not (self.epochs > 0 and math.isfinite(self.epochs)):
            raise UsageError(f"epochs must be a positive number, got {self.epochs}")
        if self.valid_every < 1:
            raise UsageError(f"valid_every must be >= 1, got {self.valid_every}")
        if not 0 <= self.reset <= 1:
            raise UsageError(f"reset is a probability, between 0 and 1, got {self.reset}")

    def build(self) -> Experiment:
        """The run, ready to start."""
        corpus = read(self.data)
        characters = len(corpus.train)
        if characters < 2 * self.lanes:
            raise UsageError(
                f"{self.lanes} lanes need a training text of at least {2 * self.lanes} characters, "
                f"got {characters}; use fewer --lanes"
            )
        steps = self.steps or max(1, round(self.epochs * characters / self.lanes))
        learner = self.learner(len(corpus.symbols), steps)
        data = jnp.asarray(corpus.train)
        task = Text(characters, self.reset)
        return Experiment(learner, task, data, _whole(steps, learner), corpus)


KINDS: dict[str, type[Train]] = {"copy": CopyRun, "text": TextRun}


def _whole(steps: int, learner: Learner) -> int:
    """Rounded up to whole segments."""
    k = learner.estimator.span or 1
    return -(-steps // k) * k


def named(config: Train) -> str:
    """A folder's name for a run."""
    method = "".join(c if c.isalnum() else "-" for c in config.estimator.rpartition(":")[2])
    return f"{config.KIND}-{method.strip('-')}-n{config.hidden}-seed{config.seed}"

"""What a task is: one class, all that the laboratory needs to know of a problem.

The class is what runs are configured by: its fields are the flags of `kronline train NAME`, and the
settings of a TOML file. An instance is one configuration, and builds the run. What holds for every
run of the task, how it is measured, labelled, plotted and judged, is said by the class itself.

A new task is one file in this folder, and one line in `registry.py`.
"""

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from kronline import Learner
from kronline.errors import UsageError
from kronline.estimators import Params, Segment
from kronline.lab.tasks.paper import RATES, SEEDS, Difference, Published
from kronline.lab.tasks.quantity import Profile, Quantity
from kronline.lab.tasks.settings import Settings
from kronline.learner import State

SETTLED = 100  # steps after which the noise of a trace has settled
APART = 20  # steps between places at which noise is looked at


class Stream(Protocol):
    """Steps of every lane, made inside the compiled program; it may react to how they are learnt.

    It is a static argument of compiled programs: hashable, and equal if it gives the same steps.
    """

    def init(self, key: Key[Array, ""], lanes: int) -> Any:
        """Where the stream starts."""

    def batch(self, state: Any, data: Any, steps: int) -> tuple[Any, Segment]:
        """The next steps, (steps, lanes), out of the data that the stream needs, if any."""

    def measured(self, loss: Float[Array, "steps lanes"]) -> Float[Array, "steps lanes"]:
        """The readout's loss in the unit in which it is reported: bits, for instance."""

    def feedback(self, state: Any, loss: Float[Array, "steps lanes"]) -> Any:
        """Told the measured losses of these steps."""


class Training(NamedTuple):
    """A run between two stretches of steps: all that goes on."""

    learner: State
    task: Any  # the stream's state


class Best(NamedTuple):
    """The parameters that did best in validation."""

    params: Params
    bits: Float[Array, ""]


class Experiment(NamedTuple):
    """A configuration made real."""

    learner: Learner
    stream: Stream
    data: Any  # what the stream needs, on the device; nothing for one that makes its own
    steps: int  # whole segments
    about: dict[str, Any] = {}  # noqa: RUF012  what a run writes down of its data; never changed
    source: Any = None  # the data as it was read, for what is measured


class Meter(abc.ABC):
    """What is measured of one run, by one process."""

    best: Best | None = None  # only of a task that keeps the best parameters
    best_step = 0
    note = ""  # for the progress line

    @abc.abstractmethod
    def now(self, training: Training, step: int, loss: Float[np.ndarray, " steps"]) -> Any:
        """On the way, after some steps with these losses: more of their line of metrics."""

    @abc.abstractmethod
    def last(self, training: Training, step: int) -> dict[str, Any]:
        """The last line of metrics."""


class Probe(NamedTuple):
    """One lane of the stream, and the times at which the noise of gradients is looked at."""

    steps: Segment
    times: tuple[int, ...]


class Told(NamedTuple):
    """How outcomes are told, with the number in place of {}."""

    lead: str  # LEAD: A FIRST, B THEN and C THEN
    first: str
    then: str
    alone: str  # a number by itself


class Outcome(Protocol):
    """Runs that differ in the seed alone, as the analysis gives them to a task's words."""

    @property
    def label(self) -> str:
        """By which it is told apart from others."""

    @property
    def method(self) -> str:
        """As it is known: KF-RTRL."""

    @property
    def config(self) -> dict[str, Any]:
        """The settings that all its runs have."""

    @property
    def horizon(self) -> int | None:
        """Over how many steps gradients reach, for a method that cuts them off; else None."""

    @property
    def abouts(self) -> list[dict[str, Any]]:
        """What each run wrote down of itself."""

    def text(self, quantity: Quantity) -> str:
        """Mean and deviation of a quantity over seeds; a dash if it was not measured."""

    def has(self, quantity: Quantity) -> bool:
        """Whether it was measured."""


@dataclass(frozen=True)
class Task(Settings, abc.ABC):
    """A problem that networks are trained on."""

    # what it is called: `kind` is its name on the command line and in run folders
    title: ClassVar[str]  # of its section on a page
    link: ClassVar[str]  # to that section
    subject: ClassVar[str]  # within a sentence
    figure: ClassVar[str]  # of the paper's, which the section is about
    facet: ClassVar[str] = ""  # a setting whose values are shown apart, each in a figure of its own

    # what is measured: `curve` on the way, `numbers` of a run that has ended
    loss: ClassVar[str] = "bits"  # the stream's measured loss, in metrics.jsonl,
    loss_axis: ClassVar[str] = "bits/char"  # and beside an axis
    curve: ClassVar[Quantity]
    numbers: ClassVar[tuple[Quantity, ...]]
    profile: ClassVar[Profile | None] = None
    of_one_run: ClassVar[tuple[tuple[str, str], ...]] = ()  # (key, name) of curves in one panel,
    # for a single run's own figure; none: the panels that several runs have
    legend: ClassVar[str] = ""  # what the names of numbers mean, below a table in the terminal

    # what counts as better
    score: ClassVar[Quantity]  # by which learning rates are picked
    lower: ClassVar[bool] = True  # is better
    earlier: ClassVar[bool] = False  # of equals, the one that arrived there earlier is better
    rule: ClassVar[str]  # all that in words
    keeps_best: ClassVar[bool] = False  # parameters, by validation: in checkpoints

    # what a sweep trains, unless told otherwise
    methods: ClassVar[tuple[str, ...]]
    rates: ClassVar[tuple[float, ...]] = RATES
    seeds: ClassVar[tuple[int, ...]] = tuple(range(SEEDS))

    # what is said
    told: ClassVar[Told]
    paper: ClassVar[Published]

    @abc.abstractmethod
    def build(self) -> Experiment:
        """The run, ready to start."""

    @abc.abstractmethod
    def meter(self, exp: Experiment) -> Meter:
        """What measures this run."""

    def guessing(self, exp: Experiment) -> float | None:
        """The measured loss of guessing, by which an absurd one is known; None: not known."""
        readout = exp.learner.readout
        symbols = readout is not None and readout.targets == "symbols"
        return math.log2(readout.outputs) if readout is not None and symbols else None

    def moved(self, data: str) -> "Task":
        """With data that lies elsewhere now; for tasks that read some."""
        raise UsageError(f"--data is for runs that read a file; a run of {self.kind} reads none")

    # -- of gradients' noise, for `kronline compare` -----------------------------------------------

    def lane(self, exp: Experiment, steps: int) -> Segment:
        """So many steps of one lane, from the start of the stream."""
        state = exp.stream.init(jax.random.key(0), 1)
        seg = exp.stream.batch(state, exp.data, steps)[1]
        return jax.tree.map(lambda a: a[:, 0], seg)

    def probe(
        self, exp: Experiment, reached: Sequence[float], places: int, loss_steps: int, longest: int
    ) -> Probe:
        """The same for all networks that are compared.

        Args:
            exp: one of the runs.
            reached: the last value of `curve`, of each run.
            places: how many times are looked at.
            loss_steps: how many losses are summed up at each.
            longest: a segment of any method, which has to be read to its end.
        """
        apart = max(APART, loss_steps) + 1  # at many offsets to a segment
        times = [max(SETTLED, loss_steps) + apart * i for i in range(places)]
        steps = self.lane(exp, times[-1] + longest)
        return Probe(steps, tuple(t for t in times if t + longest <= len(steps.reset)))

    # -- what a run says ---------------------------------------------------------------------------

    @classmethod
    @abc.abstractmethod
    def note(cls, line: dict[str, Any]) -> str:
        """A line of metrics in short, for the progress of several runs."""

    @classmethod
    def reread(cls, metrics: list[dict[str, Any]], config: dict[str, Any]) -> list[dict[str, Any]]:
        """A run's metrics as this version measures them; runs of earlier versions may differ."""
        return metrics

    @classmethod
    def called(cls, key: str, value: str) -> str | None:
        """One of the task's own settings, within a label; None: as any setting is."""
        return None

    @classmethod
    def about(cls, groups: Sequence[Outcome]) -> str:
        """What these runs are about, for a title."""
        return cls.subject

    @classmethod
    @abc.abstractmethod
    def intro(cls, groups: Sequence[Outcome]) -> str:
        """The task in a few sentences, above its figure."""

    @classmethod
    @abc.abstractmethod
    def table_title(cls, groups: Sequence[Outcome]) -> str:
        """Of the table of numbers."""

    @classmethod
    def caption(cls, groups: Sequence[Outcome]) -> str:
        """What the figure's caption says besides what is drawn."""
        return ""

    @classmethod
    def levels(cls, groups: Sequence[Outcome]) -> dict[float, str]:
        """Heights of the curve that mean something, and what."""
        return {}

    @classmethod
    def learnt(cls, group: Outcome) -> str:
        """More of one outcome, in the summary's headline."""
        return ""

    @classmethod
    def remarks(cls, groups: Sequence[Outcome]) -> list[str]:
        """Sentences behind the summary's headline."""
        return []

    # -- what the paper has ------------------------------------------------------------------------

    @classmethod
    @abc.abstractmethod
    def published(cls, method: str, config: dict[str, Any]) -> Any:
        """The paper's numbers for a method, as JSON has them; None if it has none."""

    @classmethod
    @abc.abstractmethod
    def published_cells(cls, method: str, config: dict[str, Any]) -> tuple[str, ...]:
        """The same for the columns `paper.heads`."""

    @classmethod
    def differences(cls, groups: Sequence[Outcome]) -> list[Difference]:
        """What the paper leaves open, or what is done in another way on purpose."""
        return []

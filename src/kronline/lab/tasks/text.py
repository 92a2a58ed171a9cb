"""Character-level language modelling (section 5.2 of the paper): predict the next character.

Lanes read the training text from evenly spaced places, for ever round. Validation and test start
from the zero state and count every character.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline import Learner, softmax
from kronline.errors import UsageError
from kronline.estimators import Params, Segment
from kronline.lab.tasks import paper
from kronline.lab.tasks.base import Best, Experiment, Meter, Outcome, Task, Told, Training
from kronline.lab.tasks.corpus import PTB_SHA256, read
from kronline.lab.tasks.paper import NOT_STATED, Difference, Published, Setting
from kronline.lab.tasks.quantity import Quantity
from kronline.lab.tasks.settings import whole
from kronline.lab.wording import listed, rounded, short

PIECES = 64  # into which a text is cut to be evaluated side by side,
SHORTEST = 1000  # none shorter than this;
WARM_UP = 100  # characters that each but the first reads ahead, uncounted, to be in context


class TextState(NamedTuple):
    """Where every lane stands in the text."""

    key: Key[Array, ""]
    at: Int[Array, " lanes"]


@dataclass(frozen=True)
class Text:
    """The stream of characters; the text itself is handed to `batch`.

    Args:
        characters: the length of the training text.
        reset: the probability, per step and lane, that state and trace start anew.
    """

    characters: int
    reset: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.reset <= 1:
            raise ValueError(f"reset is a probability, between 0 and 1, got {self.reset}")

    def init(self, key: Key[Array, ""], lanes: int) -> TextState:
        """Lanes at evenly spaced places."""
        if self.characters < 2 * lanes:
            raise ValueError(
                f"{lanes} lanes need a training text of at least {2 * lanes} characters, got "
                f"{self.characters}; use fewer lanes"
            )
        starts = np.arange(lanes, dtype=np.int64) * self.characters // lanes
        return TextState(key, jnp.asarray(starts, jnp.int32))

    def batch(
        self, state: TextState, data: Int[Array, " characters"], steps: int
    ) -> tuple[TextState, Segment]:
        """The next steps of every lane, (steps, lanes)."""
        key, now = jax.random.split(state.key)
        at = (state.at[None] + jnp.arange(steps + 1, dtype=jnp.int32)[:, None]) % self.characters
        x = data[at]
        anew = jax.random.bernoulli(now, self.reset, (steps, state.at.shape[0]))
        first = at[:-1] == 0  # the text begins again: nothing before it, and nothing leads to it
        weight = (at[1:] != 0).astype(jnp.float32)
        return TextState(key, at[-1]), Segment(x[:-1], x[1:], anew | first, weight)

    def measured(self, loss: Float[Array, "steps lanes"]) -> Float[Array, "steps lanes"]:
        """In bits."""
        return loss / jnp.log(2.0)

    def feedback(self, state: TextState, bits: Float[Array, "steps lanes"]) -> TextState:
        """Nothing depends on the losses."""
        return state


def pieces(text: Int[np.ndarray, " characters"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A text cut into pieces, side by side: x, y and which predictions count, (steps, pieces).

    Every character but the first is predicted once. Each piece begins from the zero state, some
    characters ahead of those that count; the first begins where the text does.
    """
    targets = len(text) - 1
    count = min(PIECES, max(1, targets // SHORTEST))
    edges = np.arange(count + 1) * targets // count  # of what counts
    begin = np.maximum(edges[:-1] - WARM_UP, 0)
    at = begin + np.arange((edges[1:] - begin).max())[:, None]
    counts = (at >= edges[:-1]) & (at < edges[1:])
    at = np.minimum(at, targets - 1)
    return text[at], text[at + 1], counts


def bits_per_character(
    learner: Learner, params: Params, cut: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> float:
    """Of a text in `pieces`, without learning."""
    x, y, counts = cut
    loss: Any = np.asarray(learner.evaluate(params, x, y).loss, np.float64)
    return float(loss[counts].mean() / np.log(2))


# -- the task --------------------------------------------------------------------------------------

VALID = Quantity("valid", "validation", "validation bits/char", of_run="least", scale="falling")
TEST = Quantity("test", "test", "test bits/char")
# Table 1; "we do not report standard deviations, as all of them are smaller than 0.03"
PAPER_BITS = {
    "KF-RTRL": {"valid": 1.77, "test": 1.72},
    "UORO": {"valid": 2.63, "test": 2.61},
    "TBPTT-5": {"valid": 1.64, "test": 1.58},
    "TBPTT-25": {"valid": 1.61, "test": 1.56},
}
PAPER_STD = 0.03


@dataclass(frozen=True)
class TextTask(Task):
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
    reset: float = 0.01  # probability, per step and lane, that state and trace start anew
    valid_every: int = 10_000  # steps between validations

    kind: ClassVar[str] = "text"
    title: ClassVar[str] = "Text, character by character"
    link: ClassVar[str] = "Text"
    subject: ClassVar[str] = "a text"
    figure: ClassVar[str] = "Figure 2 · Table 1"

    curve: ClassVar[Quantity] = VALID
    numbers: ClassVar[tuple[Quantity, ...]] = (VALID, TEST)
    of_one_run: ClassVar[tuple[tuple[str, str], ...]] = (
        ("bits", "training"),
        ("valid", "validation"),
    )

    score: ClassVar[Quantity] = VALID
    rule: ClassVar[str] = (
        "the lowest mean best validation bits/char; rates with which a run diverged come last"
    )
    keeps_best: ClassVar[bool] = True

    methods: ClassVar[tuple[str, ...]] = ("kf_rtrl", "uoro", "tbptt(5)", "tbptt(25)")

    told: ClassVar[Told] = Told(
        "Validation", "comes down to {} bits per character", "to {}", "{} bits per character"
    )
    paper: ClassVar[Published] = Published(
        paper.CITATION,
        (
            *paper.NETWORK,
            Setting("data", "text", "Penn Treebank", "bits/char of two texts cannot be compared"),
            Setting("reset", "probability of a reset per step", 0.01, "drops stale gradients"),
        ),
        ("paper's validation", "paper's test"),
        note=f"The paper's deviations are below {PAPER_STD}.",
    )

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
        """The run, ready to start; `source` is the corpus."""
        corpus = read(self.data)
        characters, symbols = len(corpus.train), len(corpus.symbols)
        if characters < 2 * self.lanes:
            raise UsageError(
                f"{self.lanes} lanes need a training text of at least {2 * self.lanes} characters, "
                f"got {characters}; use fewer --lanes"
            )
        steps = self.steps or max(1, round(self.epochs * characters / self.lanes))
        learner = self.learner(self.network(symbols), softmax(symbols), steps)
        return Experiment(
            learner,
            Text(characters, self.reset),
            jnp.asarray(corpus.train),
            whole(steps, learner),
            {"data": corpus.about(), "symbols": "".join(corpus.symbols)},
            corpus,
        )

    def meter(self, exp: Experiment) -> "TextMeter":
        """What measures this run."""
        return TextMeter(self, exp)

    def moved(self, data: str) -> "TextTask":
        """With the text where it lies now."""
        return replace(self, data=data)

    def lane(self, exp: Experiment, steps: int) -> Segment:
        """The beginning of the text, without resets."""
        text = jnp.asarray(exp.source.train[: steps + 1], jnp.int32)
        n = len(text) - 1
        return Segment(text[:-1], text[1:], jnp.zeros(n, bool), jnp.ones(n))

    @classmethod
    def note(cls, line: dict[str, Any]) -> str:
        """Of the training stream."""
        return f"{line['bits']:.3f} bits/char"

    @classmethod
    def about(cls, groups: Sequence[Outcome]) -> str:
        """The names of the texts."""
        return listed(sorted({short(str(g.config.get("data"))) for g in groups}))

    @classmethod
    def intro(cls, groups: Sequence[Outcome]) -> str:
        """What has to be learnt."""
        warn = (
            " The paper's text is the Penn Treebank, so its numbers stand beside ours for their "
            "order and distance, not to be equalled."
        )
        return (
            "The network reads a text character by character, and at each one predicts the next. "
            "Less is better; a bit is one yes-or-no question."
            f"{'' if all(map(is_ptb, groups)) else warn}"
        )

    @classmethod
    def table_title(cls, groups: Sequence[Outcome]) -> str:
        """Of the table of numbers."""
        return f"Bits per character on {cls.about(groups)}, beside the paper's on the Penn Treebank"

    @classmethod
    def remarks(cls, groups: Sequence[Outcome]) -> list[str]:
        """The test, and what the paper has."""
        tests = listed([f"{g.label} {g.text(TEST)}" for g in groups if g.has(TEST)])
        theirs = listed([f"{m} {bits['valid']}" for m, bits in PAPER_BITS.items()])
        other = "" if all(map(is_ptb, groups)) else ", on the Penn Treebank, another text"
        return [
            "That is on validation text.",
            *([f"On test text: {tests}."] if tests else []),
            f"In the paper, on validation text: {theirs}{other}.",
        ]

    @classmethod
    def published(cls, method: str, config: dict[str, Any]) -> dict[str, float] | None:
        """Bits per character of validation and test."""
        return PAPER_BITS.get(method)

    @classmethod
    def published_cells(cls, method: str, config: dict[str, Any]) -> tuple[str, ...]:
        """The same, a column each."""
        bits = PAPER_BITS.get(method)
        return (f"{bits['valid']:.2f}", f"{bits['test']:.2f}") if bits else ("–", "–")

    @classmethod
    def differences(cls, groups: Sequence[Outcome]) -> list[Difference]:
        """What the paper leaves open."""
        sizes = {about["parameters"] for g in groups for about in g.abouts if "parameters" in about}
        return [
            Difference(
                "test", "once, with what was best in validation", NOT_STATED, "the usual way"
            ),
            Difference(
                "parameters",
                listed(sorted(f"{int(n):,}" for n in sizes)) or NOT_STATED,
                "133K",
                "133K is (256 + 4) · 512: the copy task's recurrent weights, no bias, no readout",
            ),
        ]


def is_ptb(group: Outcome) -> bool:
    """Whether the text is the paper's, by its checksum."""
    data = (about.get("data", {}) for about in group.abouts)
    return all(d.get("sha256", {}).get("train") == PTB_SHA256 for d in data)


class TextMeter(Meter):
    """Bits per character: of validation now and then, of the test at the end."""

    def __init__(self, task: TextTask, exp: Experiment):
        self.learner, self.corpus, self.steps = exp.learner, exp.source, exp.steps
        self.lanes, self.every = task.lanes, task.valid_every
        self.valid = pieces(self.corpus.valid)

    def now(self, training: Training, step: int, loss: Float[np.ndarray, " steps"]) -> Any:
        """The epoch, and validation when it is due."""
        assert self.best is not None
        line = {"epoch": rounded(step * self.lanes / len(self.corpus.train))}
        before = step - len(loss)
        if step // self.every > before // self.every or step == self.steps:
            params = training.learner.params
            line["valid"] = valid = rounded(bits_per_character(self.learner, params, self.valid))
            if valid < float(self.best.bits):
                # a copy: the next chunk works in the memory of these
                self.best = Best(jax.tree.map(jnp.copy, params), jnp.float32(valid))
                self.best_step = step
        self.note = TextTask.note({"bits": loss.mean()})
        if self.best_step:
            self.note += f", best in validation {float(self.best.bits):.3f}"
        return line

    def last(self, training: Training, step: int) -> dict[str, Any]:
        """The test, with the parameters that were best in validation."""
        assert self.best is not None
        test = bits_per_character(self.learner, self.best.params, pieces(self.corpus.test))
        best = {"valid": rounded(self.best.bits), "valid_step": self.best_step}
        return {"step": step} | best | {"test": rounded(test)}

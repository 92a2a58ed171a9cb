"""The copy task (section 5.1 of the paper): read a binary string, then write it out again.

The strings and their curriculum are in `strings.py`. T is the curriculum's length, not what was
learnt: only the lengths T − spread .. T are drawn, and shorter ones are forgotten. So a run ends
with fresh strings of every length, and with two numbers beside T: the share of bits right over the
lengths that are drawn at T, and the solved length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kronline import Learner, softmax
from kronline.errors import UsageError
from kronline.estimators import Segment
from kronline.lab.tasks import paper
from kronline.lab.tasks.base import (
    SETTLED,
    Experiment,
    Meter,
    Outcome,
    Probe,
    Task,
    Told,
    Training,
)
from kronline.lab.tasks.paper import NOT_STATED, Difference, Published, Setting, by_value
from kronline.lab.tasks.quantity import Profile, Quantity
from kronline.lab.tasks.settings import whole
from kronline.lab.tasks.strings import SYMBOLS, Copy, accuracies
from kronline.lab.wording import listed, rounded

BEYOND = 8  # lengths above T that are tried at the end of a run
LAGS = {"short": "T + 1", "paper": "2(T + 1)"}  # steps between reading a bit and writing it

T = Quantity(
    "T",
    "curriculum's T",
    "curriculum's T",
    digits=1,
    whole=True,
    stairs=True,
    start=1.0,
    scale="count",
)
RIGHT_TRAINED = Quantity(
    "right_trained",
    "bits right, trained lengths, %",
    "bits right over\ntrained lengths, %",
    digits=1,
    factor=100,
)
SOLVED_LENGTH = Quantity("solved", "solved length", "solved length", digits=1, whole=True)
# section 5.1: "solve the task on average up to T = 36 and T = 13, respectively"
PAPER_T = {"KF-RTRL": 36, "UORO": 13}
# "As expected, TBPTT cannot learn dependencies that are longer than the truncation horizon"
PAPER_STUCK = "TBPTT-25"


@dataclass(frozen=True)
class CopyTask(Task):
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
    smoothing: float = 0.999  # of the error: an exponential mean, per step
    restart: float = 0.3  # which is set to this after each growth
    max_length: int = 64  # where T stops growing

    kind: ClassVar[str] = "copy"
    title: ClassVar[str] = "The copy task"
    link: ClassVar[str] = "Copy task"
    subject: ClassVar[str] = "the copy task"
    figure: ClassVar[str] = "Figure 1"

    curve: ClassVar[Quantity] = T
    numbers: ClassVar[tuple[Quantity, ...]] = (T, RIGHT_TRAINED, SOLVED_LENGTH)
    profile: ClassVar[Profile | None] = Profile(
        "right",
        "string length",
        "bits right, %",
        "the bits written right on fresh strings when training has ended",
        RIGHT_TRAINED,
        factor=100,
        level=(50, "guessing"),
        limits=(-4, 104),
    )
    legend: ClassVar[str] = (
        "T: the curriculum's; strings of T - spread to T bits are trained (spread: 5 by default).\n"
        "Shorter ones are no longer drawn, and are forgotten.\n"
        "right_trained: the share of bits right at the end, over the lengths that are trained.\n"
        "solved: the largest L for which all lengths L - spread to L have 99 % of bits right; or 0."
    )

    score: ClassVar[Quantity] = T
    lower: ClassVar[bool] = False
    earlier: ClassVar[bool] = True
    rule: ClassVar[str] = (
        "the highest mean final T, and of equals the one that arrived earlier; rates with which a "
        "run diverged come last"
    )

    methods: ClassVar[tuple[str, ...]] = ("kf_rtrl", "uoro", "tbptt(25)")

    told: ClassVar[Told] = Told("The curriculum's T", "reaches T = {}", "T = {}", "T = {}")
    paper: ClassVar[Published] = Published(
        paper.CITATION,
        (
            *paper.NETWORK,
            Setting(
                "threshold", "T grows below", 0.15, "bits/char; lower keeps T near what is learnt"
            ),
            Setting("spread", "lengths below T that are drawn", 5, "uniformly from T − 5 to T"),
        ),
        ("paper's T",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise UsageError(f"steps must be >= 1, got {self.steps}")
        self.stream()

    def stream(self) -> Copy:
        """Of these settings."""
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
        learner = self.learner(self.network(SYMBOLS), softmax(SYMBOLS), self.steps)
        return Experiment(learner, self.stream(), (), whole(self.steps, learner))

    def meter(self, exp: Experiment) -> "CopyMeter":
        """What measures this run."""
        return CopyMeter(exp.learner, self.stream())

    def probe(
        self, exp: Experiment, reached: Sequence[float], places: int, loss_steps: int, longest: int
    ) -> Probe:
        """Strings as long as those that the networks are trained on by now; losses at their end."""
        stream, T = self.stream(), int(np.median(reached))
        steps = SETTLED + (places + 2) * int(stream.total(T)) + longest + loss_steps
        state = stream.init(jax.random.key(0), 1)._replace(T=jnp.int32(T))
        _, seg = stream.batch(state, (), steps)
        lane = Segment(*(a[:, 0] for a in seg))
        ends = np.flatnonzero(np.asarray(lane.reset)[: steps - longest])
        return Probe(lane, tuple(ends[ends >= max(loss_steps, SETTLED // 2)][:places].tolist()))

    @classmethod
    def note(cls, line: dict[str, Any]) -> str:
        """T and the error."""
        return f"T = {line['T']}, {line['bits']:.3f} bits/char"

    @classmethod
    def reread(cls, metrics: list[dict[str, Any]], config: dict[str, Any]) -> list[dict[str, Any]]:
        """With the closing numbers of today, made anew from the bits right.

        Runs of earlier versions have no `right_trained`, and another `solved`: the longest length
        with 99 % of bits right, whatever shorter ones have. Where there is no `right`, both are
        left out.
        """
        stream = Copy(spread=config.get("spread", Copy.spread))
        out, T = [], 1
        for line in metrics:
            T = line.get("T", T)
            tried = 1 <= T <= len(line.get("right", ()))
            kept = {k: v for k, v in line.items() if k not in ("right_trained", "solved")}
            out.append(kept | stream.closing(line["right"], T) if tried else kept)
        return out

    @classmethod
    def called(cls, key: str, value: str) -> str | None:
        """The lag as a formula."""
        return f"lag {LAGS.get(value, value)}" if key == "delay" else None

    @classmethod
    def intro(cls, groups: Sequence[Outcome]) -> str:
        """What has to be learnt, and what T is."""
        return (
            "A binary string is read, and has to be written out again some steps later. Its length "
            "is set by the curriculum's T, which is also the paper's T, and grows by one whenever "
            "the error is small: a run is always at work on lengths that it has not learnt yet. "
            "What was learnt is the share of bits right on fresh strings when training has ended: "
            "over the trained lengths in the table, at every length in the figure. "
            f"{cls.lengths(groups)}"
        )

    @classmethod
    def lengths(cls, groups: Sequence[Outcome]) -> str:
        """Which are trained, what becomes of the others, and which count as solved."""
        spreads = sorted({int(g.config.get("spread", Copy.spread)) for g in groups})
        below = " or ".join(map(str, spreads))
        return (
            f"Strings of T − {below} to T bits are trained, T being the curriculum's; shorter ones "
            "are no longer drawn, and are forgotten. The solved length is the largest L for which "
            f"all lengths L − {below} to L have 99 % of bits right (0: none)."
        )

    @classmethod
    def table_title(cls, groups: Sequence[Outcome]) -> str:
        """Of the table of numbers."""
        return "The length reached, beside the paper's"

    @classmethod
    def caption(cls, groups: Sequence[Outcome]) -> str:
        """The lag."""
        return f"A bit is written {listed(sorted(set(map(_lag, groups))))} steps after it is read."

    @classmethod
    def reach(cls, group: Outcome) -> int | None:
        """The longest string whose bits TBPTT-k's gradient can follow: lag <= k − 1."""
        k, delay = group.horizon, group.config.get("delay", "short")
        if k is None or delay not in LAGS:
            return None
        return max((n for n in range(1, k) if Copy(delay).lag(n) <= k - 1), default=0)

    @classmethod
    def levels(cls, groups: Sequence[Outcome]) -> dict[float, str]:
        """Where truncation ends what can be learnt."""
        found = {r: g.method for g in groups if (r := cls.reach(g))}
        return {T: f"{who} can follow T = {T}" for T, who in found.items()}

    @classmethod
    def learnt(cls, group: Outcome) -> str:
        """The bits right."""
        known = group.has(RIGHT_TRAINED)
        return f" with {group.text(RIGHT_TRAINED)} % of bits right" if known else ""

    @classmethod
    def remarks(cls, groups: Sequence[Outcome]) -> list[str]:
        """What T means, what is solved, and what the paper has."""
        out = ["T is the curriculum's."]
        if any(map(cls.learnt, groups)):
            solved = [f"{g.label} {g.text(SOLVED_LENGTH)}" for g in groups if g.has(SOLVED_LENGTH)]
            out += ["Bits right are those of fresh strings of the lengths that are trained."]
            out += [cls.lengths(groups), f"Solved: {listed(solved)}."]
        ends = {g.method: T for g in groups if (T := cls.reach(g)) is not None}
        out += [f"No gradient of {who} spans a string longer than {T}." for who, T in ends.items()]
        theirs = listed([f"{m} reaches T = {T}" for m, T in PAPER_T.items()])
        return [
            *out,
            f"In the paper, with {paper.UNITS} units and {paper.LANES} lanes, {theirs}, and "
            f"{PAPER_STUCK} stays at its horizon.",
        ]

    @classmethod
    def published(cls, method: str, config: dict[str, Any]) -> int | None:
        """T."""
        return PAPER_T.get(method)

    @classmethod
    def published_cells(cls, method: str, config: dict[str, Any]) -> tuple[str, ...]:
        """T, in a column of its own."""
        return (str(PAPER_T.get(method, "at its horizon" if method == PAPER_STUCK else "–")),)

    @classmethod
    def differences(cls, groups: Sequence[Outcome]) -> list[Difference]:
        """What the paper leaves open."""
        first = groups[0].config if groups else {}
        return [
            Difference(
                "steps between reading and writing",
                by_value((g.method, _lag(g)) for g in groups),
                "2(T + 1) in its figure",
                "“dependencies of up to 36 steps” at T = 36 fits T + 1, as does later code",
            ),
            Difference(
                "error that raises T",
                f"an average with {first.get('smoothing', 0.999):g} of the past per step, "
                f"{first.get('restart', 0.3):g} after each growth",
                NOT_STATED,
                "as in the same group's later code",
            ),
            Difference(
                "what was learnt",
                "the curriculum's T; at the end, on fresh strings, the bits right over the lengths "
                "that are trained, and the solved length",
                "the curriculum's T",
                "T can pass a horizon by several bits with no length beyond it solved, and lengths "
                "that are no longer drawn are forgotten",
            ),
        ]


class CopyMeter(Meter):
    """T and the error on the way; at the end the bits right at every length."""

    def __init__(self, learner: Learner, stream: Copy):
        self.learner, self.stream = learner, stream

    def now(self, training: Training, step: int, loss: Float[np.ndarray, " steps"]) -> Any:
        """The curriculum."""
        line = {"error": rounded(training.task.error), "T": int(training.task.T)}
        self.note = CopyTask.note(line | {"bits": loss.mean()})
        return line

    def last(self, training: Training, step: int) -> dict[str, Any]:
        """Fresh strings of every length."""
        T = int(training.task.T)
        right = accuracies(self.learner, training.learner.params, self.stream, T + BEYOND)
        shares = [rounded(share) for share in right]
        return {"step": step, "right": shares} | self.stream.closing(shares, T)


def _lag(group: Outcome) -> str:
    return LAGS.get(str(group.config.get("delay")), "T + 1")

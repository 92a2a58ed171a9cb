"""The demo: the copy task learnt three ways, side by side, in about two minutes on two cores."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jax
import matplotlib as mpl
import optax
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from kronline import train
from kronline.cells import RHN
from kronline.errors import UsageError
from kronline.learner import Learner
from kronline.online import Estimator, kf_rtrl, tbptt, uoro
from kronline.progress import Tracker
from kronline.readout import softmax
from kronline.tasks.copy import SYMBOLS, Copy, accuracies, solved_length

# label, estimator, learning rate: the best of the paper's grid for each, at this size
METHODS: tuple[tuple[str, Estimator, float], ...] = (
    ("KF-RTRL", kf_rtrl(), 10**-3),
    ("UORO", uoro(), 10**-3),
    ("TBPTT-5", tbptt(5), 10**-3),
)
LENGTHS = 12  # strings of length 1 .. 12 are tried at the end


@dataclass(frozen=True)
class Demo:
    """The copy task with its curriculum: an RHN trained by KF-RTRL, UORO and TBPTT, side by side.

    Read a binary string of length T, then write it out again, T + 1 steps later. T grows whenever
    the error falls below the threshold. TBPTT-5 sees no gradient over more than 4 steps, so it
    cannot solve T > 3 but by luck; UORO could, but drowns in noise; KF-RTRL does.
    """

    steps: int = 450_000  # of every method: equal data
    hidden: int = 64  # small enough for a laptop, large enough for UORO's noise to show
    lanes: int = 8  # few, so that there is time for many steps
    threshold: float = 0.1  # bits/char; the paper's 0.15 lets T run further ahead of what is solved
    seed: int = 0
    out: Path = Path("demo.png")  # the figure
    json: bool = False  # print one JSON object instead of the table

    def __post_init__(self) -> None:
        for name in ("steps", "hidden", "lanes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.out.parent.is_dir():
            raise UsageError(f"out needs an existing folder, got {self.out.parent}")


@dataclass
class Curve:
    """One method's way through the curriculum."""

    method: str
    steps: list[int] = field(default_factory=list)
    T: list[int] = field(default_factory=list)
    bits_per_char: list[float] = field(default_factory=list)
    bits_right: list[float] = field(default_factory=list)  # at length 1, 2, ...
    solved_length: int = 0
    steps_per_second: float = 0.0


def learn(demo: Demo, label: str, estimator: Estimator, rate: float, tracker: Tracker) -> Curve:
    """Train one method; report to the tracker after every hundredth."""
    task = Copy(threshold=demo.threshold)
    learner = Learner(RHN(demo.hidden, SYMBOLS), softmax(SYMBOLS), estimator, optax.adam(rate))
    training = train.start(learner, task, jax.random.key(demo.seed), demo.lanes)
    k = estimator.span or 1
    chunk = max(demo.steps // 100 // k, 1) * k
    curve, done, seconds = Curve(label), 0, 0.0
    while done < demo.steps:
        begin = time.perf_counter()
        training, seen = train.stretch(learner, task, (), training, chunk)
        T, error = int(training.task.T), float(seen.bits.mean())
        seconds += (time.perf_counter() - begin) * (done > 0)  # the first one compiles
        done += chunk
        curve.steps.append(done)
        curve.T.append(T)
        curve.bits_per_char.append(error)
        tracker.update(label, chunk, f"T = {T}, {error:.3f} bits/char")
    curve.steps_per_second = (done - chunk) / max(seconds, 1e-9)
    curve.bits_right = accuracies(learner, training.learner.params, task, LENGTHS)
    curve.solved_length = solved_length(curve.bits_right)
    return curve


def run(demo: Demo) -> list[Curve]:
    """All methods, two at a time."""
    totals = {label: demo.steps for label, *_ in METHODS}
    with Tracker(totals) as tracker, ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(learn, demo, *method, tracker) for method in METHODS]
        return [job.result() for job in jobs]


def table(curves: list[Curve]) -> Table:
    """The closing table."""
    out = Table(title="Copy task: the same data for all")
    out.add_column("method")
    for column in ("T reached", "solved length", "bits/char", "steps/s"):
        out.add_column(column, justify="right")
    for c in curves:
        bits, rate = f"{c.bits_per_char[-1]:.3f}", f"{c.steps_per_second:,.0f}"
        out.add_row(c.method, str(c.T[-1]), str(c.solved_length), bits, rate)
    return out


def figure(demo: Demo, curves: list[Curve]) -> None:
    """T over the data seen, and what is solved at the end, as PNG."""
    colours = ("#0072b2", "#d55e00", "#6c6c6c")  # told apart by colour-blind readers, too
    with mpl.rc_context({"font.size": 11}):
        fig = Figure(figsize=(11, 4.5), layout="constrained")
        left, right = fig.subplots(1, 2)
        for c, colour in zip(curves, colours, strict=True):
            x = [0, *(s / 1000 for s in c.steps)]
            left.step(x, [1, *c.T], where="post", color=colour, lw=2, label=c.method)
            lengths, share = range(1, len(c.bits_right) + 1), [100 * a for a in c.bits_right]
            label = f"{c.method}: solves {c.solved_length}"
            right.plot(lengths, share, "o-", color=colour, lw=2, ms=5, label=label)
        left.set(
            xlabel="time steps, in thousands", ylabel="string length T reached", ylim=(0, None)
        )
        left.set_title("The curriculum")
        left.yaxis.set_major_locator(MaxNLocator(integer=True))
        right.set(
            xlabel="string length (trained last: T − 5 to T)",
            ylabel="bits written right, %",
            ylim=(0, 103),
        )
        right.set_title("What is solved at the end")
        right.axhline(50, color="black", lw=1, ls=":")
        right.annotate("guessing", (LENGTHS, 48), ha="right", va="top")
        for ax in (left, right):
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(axis="y", alpha=0.3)
            ax.legend(frameon=False)
        size = f"RHN with {demo.hidden} units, {demo.lanes} lanes"
        fig.suptitle(f"Copy task, {size}: write a string out again, T + 1 steps later")
        fig.savefig(demo.out, dpi=130)


def main(demo: Demo) -> int:
    """Run, print, draw."""
    curves = run(demo)
    figure(demo, curves)
    if demo.json:
        print(json.dumps({"figure": str(demo.out), "curves": [asdict(c) for c in curves]}))
        return 0
    console = Console()
    console.print(table(curves))
    console.print(
        "T: the curriculum's length, strings of T - 5 .. T are trained. "
        "Solved: the longest with 99 % of bits right.\n"
        f"Curves: {demo.out}",
        highlight=False,
    )
    return 0

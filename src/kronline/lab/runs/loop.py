"""A training run: chunks of steps, each followed by a line of metrics; checkpoints between them.

Whatever is measured depends on the seed alone. A run that was stopped or killed goes on from its
newest checkpoint and ends bit for bit like one that was not.

In a run of many processes all go through the same chunks, each with its own lanes. Process 0 alone
holds the folder, measures and writes; before each chunk they meet, and agree on whether to stop.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kronline import Vmap, processes
from kronline.errors import UsageError
from kronline.lab.progress import Tracker, span
from kronline.lab.runs import checkpoint, folder, memory, training
from kronline.lab.runs.checkpoint import Across, Point, Saved
from kronline.lab.runs.tensorboard import Board
from kronline.lab.tasks import Best, Experiment, Task, Training
from kronline.lab.wording import rounded
from kronline.lanes import Shard, many_processes
from kronline.learner import fingerprint

DIVERGED = 3  # the exit code of a run that diverged
ABSURD = 100  # times the loss of guessing: above that a run has diverged, though it is finite
LONG = 600  # seconds, above which a run says how long it will take
POLL = 0.02  # seconds between looks at a running chunk, so that signals are seen at once


class Diverged(Exception):
    """NaN or infinity."""


class End(NamedTuple):
    """How a run ended."""

    state: str  # finished, stopped or diverged
    step: int
    message: str
    signal: int = 0  # which one stopped it

    @property
    def code(self) -> int:
        """With which the process ends."""
        return {"stopped": 128 + self.signal, "diverged": DIVERGED}.get(self.state, 0)


class Stop:
    """Set by SIGINT and SIGTERM; a second SIGINT ends the process at once.

    Args:
        what: is saved before the end; empty: nothing is said of it.
    """

    def __init__(self, what: str = "this chunk") -> None:
        self.signal, self.what = 0, what

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """A signal came."""
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        if not self.what:
            return
        text = (
            f"\nkronline: stopping when {self.what} can be saved; again to stop at once, and to go "
            "on from the last checkpoint\n"
        )
        with suppress(OSError):  # past sys.stderr, which may be in the middle of a line
            os.write(2, text.encode())


@contextmanager
def stopping(what: str = "this chunk") -> Iterator[Stop]:
    """SIGINT and SIGTERM are noted, and acted on between chunks."""
    stop = Stop(what)
    try:
        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever is gets the signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def go(path: Path, task: Task, exp: Experiment, *, quiet: bool = False) -> End:
    """Start a run or go on with it, until it ends, is stopped, or diverges.

    Args:
        path: the run's folder, made by `folder.create`.
        task: what was asked for.
        exp: the same, made real.
        quiet: no progress.
    """
    first = processes.first()
    with folder.locked(path) if first else nullcontext(), stopping("this chunk" * first) as stop:
        try:
            with closing(_Session(path, task, exp)) as session:
                return session.run(stop, quiet or not first)
        except OSError as e:
            raise UsageError(
                f"{path}: a file could not be written: {e}. Nothing up to the last checkpoint is "
                f"lost; make room, or the folder writable, then: kronline resume {path}"
            ) from e
        except (MemoryError, jax.errors.JaxRuntimeError) as e:
            if not memory.ran_out(e):
                raise
            raise memory.OutOfMemory(f"{path}: {memory.message(e)}") from e


def chunk(task: Task, exp: Experiment) -> int:
    """Steps between lines of metrics: whole segments."""
    k = exp.learner.estimator.span or 1
    return -(-task.log_every // k) * k


def alone(exp: Experiment) -> Experiment:
    """The same for one process by itself, though the run has many: to measure, and for shapes."""
    if not many_processes(exp.learner.layout):
        return exp
    return exp._replace(learner=replace(exp.learner, layout=Vmap()))


class _Session:
    """One process's work on a run."""

    def __init__(self, path: Path, task: Task, exp: Experiment):
        self.path, self.task, self.exp = path, task, exp
        self.chunk = chunk(task, exp)
        self.meter = task.meter(alone(exp))
        self.first = processes.first()
        like = checkpoint.shapes(self._begin, task.keeps_best)
        self.across = self._across(like)
        point = checkpoint.newest(path, like, self.across)
        if point is None:
            begin = self._begin()
            here = self._seen(begin).learner.params
            best = Best(jax.tree.map(jnp.copy, here), jnp.float32(jnp.inf))
            point = Point(Saved(begin, best if task.keeps_best else None), 0, 0)
        self.training, best_ = point.saved
        self.meter.best, self.meter.best_step = best_, point.best_step
        self.step = self.saved = point.step
        self.noise: dict[str, float] = {}
        self.bytes = point.metrics
        self.board = None
        if self.first:
            self.metrics = folder.Lines(path / folder.METRICS, point.metrics)
            self.timing = folder.Lines.up_to(path / folder.TIMING, self.step)
            self.board = Board(path, self.step) if task.tensorboard else None

    def _across(self, like: Saved) -> Across | None:
        """How the run's arrays lie over processes; None: there is one."""
        layout = self.exp.learner.layout
        if not many_processes(layout):
            return None
        assert isinstance(layout, Shard)
        axes = training.axes(self.exp.learner, self.exp.stream, self.task.lanes)
        best = jax.tree.map(lambda _: -1, like.best)
        return Across(layout, Saved(axes, best), self.task.lanes)

    def _seen(self, training: Training) -> Training:
        """For the meter."""
        return training if self.across is None else self.across.seen(training)

    def _begin(self) -> Training:
        key = jax.random.key(self.task.seed)
        return training.start(self.exp.learner, self.exp.stream, key, self.task.lanes)

    def close(self) -> None:
        if self.first:
            self.metrics.close()
            self.timing.close()
        if self.board:
            self.board.close()

    def _stops(self, stop: Stop) -> int:
        """The signal that stops the run; of several processes, one that came to any of them."""
        if not processes.several():
            return stop.signal
        processes.meet()
        if came := processes.highest(stop.signal):  # all agree: what comes later has to wait
            stop.signal = came
        return came

    def run(self, stop: Stop, quiet: bool) -> End:
        total = self.exp.steps
        self._status("running")
        name = self.path.name
        with Tracker({name: total}, {name: self.step}, quiet=quiet) as tracker:
            programs: dict[int, Callable[..., Any]] = {}
            said = False
            while self.step < total and not self._stops(stop):
                n = min(self.chunk, total - self.step)
                if n not in programs:
                    tracker.update(name, 0, "compiling", now=True)
                    programs[n] = self._compiled(n)
                    if self._stops(stop):  # it came meanwhile
                        break
                seconds = self._chunk(programs[n], n)
                if isinstance(seconds, End):
                    return seconds
                rate = n / max(seconds, 1e-9)
                if not said and (total - self.step) / rate > LONG:
                    tracker.say(self._length((total - self.step) / rate, n))
                said = True
                note = f"{rate:,.0f} steps/s, {self.meter.note}"
                note += "".join(f", {name} {value:.2g}" for name, value in self.noise.items())
                tracker.update(name, n, note)
                due = self.step // self.task.save_every > self.saved // self.task.save_every
                due = due or self.step == total or bool(self._stops(stop))
                if due and (end := self._save()):
                    return end
        if self.step > self.saved and (end := self._save()):
            return end  # the signal came just behind the look for it
        if self.step < total:
            message = f"stopped at step {self.step:,} of {total:,}"
            self._status("stopped", message=message)
            return End("stopped", self.step, message, stop.signal)
        if self.first:
            self._measured(self.meter.last(self._seen(self.training), self.step))
        self._status("finished")
        return End("finished", self.step, f"finished, {self.step:,} steps")

    def _length(self, seconds: float, n: int) -> str:
        return (
            f"this takes about {span(seconds)}, by its first {n:,} steps; Ctrl-C stops it, "
            f"`kronline resume {self.path}` goes on"
        )

    def _compiled(self, n: int) -> Callable[..., Any]:
        exp = self.exp
        how = (n, self.task.monitor)
        program = training.stretch.lower(
            exp.learner, exp.stream, exp.data, self.training, *how
        ).compile()
        return lambda training: program(exp.data, training)

    def _chunk(self, program: Callable[..., Any], n: int) -> float | End:
        """n steps and their line of metrics; how long they took."""
        begin = time.perf_counter()
        skipped = int(self.training.learner.skipped)
        now, seen = program(self.training)
        while not seen.loss.is_ready():
            time.sleep(POLL if time.perf_counter() - begin > 0.2 else 0.001)
        seconds = time.perf_counter() - begin
        loss, norm = np.asarray(seen.loss), np.asarray(seen.norm)
        skipped = int(now.learner.skipped) - skipped
        problem = (
            _problem(loss, norm, self.step)
            or _absurd(loss, self.task.guessing(self.exp), self.step, self.task.loss_axis)
            or _skipped(skipped, self.step, n)
        )
        if problem:
            return self._diverged(problem)
        self.training, self.step = now, self.step + n
        line = {"step": self.step, self.task.loss: rounded(loss.mean())}
        line["gradient"] = rounded(norm.mean())
        self.noise = noise_of(seen)
        if not self.first:
            return seconds
        self._measured(line | self.noise | self.meter.now(self._seen(now), self.step, loss))
        rate = round(n / max(seconds, 1e-9), 1)
        when = round(time.time(), 1)
        self.timing.append(
            {"step": self.step, "seconds": round(seconds, 4), "steps_per_second": rate, "at": when}
        )
        return seconds

    def _measured(self, line: dict[str, Any]) -> None:
        self.bytes = self.metrics.append(line)
        if self.board:
            self.board.write(line)

    @cached_property
    def _optimiser(self) -> dict[str, Any]:
        """Its fingerprint, the same in all checkpoints."""
        return fingerprint(self.exp.learner, self.training.learner)

    def _save(self) -> End | None:
        saved = Saved(self.training, self.meter.best)
        saved = saved if self.across is None else self.across.own(saved)
        if name := checkpoint.not_finite(saved):
            return self._diverged(f"step {self.step:,}: {name} holds NaN or infinity")
        point = Point(saved, self.step, self.bytes, self.meter.best_step)
        more = (self._optimiser, self.task.keep, self.across)
        checkpoint.write(self.path, point, self.exp.learner, *more)
        self.saved = self.step
        self._status("running")
        return None

    def _diverged(self, problem: str) -> End:
        message = (
            f"{problem}. The last good checkpoint is of step {self.saved:,}. Try a lower --rate, "
            "--clip 1, or another --seed"
        )
        self._status("diverged", message=message)
        return End("diverged", self.step, message)

    def _status(self, state: str, message: str = "") -> None:
        if not self.first:
            return
        folder.set_status(self.path, state, step=self.step, steps=self.exp.steps, message=message)


def _problem(loss: np.ndarray, norm: np.ndarray, before: int) -> str | None:
    """Where the loss or the gradient stopped being a number, if it did."""
    each = len(loss) // len(norm)  # steps per segment
    first_loss = int(np.argmin(np.isfinite(loss))) + 1 if not np.isfinite(loss).all() else None
    first_norm = (
        (int(np.argmin(np.isfinite(norm))) + 1) * each if not np.isfinite(norm).all() else None
    )
    if first_loss is not None and (first_norm is None or first_loss <= first_norm):
        return f"step {before + first_loss:,}: the loss is {loss[first_loss - 1]}"
    if first_norm is not None:
        return (
            f"step {before + first_norm:,}: the gradient's norm is {norm[first_norm // each - 1]}"
        )
    return None


def _absurd(
    loss: np.ndarray, guess: float | None, before: int, unit: str = "bits/char"
) -> str | None:
    """A mean loss that is finite, and that no network that learns comes near."""
    mean = float(loss.mean())
    if guess is None or mean <= ABSURD * guess:
        return None
    return (
        f"steps {before + 1:,} to {before + len(loss):,}: the mean loss is {mean:,.0f} {unit}, "
        f"more than {ABSURD} times that of guessing ({guess:.1f})"
    )


def _skipped(updates: int, before: int, n: int) -> str | None:
    """Updates that were not finite, which the learner leaves out: a stream goes on, a run ends."""
    if not updates:
        return None
    which = "an update was" if updates == 1 else f"{updates:,} updates were"
    return f"steps {before + 1:,} to {before + n:,}: {which} not finite"


def noise_of(seen: training.Stretch) -> dict[str, float]:
    """How noisy gradients were: between lanes, and by the closed form; what could be measured."""
    found = {}
    if seen.spread is not None:
        signal, noise = (np.asarray(a, np.float64).sum() for a in seen.spread)
        found["snr"] = signal / noise if noise > 0 else np.nan
    if seen.share is not None:
        found["noise"] = np.asarray(seen.share)
    return {name: rounded(value) for name, value in found.items() if np.isfinite(value)}

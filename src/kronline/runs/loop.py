"""A training run: chunks of steps, each followed by a line of metrics; checkpoints between them.

Whatever is measured depends on the seed alone. A run that was stopped or killed goes on from its
newest checkpoint and ends bit for bit like one that was not.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kronline import train
from kronline.errors import UsageError
from kronline.progress import Tracker, span
from kronline.runs import checkpoint, folder, memory
from kronline.runs.checkpoint import Best, Point, Saved
from kronline.runs.settings import Experiment, Train
from kronline.runs.tensorboard import Board
from kronline.tasks.copy import Copy, accuracies
from kronline.tasks.text import Text, bits_per_character, pieces
from kronline.train import Training

BEYOND = 8  # lengths above T that are tried at the end of a copy run
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


class Stop:
    """Set by SIGINT and SIGTERM; a second SIGINT ends the process at once."""

    def __init__(self, what: str = "this chunk") -> None:
        self.signal, self.what = 0, what

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """A signal came."""
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
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


def go(path: Path, config: Train, exp: Experiment, *, quiet: bool = False) -> End:
    """Start a run or go on with it, until it ends, is stopped, or diverges.

    Args:
        path: the run's folder, made by `folder.create`.
        config: what was asked for.
        exp: the same, made real.
        quiet: no progress.
    """
    with folder.locked(path), stopping() as stop:
        try:
            with closing(_Session(path, config, exp)) as session:
                return session.run(stop, quiet)
        except OSError as e:
            raise UsageError(
                f"{path}: a file could not be written: {e}. Nothing up to the last checkpoint is "
                f"lost; make room, or the folder writable, then: kronline resume {path}"
            ) from e
        except (MemoryError, jax.errors.JaxRuntimeError) as e:
            if not memory.ran_out(e):
                raise
            raise memory.OutOfMemory(f"{path}: {memory.message(e)}") from e


def chunk(config: Train, exp: Experiment) -> int:
    """Steps between lines of metrics: whole segments."""
    k = exp.learner.estimator.span or 1
    return -(-config.log_every // k) * k


class _Session:
    """One process's work on a run."""

    def __init__(self, path: Path, config: Train, exp: Experiment):
        self.path, self.config, self.exp = path, config, exp
        self.chunk = chunk(config, exp)
        assert exp.learner.readout is not None
        self.guess = math.log2(exp.learner.readout.outputs)  # bits, all symbols equally likely
        self.measure = _Text(config, exp) if isinstance(exp.task, Text) else _Copy(exp)
        point = checkpoint.newest(path, checkpoint.shapes(self._begin, self.measure.keeps_best))
        if point is None:
            training = self._begin()
            best = Best(jax.tree.map(jnp.copy, training.learner.params), jnp.float32(jnp.inf))
            point = Point(Saved(training, best if self.measure.keeps_best else None), 0, 0)
        self.training, best_ = point.saved
        self.measure.best, self.measure.best_step = best_, point.best_step
        self.step = self.saved = point.step
        self.noise: dict[str, float] = {}
        self.metrics = folder.Lines(path / folder.METRICS, point.metrics)
        self.bytes = point.metrics
        self.timing = folder.Lines.up_to(path / folder.TIMING, self.step)
        self.board = Board(path, self.step) if config.tensorboard else None

    def _begin(self) -> Training:
        key = jax.random.key(self.config.seed)
        return train.start(self.exp.learner, self.exp.task, key, self.config.lanes)

    def close(self) -> None:
        self.metrics.close()
        self.timing.close()
        if self.board:
            self.board.close()

    def run(self, stop: Stop, quiet: bool) -> End:
        total = self.exp.steps
        self._status("running")
        name = self.path.name
        with Tracker({name: total}, {name: self.step}, quiet=quiet) as tracker:
            programs: dict[int, Callable[..., Any]] = {}
            said = False
            while self.step < total and not stop.signal:
                n = min(self.chunk, total - self.step)
                if n not in programs:
                    tracker.update(name, 0, "compiling", now=True)
                    programs[n] = self._compiled(n)
                    if stop.signal:  # it came meanwhile
                        break
                seconds = self._chunk(programs[n], n)
                if isinstance(seconds, End):
                    return seconds
                rate = n / max(seconds, 1e-9)
                if not said and (total - self.step) / rate > LONG:
                    tracker.say(self._length((total - self.step) / rate, n))
                said = True
                note = f"{rate:,.0f} steps/s, {self.measure.note}"
                note += "".join(f", {name} {value:.2g}" for name, value in self.noise.items())
                tracker.update(name, n, note)
                due = self.step // self.config.save_every > self.saved // self.config.save_every
                if (due or self.step == total or stop.signal) and (end := self._save()):
                    return end
        if self.step > self.saved and (end := self._save()):
            return end  # the signal came just behind the look for it
        if self.step < total:
            message = f"stopped at step {self.step:,} of {total:,}"
            self._status("stopped", message=message)
            return End("stopped", self.step, message, stop.signal)
        self._measured(self.measure.last(self.training, self.step))
        self._status("finished")
        return End("finished", self.step, f"finished, {self.step:,} steps")

    def _length(self, seconds: float, n: int) -> str:
        return (
            f"this takes about {span(seconds)}, by its first {n:,} steps; Ctrl-C stops it, "
            f"`kronline resume {self.path}` goes on"
        )

    def _compiled(self, n: int) -> Callable[..., Any]:
        exp = self.exp
        how = (n, self.config.monitor)
        program = train.stretch.lower(
            exp.learner, exp.task, exp.data, self.training, *how
        ).compile()
        return lambda training: program(exp.data, training)

    def _chunk(self, program: Callable[..., Any], n: int) -> float | End:
        """n steps and their line of metrics; how long they took."""
        begin = time.perf_counter()
        training, seen = program(self.training)
        while not seen.bits.is_ready():
            time.sleep(POLL if time.perf_counter() - begin > 0.2 else 0.001)
        seconds = time.perf_counter() - begin
        bits, norm = np.asarray(seen.bits), np.asarray(seen.norm)
        problem = _problem(bits, norm, self.step) or _absurd(bits, self.guess, self.step)
        if problem:
            return self._diverged(problem)
        self.training, self.step = training, self.step + n
        line = {"step": self.step, "bits": _short(bits.mean()), "gradient": _short(norm.mean())}
        self.noise = noise_of(seen)
        self._measured(line | self.noise | self.measure.now(training, self.step, bits))
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

    def _save(self) -> End | None:
        saved = Saved(self.training, self.measure.best)
        if name := checkpoint.not_finite(saved):
            return self._diverged(f"step {self.step:,}: {name} holds NaN or infinity")
        point = Point(saved, self.step, self.bytes, self.measure.best_step)
        checkpoint.write(self.path, point, self.config.keep)
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
        folder.set_status(self.path, state, step=self.step, steps=self.exp.steps, message=message)


def _problem(bits: np.ndarray, norm: np.ndarray, before: int) -> str | None:
    """Where the loss or the gradient stopped being a number, if it did."""
    each = len(bits) // len(norm)  # steps a segment
    first_loss = int(np.argmin(np.isfinite(bits))) + 1 if not np.isfinite(bits).all() else None
    first_norm = (
        (int(np.argmin(np.isfinite(norm))) + 1) * each if not np.isfinite(norm).all() else None
    )
    if first_loss is not None and (first_norm is None or first_loss <= first_norm):
        return f"step {before + first_loss:,}: the loss is {bits[first_loss - 1]}"
    if first_norm is not None:
        return (
            f"step {before + first_norm:,}: the gradient's norm is {norm[first_norm // each - 1]}"
        )
    return None


def _absurd(bits: np.ndarray, guess: float, before: int) -> str | None:
    """A mean loss that is a number, but not one of a network that learns."""
    mean = float(bits.mean())
    if mean <= ABSURD * guess:
        return None
    return (
        f"steps {before + 1:,} to {before + len(bits):,}: the mean loss is {mean:,.0f} bits/char, "
        f"more than {ABSURD} times that of guessing ({guess:.1f})"
    )


def noise_of(seen: train.Stretch) -> dict[str, float]:
    """How noisy gradients were: between lanes, and by the closed form; what could be measured."""
    found = {}
    if seen.spread is not None:
        signal, noise = (np.asarray(a, np.float64).sum() for a in seen.spread)
        found["snr"] = signal / noise if noise > 0 else np.nan
    if seen.share is not None:
        found["noise"] = np.asarray(seen.share)
    return {name: _short(value) for name, value in found.items() if np.isfinite(value)}


def _short(x: Any) -> float:
    """Float32, as its shortest decimal."""
    return float(f"{float(x):.7g}")


# -- what is measured ------------------------------------------------------------------------------


class _Copy:
    """T and the error on the way; at the end the bits right at every length."""

    keeps_best = False
    best: Best | None = None
    best_step = 0
    note = ""

    def __init__(self, exp: Experiment):
        self.exp = exp

    def now(self, training: Training, step: int, bits: np.ndarray) -> dict[str, Any]:
        T = int(training.task.T)
        self.note = f"T = {T}, {bits.mean():.3f} bits/char"
        return {"error": _short(training.task.error), "T": T}

    def last(self, training: Training, step: int) -> dict[str, Any]:
        task = self.exp.task
        assert isinstance(task, Copy)
        T = int(training.task.T)
        right = accuracies(self.exp.learner, training.learner.params, task, T + BEYOND)
        shares = [_short(share) for share in right]
        return {"step": step, "right": shares} | task.closing(shares, T)


class _Text:
    """Bits per character: of validation now and then, of the test at the end."""

    keeps_best = True
    best: Best | None = None
    best_step = 0
    note = ""

    def __init__(self, config: Train, exp: Experiment):
        assert exp.corpus is not None
        self.exp, self.every = exp, getattr(config, "valid_every")  # noqa: B009
        self.lanes, self.valid = config.lanes, pieces(exp.corpus.valid)
        self.seen = 0

    def now(self, training: Training, step: int, bits: np.ndarray) -> dict[str, Any]:
        assert self.exp.corpus is not None and self.best is not None
        epoch = step * self.lanes / len(self.exp.corpus.train)
        line = {"epoch": _short(epoch)}
        before = step - len(bits)
        if step // self.every > before // self.every or step == self.exp.steps:
            params = training.learner.params
            valid = _short(bits_per_character(self.exp.learner, params, self.valid))
            line["valid"] = valid
            if valid < float(self.best.bits):
                # a copy: the next chunk works in the memory of these
                self.best = Best(jax.tree.map(jnp.copy, params), jnp.float32(valid))
                self.best_step = step
        self.note = f"{bits.mean():.3f} bits/char"
        if self.best_step:
            self.note += f", best in validation {float(self.best.bits):.3f}"
        return line

    def last(self, training: Training, step: int) -> dict[str, Any]:
        assert self.exp.corpus is not None and self.best is not None
        test = pieces(self.exp.corpus.test)
        bits = bits_per_character(self.exp.learner, self.best.params, test)
        valid = _short(self.best.bits)
        return {"step": step, "valid": valid, "valid_step": self.best_step, "test": _short(bits)}

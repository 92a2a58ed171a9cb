"""A stream's history as curves: errors, noise, drift and latency over events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kronline.errors import UsageError
from kronline.lab.learn import FILE, checkpoints, meter, timing
from kronline.lab.learn.baselines import of as baseline_of
from kronline.lab.learn.meter import ABS, ALARM, CLASS, EVENTS, FIXED, REJECTED, SCORED, SQ
from kronline.lab.learn.summary import MEASURES

MODEL = "the model"
SHOWN = 5  # columns whose drift is drawn


@dataclass(frozen=True)
class Line:
    """A curve over events, with a band around it if it has one."""

    name: str
    x: np.ndarray
    y: np.ndarray
    band: np.ndarray | None = None


@dataclass(frozen=True)
class Stream:
    """What is known of a stream."""

    path: Path
    about: dict[str, Any]  # settings, format, version
    point: checkpoints.Point
    times: timing.Timing

    @classmethod
    def read(cls, path: Path) -> "Stream":
        """A stream's folder, as it was at its last checkpoint."""
        try:
            about = json.loads((path / FILE).read_text())
        except (OSError, ValueError) as e:
            raise UsageError(f"{path} is no folder of `kronline learn`: {e}") from e
        return cls(path, about, checkpoints.latest(path), timing.Timing.read(path))

    @cached_property
    def meter(self) -> meter.Meter:
        """Totals and bins."""
        found = meter.Meter()
        found.restore(self.point.worker["meter"])
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """As they were given."""
        return self.about["settings"]

    @property
    def task(self) -> str:
        """What is learnt."""
        return str(self.point.worker["reader"]["task"] or "regress")

    @property
    def measure(self) -> str:
        """Of errors."""
        return MEASURES[self.task]

    @property
    def names(self) -> tuple[str, str, str]:
        """Of those that predict."""
        return (MODEL, *baseline_of(self.task).names)

    @property
    def events(self) -> int:
        """How many there were."""
        return int(self.point.worker["events"])

    # -- curves ------------------------------------------------------------------------------------

    @cached_property
    def bins(self) -> np.ndarray:
        """(bins, places), as `meter` has them."""
        rows = self.meter.history
        width = max((len(r) for r in rows), default=FIXED)
        return np.array([r + [0.0] * (width - len(r)) for r in rows]).reshape(-1, width)

    @cached_property
    def x(self) -> np.ndarray:
        """Events at the end of each bin."""
        return np.cumsum(self.bins[:, EVENTS])

    def ratio(self, name: str, above: int, below: int) -> Line:
        """One place of the bins over another, where that is not 0."""
        n = self.bins[:, below]
        some = n > 0
        return Line(name, self.x[some], self.bins[some, above] / n[some])

    def errors(self) -> list[Line]:
        """Of the model and of both guesses."""
        if self.task == "anomaly":
            return [self.ratio("mean score", ABS, SCORED)]
        return [self.ratio(name, ABS + i, SCORED) for i, name in enumerate(self.names)]

    def noise(self) -> list[Line]:
        """What is left of the target's spread when the model has predicted it."""
        if self.task == "anomaly":
            return [self.ratio(f"share of alarms, scores of {ALARM} and more", SQ, SCORED)]
        if self.task == "classify":
            return [self.ratio("log loss of the model, nats", SQ, SCORED)]
        squares = self.ratio("error of the model", SQ, SCORED)
        _, spread = self._moments(meter.TARGETS)
        return [
            Line(squares.name, squares.x, np.sqrt(squares.y)),
            Line("spread of the target", spread.x, spread.y),
        ]

    def _moments(self, at: int) -> tuple[Line, Line]:
        """Mean and deviation of a column in each bin."""
        n, s, ss = self.bins[:, at], self.bins[:, at + 1], self.bins[:, at + 2]
        some = n > 0
        mean = s[some] / n[some]
        std = np.sqrt(np.maximum(ss[some] / n[some] - mean**2, 0))
        return Line("", self.x[some], mean), Line("", self.x[some], std)

    def target(self) -> list[Line]:
        """The target's mean and deviation, or the shares of its classes."""
        found: list[Any] = []
        for name, at in self.meter.watched.items():
            if name.startswith(CLASS) and len(found) < SHOWN:
                share = self._share(at)
                found.append(Line(name, share.x, share.y))
        if not found and self.bins[:, meter.TARGETS].any() and self.task != "anomaly":
            mean, std = self._moments(meter.TARGETS)
            found = [Line(str(self.settings["target"]), mean.x, mean.y, std.y)]
        return found

    def _share(self, at: int) -> Line:
        """Of a class: counted from its first coming on."""
        n = np.maximum(self.bins[:, meter.TARGETS], 1)
        return Line("", self.x, self.bins[:, at + 1] / n)

    def drift(self) -> list[tuple[float, Line]]:
        """Columns whose mean moved, in deviations of the whole; those that moved most first."""
        found = []
        for name, at in self.meter.watched.items():
            mean, std = self._moments(at)
            n = self.bins[self.bins[:, at] > 0, at]
            if name.startswith(CLASS) or len(mean.y) < 2:
                continue
            whole = float(np.average(mean.y, weights=n))
            within = np.average(std.y**2 + (mean.y - whole) ** 2, weights=n)
            scale = float(np.sqrt(within)) or 1.0
            moved = (mean.y - whole) / scale
            found.append((float(np.ptp(moved)), Line(name, mean.x, moved)))
        return sorted(found, key=lambda f: -f[0])

    def latency(self) -> tuple[list[Line], Line]:
        """Median and 99th percentile of the time per event, microseconds; events per second."""
        rows = self.times.history
        x = np.cumsum([b["events"] for b in rows])
        lines = []
        for name, q in (("median", 0.5), ("99 % take less than", 0.99)):
            y = [1e6 * (timing.quantile(b, q) or 0.0) for b in rows]
            lines.append(Line(name, x, np.array(y)))
        timed = [
            (at, b["events"] / b["clock"]) for at, b in zip(x, rows, strict=True) if b["clock"]
        ]
        at, rate = (np.array(v) for v in zip(*timed, strict=True)) if timed else (x[:0], x[:0])
        return lines, Line("events per second", at, rate)

    # -- numbers -----------------------------------------------------------------------------------

    def totals(self) -> list[float | None]:
        """Errors over all of the stream."""
        return meter.errors(self.meter.total)

    def late(self) -> list[float | None]:
        """Errors over its second half."""
        half = self.bins[self.x > self.x[-1] / 2] if len(self.bins) else self.bins
        return meter.errors(half.sum(0).tolist()) if len(half) else [None] * 3

    @property
    def rejected(self) -> int:
        """Lines."""
        return int(self.meter.total[REJECTED])


def shown(value: float | None, digits: int = 4) -> str:
    """A number in a table."""
    return "–" if value is None else f"{value:.{digits}g}"


def several(lines: Sequence[Line]) -> list[Line]:
    """Those that have at least one point."""
    return [line for line in lines if len(line.x)]

"""What is measured on the way: errors beside the baselines, noise, drift; bounded for any length.

The history is a list of bins of so many events each. When there are too many bins, neighbours are
joined, and each bin is of twice as many events from then on.
"""

import math
from typing import Any

BINS = 128  # at most; then 64 of twice the size
FIRST = 32  # events of a bin, at first
WATCHED = 32  # columns whose drift is followed, in the order of their coming

# places in a bin; three errors each: of the model, of the last value, of the mean
EVENTS, SCORED, ABS, SQ = 0, 1, 2, 5
TARGETS, Y, YY = 8, 9, 10
INSIDE, ASKED, REJECTED = 11, 12, 13
FIXED = 14  # behind these: count, sum and sum of squares of each watched column
ALARM = 0.99  # a score that counts as an alarm


class Meter:
    """Totals and history of a stream."""

    def __init__(self) -> None:
        self.total = [0.0] * FIXED
        self.bins: list[list[float]] = []
        self.size = FIRST
        self.watched: dict[str, int] = {}  # column -> its place in a bin
        self._open = [0.0] * FIXED

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "total": self.total,
            "bins": self.bins,
            "size": self.size,
            "watched": list(self.watched),
            "open": self._open,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Of a checkpoint."""
        self.total, self.bins, self.size = state["total"], state["bins"], state["size"]
        self.watched = {name: FIXED + 3 * i for i, name in enumerate(state["watched"])}
        self._open = state["open"]

    # -- what comes --------------------------------------------------------------------------------

    def rejected(self) -> None:
        """A line was."""
        self.total[REJECTED] += 1
        self._open[REJECTED] += 1

    def numbers(self, y: float, made: float, guesses: tuple[float, float]) -> None:
        """A target came for a prediction; beside it two guesses."""
        for b in (self.total, self._open):
            b[SCORED] += 1
        for i, p in enumerate((made, *guesses)):
            error = abs(p - y)
            square = error * error if error < 1e154 else math.inf
            for b in (self.total, self._open):
                b[ABS + i] += error
                b[SQ + i] += square

    def classes(self, y: Any, made: Any, p: float, guesses: tuple[Any, Any]) -> None:
        """A label came; p: the probability that the model had given to it."""
        loss = -math.log(max(p, 1e-12))
        for b in (self.total, self._open):
            b[SCORED] += 1
            b[SQ] += loss
            for i, guess in enumerate((made, *guesses)):
                b[ABS + i] += guess != y

    def score(self, score: float, odd: bool | None) -> None:
        """How unusual an event was; whether a label says that it was."""
        for b in (self.total, self._open):
            b[SCORED] += 1
            b[ABS] += score
            b[SQ] += score >= ALARM
            if odd is not None:
                b[ABS + (1 if odd else 2)] += score
                b[SQ + (1 if odd else 2)] += 1

    def interval(self, inside: bool) -> None:
        """Whether a target lay in its interval."""
        for b in (self.total, self._open):
            b[ASKED] += 1
            b[INSIDE] += inside

    def target(self, y: Any) -> None:
        """A target, for its drift: a number, or a class."""
        if isinstance(y, float):
            for b in (self.total, self._open):
                b[TARGETS] += 1
                b[Y] += y
                b[YY] += y * y
        else:
            for b in (self.total, self._open):
                b[TARGETS] += 1
            for name in self.watched:
                if name.startswith(CLASS):
                    self._watch(name, float(name == f"{CLASS}{y}"))
            self._watch(f"{CLASS}{y}", 1.0, again=False)

    def event(self, x: dict[str, Any]) -> None:
        """An event is done: its features, for their drift, and the end of a bin."""
        for name, value in x.items():
            if isinstance(value, float | bool):
                self._watch(name, float(value))
        self.total[EVENTS] += 1
        self._open[EVENTS] += 1
        if self._open[EVENTS] >= self.size:
            self._close()

    def _watch(self, name: str, value: float, again: bool = True) -> None:
        at = self.watched.get(name)
        if at is None:
            if len(self.watched) >= WATCHED:
                return
            at = self.watched[name] = FIXED + 3 * len(self.watched)
        elif not again:
            return
        b = self._open
        while len(b) <= at:
            b += (0.0, 0.0, 0.0)
        b[at] += 1
        b[at + 1] += value
        b[at + 2] += value * value

    def _close(self) -> None:
        self.bins.append(self._open)
        self._open = [0.0] * FIXED
        if len(self.bins) >= BINS:
            self.bins = [added(a, b) for a, b in zip(self.bins[::2], self.bins[1::2], strict=True)]
            self.size *= 2

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def history(self) -> list[list[float]]:
        """All bins, the last of which may be of fewer events."""
        return [*self.bins, self._open] if self._open[EVENTS] else list(self.bins)


CLASS = "class "


def added(a: list[float], b: list[float]) -> list[float]:
    """Two bins as one."""
    n = max(len(a), len(b))
    a, b = (v + [0.0] * (n - len(v)) for v in (a, b))
    return [p + q for p, q in zip(a, b, strict=True)]


def errors(b: list[float]) -> list[float | None]:
    """Mean absolute errors, or shares of wrong classes: the model's, and of both guesses."""
    return [b[ABS + i] / b[SCORED] if b[SCORED] else None for i in range(3)]


def roots(b: list[float]) -> list[float | None]:
    """Root mean square errors."""
    return [math.sqrt(b[SQ + i] / b[SCORED]) if b[SCORED] else None for i in range(3)]

"""Running means and variances: of all events so far, or with the older ones forgotten."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Running:
    """Mean and variance of several numbers, each with a count of its own.

        α = max(1/n, 1 − 2^(−1/halflife))
        v ← (1−α)(v + α(x − m)²),   m ← m + α(x − m)

    With α = 1/n this is Welford's recursion: mean and (population) variance of all events.

    Args:
        size: how many numbers.
        halflife: events after which one counts half; None: all count alike.
    """

    size: int
    halflife: float | None = None

    def __post_init__(self) -> None:
        self.count = np.zeros(self.size)
        self.mean = np.zeros(self.size)
        self.var = np.zeros(self.size)
        self.inverse = np.zeros(self.size)  # 1/standard deviation; 0 for what has not varied
        self._least = 0.0 if self.halflife is None else 1 - 2 ** (-1 / self.halflife)

    def update(self, rows: np.ndarray, there: np.ndarray) -> None:
        """Events (events, size), those values that are `there`; events that come together."""
        if len(rows) == 1:
            self._one(rows[0], there[0])
        else:
            self._together(rows, there)
        self._invert()

    def _together(self, rows: np.ndarray, there: np.ndarray) -> None:
        # the mean and variance of the events among themselves, as one event with their weight
        n = there.sum(0)
        some = np.maximum(n, 1)
        mean = np.where(there, rows, 0).sum(0) / some
        var = np.where(there, (rows - mean) ** 2, 0).sum(0) / some
        self.count += n
        least = 1 - (1 - self._least) ** n
        a = np.where(n > 0, np.maximum(n / np.maximum(self.count, 1), least), 0)
        d = mean - self.mean
        self.var = (1 - a) * (self.var + a * d * d) + a * var
        self.mean = self.mean + a * d

    def _one(self, x: np.ndarray, there: np.ndarray) -> None:
        self.count += there
        a = there / np.maximum(self.count, 1)
        if self._least:
            a = np.maximum(a, there * self._least)
        d = x - self.mean
        d *= there
        ad = a * d
        self.var = (1 - a) * (self.var + ad * d)
        self.mean = self.mean + ad

    def _invert(self) -> None:
        # what varied by no more than rounding has not varied
        varied = self.var > 1e-12 * self.mean * self.mean
        self.inverse = varied / np.sqrt(np.where(varied, self.var, 1))

    def grow(self, size: int) -> None:
        """Room for more numbers."""
        more = np.zeros(size - self.size)
        self.count, self.mean, self.var = (
            np.concatenate([a, more]) for a in (self.count, self.mean, self.var)
        )
        self.size = size
        self._invert()

    def state(self) -> dict[str, np.ndarray]:
        """Arrays to be saved."""
        return {"count": self.count, "mean": self.mean, "var": self.var}

    def restore(self, arrays: dict[str, Any]) -> None:
        """From saved arrays."""
        self.count, self.mean, self.var = (np.array(arrays[k]) for k in ("count", "mean", "var"))
        self.size = len(self.count)
        self._invert()


def within(a: np.ndarray, most: float) -> np.ndarray:
    """`a`, kept within ±most; NaN is 0. (`np.clip` and `np.nan_to_num` take far longer.)"""
    if a.shape == (1,):
        return np.array([clamped(a.item(), most)], a.dtype)
    a = np.minimum(np.maximum(a, -most), most)
    total = np.add.reduce(a, None)
    if total != total:  # noqa: PLR0124  the numbers are bounded: one of them is NaN
        a[a != a] = 0  # noqa: PLR0124
    return a


def clamped(a: float, most: float) -> float:
    """`within`, of one number."""
    return min(max(a, -most), most) if a == a else 0.0  # noqa: PLR0124

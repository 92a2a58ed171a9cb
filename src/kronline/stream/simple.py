"""Predictions that need no features: the mean, the last value, one between them, one beyond."""

import math

import numpy as np

from kronline.stream.running import within

SLOW = 0.005  # the least weight of a new error in a running mean
FAST = 0.02  # the same, of a new step
KEEP = 0.99  # of older steps in ψ, per event
FAR = 3.0  # steps beyond so many usual ones count as this many


class Simple:
    """Simple predictions of the next target of each lane.

        anchor   m + φ(l − m),   φ = 1 − E(y − l)²/2E(y − m)²
        trend    l + ψ(l − l'),   ψ = Σ uv/Σ u²

    with m the mean of all targets, l the last one of the lane and l' the one before. u and v are
    two steps of a lane, one after the other, over the usual size of a step.

    Args:
        lags: how many of its last targets are kept of each lane.
        halflife: of the mean, as of `Running`.
    """

    def __init__(self, lags: int, halflife: float | None) -> None:
        self.past = np.full((1, max(lags, 2)), np.nan)  # (lanes, ...), the newest first
        self.halflife = halflife
        self.count = self.mean = self.var = 0.0  # of all targets
        self.steps = 0.0  # targets of lanes that had one before
        self.squares = [0.0, 0.0]  # E(y − l)², E(y − m)²
        self.sizes = [0.0, 0.0]  # E|y − anchor|, E|y − l|
        self.sums = [0.0, 0.0]  # Σ uv, Σ u²

    @property
    def scale(self) -> float:
        """The usual distance between target and anchor."""
        return self.sizes[0] or 1.0

    @property
    def inverse(self) -> float:
        """1/standard deviation; 0 where targets have not varied by more than rounding."""
        return 1 / math.sqrt(self.var) if self.var > 1e-12 * self.mean * self.mean else 0.0

    @property
    def phi(self) -> float:
        """φ, between 0 and 1."""
        last, mean = self.squares
        return 1.0 if mean <= 0 else min(max(1 - last / (2 * mean), 0.0), 1.0)

    @property
    def psi(self) -> float:
        """ψ, between −1 and 1."""
        uv, uu = self.sums
        return 0.0 if uu <= 0 else min(max(uv / uu, -1.0), 1.0)

    def last(self, lanes: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The last targets of these lanes (events, lags); NaN: there was none."""
        past = self.past[lanes]
        past[new] = np.nan
        return past

    def parts(self, past: np.ndarray) -> np.ndarray:
        """Mean, last value, anchor and trend (events, 4)."""
        mean, phi, psi = self.mean, self.phi, self.psi
        last = past[:, 0]
        last = np.where(last == last, last, mean)  # noqa: PLR0124
        step = last - past[:, 1]
        parts = np.empty((len(past), 4))
        parts[:, 0], parts[:, 1] = mean, last
        parts[:, 2] = mean + phi * (last - mean)
        parts[:, 3] = last + psi * np.where(step == step, step, 0)  # noqa: PLR0124
        return parts

    def parts_of_one(self, past: np.ndarray) -> list[float]:
        """The same of one event (lags,), in a tenth of the time."""
        mean, (a, b) = self.mean, past[:2].tolist()
        a = a if a == a else mean  # noqa: PLR0124  NaN
        step = a - b if b == b else 0.0  # noqa: PLR0124
        return [mean, a, mean + self.phi * (a - mean), a + self.psi * step]

    def learn(self, y: np.ndarray, past: np.ndarray, parts: np.ndarray) -> None:
        """From targets that are there, of lanes with these last targets and predictions."""
        had = past[:, 0] == past[:, 0]
        if np.count_nonzero(had) < len(y):
            y, past, parts = y[had], past[had], parts[had]
        if not len(y):
            return
        if len(y) == 1:
            mean, last, anchor = parts[0, :3].tolist()
            value, before = float(y[0]), float(past[0, 1])
            e, step = value - last, last - before if before == before else 0.0  # noqa: PLR0124
            usual = self._errors(1, e * e, (value - mean) ** 2, abs(value - anchor), abs(e))
            if usual > 0:
                u, v = min(max(step / usual, -FAR), FAR), min(max(e / usual, -FAR), FAR)
                self._sums(1, u * v, u * u)
            return
        errors = y[:, None] - parts[:, :3]
        square, size = (errors * errors).mean(0).tolist(), np.abs(errors).mean(0).tolist()
        usual = self._errors(len(y), square[1], square[0], size[2], size[1])
        if usual > 0:
            many_u = within((past[:, 0] - past[:, 1]) / usual, FAR)
            many_v = within(errors[:, 1] / usual, FAR)
            self._sums(len(y), float(many_u @ many_v), float(many_u @ many_u))

    def _errors(self, n: int, last2: float, mean2: float, anchor: float, last: float) -> float:
        """Means of n new squared and absolute errors; the usual size of a step."""
        self.steps += n
        slow, fast = weight(n, self.steps, SLOW), weight(n, self.steps, FAST)
        self.squares[0] += slow * (last2 - self.squares[0])
        self.squares[1] += slow * (mean2 - self.squares[1])
        self.sizes[0] += slow * (anchor - self.sizes[0])
        self.sizes[1] += fast * (last - self.sizes[1])
        return self.sizes[1]

    def _sums(self, n: int, uv: float, uu: float) -> None:
        keep = KEEP**n
        self.sums = [keep * self.sums[0] + uv, keep * self.sums[1] + uu]

    def remember(self, y: np.ndarray, lanes: np.ndarray, new: np.ndarray) -> None:
        """Targets as the newest ones of their lanes; NaN: there is none."""
        if len(y) == 1:  # as below, in half of the time
            row, value = self.past[lanes[0]], float(y[0])
            if new[0]:
                row[:] = np.nan
            if value == value:  # noqa: PLR0124
                row[1:] = row[:-1]
                row[0] = value
                self._moments(1, value, 0.0)
            return
        if new.any():
            self.past[lanes[new]] = np.nan
        there = y == y  # noqa: PLR0124
        if not there.all():
            y, lanes = y[there], lanes[there]
        if not len(y):
            return
        self.past[lanes, 1:] = self.past[lanes, :-1]
        self.past[lanes, 0] = y
        # the mean and variance of these among themselves, as one target with their weight
        self._moments(len(y), float(y.mean()), float(y.var()) if len(y) > 1 else 0.0)

    def _moments(self, n: int, mean: float, var: float) -> None:
        """The mean and variance of all targets, with n more of which these are known."""
        self.count += n
        a = n / self.count
        if self.halflife is not None:
            a = max(a, 1 - 2 ** (-n / self.halflife))
        d = mean - self.mean
        self.var = (1 - a) * (self.var + a * d * d) + a * var
        self.mean += a * d

    def grow(self, lanes: int) -> None:
        """There are so many lanes from now on."""
        more = np.full((lanes - len(self.past), self.past.shape[1]), np.nan)
        self.past = np.concatenate([self.past, more])

    def state(self) -> dict[str, np.ndarray]:
        """All of it."""
        numbers = [self.count, self.mean, self.var, self.steps]
        numbers += self.squares + self.sizes + self.sums
        return {"past": self.past, "numbers": np.array(numbers)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """As `state` gave it."""
        self.past, numbers = np.array(state["past"]), state["numbers"].tolist()
        self.count, self.mean, self.var, self.steps = numbers[:4]
        self.squares, self.sizes, self.sums = numbers[4:6], numbers[6:8], numbers[8:]


def weight(events: int, count: float, least: float) -> float:
    """Of `events` new ones in a running mean of `count`: 1/n at first, `least` per event later."""
    return max(events / count, least if events == 1 else 1 - (1 - least) ** events)

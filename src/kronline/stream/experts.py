"""Several predictions of the same thing, weighed by how good they have been lately.

    L_i ← γ L_i + loss_i,   w_i ∝ p_i exp(−L_i)

A network that has not learnt yet, or that the data does not need, then costs little: the mixture
stays near the best of the simple predictions.
"""

import math
from collections.abc import Sequence

import numpy as np


class Experts:
    """Weights of a few predictions, one set for all keys.

    Args:
        count: how many.
        memory: events after which a loss counts 1/e of what it did.
        prior: p, the weights before anything is known; None: all alike.
    """

    def __init__(self, count: int, memory: float, prior: Sequence[float] | None = None) -> None:
        self.keep = math.exp(-1 / memory)  # γ
        self.prior = [1.0] * count if prior is None else list(prior)
        self.restore(np.zeros(count))

    def learn(self, losses: np.ndarray) -> None:
        """Losses (events, experts) of events that come together."""
        keep = self.keep ** len(losses)
        new = losses.sum(0).tolist()
        self._weigh([keep * v + loss for v, loss in zip(self.losses, new, strict=True)])

    def restore(self, total: np.ndarray) -> None:
        """L, up to a constant."""
        self._weigh(total.tolist())

    def _weigh(self, total: list[float]) -> None:
        """The weights w, which sum to one."""
        least = min(total)
        w = [p * math.exp(least - v) for p, v in zip(self.prior, total, strict=True)]
        share = 1 / sum(w)
        self.losses = [v - least for v in total]
        self.shares = [v * share for v in w]

    @property
    def total(self) -> np.ndarray:
        """L, up to a constant."""
        return np.array(self.losses)

    @property
    def weights(self) -> np.ndarray:
        """w."""
        return np.array(self.shares)


class Judged(Experts):
    """Of predictions of a number, by their errors: loss = rate · log(1 + |error|/s).

    s is the usual error of the best of them. Of a large error little more is held against a
    prediction than of a fair one, and of small differences something.

    Args:
        count, memory: as of `Experts`.
        least: the least weight of a new error in a usual one.
        rate: how much is held against an error.
        prior: as of `Experts`.
    """

    def __init__(
        self,
        count: int,
        memory: float,
        least: float,
        rate: float = 0.5,
        prior: Sequence[float] | None = None,
    ) -> None:
        super().__init__(count, memory, prior)
        self.least, self.rate = least, rate
        self.seen, self.usual = 0, [0.0] * count

    def judge(self, errors: np.ndarray) -> None:
        """Absolute errors (events, predictions) of events that come together."""
        n = len(errors)
        if n == 1:
            return self.judge_one(errors[0].tolist())
        s = self._scale(n, errors.mean(0).tolist())
        if s:
            self.learn(self.rate * np.log1p(errors / s))

    def judge_one(self, errors: list[float]) -> None:
        """The same of one event."""
        s = self._scale(1, errors)
        if s:
            log1p, keep, rate = math.log1p, self.keep, self.rate
            pairs = zip(self.losses, errors, strict=True)
            self._weigh([keep * v + rate * log1p(e / s) for v, e in pairs])

    def _scale(self, n: int, means: list[float]) -> float:
        """s, after n more events with these mean errors; 0 at first, when nothing is judged."""
        self.seen += n
        a = max(n / self.seen, 1 - (1 - self.least) ** n)
        self.usual = [u + a * (e - u) for u, e in zip(self.usual, means, strict=True)]
        return max(min(self.usual), 1e-30) if self.seen > 2 else 0.0


LONG, SHARP = 500.0, 3.0  # of the second judgement: its memory and its rate


class Twice:
    """A mixture that is judged once more, beside some of its parts, and over a longer time.

        w = a₀ u + Σⱼ aⱼ eⱼ,   u: `Judged` of all parts,   a: `Judged` of the mixture and of parts j

    Where hardly anything is to be won, as for a random walk, u keeps changing its mind, and pays
    for it. Over a longer time it shows that one of the simplest parts is as good, and a follows it.

    Args:
        count, memory, least: as of `Judged`, of the first judgement.
        beside: the parts of the second.
        prior: weights of the mixture and of these parts before anything is known.
    """

    def __init__(
        self,
        count: int,
        memory: float,
        least: float,
        beside: Sequence[int],
        prior: Sequence[float],
    ) -> None:
        self.first = Judged(count, memory, least)
        self.second = Judged(1 + len(beside), LONG, least, SHARP, prior)
        self.beside = list(beside)
        self._join()

    def judge(self, errors: np.ndarray) -> None:
        """Errors (events, parts), with their signs, of events that come together."""
        if len(errors) == 1:
            row = errors[0].tolist()
            mixed = sum([u * e for u, e in zip(self.first.shares, row, strict=True)])
            self.second.judge_one([abs(mixed), *(abs(row[j]) for j in self.beside)])
            self.first.judge_one([abs(e) for e in row])
            return self._join()
        mixed = errors @ self.first.weights
        self.second.judge(np.abs(np.column_stack((mixed, errors[:, self.beside]))))
        self.first.judge(np.abs(errors))
        self._join()

    def _join(self) -> None:
        mixture, *parts = self.second.shares
        w = [mixture * u for u in self.first.shares]
        for j, share in zip(self.beside, parts, strict=True):
            w[j] += share
        self.weights = np.array(w)

    def state(self) -> dict[str, np.ndarray]:
        """All of it."""
        found = {}
        for name, one in (("first", self.first), ("second", self.second)):
            found[name] = np.array([one.total, one.usual])
        return found

    def restore(self, state: dict[str, np.ndarray], seen: int) -> None:
        """As `state` gave it, after so many events."""
        for name, one in (("first", self.first), ("second", self.second)):
            total, usual = state[name]
            one.restore(np.array(total))
            one.usual, one.seen = usual.tolist(), seen
        self._join()

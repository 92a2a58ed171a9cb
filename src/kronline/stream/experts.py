"""Several predictions of the same thing, weighed by how good they have been lately.

    L_i ← γ L_i + loss_i,   w_i ∝ exp(−L_i)

A network that has not learnt yet, or that the data does not need, then costs little: the mixture
stays near the best of the simple predictions.
"""

import math

import numpy as np


class Experts:
    """Weights of a few predictions, one set for all keys.

    Args:
        count: how many.
        memory: events after which a loss counts 1/e of what it did.
    """

    def __init__(self, count: int, memory: float) -> None:
        self.keep = math.exp(-1 / memory)  # γ
        self.restore(np.zeros(count))

    def learn(self, losses: np.ndarray) -> None:
        """Losses (events, experts) of events that come together."""
        self._weigh((self.keep ** len(losses) * self.total + losses.sum(0)).tolist())

    def restore(self, total: np.ndarray) -> None:
        """L, up to a constant."""
        self._weigh(total.tolist())

    def _weigh(self, total: list[float]) -> None:
        """The weights w, which sum to one."""
        least = min(total)
        w = [math.exp(least - v) for v in total]
        share = 1 / sum(w)
        self.total = np.array([v - least for v in total])
        self.weights = np.array([v * share for v in w])


class Judged(Experts):
    """Of predictions of a number, by their errors: loss = ½ log(1 + |error|/s).

    s is the usual error of the best of them. Of a large error little more is held against a
    prediction than of a fair one, and of small differences something.

    Args:
        count, memory: as of `Experts`.
        least: the least weight of a new error in a usual one.
    """

    def __init__(self, count: int, memory: float, least: float) -> None:
        super().__init__(count, memory)
        self.least = least
        self.seen, self.usual = 0, [0.0] * count

    def judge(self, errors: np.ndarray) -> None:
        """Absolute errors (events, predictions) of events that come together."""
        n = len(errors)
        self.seen += n
        rows = errors.tolist() if n == 1 else [errors.mean(0).tolist()]
        a = max(n / self.seen, 1 - (1 - self.least) ** n)
        self.usual = [u + a * (e - u) for u, e in zip(self.usual, rows[0], strict=True)]
        if self.seen <= 2:
            return
        s = max(min(self.usual), 1e-30)
        if n > 1:
            self.learn(np.log1p(errors / s) / 2)
            return
        log1p, keep = math.log1p, self.keep
        pairs = zip(self.total.tolist(), rows[0], strict=True)
        self._weigh([keep * v + log1p(e / s) / 2 for v, e in pairs])

"""Recursive least squares: the best linear prediction so far, with few events."""

import math

import numpy as np

from kronline.stream.running import within
from kronline.stream.simple import weight

FORGET = 0.999  # λ, per event
LARGE = 1e4  # the mean of P's diagonal stays below this
ROBUST = 2.0  # errors beyond so many usual ones count as this many
LEAST = 0.005  # of a new error in the usual one
WIDEST = 256  # inputs that are used; the others are left to the network
GAIN = 0.5 / math.sqrt(8)  # of the random weights
TIDY = 16  # events between looks at P as a whole
FEW = 32  # events that are taken one by one


class LeastSquares:
    """Weights `w` of `v = [1, tanh(b + Wᵀx), x]`, and `P`, the inverse of their sum of squares.

        k = P v/(λ/h + v·P v),   w ← w + k e,   P ← (P − k (P v)ᵀ)/λ

    with e the error, and h = 1, or less for an error that is far beyond the usual ones (Huber).
    W and b are random and stay as they are: with some of these columns the prediction is a curved
    function of x, found as fast as a straight one.

    Args:
        inputs: how long x is.
        random: how many columns W has.
        seed: of W and b.
    """

    def __init__(self, inputs: int, random: int = 0, seed: int = 0) -> None:
        self.random, self.seed = random, seed
        self.W = np.zeros((0, random))
        self.b = np.random.default_rng([seed]).uniform(-1, 1, random)
        self.w, self.P = np.zeros(1 + random), np.eye(1 + random)
        self.usual = np.array([0.0, 0.0, 1.0])  # errors; their mean size; what P is times
        self.grow(inputs)

    def grow(self, inputs: int) -> None:
        """Room for more inputs, which come behind the others."""
        inputs, old = min(inputs, WIDEST), len(self.w)
        for i in range(len(self.W), inputs):
            row = GAIN * np.random.default_rng([self.seed, i]).normal(size=(1, self.random))
            self.W = np.concatenate([self.W, row])
        size = 1 + self.random + inputs
        P = np.eye(size) / self.usual[2]
        P[:old, :old] = self.P
        self.P, self.w = P, np.pad(self.w, (0, size - old))
        self._product = np.empty_like(P)

    def rows(self, x: np.ndarray) -> np.ndarray:
        """`v` of each row (events, inputs)."""
        n = len(self.W)
        x = x[:, :n].astype(float)
        V = np.empty((len(x), len(self.w)))
        V[:, 0], V[:, 1 + self.random :] = 1, x
        if self.random:
            np.tanh(x @ self.W + self.b, out=V[:, 1 : 1 + self.random])
        return V

    def predict(self, V: np.ndarray, most: float) -> np.ndarray:
        """Of each `v`, kept within ±most."""
        return within(V @ self.w, most)

    def learn(self, V: np.ndarray, y: np.ndarray) -> None:
        """From rows `v` and their targets."""
        if len(y) < FEW:
            for v, target in zip(V, y.tolist(), strict=True):
                self._one(v, target)
        else:
            self._together(V, y)

    def _one(self, v: np.ndarray, y: float) -> None:
        Pv = self.P @ v
        g = float(self.usual[2])  # P is g times what is kept of it
        e, q = y - float(v @ self.w), g * float(v @ Pv)
        if not (math.isfinite(e) and 0 <= q < math.inf):
            self._anew()
            return
        h = self._seen(abs(e), 1)
        # k = P v/(λ/h + v·P v),   w ← w + k e,   P ← (P − k (P v)ᵀ)/λ
        k = Pv * (g * h / (FORGET + h * q))
        self.w += k * e
        self.P -= np.dot(k[:, None], Pv[None], out=self._product)
        self.usual[2] = g / FORGET
        if self.usual[0] % TIDY == 0:
            self._tidy()

    def _together(self, V: np.ndarray, y: np.ndarray) -> None:
        e = y - V @ self.w
        size = np.abs(e)
        mean = float(size.mean())
        if not math.isfinite(mean):
            self._anew()
            return
        most = ROBUST * float(self.usual[1]) if self.usual[0] > 5 else math.inf
        h = np.minimum(1, most / np.maximum(size, 1e-30))
        self._seen(mean, len(e))
        try:
            A = FORGET ** len(e) * np.linalg.inv(self.P) / self.usual[2] + V.T @ (h[:, None] * V)
            P = np.linalg.inv((A + A.T) / 2)
        except np.linalg.LinAlgError:
            self._anew()
            return
        self.P, self.usual[2] = P, 1
        self.w = self.w + P @ (V.T @ (h * e))
        self._tidy()

    def _seen(self, size: float, events: int) -> float:
        """Errors of this mean size are there; h of one."""
        count, usual, _ = self.usual.tolist()
        self.usual[0] = count + events
        self.usual[1] = usual + weight(events, count + events, LEAST) * (size - usual)
        return min(1.0, ROBUST * usual / max(size, 1e-30)) if count > 5 else 1.0

    def _tidy(self) -> None:
        """P symmetric, its factor in it, its diagonal bounded."""
        P = self.P * (self.usual[2] / 2)
        self.P, self.usual[2] = P + P.T, 1
        mean = float(np.trace(self.P)) / len(self.w)
        if not (math.isfinite(mean) and np.isfinite(self.w).all()):
            self._anew()
        elif mean > LARGE:
            self.P *= LARGE / mean

    def _anew(self) -> None:
        self.w, self.P = np.zeros_like(self.w), np.eye(len(self.w))
        self.usual[2] = 1

    def state(self) -> dict[str, np.ndarray]:
        """All that was learnt."""
        return {"w": self.w, "P": self.P, "usual": self.usual}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """As `state` gave it."""
        self.grow(len(state["w"]) - 1 - self.random)
        self.w, self.P, self.usual = (np.array(state[k]) for k in ("w", "P", "usual"))

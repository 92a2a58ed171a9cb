"""KF-RTRL and UORO written out from the paper, in plain numpy: what kronline is replayed against.

Nothing here is shared with kronline. Jacobians are dense, and every derivative is a complex step,
`∂f/∂v_i = Im f(v + i·step·e_i) / step`, exact to the last digit because nothing is subtracted.
One lane, no batch axis; W has the shape (m, r, n), a state is q slots of n units, flat.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

STEP = 1e-30


def jacobian(f: Callable, v: np.ndarray) -> np.ndarray:
    """`∂f/∂v`, of shape (size of f, size of v)."""
    columns = []
    for i in range(v.size):
        moved = v.astype(complex)
        moved.flat[i] += 1j * STEP
        columns.append(np.ravel(f(moved)).imag / STEP)
    return np.stack(columns, axis=-1)


# -- cells: `unit(z, s)` maps z (r, n) and the old slots (q, n) to the new slots (q, n) ------------


def sigma(z):
    return 1 / (1 + np.exp(-z))


def tanh_unit(z, s):
    # h = tanh(z)
    return np.tanh(z)


def leaky_unit(z, s, alpha=0.3):
    # h = (1−α) h_prev + α tanh(z)
    return (1 - alpha) * s + alpha * np.tanh(z)


def rhn_unit(z, s):
    # g = 2σ(z1) − 1, t = σ(z2), h = g·t + h_prev·(1−t)
    g, t = 2 * sigma(z[:1]) - 1, sigma(z[1:])
    return g * t + s * (1 - t)


def lstm_unit(z, s):
    f, i, o, g = z
    # c = σ(f)·c_prev + σ(i)·tanh(g)
    c = sigma(f) * s[0] + sigma(i) * np.tanh(g)
    # h = σ(o)·tanh(c)
    return np.stack([c, sigma(o) * np.tanh(c)])


def gru_unit(z, s):
    r, u, z_x, z_h = z
    # candidate = tanh(z_x + σ(r)·z_h), h = (1−σ(u))·candidate + σ(u)·h_prev
    candidate = np.tanh(z_x + sigma(r) * z_h)
    return (1 - sigma(u)) * candidate + sigma(u) * s


class Cell(NamedTuple):
    """A unit-wise cell; the last of its q slots is h, the one that is read."""

    unit: Callable
    n: int
    inputs: int
    q: int = 1
    r: int = 1
    bias: bool = True
    split: bool = False  # of the last two maps one sees only [x, 1], the other only [h, 1]

    @property
    def m(self) -> int:
        return self.n + self.inputs + self.bias

    def mask(self) -> np.ndarray:
        """1 where a weight exists, (m, r, 1)."""
        mask = np.ones((self.m, self.r, 1))
        if self.split:
            mask[: self.n, -2] = 0
            mask[self.n : self.n + self.inputs, -1] = 0
        return mask


def h_of(cell: Cell, s: np.ndarray) -> np.ndarray:
    """The slot that is read."""
    return s[-cell.n :]


def features(cell: Cell, s: np.ndarray, x) -> np.ndarray:
    """`ĥ = [h, x, 1]`; a symbol is a one-hot vector."""
    x = np.eye(cell.inputs)[x] if np.ndim(x) == 0 else x
    return np.concatenate([h_of(cell, s), x, np.ones(int(cell.bias))])


def pointwise(cell: Cell, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    """`s_t` from z and `s_{t−1}`, both flat."""
    return cell.unit(z.reshape(cell.r, cell.n), s.reshape(cell.q, cell.n)).ravel()


class Step(NamedTuple):
    """One step of a cell and its dense Jacobians."""

    s: np.ndarray  # (N,)
    h_hat: np.ndarray  # (m,)
    D: np.ndarray  # (N, r·n): ∂s_t/∂z
    H: np.ndarray  # (N, N): ∂s_t/∂s_{t−1}


def forward(cell: Cell, W: np.ndarray, s: np.ndarray, x) -> Step:
    W = (W * cell.mask()).reshape(cell.m, -1)

    def step(s):
        # z = ĥ W
        return pointwise(cell, features(cell, s, x) @ W, s)

    h_hat = features(cell, s, x)
    D = jacobian(lambda z: pointwise(cell, z, s), h_hat @ W)
    return Step(step(s), h_hat, D, jacobian(step, s))


# -- readout: `[h, 1] V` and cross entropy in nats -------------------------------------------------


def loss(cell: Cell, s: np.ndarray, V: np.ndarray, y: int):
    logits = np.append(h_of(cell, s), 1) @ V
    top = logits.real.max()
    # −log softmax(logits)[y]
    return top + np.log(np.exp(logits - top).sum()) - logits[y]


def loss_gradients(cell: Cell, s: np.ndarray, V: np.ndarray, y: int):
    """`δ = ∂L/∂s` (N,) and `∂L/∂V`."""
    delta = jacobian(lambda s: loss(cell, s, V, y), s)[0]
    return delta, jacobian(lambda V: loss(cell, s, V, y), V).reshape(V.shape)


# -- the two algorithms ----------------------------------------------------------------------------


def balance(B: np.ndarray, a: np.ndarray) -> float:
    """`p = √(‖B‖/‖a‖)`; 0 if a ⊗ B is zero: then the term is dropped."""
    norm_B, norm_a = np.linalg.norm(B), np.linalg.norm(a)
    return np.sqrt(norm_B / norm_a) if norm_B > 0 and norm_a > 0 else 0.0


def over(B: np.ndarray, p: float) -> np.ndarray:
    """`B/p`, nothing for a dropped term."""
    return B / p if p > 0 else np.zeros_like(B)


class KF:
    """Algorithm 1: `G' = u ⊗ A`. Noise of a step: `(c1, c2)`."""

    def __init__(self, cell: Cell):
        self.cell = cell
        self.reset()

    def reset(self):
        cell = self.cell
        self.u, self.A = np.zeros(cell.m), np.zeros((cell.q * cell.n, cell.r * cell.n))

    def merge(self, now: Step, noise):
        (c1, c2), u, D = noise, self.u, now.D
        # H' = H A
        H_A = now.H @ self.A
        # p1 = √(‖H'‖/‖u‖), p2 = √(‖D‖/‖ĥ‖)
        p1, p2 = balance(H_A, u), balance(D, now.h_hat)
        # u ← c1 p1 u + c2 p2 ĥ
        self.u = c1 * p1 * u + c2 * p2 * now.h_hat
        # A ← c1 H'/p1 + c2 D/p2
        self.A = c1 * over(H_A, p1) + c2 * over(D, p2)

    def merged(self, delta: np.ndarray) -> np.ndarray:
        # u ⊗ (δ A)
        return np.outer(self.u, delta @ self.A)

    def unmerged(self, delta: np.ndarray, now: Step) -> np.ndarray:
        # u ⊗ (δ H A) + ĥ ⊗ (δ D)
        past = np.outer(self.u, delta @ now.H @ self.A)
        return past + np.outer(now.h_hat, delta @ now.D)


class UORO:
    """`G ≈ s̃ θ̃ᵀ`, as published but for ε. Noise of a step: `ν ∈ {±1}^N`."""

    def __init__(self, cell: Cell):
        self.cell = cell
        self.reset()

    def reset(self):
        cell = self.cell
        self.s, self.theta = np.zeros(cell.q * cell.n), np.zeros(cell.m * cell.r * cell.n)

    def F(self, now: Step) -> np.ndarray:
        """`∂s_t/∂W`, (N, m·r·n), of the weights that exist."""
        cell = self.cell
        # F = ĥ ⊗ D
        F = np.einsum("i,ak->aik", now.h_hat, now.D).reshape(-1, cell.m, cell.r, cell.n)
        return (F * cell.mask()).reshape(len(now.s), -1)

    def merge(self, now: Step, noise):
        nu, theta = noise, self.theta
        # s' = H s̃, g = νᵀ F
        s, g = now.H @ self.s, nu @ self.F(now)
        # ρ0 = √(‖θ̃‖/‖s'‖), ρ1 = √(‖g‖/‖ν‖)
        rho0, rho1 = balance(theta, s), balance(g, nu)
        # s̃ ← ρ0 s' + ρ1 ν
        self.s = rho0 * s + rho1 * nu
        # θ̃ ← θ̃/ρ0 + g/ρ1
        self.theta = over(theta, rho0) + over(g, rho1)

    def merged(self, delta: np.ndarray) -> np.ndarray:
        # (δ·s̃) θ̃
        return (delta @ self.s) * self.theta

    def unmerged(self, delta: np.ndarray, now: Step) -> np.ndarray:
        # (δ·H s̃) θ̃ + δ F
        return (delta @ now.H @ self.s) * self.theta + delta @ self.F(now)


# -- a run -----------------------------------------------------------------------------------------


def lane_gradients(cell, method, W, V, data, noise, window):
    """One lane's gradients, step by step: (steps, *W.shape), (steps, *V.shape).

    `data` is (x, y, reset, weight), each with an axis of steps; `noise` is (steps, copies, ...).
    """
    s, copies = np.zeros(cell.q * cell.n), [method(cell) for _ in noise[0]]
    g_W, g_V = [], []
    for x, y, reset, weight, signs in zip(*data, noise, strict=True):
        if reset:
            s = np.zeros_like(s)
            for copy in copies:
                copy.reset()
        now = forward(cell, W, s, x)
        s = now.s
        delta, dV = loss_gradients(cell, s, V, y)
        parts = []
        for copy, c in zip(copies, signs, strict=True):
            parts += [copy.unmerged(delta, now)] if window == 1 else []
            copy.merge(now, c)
            parts += [copy.merged(delta)] if window is None else []
        g_W.append(weight * np.mean(parts, axis=0).reshape(W.shape) * cell.mask())
        g_V.append(weight * dV)
    return np.stack(g_W), np.stack(g_V)


def gradients(cell, method, W, V, data, noise, window):
    """The mean over lanes; `data` (steps, lanes, ...), `noise` (steps, lanes, copies, ...)."""
    lanes = [
        lane_gradients(cell, method, W, V, [a[:, i] for a in data], noise[:, i], window)
        for i in range(noise.shape[1])
    ]
    return tuple(np.mean(part, axis=0) for part in zip(*lanes, strict=True))

"""kronline against an independent numpy implementation, step by step, with the same signs."""

from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import numpy_reference as ref
import optax
import pytest

import kronline as kl

STEPS, LANES, INPUTS, SYMBOLS = 12, 2, 3, 4
OPTIMISER = optax.sgd(0.1)

CELLS = {  # name: (kronline's, the reference's)
    "tanh": (kl.Tanh(5, INPUTS), ref.Cell(ref.tanh_unit, 5, INPUTS)),
    "leaky": (kl.LeakyTanh(4, INPUTS, 0.3), ref.Cell(ref.leaky_unit, 4, INPUTS)),
    "rhn": (kl.RHN(5, INPUTS), ref.Cell(ref.rhn_unit, 5, INPUTS, r=2)),
    "lstm": (kl.LSTM(4, INPUTS), ref.Cell(ref.lstm_unit, 4, INPUTS, q=2, r=4)),
    "gru": (kl.GRU(4, INPUTS), ref.Cell(ref.gru_unit, 4, INPUTS, r=4, split=True)),
    "no bias": (
        kl.Tanh(4, INPUTS, bias=False),
        ref.Cell(ref.tanh_unit, 4, INPUTS, bias=False),
    ),
}
METHODS = {  # name: (kronline's, the reference's, copies)
    "kf": (kl.kf_rtrl, ref.KF, 1),
    "uoro": (kl.uoro, ref.UORO, 1),
    "uoro x2": (lambda window: kl.uoro(2, window), ref.UORO, 2),
}


class Problem(NamedTuple):
    """Parameters, data and noise of one run; the noise as the reference takes it."""

    W: np.ndarray
    V: np.ndarray
    data: list[np.ndarray]  # x, y, reset, weight: (steps, lanes, ...)
    noise: np.ndarray  # (steps, lanes, copies, ...)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def resets(rng) -> np.ndarray:
    """Some in each lane, at different steps; none at 6, 7, 8 of lane 0, for the flipped sign."""
    reset = rng.random((STEPS, LANES)) < 0.2
    reset[3] = True, False
    reset[7] = False, True
    reset[6:9, 0] = False
    return reset


def problem(cell: ref.Cell, method: str, inputs: str) -> Problem:
    rng = np.random.default_rng([cell.n, cell.q, cell.r, len(method), len(inputs)])
    lead, N, copies = (STEPS, LANES), cell.q * cell.n, METHODS[method][2]
    vectors, symbols = rng.normal(size=(*lead, INPUTS)), rng.integers(INPUTS, size=lead)
    data = [
        vectors if inputs == "vectors" else symbols,
        rng.integers(SYMBOLS, size=lead),
        resets(rng),
        rng.uniform(0.2, 2, lead),
    ]
    return Problem(
        rng.normal(0, 0.5, (cell.m, cell.r, cell.n)),
        rng.normal(0, 0.5, (cell.n + 1, SYMBOLS)),
        data,
        rng.choice([-1.0, 1.0], (*lead, copies, 2 if method == "kf" else N)),
    )


def reference(name: str, method: str, window: int | None, p: Problem):
    return ref.gradients(CELLS[name][1], METHODS[method][1], *p, window)


def replay(name: str, method: str, window: int | None, p: Problem):
    """kronline's gradients of W and V, step by step."""
    estimator = METHODS[method][0](window=window)
    learner = kl.Learner(CELLS[name][0], kl.softmax(SYMBOLS), estimator, OPTIMISER, dtype="float64")
    state = learner.init(jax.random.key(0), LANES)
    state = state._replace(params=state.params._replace(cell={"W": p.W}, readout={"V": p.V}))
    # KF-RTRL takes c = c1·c2, (steps, lanes, 1); UORO takes ν, (steps, lanes, 1, copies, N)
    noise = {"W": p.noise.prod(axis=-1)} if method == "kf" else p.noise[:, :, None]
    x, y, reset, weight = p.data
    _, grads = learner.gradients(state, x, y, reset=reset, weight=weight, noise=noise)
    return np.asarray(grads.cell["W"]), np.asarray(grads.readout["V"])


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """`max|got − want| / max|want|`, a step."""
    assert got.shape == want.shape
    assert got.dtype == np.float64
    axes = tuple(range(1, want.ndim))
    return abs(got - want).max(axes) / abs(want).max(axes)


def agree(got, want):
    for g, w in zip(got, want, strict=True):
        assert errors(g, w).max() < 1e-10


@cache
def both(name: str, method: str, window: int | None, inputs: str):
    p = problem(CELLS[name][1], method, inputs)
    return p, replay(name, method, window, p), reference(name, method, window, p)


for name in CELLS:
    for method in METHODS:
        for window in (None, 1):
            for inputs in ("symbols", "vectors"):
                with jax.enable_x64(True):
                    p, got, want = both(name, method, window, inputs)
                    print(name, method, window, inputs, *(errors(g, w).max() for g, w in zip(got, want)), flush=True)

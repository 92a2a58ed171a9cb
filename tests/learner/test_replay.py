"""kronline against an independent numpy implementation, step by step, with the same signs."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

import kronline as kl
import numpy_reference as ref
from compiling import as_users_have_it
from kronline.traces.kf import one_sign

STEPS, LANES, INPUTS, SYMBOLS = 12, 2, 3, 4
FLIPPED = 7  # the step whose sign is flipped, in lane 0
OPTIMISER = optax.sgd(0.1)

CELLS = {  # name: (kronline's, the reference's)
    "tanh": (kl.Tanh(5, INPUTS, bias=False), ref.Cell(ref.tanh_unit, 5, INPUTS, bias=False)),
    "leaky": (kl.LeakyTanh(4, INPUTS, 0.3), ref.Cell(ref.leaky_unit, 4, INPUTS)),
    "rhn": (kl.RHN(5, INPUTS), ref.Cell(ref.rhn_unit, 5, INPUTS, r=2)),
    "lstm": (kl.LSTM(4, INPUTS), ref.Cell(ref.lstm_unit, 4, INPUTS, q=2, r=4)),
    "gru": (kl.GRU(4, INPUTS), ref.Cell(ref.gru_unit, 4, INPUTS, r=4, split=True)),
}
CELLS["opaque gru"] = kl.Opaque(CELLS["gru"][0]), CELLS["gru"][1]
METHODS = {  # name: (kronline's, the reference's, copies)
    "kf": (kl.kf_rtrl, ref.KF, 1),
    "uoro": (kl.uoro, ref.UORO, 1),
    "uoro x2": (lambda window: kl.uoro(2, window), ref.UORO, 2),
}
WINDOWS = None, 1
INPUT_KINDS = "symbols", "vectors"


class Problem(NamedTuple):
    """Parameters, data and noise of one run; the noise as the reference takes it."""

    W: np.ndarray
    V: np.ndarray
    data: list[np.ndarray]  # x, y, reset, weight: (steps, lanes, ...)
    noise: np.ndarray  # (steps, lanes, copies, ...): (c1, c2), or ν


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


# -- problems --------------------------------------------------------------------------------------


def random_resets(rng) -> np.ndarray:
    """Some in each lane, at different steps; in lane 0, none around the flipped sign."""
    reset = rng.random((STEPS, LANES)) < 0.2
    reset[3] = True, False
    reset[FLIPPED] = False, True
    reset[FLIPPED - 1 : FLIPPED + 2, 0] = False
    return reset


def problem(name: str, method: str, kind: str) -> Problem:
    cell, copies = CELLS[name][1], METHODS[method][2]
    rng = np.random.default_rng([cell.n, cell.q, cell.r, copies, len(method), len(kind)])
    lead, signs = (STEPS, LANES), 2 if method == "kf" else cell.q * cell.n
    vectors, symbols = rng.normal(size=(*lead, INPUTS)), rng.integers(INPUTS, size=lead)
    data = [
        vectors if kind == "vectors" else symbols,
        rng.integers(SYMBOLS, size=lead),
        random_resets(rng),
        rng.uniform(0.2, 2, lead),
    ]
    return Problem(
        rng.normal(0, 0.5, (cell.m, cell.r, cell.n)),
        rng.normal(0, 0.5, (cell.n + 1, SYMBOLS)),
        data,
        rng.choice([-1.0, 1.0], (*lead, copies, signs)),
    )


# -- the two sides ---------------------------------------------------------------------------------


def reference(name: str, method: str, window: int | None, p: Problem):
    return ref.gradients(CELLS[name][1], METHODS[method][1], *p, window)


def make_learner(name: str, method: str, window: int | None) -> kl.Learner:
    estimator = METHODS[method][0](window=window)
    return kl.Learner(CELLS[name][0], kl.softmax(SYMBOLS), estimator, OPTIMISER, dtype="float64")


@cache
def start(name: str, method: str) -> kl.State:
    """The same for every window: compiled once."""
    return make_learner(name, method, None).init(jax.random.key(0), LANES)


def replay(name: str, method: str, window: int | None, p: Problem):
    """kronline's gradients of W and V, step by step."""
    state = start(name, method)
    state = state._replace(params=state.params._replace(cell={"W": p.W}, readout={"V": p.V}))
    x, y, reset, weight = p.data
    if method == "kf":  # c, (steps, lanes, 1), from the paper's c1 and c2
        noise = {"W": one_sign(*np.moveaxis(p.noise, -1, 0), reset[:, :, None])}
    else:  # ν, (steps, lanes, 1 step a segment, copies, N)
        noise = p.noise[:, :, None]
    _, grads = make_learner(name, method, window).gradients(
        state, x, y, reset=reset, weight=weight, noise=noise
    )
    return np.asarray(grads.cell["W"]), np.asarray(grads.readout["V"])


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """`max|got − want| / max|want|`, a step."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype == np.float64
    axes = tuple(range(1, want.ndim))
    return abs(got - want).max(axes) / abs(want).max(axes)


def check(name: str, method: str, window: int | None, p: Problem):
    got, want = replay(name, method, window, p), reference(name, method, window, p)
    worst = [errors(g, w).max() for g, w in zip(got, want, strict=True)]
    print(f"largest relative error: W {worst[0]:.1e}, V {worst[1]:.1e}")
    assert max(worst) < 1e-10


# -- tests -----------------------------------------------------------------------------------------


# every cell, method and window; every cell and method meets both kinds of input
CASES = [
    (name, method, window, INPUT_KINDS[(i + j + k) % 2])
    for i, name in enumerate(["tanh", "leaky", "rhn", "lstm", "gru"])
    for j, method in enumerate(METHODS)
    for k, window in enumerate(WINDOWS)
]


@pytest.mark.parametrize(("name", "method", "window", "kind"), CASES)
def test_gradients_are_the_references(name, method, window, kind):
    check(name, method, window, problem(name, method, kind))


OPTIMISED = ("rhn", "kf"), ("lstm", "kf"), ("gru", "uoro")
CHECK_OPTIMISED = """
import jax
jax.config.update("jax_enable_x64", True)
import test_replay as t
assert not jax.config.read("jax_disable_most_optimizations")
for name, method in t.OPTIMISED:
    t.check(name, method, None, t.problem(name, method, "symbols"))
"""


def test_optimised_programs_give_the_same():
    # all other tests compile without optimisation, to save time
    here = Path(__file__).parent
    env = as_users_have_it() | {"PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    words = [sys.executable, "-c", CHECK_OPTIMISED]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest relative error") == len(OPTIMISED)


@pytest.mark.parametrize("window", WINDOWS)
def test_an_opaque_cell_gives_the_references_uoro(window):
    check("opaque gru", "uoro", window, problem("gru", "uoro", "vectors"))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("method", ["kf", "uoro"])
def test_without_recurrence_the_past_is_dropped(method, window):
    p = problem("tanh", method, "vectors")
    # H = 0: H' = 0 while u ≠ 0
    p.W[:5] = 0
    check("tanh", method, window, p)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("method", ["kf", "uoro"])
def test_a_step_without_features_is_dropped(method, window):
    p, cell = problem("tanh", method, "vectors"), CELLS["tanh"][1]
    # after a reset x W = 0, so that h = 0 with a trace, and then x = 0: ĥ = 0 while u ≠ 0
    p.W[6] = -p.W[5]
    p.data[0][3:5, 0] = [[1, 1, 0], [0, 0, 0]]
    p.data[2][3:6, 0] = True, False, False
    now = ref.forward(cell, p.W, np.zeros(5), p.data[0][3, 0])
    assert not now.s.any()
    assert now.h_hat.any()
    check("tanh", method, window, p)


@pytest.mark.parametrize(("name", "method", "window", "kind"), CASES)
def test_one_flipped_sign_is_seen(name, method, window, kind):
    p = problem(name, method, kind)
    want = reference(name, method, window, p)[0]
    p.noise[FLIPPED, 0, 0, 0] *= -1
    seen = errors(reference(name, method, window, p)[0], want)
    first = FLIPPED + (window or 0)  # with a window, the newest step has no noise
    assert seen[:first].max() == 0
    assert seen[first] > 1e-3

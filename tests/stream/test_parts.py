"""The parts of a regressor beside its network, against what they are defined to be."""

import numpy as np
import pytest

from kronline.stream import linear
from kronline.stream.experts import Judged, Twice
from kronline.stream.linear import LeastSquares
from kronline.stream.simple import Simple

ONE, OLD, NEW = np.zeros(1, int), np.zeros(1, bool), np.ones(1, bool)


def alone(model, x, y):
    return model.learn(model.rows(x), np.atleast_1d(y))


@pytest.mark.parametrize("random", [0, 5])
def test_least_squares_are_the_weighted_ridge_regression(monkeypatch, random):
    """Σ λ^(n−i) v vᵀ + λⁿ I, solved: event by event; and of many at once, which count alike."""
    monkeypatch.setattr(linear, "ROBUST", np.inf)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    model = LeastSquares(3, random, seed=1)
    V = model.rows(x)
    assert V.shape == (80, 4 + random)
    for v, t in zip(V[:40], y[:40], strict=True):
        model.learn(v[None], np.array([t]))
    share = linear.FORGET ** np.arange(39, -1, -1)
    A = linear.FORGET**40 * np.eye(V.shape[1]) + V[:40].T @ (share[:, None] * V[:40])
    b = V[:40].T @ (share * y[:40])
    np.testing.assert_allclose(model.w, np.linalg.solve(A, b), rtol=1e-9)
    model.learn(V[40:], y[40:])
    A = linear.FORGET**40 * A + V[40:].T @ V[40:]
    b = linear.FORGET**40 * b + V[40:].T @ y[40:]
    np.testing.assert_allclose(model.w, np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_allclose(model.usual[2] * model.P, np.linalg.inv(A), rtol=1e-8)


def test_room_for_more_inputs_changes_no_prediction():
    rng = np.random.default_rng(0)
    model, x = LeastSquares(2, 4), rng.normal(size=(1, 2))
    for _ in range(9):
        alone(model, rng.normal(size=(1, 2)), rng.normal())
    before = model.predict(model.rows(x), 8.0)
    model.grow(5)
    wide = np.concatenate([x, np.zeros((1, 3))], 1)
    np.testing.assert_allclose(model.predict(model.rows(wide), 8.0), before, rtol=1e-12)
    fresh = LeastSquares(5, 4)
    np.testing.assert_array_equal(fresh.W, model.W)


def test_curved_least_squares_bend_and_straight_ones_do_not():
    """The logistic map: no straight line helps, as x and x' are not correlated."""
    straight, curved, x, errors = LeastSquares(1), LeastSquares(1, 32), 0.3, []
    for _ in range(600):
        y = 4 * x * (1 - x)
        at = np.array([[8 * x - 4]])
        guesses = [m.predict(m.rows(at), 8.0)[0] for m in (straight, curved)]
        errors.append(np.abs(np.array(guesses) - y))
        for m in (straight, curved):
            alone(m, at, y)
        x = y
    plain, bent = np.mean(errors[300:], 0)
    assert plain > 0.25 and bent < 0.15 * plain


@pytest.mark.filterwarnings("ignore:.*encountered in matmul")
def test_least_squares_outlive_numbers_that_are_too_large():
    model = LeastSquares(1, 4)
    for v in (1e200, 1e300, np.inf):
        alone(model, np.array([[v]]), v)
    for t in range(50):
        alone(model, np.array([[t % 3 - 1.0]]), t % 3)
    assert model.predict(model.rows(np.array([[1.0]])), 8.0)[0] == pytest.approx(2, abs=0.2)


def run(values):
    """Simple predictions of each value, and the object."""
    simple, found = Simple(2, None), []
    for t, v in enumerate(values):
        new = NEW if t == 0 else OLD
        past = simple.last(ONE, new)
        parts = simple.parts(past)
        found.append(parts[0])
        y = np.array([float(v)])
        simple.learn(y, past, parts)
        simple.remember(y, ONE, new)
    return np.array(found), simple


def test_mean_and_last_value_are_those_of_the_stream():
    values = np.random.default_rng(0).normal(size=50)
    parts, simple = run(values)
    np.testing.assert_array_equal(parts[1:, 1], values[:-1])
    np.testing.assert_allclose(parts[1:, 0], [values[:t].mean() for t in range(1, 50)])
    assert simple.var == pytest.approx(values.var())


def test_a_trend_goes_on_and_noise_has_none():
    parts, simple = run(3 * np.arange(30.0))
    assert simple.psi == 1 and parts[-1, 3] == 87
    _, walk = run(np.random.default_rng(0).normal(size=3000).cumsum())
    assert abs(walk.psi) < 0.25 and walk.phi > 0.95
    _, noise = run(np.random.default_rng(0).normal(size=3000))
    assert noise.phi < 0.1 and noise.psi == pytest.approx(-0.5, abs=0.15)  # steps go back half way


def test_several_lanes_at_once_are_predicted_as_one_by_one():
    simple = run(np.random.default_rng(0).normal(size=40).cumsum())[1]
    past = np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, np.nan]])
    each = np.concatenate([simple.parts(row[None]) for row in past])
    np.testing.assert_allclose(simple.parts(past), each, rtol=1e-12)


def test_weights_follow_the_losses():
    """Errors of 1 and 3 for ever: w₁/w₂ = exp(½ Σ γᵏ (log(1 + 3) − log(1 + 1)))."""
    experts = Judged(2, memory=5.0, least=0.02)
    for _ in range(200):
        experts.judge(np.array([[1.0, 3.0]]))
    ratio = experts.weights[0] / experts.weights[1]
    assert np.log(ratio) == pytest.approx(np.log(2) / 2 / (1 - np.exp(-1 / 5)), rel=1e-9)
    many = Judged(2, memory=5.0, least=0.02)
    many.judge(np.tile([1.0, 3.0], (3, 1)))
    many.judge(np.zeros((1, 2)))
    assert many.weights.sum() == pytest.approx(1)
    assert many.weights[0] > many.weights[1]


def test_a_mixture_is_judged_beside_its_parts_over_a_longer_time():
    """Parts that take turns at being the better one: the steady one is chosen in the end."""
    rng, experts = np.random.default_rng(0), Twice(3, 5.0, 0.02, (0,), (0.5, 0.5))
    for t in range(600):
        noisy = rng.normal(size=2) * (1 + 9 * (t // 10 % 2 == np.arange(2)))
        experts.judge(np.array([[0.5, *noisy]]))
    assert experts.weights.sum() == pytest.approx(1)
    assert experts.weights[0] > 0.99 > experts.first.weights[0]
    same = Twice(3, 5.0, 0.02, (0,), (0.5, 0.5))
    same.restore(experts.state(), experts.first.seen)
    more = rng.normal(size=(4, 3))
    for one in (experts, same):
        one.judge(more)
    np.testing.assert_array_equal(same.weights, experts.weights)

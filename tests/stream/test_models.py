"""Stream models: they learn, keep keys apart, grow, and go on from a file bit for bit."""

import jax
import numpy as np
import pytest

from kronline import stream
from kronline.stream.network import grown

MODELS = [stream.Regressor, stream.Classifier, stream.AnomalyDetector, stream.Forecaster]
each_model = pytest.mark.parametrize("kind", MODELS, ids=lambda k: k.__name__)


def event(rng, names=("a", "b")):
    return {name: float(rng.normal()) for name in names}


def learn(model, x, key=None):
    """One event, with a target that belongs to it."""
    y = x["a"] - x["b"] if {"a", "b"} <= x.keys() and not isinstance(x["a"], str) else 0.0
    if isinstance(model, stream.Forecaster):
        return model.learn_one(y, x, key)
    if isinstance(model, stream.AnomalyDetector):
        return model.learn_one(x, key)
    return model.learn_one(x, str(y > 0) if isinstance(model, stream.Classifier) else y, key)


def look(model, x, key=None):
    if isinstance(model, stream.AnomalyDetector):
        return model.surprise_one(x, key)
    if isinstance(model, stream.Classifier):
        return model.predict_proba_one(x, key)
    return model.predict_one(x, key)


def test_a_regressor_learns_what_the_last_value_cannot_tell():
    model, rng, y = stream.Regressor(hidden=16), np.random.default_rng(0), 0.0
    errors = []
    for _ in range(1500):
        x, last = event(rng), y
        y = 0.8 * y + x["a"]
        errors.append((abs(model.predict_one(x) - y), abs(last - y)))
        model.learn_one(x, y)
    mine, naive = np.mean(errors[-500:], 0)
    assert mine < 0.35 * naive


def test_intervals_hold_as_often_as_they_say():
    model, rng, inside = stream.Regressor(hidden=8), np.random.default_rng(0), []
    for t in range(1500):
        y = float(rng.normal() * (1 + t % 2))
        low, high = model.predict_interval_one({"t": t % 2}, level=0.8)
        inside.append(low <= y <= high)
        model.learn_one({"t": t % 2}, y)
    assert 0.76 < np.mean(inside[500:]) < 0.84


def test_a_classifier_learns_order_and_takes_new_classes():
    model, right = stream.Classifier(hidden=16), []
    cycle = ["a", "b", "a", "c", "d", "e", "f"]  # what follows a depends on what came before
    for t in range(1400):
        label = cycle[t % 7]
        shares = model.predict_proba_one({})
        assert not shares or abs(sum(shares.values()) - 1) < 1e-12
        right.append(model.predict_one({}) == label)
        model.learn_one({}, label)
    assert model.predict_proba_one({}).keys() == set(cycle)
    assert np.mean(right[-200:]) > 0.95


def test_a_forecaster_goes_on_by_itself(caplog):
    model = stream.Forecaster(hidden=16)
    wave = np.sin(np.arange(1500) / 4)
    for v in wave[:1480]:
        model.learn_one(v)
    before = model.predict_one({})
    ahead = model.forecast(10)
    assert ahead[0] == pytest.approx(before, abs=1e-6)
    assert (
        np.abs(ahead - wave[1480:1490]).mean() < 0.5 * np.abs(wave[1479] - wave[1480:1490]).mean()
    )
    assert model.predict_one({}) == before
    caplog.clear()
    with jax.log_compiles():
        assert model.forecast(10) == ahead
    assert not [r for r in caplog.records if "ompil" in r.getMessage()]  # all of it was, before


def test_an_odd_event_surprises():
    model = stream.AnomalyDetector(hidden=16)
    for t in range(800):
        model.learn_one({"v": np.sin(t / 5), "w": np.cos(t / 5)})
    fair = {"v": np.sin(160), "w": np.cos(160)}
    assert model.score_one({"v": -fair["v"], "w": fair["w"] + 2}) > 0.99
    assert model.score_one(fair) < 0.9


@each_model
def test_a_file_goes_on_bit_for_bit(kind, tmp_path):
    model, rng = kind(hidden=8), np.random.default_rng(0)
    for t in range(30):
        learn(model, event(rng), t % 3)
    model.save(tmp_path / "m.safetensors")
    same = stream.load(tmp_path / "m.safetensors")
    assert type(same) is kind and same.events == 30
    for t in range(30):
        x = event(rng, "abcdefghij"[: 2 + t // 3])  # it also grows in the same way
        assert look(model, x, t % 5) == look(same, x, t % 5)
        learn(model, x, t % 5)
        learn(same, x, t % 5)
    same.save(tmp_path / "a")
    model.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@each_model
def test_what_is_refused_changes_nothing(kind, tmp_path):
    model, rng = kind(hidden=8), np.random.default_rng(0)
    for _ in range(5):
        learn(model, event(rng))
    model.save(tmp_path / "a")
    for bad in ({"a": "text"}, {"new": [1]}, {"a": float("inf")}):
        with pytest.raises((TypeError, ValueError), match="feature"):
            learn(model, bad)
    model.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@each_model
def test_keys_do_not_see_each_other(kind):
    """With parameters and statistics held, a key's state depends on its own events only."""
    rng = np.random.default_rng(0)
    xs, seen = [event(rng) for _ in range(8)], []
    for others in (False, True):
        model = kind(hidden=8, rate=1e-30, scale=None)

        def move(x, key, model=model):
            if isinstance(model, stream.Forecaster):
                return model.learn_one(None, x, key)
            if isinstance(model, stream.AnomalyDetector):
                return model.learn_one(x, key)
            return model.learn_one(x, None, key)

        for x in xs:
            move(x, "p")
            if others:
                move({"a": -x["a"], "b": 3.0}, "q")
        seen.append(np.asarray(model.network.state.s[model._keys.find(["p"])[0]]))
    np.testing.assert_allclose(*seen, atol=1e-6)
    assert np.abs(seen[0]).max() > 0


def test_the_least_recently_seen_key_gives_its_lane_away():
    model = stream.Regressor(hidden=8, max_keys=2)
    for key in ("p", "q", "p", "r"):
        model.learn_one({"a": 1.0}, 2.0, key)
    assert set(model._keys.lanes) == {"p", "r"} and model.network.lanes == 2
    assert model._keys.find(["q"])[0] == -1


def test_many_events_without_keys_are_a_loop(tmp_path):
    rng = np.random.default_rng(0)
    xs, ys = [event(rng) for _ in range(20)], rng.normal(size=20).tolist()
    one, many = stream.Regressor(hidden=8), stream.Regressor(hidden=8)
    for x, y in zip(xs, ys, strict=True):
        one.learn_one(x, y)
    many.learn_many(xs, ys)
    one.save(tmp_path / "a")
    many.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_events_of_many_keys_are_learnt_from_together():
    rng = np.random.default_rng(0)
    model = stream.Regressor(hidden=8, max_keys=16)
    for _ in range(200):
        xs = [event(rng) for _ in range(12)]
        model.learn_many(xs, [x["a"] - x["b"] for x in xs], keys=list(range(12)))
    assert model.events == 2400 and model.network.lanes == 12
    x = event(rng)
    assert abs(model.predict_one(x, 3) - (x["a"] - x["b"])) < 0.3
    many = model.predict_many([x, x], [3, 5])
    assert many[0] == pytest.approx(model.predict_one(x, 3), abs=1e-5)


def test_a_missing_target_moves_on_and_teaches_nothing():
    model, rng = stream.Regressor(hidden=8), np.random.default_rng(0)
    for _ in range(10):
        learn(model, event(rng))
    before = model.network.state
    model.learn_one(event(rng), None)
    after = model.network.state
    for a, b in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(before.s, after.s)


@pytest.mark.parametrize(
    ("cell", "estimator"),
    [
        ("ELSTM", "rtrl()"),
        ("GRU", "kf_rtrl()"),
        ("RHN", "rtrl()"),
        ("LRU", "snap()"),
        ("LSTM", "tbptt(3)"),
    ],
)
def test_a_larger_network_goes_on_as_the_smaller_one(cell, estimator):
    """New inputs that are zero change no prediction, and no old weight's next update."""
    rng = np.random.default_rng(0)
    model = stream.Regressor(hidden=6, cell=cell, estimator=estimator)
    for _ in range(7):
        learn(model, event(rng))
    network = model.network
    inputs, n = network.learner.cell.inputs, 6
    x = rng.normal(size=(1, inputs)).astype(np.float32)
    wide = np.concatenate([x, np.zeros((1, n), np.float32)], 1)
    zero, no = np.zeros(1, np.int32), np.zeros(1, bool)
    small = network.predict(x, zero, no)
    held = network.state
    network.learn(x, np.ones((1, 1), np.float32), None, zero, None)
    after = network.state
    network.state = held
    network.grow(inputs=inputs + n)
    np.testing.assert_allclose(network.predict(wide, zero, no), small, atol=1e-6)
    network.learn(wide, np.ones((1, 1), np.float32), None, zero, None)
    big = network.state
    fits = grown(after, big, model._make(inputs, 2).cell, network.learner.cell)
    for a, b in zip(jax.tree.leaves(fits.params), jax.tree.leaves(big.params), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    network.grow(lanes=4)
    np.testing.assert_array_equal(network.state.s[0], big.s[0])


def test_settings_are_checked_at_once():
    for wrong in ({"cell": "NoCell"}, {"rate": 0}, {"max_keys": 0}, {"estimator": "nothing()"}):
        with pytest.raises(ValueError, match=r".+"):
            stream.Regressor(**wrong)
    with pytest.raises(ValueError, match="target must be a number"):
        stream.Regressor().learn_one({"a": 1.0}, "text")
    with pytest.raises(ValueError, match="level"):
        stream.Regressor().predict_interval_one({}, level=2)

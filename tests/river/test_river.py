"""The river estimators keep river's contracts, and are the stream models inside."""

import inspect
import itertools
import math
import pickle

import pytest

pytest.importorskip("river.base", reason="river is not installed: pip install 'kronline[river]'")
pytest.importorskip("sklearn", reason="river's checks need scikit-learn")

import numpy as np
import pandas as pd
from river import checks, compose, datasets, evaluate, metrics, preprocessing

from kronline import river, stream

KINDS = (river.Regressor, river.Classifier, river.Forecaster, river.AnomalyDetector)
SMALL = {"hidden": 4}


class Bundled(datasets.Shuttle):
    """In place of a dataset that river would download: one that it ships, with the same task."""


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    # the only dataset of these checks that river does not ship
    monkeypatch.setattr(datasets, "CreditCard", Bundled)


def all_checks():
    """Every check of river's for every class, by name."""
    before, datasets.CreditCard = datasets.CreditCard, Bundled
    try:
        for kind in KINDS:
            seen = {}
            for i, check in enumerate(checks.yield_checks(kind(**SMALL))):
                seen[check.__name__] = seen.get(check.__name__, 0) + 1
                name = f"{kind.__name__}-{check.__name__}-{seen[check.__name__]}"
                yield pytest.param(kind, i, id=name)
    finally:
        datasets.CreditCard = before


@pytest.mark.parametrize(("kind", "index"), list(all_checks()))
def test_check_estimator(kind, index):
    model = kind(**SMALL)
    check = next(itertools.islice(checks.yield_checks(model), index, None))
    assert check.__name__ not in model._unit_test_skips()
    check(model.clone())


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_those_of_the_stream_model(kind):
    inside = getattr(stream, kind.__name__)
    wanted = {n: p.default for n, p in inspect.signature(inside).parameters.items()}
    got = {n: p.default for n, p in inspect.signature(kind).parameters.items()}
    assert got == wanted | {"key": None}
    assert kind(hidden=5).clone().hidden == 5


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError, match="hiden"):
        river.Regressor(hiden=3)


def test_predicts_what_the_stream_model_predicts():
    ours, theirs = stream.Regressor(**SMALL), river.Regressor(**SMALL)
    for t in range(20):
        x = {"a": math.sin(t), "b": float(t % 3)}
        assert ours.predict_one(x) == theirs.predict_one(x)
        ours.learn_one(x, float(t % 5))
        theirs.learn_one(x, float(t % 5))


def test_key_names_the_feature_that_says_which_lane():
    named, by_hand = river.Regressor(key="who", **SMALL), stream.Regressor(**SMALL)
    for t in range(20):
        who = "ab"[t % 2]
        named.learn_one({"who": who, "a": float(t % 3)}, float(t % 4))
        by_hand.learn_one({"a": float(t % 3)}, float(t % 4), key=who)
    assert named.predict_one({"who": "b", "a": 1.0}) == by_hand.predict_one({"a": 1.0}, key="b")
    assert named.predict_one({"who": "b", "a": 1.0}) != named.predict_one({"who": "a", "a": 1.0})


def test_a_pickle_goes_on_bit_for_bit():
    model = river.Classifier(**SMALL)
    rows = [({"a": math.sin(t)}, "xyz"[t % 3]) for t in range(30)]
    for x, y in rows[:20]:
        model.learn_one(x, y)
    same = pickle.loads(pickle.dumps(model))  # made two words ago: river's rule for its users
    for x, y in rows[20:]:
        assert same.predict_proba_one(x) == model.predict_proba_one(x)
        model.learn_one(x, y)
        same.learn_one(x, y)
    assert b"jax" not in pickle.dumps(model)  # the model is in it as a file's bytes


def test_learn_many_is_a_loop_bit_for_bit():
    X = pd.DataFrame({"a": np.sin(np.arange(12.0)), "b": [1.0, np.nan] * 6})
    y = pd.Series(np.arange(12.0) % 4)
    one, many = river.Regressor(**SMALL), river.Regressor(**SMALL)
    for row, target in zip(X.to_dict("records"), y, strict=True):
        one.learn_one(row, target)
    many.learn_many(X, y)
    assert one.predict_one({"a": 0.5}) == many.predict_one({"a": 0.5})
    assert many.predict_many(X).index.equals(X.index)


def test_probabilities_are_float64_and_sum_to_one():
    X, y = pd.DataFrame({"a": np.arange(9.0)}, index=range(5, 14)), pd.Series(list("abcabcabc"))
    model = river.Classifier(**SMALL)
    assert model.predict_one({"a": 1.0}) is None
    model.learn_many(X, y)
    found = model.predict_proba_many(X)
    assert set(found.dtypes) == {np.dtype("float64")}
    assert list(found.columns) == ["a", "b", "c"]
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    assert found.index.equals(X.index)


def test_pipelines_and_progressive_validation():
    scaled = preprocessing.StandardScaler() | river.Regressor(**SMALL)
    assert isinstance(scaled, compose.Pipeline)
    rows = datasets.TrumpApproval().take(60)
    error = evaluate.progressive_val_score(rows, scaled, metrics.MAE())
    assert 0 < error.get() < 10

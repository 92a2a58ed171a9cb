"""Events as vectors: scaling, categories, what is missing, new or vanished."""

import math
from datetime import datetime

import numpy as np
import pytest

from kronline.stream.features import Features
from kronline.stream.running import Running


def seen(features, x):
    return features.vectors(*features.table([features.read(x)]))[0]


def learn(features, x):
    event = features.read(x)
    features.admit([event])
    features.learn(*features.table([event]))


def test_running_means_are_those_of_all_events():
    rng = np.random.default_rng(0)
    rows, there = 1e6 + rng.normal(size=(200, 3)), rng.random((200, 3)) < 0.7
    one, some = Running(3), Running(3)
    for i in range(200):
        one.update(rows[i : i + 1], there[i : i + 1])
    for i in range(0, 200, 8):
        some.update(rows[i : i + 8], there[i : i + 8])
    for j in range(3):
        mine = rows[there[:, j], j]
        for r in (one, some):
            np.testing.assert_allclose(r.mean[j], mine.mean(), rtol=1e-12)
            np.testing.assert_allclose(r.var[j], mine.var(), rtol=1e-6)


def test_with_a_halflife_older_events_count_less():
    r = Running(1, halflife=10)
    yes = np.ones((1, 1), bool)
    for _ in range(500):
        r.update(np.array([[1.0]]), yes)
    for _ in range(10):
        r.update(np.array([[3.0]]), yes)
    np.testing.assert_allclose(r.mean, 2.0, rtol=1e-9)  # ten events later, half is new


def test_numbers_are_standardised_and_what_is_missing_is_the_mean():
    features, rng = Features(), np.random.default_rng(1)
    for _ in range(300):
        learn(features, {"a": rng.normal(5, 2), "b": bool(rng.random() < 0.5)})
    at = features.places["a"]
    np.testing.assert_allclose(seen(features, {"a": 9.0})[at], 2.0, atol=0.2)
    for none in ({}, {"a": None}, {"a": math.nan}, {"b": True}):
        assert seen(features, none)[at] == 0
    assert seen(features, {"a": 1e9})[at] == features.clip


def test_an_indicator_says_what_is_missing():
    features = Features(indicator=True)
    for i in range(5):
        learn(features, {"a": float(i)})
    at = features.places["a?"]
    assert seen(features, {})[at] == 1 and seen(features, {"a": 2.0})[at] == 0


def test_categories_have_a_place_each_until_there_are_too_many():
    features = Features(categories=2)
    for value in "xyzw":
        learn(features, {"c": value})
    assert list(features.places) == ["c=x", "c=y", "c=*"]
    assert seen(features, {"c": "x"}).sum() == 1
    assert seen(features, {"c": "w"})[features.places["c=*"]] == 1


def test_new_features_find_room_and_old_ones_keep_their_place():
    features = Features()
    learn(features, {"a": 1.0})
    before = dict(features.places)
    event = features.read({f"f{i}": 1.0 for i in range(20)})
    assert features.admit([event]) and features.room == 32
    assert before.items() <= features.places.items()
    assert seen(features, {"unknown": 3.0}).shape == (32,)


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        ({"a": [1]}, TypeError, "'a' must be a number"),
        ({"a": math.inf}, ValueError, "'a' must be finite"),
        ({"a": 10**400}, ValueError, "'a' must be finite"),
        ("text", TypeError, "an event must be a dict"),
        (np.zeros((2, 2)), ValueError, "one axis"),
        ({"c": 1.0}, ValueError, "was a category before"),
        ({"n": "one"}, ValueError, "was a number before"),
    ],
)
def test_what_is_no_event_is_refused_by_name(x, error, says):
    features = Features()
    learn(features, {"c": "x", "n": 1.0})
    with pytest.raises(error, match=says):
        features.read(x)


def test_a_date_is_refused_with_what_to_give_instead():
    with pytest.raises(TypeError, match=r"'when'.*datetime; give its parts.*the weekday"):
        Features().read({"when": datetime(2026, 11, 18)})

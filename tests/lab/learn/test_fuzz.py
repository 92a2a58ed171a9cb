"""Broken streams; `python tests/learn_fuzz.py --count 10000` tries more of them."""

import pytest

import learn_fuzz
from kronline.lab.learn.worker import BLANK, Taken, Worker


def test_whatever_comes_is_predicted_or_kept_aside():
    seen = learn_fuzz.many(6, 60)
    assert seen["streams"] + seen["stopped"] == 6
    assert seen["predicted"] > 60 and seen["rejected"] > 60, seen


def test_a_line_that_was_lost_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(Worker, "_rejected", lambda *_: Taken(BLANK, b""))
    with pytest.raises(AssertionError):
        learn_fuzz.one(0, tmp_path, 30)

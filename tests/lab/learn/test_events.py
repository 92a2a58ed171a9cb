"""Records as events: what each line means, and what is refused, with the fix."""

import json
import math
from pathlib import Path

import pytest

from kronline.lab.learn.events import CLASSES, KEYS, LARGEST, Reader, Recent
from kronline.lab.learn.parse import Bad, Csv, Json, Stopped, decoded, kept
from kronline.lab.learn.settings import Learn


def reader(**settings):
    return Reader(Learn(Path("x"), **({"target": "y"} | settings)))


def test_columns_have_their_parts():
    r = reader(key="who", time="when", ignore=("id",))
    line = '{"who": 7, "when": "2026-01-02", "id": [1], "a": 1, "b": null, "c": true, "y": 2}'
    event = r.event(Json().record(line))
    assert event == ("7", "2026-01-02", {"a": 1.0, "b": None, "c": True}, 2.0)
    assert r.task == "regress"
    assert reader(only=("a",)).event({"a": 1, "z": [], "y": 0}).x == {"a": 1.0}
    assert reader(category=("a",)).event({"a": 12, "y": 0}).x == {"a": "12"}
    assert reader().event({"y": "up", "a": 1}).y == "up"
    assert reader(task="classify").event({"y": 3.0}).y == "3"
    assert reader(task="forecast").event({"y": 3, "a": []}).x == {}
    assert reader(target=None, task="anomaly").event({"a": 1}).y is None


def test_csv_cells_are_what_they_look_like():
    csv = Csv(as_text=["plate"])
    csv.header = csv.names("a;b;c;plate")
    assert csv.delimiter == ";"
    assert csv.record("1;;true;007") == {"a": 1.0, "b": None, "c": True, "plate": "007"}
    assert csv.record('"x;""y""";NA;1e3;') == {"a": 'x;"y"', "b": None, "c": 1000.0, "plate": None}
    assert math.isnan(csv.record("nan;1;2;3")["a"])


GOOD = {"a": 1.0, "y": 2.0, "k": "m", "t": 5}
BAD = [
    ({"a": "x"}, {}, "'a' is \"x\" and needs to be a number", "--category a"),
    ({"a": True}, {}, "needs to be a number, as it was before", "correct it"),
    ({"a": [1]}, {}, "'a' is a list", "--ignore"),
    ({"a": {"b": 1}}, {}, "'a' is an object", "--ignore"),
    ({"a": 10**400}, {}, "308 digits", "smaller"),
    ({"a": LARGEST * 10}, {}, "beyond 1e\\+100", "larger unit"),
    ({"a": math.nan}, {"on_nan": "skip"}, "not a finite", "--on-nan missing"),
    ({"a": math.inf}, {"on_nan": "skip"}, "not a finite", "--on-nan missing"),
    ({"y": "x"}, {}, "'y' is \"x\"", "correct it"),
    ({"y": ...}, {}, "no column 'y', the target", "null where it is not known"),
    ({"k": None}, {"key": "k"}, "the key 'k' is null", "in every line"),
    ({"k": ...}, {"key": "k"}, "the key 'k' is not there", "in every line"),
    ({"k": []}, {"key": "k"}, "the key 'k'", "as a text or a number"),
    ({"t": 4}, {"time": "t"}, "goes back, to 4", "sort the events"),
    ({"t": "soon"}, {"time": "t"}, "the time 't' is \"soon\"", "2026-"),
    ({"t": math.nan}, {"time": "t"}, "'t' is nan", "finite"),
    ({"b": "\ud800"}, {}, "half a character", "UTF-8"),
    ({"\ud800": 1}, {}, "half a character", "UTF-8"),
    ({f"c{i}": 1 for i in range(9)}, {"max_features": 5}, "more than 5", "--max-features"),
]


@pytest.mark.parametrize(("change", "settings", "problem", "fix"), BAD)
def test_what_is_refused_says_what_and_how(change, settings, problem, fix):
    r = reader(**settings)
    good = {k: v for k, v in GOOD.items() if k in ("a", "y", *settings.values())}
    r.event(good)
    before = json.dumps(r.state())
    record = {k: v for k, v in (good | change).items() if v is not ...}
    with pytest.raises(Bad, match=problem) as e:
        r.event(record)
    assert fix in e.value.fix
    assert json.dumps(r.state()) == before
    r.event(good)


LINES = [
    (b'{"a": 1', "broken JSON", "one object a line"),
    (b"[1, 2]", "a list and not an object", "names and values"),
    (b"[" * 100_000, "cannot be read", "nested"),
    (b"1" * 5000, "cannot be read", "smaller"),
    (b'{"a": "\xff"}', "not UTF-8: byte 0xff at column 8", "iconv"),
]


@pytest.mark.parametrize(("line", "problem", "fix"), LINES)
def test_lines_that_are_no_records(line, problem, fix):
    with pytest.raises(Bad, match=problem) as e:
        Json().record(decoded(line, len(line), 10**6, 2))
    assert fix in e.value.fix
    assert kept(line).encode()


def test_lines_that_are_too_long_or_no_csv():
    with pytest.raises(Bad, match="more than 10"):
        decoded(b"x" * 10, 20, 10, 1)
    csv = Csv()
    csv.header = csv.names("a,b")
    for line, problem in (("1", "1 cells where"), ("1,2,3", "3 cells"), ('"1,2', "broken CSV")):
        with pytest.raises(Bad, match=problem):
            csv.record(line)
    for line, problem in (("a,a", "twice"), ("a,,b", "without a name")):
        with pytest.raises(Bad, match=problem):
            Csv().names(line)
    assert decoded(b"\xef\xbb\xbfa", 4, 10, 1) == "a"


def test_nan_by_policy():
    assert reader().event({"a": math.nan, "y": 1}).x == {"a": None}
    assert reader(task="regress").event({"a": 1, "y": math.inf}).y is None
    with pytest.raises(Stopped, match="--on-nan is stop"):
        reader(on_nan="stop").event({"a": math.nan, "y": 1})


def test_the_task_comes_from_the_first_target():
    r = reader()
    with pytest.raises(Bad, match="so that the task is not"):
        r.event({"a": 1, "y": None})
    assert r.event({"a": 1, "y": False}).y is False and r.task == "classify"
    assert r.event({"a": 1, "y": None}).y is None


def test_classes_and_keys_have_a_limit():
    r = reader(task="classify")
    for i in range(CLASSES):
        r.event({"y": f"c{i}"})
    with pytest.raises(Bad, match="one class more than"):
        r.event({"y": "another"})
    assert r.event({"y": "c0"}).y == "c0"
    recent = Recent()
    for i in range(KEYS + 10):
        recent.put(str(i), i)
    assert len(recent) == KEYS and "9" not in recent and "10" in recent


def test_what_is_remembered_survives_a_checkpoint():
    one = reader(key="k", time="t")
    one.event(GOOD)
    two = reader(key="k", time="t")
    two.restore(json.loads(json.dumps(one.state())))
    for r in (one, two):
        with pytest.raises(Bad, match="goes back"):
            r.event(GOOD | {"t": 1})
    assert json.dumps(one.state()) == json.dumps(two.state())

"""Groups as curves; curves of others."""

import math

import numpy as np
import pytest

from kronline.errors import UsageError
from kronline.lab.analysis import beside
from kronline.lab.analysis.curves import Curve, curve, profile
from kronline.lab.analysis.groups import grouped
from kronline.lab.runs import folder
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.text import TextTask
from made_up import copy_run, text_run


def test_curves_over_steps_and_over_seconds(tmp_path):
    copy_run(tmp_path / "a", [2, 3], seconds=1.0, seed=0)
    copy_run(tmp_path / "b", [4, 5], seconds=3.0, seed=1)
    (g,) = grouped(folder.find([tmp_path]), CopyTask)
    c = curve(g, "T", "steps")
    assert c.x.tolist() == [0, 100, 200] and c.mean.tolist() == [1, 3, 4]
    np.testing.assert_allclose(c.std, [0, math.sqrt(2), math.sqrt(2)])
    # after 1.5 s the first seed has T = 2 (of step 100), the second still T = 1: T is a staircase
    c = curve(g, "T", "seconds")
    assert c.mean[np.searchsorted(c.x, 1.5)] == 1.5
    assert (c.x[-1], c.mean[-1]) == (6, 4)  # the first seed ended after 2 s, and keeps its T = 3
    text_run(tmp_path / "t", [4.0, 2.0])
    c = curve(grouped(folder.find([tmp_path]), TextTask)[0], "valid", "seconds")
    assert math.isclose(np.interp(3.0, c.x, c.mean), 3.0)  # between two measurements


def test_unfinished_runs_count_as_far_as_they_go(tmp_path):
    copy_run(tmp_path / "a", [2, 3, 4], seed=0)
    copy_run(tmp_path / "b", [4], seed=1, steps=300, state="diverged")
    (g,) = grouped(folder.find([tmp_path]), CopyTask)
    c = curve(g, "T")
    assert c.x.tolist() == [0, 100, 200, 300] and c.mean.tolist() == [1, 3, 3, 4]
    assert c.ended == ((100, 4, "diverged"),)
    text_run(tmp_path / "t", [])
    assert curve(grouped(folder.find([tmp_path]), TextTask)[0], "valid") is None


def test_bits_right_are_averaged_where_they_were_tried(tmp_path):
    for seed, solved in enumerate((2, 3, 7)):
        copy_run(tmp_path / f"{seed}", [1, 2, solved + 1], solved=solved, seed=seed)
    (kf,) = grouped(folder.find([tmp_path]), CopyTask)
    c = profile(kf, CopyTask.profile)
    assert c.x.tolist() == list(range(1, 9))
    np.testing.assert_allclose(c.mean, [100, 100, 250 / 3, 75, 100, 100, 100, 50])


def test_curves_of_others_end_where_ours_do():
    c = Curve(np.array([0.0, 100, 200]), np.array([0.0, 1, 3]), np.zeros(3)).until(150)
    assert c.x.tolist() == [0, 100, 150] and c.mean.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "needs the columns label, run, step, and one of T, valid.*, got nothing"),
        ("step,T\n1,2\n", "got step, T"),
        ("label,run,step,T,valid\na,0,1,2,3\n", "one of T, valid"),
        ("label,run,step,T\n", "has no measurement"),
        ("label,run,step,T\na,0,1,2\n\na,0,two,3\n", "line 4: step and T must be numbers"),
        ("label,run,step,T\na,0,1\n", "line 2: step and T must be numbers"),
        ("label,run,step,T\na,0,nan,1\n", "line 2: step and T must be finite"),
        ("label,run,step,valid\na,0,1,inf\n", "must be finite"),
        ("label,run,step,T\n,0,1,2\n", "the label is empty"),
        ("label,run,step,T\na,0,1,2\na,1,5,6\n", "no step in common"),
        ("label,run,step,T\n" + "x" * 200_000 + ",0,1,2\n", "field larger than"),
    ],
)
def test_curves_of_others_that_cannot_be_read(text, message, tmp_path):
    if text is not None:
        (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        beside.read([tmp_path / "a.csv"])

"""Which runs belong together, what they are called, and which learning rate is the best."""

import json
import math

from kronline import disk
from kronline.lab.analysis.groups import best_rates, grouped
from kronline.lab.analysis.stat import Stat
from kronline.lab.runs import folder
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.text import TextTask
from made_up import copy_run, text_run


def test_a_setting_that_an_earlier_version_did_not_have(tmp_path):
    copy_run(tmp_path / "old", [1, 2])
    copy_run(tmp_path / "new", [1, 3], seed=1, regulariser="none", monitor=False)
    copy_run(tmp_path / "other", [1, 3], regulariser="row_norm(1)")
    groups = grouped(folder.find([tmp_path]), CopyTask)
    assert {(g.label, tuple(g.seeds)) for g in groups} == {
        ("KF-RTRL, unregularised", (0, 1)),
        ("KF-RTRL, row_norm(1)", (0,)),
    }


def test_seeds_are_one_group_and_labels_name_only_what_differs(tmp_path):
    for seed in (2, 0, 1):  # how often a run is written down makes no difference
        copy_run(tmp_path / f"a{seed}", [1], seed=seed, log_every=10 + seed)
    copy_run(tmp_path / "b", [1], estimator="tbptt(25)")
    copy_run(tmp_path / "c", [1], estimator="tbptt(5)", rate=1e-4)
    groups = grouped(folder.find([tmp_path]), CopyTask)
    assert [g.label for g in groups] == ["KF-RTRL", "TBPTT-5", "TBPTT-25"]
    assert groups[0].seeds == [0, 1, 2]
    copy_run(tmp_path / "d", [1], hidden=16)
    groups = grouped(folder.find([tmp_path]), CopyTask)
    assert [g.label for g in groups][:2] == ["KF-RTRL, n = 8", "KF-RTRL, n = 16"]
    assert len({g.label for g in groups}) == 4


def test_the_same_text_is_one_group_by_whatever_path_it_came(tmp_path):
    text_run(tmp_path / "a", [2.0], data="here/book.txt", sha="11", seed=0)
    text_run(tmp_path / "b", [2.0], data="there/book.txt", sha="11", seed=1)
    text_run(tmp_path / "c", [2.0], data="here/book.txt", sha="22", seed=2)
    picked = best_rates(grouped(folder.find([tmp_path]), TextTask))
    assert [g.seeds for g in picked.shown] == [[0, 1], [2]]
    assert [g.label for g in picked.shown] == ["KF-RTRL", "KF-RTRL (2)"]


def test_mean_and_deviation_over_seeds(tmp_path):
    for seed, final in enumerate((3, 4, 8)):
        copy_run(tmp_path / f"copy{seed}", [1, 2, final], seed=seed)
    text_run(tmp_path / "text0", [3.0, 2.0, 2.5], 2.3, seed=0)
    text_run(tmp_path / "text1", [3.0, 2.2, 2.1], 2.5, seed=1)
    runs = folder.find([tmp_path])
    (kf,) = best_rates(grouped(runs, CopyTask)).shown
    assert kf.label == "KF-RTRL"
    T = kf.stat("T")
    assert (T.mean, T.n) == (5, 3)
    assert math.isclose(T.std, math.sqrt((4 + 1 + 9) / 2))
    assert kf.stat("seconds").mean == 3
    text = grouped(runs, TextTask)[0]
    assert math.isclose(text.stat("valid").mean, (2.0 + 2.1) / 2)  # the best of each
    assert math.isclose(text.stat("test").mean, 2.4)
    assert Stat.of([math.nan, None]) is None and Stat.of([2]).std is None


def test_the_best_rate_is_picked_by_the_rule(tmp_path):
    # equal T in the mean: the earlier arrival counts
    copy_run(tmp_path / "late", [1, 2, 4], rate=1e-3)
    copy_run(tmp_path / "early", [1, 4, 4], rate=1e-4)
    copy_run(tmp_path / "low", [3, 3, 3], rate=1e-2)
    picked = best_rates(grouped(folder.find([tmp_path]), CopyTask))
    assert [g.config["rate"] for g in picked.shown] == [1e-4]
    assert [g.config["rate"] for g in picked.tried[0]] == [1e-2, 1e-3, 1e-4]
    assert picked.shown[0].label == "KF-RTRL"  # one rate is left, so it need not be named
    copy_run(tmp_path / "diverged", [9, 9, 9], rate=10**-2.5, state="diverged")
    picked = best_rates(grouped(folder.find([tmp_path]), CopyTask))
    assert [g.config["rate"] for g in picked.shown] == [1e-4]
    text_run(tmp_path / "a", [2.0, 3.0], rate=1e-3)
    text_run(tmp_path / "b", [2.5, 2.4], rate=1e-4)
    assert best_rates(grouped(folder.find([tmp_path]), TextTask)).shown[0].config["rate"] == 1e-3


def test_a_chunk_that_was_done_twice_counts_once(tmp_path):
    run = copy_run(tmp_path / "a", [1, 2])
    rows = [{"step": 100, "seconds": 5.0}, *run.timing]  # killed and resumed
    disk.write(tmp_path / "a" / folder.TIMING, "".join(json.dumps(r) + "\n" for r in rows))
    assert grouped([folder.read(tmp_path / "a")], CopyTask)[0].stat("seconds").mean == 2

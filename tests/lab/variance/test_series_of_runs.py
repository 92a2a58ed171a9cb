"""Variance runs as curves: draws of all runs are pooled."""

import math

from kronline.lab.report.findings import Findings
from kronline.lab.runs import folder
from kronline.lab.variance.series import series
from made_up import noise_run


def test_variance_runs_of_an_earlier_version_are_pooled_with_new_ones(tmp_path):
    noise_run(tmp_path / "old")
    noise_run(tmp_path / "new", lanes=32, train_steps=60_000, retime="none")
    for experiment in ("time", "units"):
        found = series(folder.find([tmp_path]), experiment)
        assert [s.label for s in found] == ["KF-RTRL", "UORO-AVG (k = n)"]
        assert {stat.n for s in found for stat in s.cosine} == {4}


def test_draws_of_all_variance_runs_are_pooled(tmp_path):
    noise_run(tmp_path / "a", seed=0)
    noise_run(tmp_path / "b", seed=1, networks=3)
    f = Findings.of(folder.find([tmp_path]))
    assert [s.label for s in f.over_time] == ["KF-RTRL", "UORO-AVG (k = n)"]
    s = f.over_units[1]
    assert s.x.tolist() == [16, 32]
    assert math.isclose(s.cosine[0].mean, 0.4) and s.cosine[0].n == 4
    assert math.isclose(s.cosine[0].std, math.sqrt(4 * 0.1**2 / 3))
    assert s.error[1].mean == 33

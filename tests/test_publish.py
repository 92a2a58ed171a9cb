"""Published runs: small, complete, and read by the same tools."""

import json
import shutil

import numpy as np
import pytest

from kronline.report import groups
from kronline.runs import folder, publish
from test_cli import code


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    size = ["--hidden", "4", "--lanes", "2", "--steps", "400", "--log-every", "20"]
    assert code("train", "copy", "--out", str(path), *size) == 0
    return path


def test_what_is_published_says_what_the_run_says(run, tmp_path, capsys):
    assert code("publish", str(run), "--out", str(tmp_path), "--points", "5", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    whole, thin = folder.read(run), folder.read(tmp_path / "small")
    assert told["runs"] == [str(thin.path)] and told["bytes"] < 10_000
    for name in ("T", "right_trained", "solved", "step"):
        assert groups.number(thin, name) == groups.number(whole, name)
    assert 5 <= len(thin.metrics) <= 7 < len(whole.metrics)
    assert thin.metrics == [m for m in whole.metrics if m in thin.metrics]
    np.testing.assert_allclose(
        groups.number(thin, "seconds"), groups.number(whole, "seconds"), atol=0.05
    )
    assert (thin.config, thin.about, thin.state) == (whole.config, whole.about, "finished")
    assert not (thin.path / "checkpoints").exists()
    assert code("report", str(tmp_path), "--out", str(tmp_path / "page.html")) == 0


def test_no_folder_of_this_machine_is_named(run, tmp_path):
    whole = folder.read(run)
    config = tmp_path / "text"
    config.mkdir()
    (config / folder.CONFIG).write_text('data = "/home/somebody/x"\nrun = "/home/my/net"\n')
    text = folder.Run(
        config,
        "text",
        {},
        {"data": {"name": "Penn Treebank"}},
        whole.status,
        whole.metrics,
        whole.timing,
    )
    place = publish.write(text, tmp_path / "out", 10)
    assert (place / folder.CONFIG).read_text() == 'data = "ptb"\nrun = "net"\n'


def test_another_run_of_the_same_name_is_not_replaced(run, tmp_path, capsys):
    out = tmp_path / "out"
    other = tmp_path / "small"
    shutil.copytree(run, other)
    config = (other / folder.CONFIG).read_text()
    (other / folder.CONFIG).write_text(config.replace("seed = 0", "seed = 1"))
    assert code("publish", str(run), "--out", str(out)) == 0
    before = (out / "small" / folder.CONFIG).read_bytes()
    capsys.readouterr()
    assert code("publish", str(other), "--out", str(out)) == 2
    assert "holds another run" in capsys.readouterr().err
    assert (out / "small" / folder.CONFIG).read_bytes() == before
    longer = config.replace("steps = 400", "steps = 800")
    assert longer != config
    (other / folder.CONFIG).write_text(longer)
    assert code("publish", str(other), "--out", str(out)) == 0  # the same run, gone on


def test_wrong_input_is_explained(run, tmp_path, capsys):
    assert code("publish") == 2
    assert "at least one run" in capsys.readouterr().err
    assert code("publish", str(run), "--points", "1") == 2
    assert "needed points >= 2, got 1" in capsys.readouterr().err
    folder.set_status(run, "stopped", step=20)
    assert code("publish", str(run), "--out", str(tmp_path)) == 2
    assert "these have not: small (stopped)" in capsys.readouterr().err
    assert code("publish", str(run), "--out", str(tmp_path), "--unfinished") == 0
    assert folder.read(tmp_path / "small").state == "stopped"
    for steps in ([], ["--steps", "900"]):  # it has no checkpoints, and keeps what it measured
        before = (tmp_path / "small" / "metrics.jsonl").read_bytes()
        assert code("resume", str(tmp_path / "small"), *steps) == 2
        assert "has no checkpoints" in capsys.readouterr().err
        assert (tmp_path / "small" / "metrics.jsonl").read_bytes() == before
    folder.set_status(run, "running", step=20)  # by a process that is no more
    assert code("publish", str(run), "--out", str(tmp_path), "--unfinished") == 0
    assert code("publish", str(run), "--out", str(run.parent), "--unfinished") == 2
    assert "would be thinned itself" in capsys.readouterr().err
    shutil.copytree(run, tmp_path / "other" / "small")
    assert code("publish", str(run), str(tmp_path / "other"), "--unfinished") == 2
    assert "several are called small" in capsys.readouterr().err


def test_a_variance_run_is_published_whole(tmp_path):
    size = ["--units", "2", "4", "--units-networks", "1", "--units-draws", "2", "--steps", "3"]
    what = ["--experiment", "units", "--estimators", "uoro", "--out", str(tmp_path / "noise")]
    assert code("variance", *what, *size) == 0
    assert code("publish", str(tmp_path / "noise"), "--out", str(tmp_path / "out")) == 0
    whole, thin = folder.read(tmp_path / "noise"), folder.read(tmp_path / "out" / "noise")
    assert thin.metrics == whole.metrics and len(thin.metrics) == 2
    assert (thin.timing, thin.state) == (whole.timing, "finished")

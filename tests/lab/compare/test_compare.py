"""Estimators on equal terms: how long each trains, what is compared, and the page in a browser."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from browser import Browser, installed
from kronline.errors import UsageError
from kronline.lab.analysis.curves import Curve
from kronline.lab.cli import compare
from kronline.lab.cli.compare import main, resume
from kronline.lab.compare import compare_of, noise
from kronline.lab.compare.result import Result, replace_x
from kronline.lab.compare.terms import FILE as TERMS
from kronline.lab.compare.terms import Terms, agreed
from kronline.lab.report import comparison
from kronline.lab.runs import config, folder
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.variance import cost
from made_up import copy_run, text_run
from running import command

CopyCompare = compare_of(CopyTask)

# -- terms -----------------------------------------------------------------------------------------


def test_each_trains_until_it_has_had_data_and_compute():
    terms = Terms(100, {"dear": 3e-3, "cheap": 1e-3, "free": 1e-9}, {})
    assert terms.budget == pytest.approx(0.3)
    assert [terms.length(e, 20.0) for e in terms.seconds] == [100, 300, 2000]


def test_terms_are_kept(tmp_path, monkeypatch):
    made = []

    def timed(learners, lanes, tick):
        made.append(set(learners))
        return {e: cost.Cost(len(e), None) for e in learners}

    monkeypatch.setattr("kronline.lab.compare.terms.costs", timed)
    first = agreed(tmp_path, 10, {"a": None, "bb": None}, 4)
    assert first == agreed(tmp_path, 10, {"a": None, "bb": None}, 4)
    assert first.seconds == {"a": 1, "bb": 2}
    assert agreed(tmp_path, 10, {"a": None}, 4).seconds == {"a": 1}
    assert len(made) == 1
    agreed(tmp_path, 10, {"a": None, "c": None}, 4)  # a new one: all are timed, in one session
    assert made[1] == {"a", "c"}


@pytest.mark.parametrize("kind", TASKS)
def test_presets(kind):
    cls = compare_of(TASKS[kind])
    s = config.start(cls, cls.presets, ["--preset", "laptop"])
    assert s.workers == 1 and s.loss_steps == 5 and len(s.estimators) == 5
    reasons = config.toml(s, s.presets).splitlines()
    assert sum("  # " in line for line in reasons) > 15
    assert config.checked(cls, config.toml(s, s.presets), "here")["steps"] == s.steps


@pytest.mark.parametrize(
    ("change", "words"), [({"most": 0.5}, "most must be"), ({"draws": 0}, "draws must be")]
)
def test_wrong_settings_are_explained(change, words):
    with pytest.raises(UsageError, match=words):
        CopyCompare(**change)


# -- what is looked at -----------------------------------------------------------------------------


def test_the_losses_that_end_strings():
    data, times = CopyTask().probe(None, [3, 4, 9], places=3, loss_steps=3, longest=7)
    assert len(times) == 3
    assert all(data.reset[t] for t in times)  # the next string begins there
    assert len(data.x) >= times[-1] + 7
    assert set(np.asarray(data.y)[times[0] - 2 : times[0]].tolist()) <= {0, 1}  # bits


def test_networks_count_alike():
    lines = [
        {"estimator": "a", "cosine": [[1.0, 0.5]], "error": [1.0], "size": [1.0]},
        {"estimator": "a", "cosine": [[0.25, 0.25]], "error": [3.0, 1.0], "size": [1e9, 1e9]},
    ]
    assert noise.summary(lines) == {"a": {"variance": 1.5, "cosine": 0.5}}


# -- results ---------------------------------------------------------------------------------------


def made(tmp_path, kind="copy"):
    """KF-RTRL costs three times what TBPTT does, and so is trained for a third of its steps."""
    if kind == "copy":
        copy_run(tmp_path / "kf", [1, 2, 5])
        copy_run(tmp_path / "tbptt", [1, 2, 3, 4, 4, 4, 4, 4, 6], estimator="tbptt(5)")
    else:
        text_run(tmp_path / "kf", [3.0, 2.5, 2.0])
        text_run(tmp_path / "tbptt", [3.0, 2.6, 2.4] + [2.2] * 6, estimator="tbptt(5)")
    flops = {"kf_rtrl": 4.0, "tbptt(5)": 1.0}
    terms = Terms(300, {"kf_rtrl": 3e-3, "tbptt(5)": 1e-3}, flops)
    found = {"kf_rtrl": {"variance": 2.0, "cosine": 0.5}}
    return Result.of(TASKS[kind], folder.find([tmp_path]), terms, found, 5)


def test_scores_at_equal_data_and_at_equal_compute(tmp_path):
    kf, tbptt = made(tmp_path).numbers()["rows"]
    assert (kf["label"], tbptt["label"]) == ("KF-RTRL", "TBPTT-5")  # no word of their steps
    assert (kf["data"], kf["compute"]) == (5, 5)
    assert (tbptt["data"], tbptt["compute"]) == (3, 6)
    assert (kf["time"], kf["flops"], kf["variance"]) == (1, 1, 2)
    assert (tbptt["time"], tbptt["flops"]) == (pytest.approx(1 / 3), 0.25)
    assert tbptt["variance"] is None and tbptt["steps"] == 900


def test_text_counts_the_best_so_far(tmp_path):
    kf, tbptt = made(tmp_path, "text").numbers()["rows"]
    assert (kf["data"], tbptt["data"], tbptt["compute"]) == (2.0, 2.4, 2.2)


def test_what_was_measured_long_after_the_data_does_not_count(tmp_path):
    text_run(tmp_path / "a", [3.0, 2.5, 2.0])  # at steps 100, 200 and 300
    runs = folder.find([tmp_path])
    for steps, want in ((60, None), (96, 3.0), (150, 3.0), (200, 2.5), (295, 2.0)):
        terms = Terms(steps, {"kf_rtrl": 1e-3}, {"kf_rtrl": 1.0})
        (row,) = Result.of(TASKS["text"], runs, terms, {}, 5).numbers()["rows"]
        assert row["data"] == row["compute"] == want


def test_ends_move_with_their_curve():
    c = Curve(jnp.array([0.0, 10.0]), jnp.ones(2), jnp.zeros(2), ((5.0, 1.0, "diverged"),))
    assert replace_x(c, c.x * 2).ended == ((10.0, 1.0, "diverged"),)


# -- the whole -------------------------------------------------------------------------------------

WORDS = ["copy", "--hidden", 3, "--lanes", 2, "--steps", 40, "--log-every", 4, "--save-every", 20]
WORDS += ["--estimators", "kf_rtrl", "tbptt(2)", "--places", 2, "--draws", 2, "--loss-steps", 2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("compare") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "SECONDS", 1e-4)
        assert command("compare", *WORDS, "--out", place, "--json") == 0
    return place


def test_a_comparison_from_its_start_to_its_end(finished, capsys):
    found = json.loads((finished / compare.RESULT).read_text())
    assert [r["label"] for r in found["rows"]] == ["KF-RTRL", "TBPTT-2"]
    assert found["failed"] == [] and found["steps"] == 40 and found["unit"] == "KF-RTRL"
    for row in found["rows"]:
        assert row["variance"] >= 0 and -1 <= row["cosine"] <= 1.001
        assert row["data"] >= 1 and row["steps"] >= 40 and row["time"] > 0
        run = next(r for r in folder.find([finished]) if r.config["estimator"] == row["estimator"])
        closing = run.metrics[-1]
        assert row["right_trained"] == closing["right_trained"]
        assert row["solved"] == closing["solved"]
    assert len(folder.lines(finished / noise.FILE)) == 4  # two methods in two networks
    terms, runs = (finished / TERMS).read_bytes(), folder.find([finished])
    lengths = {run.config["estimator"]: run.status["steps"] for run in runs}
    assert min(lengths.values()) == 40  # the dearest has its data, the other as much compute

    # started again, all is there
    before = {run.path: (run.path / folder.METRICS).stat().st_mtime_ns for run in runs}
    page = (finished / compare.PAGE).read_text()
    assert "bits right, trained lengths, %, at the end" in page
    assert "shorter ones are no longer drawn, and are forgotten" in page.replace("\u00a0", " ")
    (finished / compare.PAGE).unlink()
    assert resume(finished, as_json=True) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again == found
    assert (finished / TERMS).read_bytes() == terms
    after = {run.path: (run.path / folder.METRICS).stat().st_mtime_ns for run in runs}
    assert before == after


def test_noise_that_was_cut_off_is_measured_again(finished):
    file = finished / noise.FILE
    want = file.read_bytes()
    file.write_bytes(want[:-30])
    assert resume(finished) == 0
    assert file.read_bytes() == want


def test_the_configuration_is_shown(capsys):
    assert main(CopyCompare(print_config=True, estimators=("uoro",))) == 0
    assert 'estimators = ["uoro"]' in capsys.readouterr().out


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if installed() is None:
        pytest.skip("no chromium, chromium-browser or google-chrome is installed here")
    with Browser(tmp_path_factory.mktemp("browser")) as b:
        yield b


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (320, True)])
def test_the_page_in_a_browser(browser, finished, width, dark):
    file = finished / compare.PAGE
    browser.look(file.as_uri(), width, dark=dark)
    images = browser.value(
        "[...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().right, i.alt])"
    )
    assert len(images) == 4  # over data, over compute, cosine, variance
    assert all(n > 0 and right <= width and len(alt) > 20 for n, right, alt in images)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert all(url == file.as_uri() or url.startswith("data:") for url in browser.requests())
    text = browser.value("document.body.textContent")
    assert all(word in text for word in ("KF-RTRL", "TBPTT-2", "equal data", "equal compute"))


def test_the_page_without_noise(tmp_path):
    text = re.sub("<[^>]*>", "", comparison.page(made(tmp_path))).replace("\u00a0", " ")
    assert "At equal data, KF-RTRL is ahead: T = 5." in text
    assert "At equal compute, TBPTT-5 is ahead: T = 6." in text

"""All methods side by side: where their losses lie, what a step costs, and the table as a run."""

import json
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.errors import UsageError
from kronline.estimators.base import Model
from kronline.lab.report.command import Report
from kronline.lab.report.command import main as main_report
from kronline.lab.runs import config, folder
from kronline.lab.variance import Variance, continue_, cost, exact, main, measure, steady
from kronline.lab.variance import plan as plans
from kronline.lab.variance.stream import Stream, stream

S = 5
TEXT = np.random.default_rng(0).integers(0, S, 80).astype(np.int32)
CELL = kl.RHN(4, S, init_weights=kl.Normal(0.6))  # so that the past matters


def learner(method):
    return kl.Learner(CELL, kl.softmax(S, std=0.5), method, optax.identity())


def found(method, text, times, loss_steps):
    net = learner(method)
    params = plans.fresh(net, jax.random.key(1))
    true = exact.gradients(Model(net.cell, net.readout), params, text, times, loss_steps)
    parts = (net, params, text, times, true, jax.random.key(0), 3)
    return measure.measure(*parts, loss_steps=loss_steps)


# -- the same losses for all -----------------------------------------------------------------------


@pytest.mark.parametrize("span", [1, 2, 4, 7])
def test_losses_may_lie_anywhere_in_segments(span):
    # RTRL is exact, so its estimate is the gradient of just these losses
    got = found(kl.rtrl(window=span), TEXT, (3, 4, 5, 10, 13, 21), 3)
    np.testing.assert_allclose(got.cosine, 1, atol=1e-5)
    assert got.error.max() < 1e-8
    assert got.size.shape == (6,) and (got.size > 0).all()


def test_a_stream_has_resets_and_weights():
    x, y, reset, weight = stream(TEXT)
    reset, weight = reset.at[9].set(True), weight.at[10].set(0.5)
    given = Stream(x, y, reset, weight)
    got = found(kl.rtrl(window=4), given, (12, 14), 4)
    assert got.error.max() < 1e-8
    plain = found(kl.rtrl(window=4), TEXT, (12, 14), 4)
    assert not np.allclose(got.size, plain.size)
    short = Stream(*(a[9:] for a in given))  # nothing is left of what was before
    np.testing.assert_allclose(found(kl.rtrl(), short, (5,), 4).size[0], got.size[1], rtol=1e-4)


def test_times_are_late_and_at_all_places_of_a_segment():
    s = Variance(experiment="table", steps=60, characters=210, times=3, loss_steps=5)
    times = plans._steady(s, 25)
    assert times[:5] == (55, 60, 65, 70, 75) and times[-1] == 200 and len(times) == 15
    assert sorted({t % 25 for t in times}) == [0, 5, 10, 15, 20]
    with pytest.raises(UsageError, match="at least 75"):
        plans._steady(replace(s, characters=70), 25)


# -- cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [kl.RHN(64, 5), kl.LSTM(64, 5)], ids=["RHN", "LSTM"])
def test_flops(cell):
    def of(method):
        return cost.flops(replace(learner(kl.tbptt(1)), cell=cell, estimator=method))

    base = of(kl.tbptt(5))
    assert base == of(kl.tbptt(25)) > 0
    kf = of(kl.kf_rtrl()) - base
    assert kf == {"RHN": 4, "LSTM": 16}[type(cell).__name__] * 64**3
    assert of(kl.ok(4)) - base == of(kl.kf_rtrl(copies=4)) - base == 4 * kf
    assert of(kl.kf_tbptt(25, pairs=1)) - base < 0.6 * kf
    assert of(kl.kf_tbptt(25, pairs=8)) > of(kl.kf_tbptt(25, pairs=1))
    assert of(kl.uoro()) - base < 0.2 * kf
    assert of(kl.dni()) is None and of(kl.kf_rtrl(copies=2)) - base == 2 * kf


def test_steps_are_timed_in_turn(monkeypatch):
    monkeypatch.setattr(cost, "SECONDS", 1e-4)
    told = []
    both = {m.name: learner(m) for m in (kl.tbptt(4), kl.uoro())}
    got = cost.costs(both, 2, lambda name, units: told.append((name, units)))
    assert [name for name, _ in told] == ["tbptt(4)", "uoro()"] * (cost.ROUNDS + 1)
    assert sum(units for _, units in told) == 2 * cost.UNITS
    assert all(c.seconds > 0 for c in got.values())


# -- a run -----------------------------------------------------------------------------------------

TINY = Variance(
    experiment="table",
    estimators=("kf_rtrl", "rtrl", "kf_tbptt(4, pairs=1)"),
    hidden=3,
    steps=8,
    characters=17,
    times=2,
    loss_steps=2,
    networks=1,
    draws=3,
    train_steps=20,
    lanes=4,
    json=True,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "SECONDS", 1e-4)
        assert main(replace(TINY, out=place / "run")) == 0
    return place / "run"


def test_a_table_has_all_methods_and_networks(finished, capsys):
    run = folder.read(finished)
    assert run.state == "finished"
    assert {(m["network"], m["trained"]) for m in run.metrics} == {(0, False), (1, True)}
    assert {m["t"] for m in run.metrics} == {6, 8, 14, 16}
    assert folder.read(finished / "trained").config["estimator"] == "tbptt(25)"
    assert continue_(finished, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [r["method"] for r in shown["rows"]] == ["KF-RTRL", "RTRL", "KF-TBPTT-4, 1 pair"]
    kf, rtrl, tail = shown["rows"]
    assert kf["time"] == kf["flops"] == 1 and rtrl["flops"] is None and tail["time"] > 0
    for network in ("untrained", "trained"):
        assert rtrl[network]["cosine"] == pytest.approx(1, abs=1e-4)
        assert rtrl[network]["variance"] < 1e-6 < kf[network]["variance"]
        assert kf[network]["estimates"] == 12
    assert shown["about"]["machine"] and shown["config"]["loss_steps"] == 2
    lines = [x for x in (finished / "table.md").read_text().splitlines() if x.startswith("|")]
    assert len(lines) == 5 and lines[2].startswith("| KF-RTRL |")


def test_the_variance_is_over_times_as_the_losses_are(finished):
    rows = [m for m in folder.read(finished).metrics if m["estimator"] == "kf_rtrl"]
    some = [m for m in rows if m["trained"]]
    want = sum(np.mean(m["error"]) * m["size"] for m in some) / sum(m["size"] for m in some)
    (kf, *_) = steady.measured(rows)
    assert kf["trained"]["variance"] == pytest.approx(want)


def test_costs_can_be_measured_again(finished, monkeypatch, capsys):
    monkeypatch.setattr(cost, "SECONDS", 1e-4)
    before = (finished / "metrics.jsonl").read_bytes()
    (finished / steady.COST).unlink()
    assert main(Variance(retime=finished)) == 0
    assert "KF-TBPTT-4" in capsys.readouterr().out
    assert (finished / steady.COST).exists()
    assert (finished / "metrics.jsonl").read_bytes() == before
    rows = (finished / "table.md").read_text()
    (finished / "metrics.jsonl").rename(finished / "elsewhere")  # as it is kept in results/
    assert continue_(finished) == 0
    assert (finished / "table.md").read_text() == rows
    (finished / "elsewhere").rename(finished / "metrics.jsonl")
    with pytest.raises(UsageError, match="is no table"):
        main(Variance(retime=finished / "trained"))


def test_a_table_that_was_interrupted_ends_the_same(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "SECONDS", 1e-4)
    want = (finished / folder.METRICS).read_bytes()
    for name in (folder.CONFIG, folder.ABOUT):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    (tmp_path / folder.METRICS).write_bytes(want[:700])
    folder.set_status(tmp_path, "running", step=1, steps=6)
    assert continue_(tmp_path) == 0  # the network is trained anew: the same one
    assert (tmp_path / folder.METRICS).read_bytes() == want


def test_a_table_of_a_trained_network_names_it(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "SECONDS", 1e-4)
    asked = {"estimators": ("tbptt(2)",), "cell": "LSTM", "hidden": 99}
    args = replace(TINY, run=finished / "trained", out=tmp_path / "run", **asked)
    assert main(args) == 0
    its = folder.read(args.out).config
    assert (its["cell"], its["hidden"]) == ("RHN", 3)  # its own, whatever was asked for
    said = (args.out / "table.md").read_text()
    assert "RHN, n = 3, reading" in said and "one that was trained in trained;" in said
    assert "--config config.toml --run RUN" in said and "TBPTT-25" not in said


def test_a_report_shows_the_table(finished, tmp_path):
    assert main_report(Report((finished,), tmp_path / "report.html")) == 0
    text = (tmp_path / "report.html").read_text()
    assert "3 methods side by side" in text
    assert "KF-TBPTT-4, 1 pair" in text and "All methods, n = 3" in text


def test_the_preset_has_what_was_asked_for():
    s = config.start(Variance, "variance", ["--preset", "table"])
    assert s.experiment == "table" and s.loss_steps == 5 and s.hidden == 64
    tails = {f"kf_tbptt({k}, pairs={p})" for k in (5, 25) for p in (1, 4, 8)}
    asked = tails | {"ok(1)", "ok(2)", "ok(4)", "kf_rtrl(copies=4)"}
    asked |= {f"{m}{w}" for m in ("uoro", "kf_rtrl") for w in ("", "(window=1)", "(window=5)")}
    assert asked <= set(s.estimators)
    assert len(plans.make(s).units) == 3 * len(s.estimators)

"""How near estimates come to the exact gradient: the measure itself, and runs of it."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.errors import UsageError
from kronline.estimators.base import Model
from kronline.lab.runs import folder, loop
from kronline.lab.runs import train as trained
from kronline.lab.tasks.text import TextTask
from kronline.lab.variance import Variance, continue_, exact, main, measure
from kronline.lab.variance import plan as plans
from kronline.lab.variance.run import whole_units
from kronline.lab.variance.settings import estimator
from kronline.lab.variance.stream import stream
from kronline.lanes import Loop, Shard, Vmap

S = 5
TEXT = np.random.default_rng(0).integers(0, S, 200).astype(np.int32)
STILL = optax.identity()
STD = kl.Normal(0.6)  # so that the past matters


def learner(cell: kl.Cell, method: kl.Estimator, **more) -> kl.Learner:
    return kl.Learner(cell, kl.softmax(S, std=0.5), method, STILL, **more)


def model(learner: kl.Learner) -> Model:
    return Model(learner.cell, learner.readout)


def steps(first: int, last: int, lanes: int = 1):
    every = np.repeat(TEXT[first : last + 1, None], lanes, axis=1)
    return every[:-1], every[1:]


# -- the exact gradient ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "loss_steps"),
    [
        (kl.RHN(4, S, init_weights=STD), 1),
        (kl.GRU(3, S, init_weights=STD), 2),  # some of its weights do not exist
        (kl.Opaque(kl.Tanh(3, S, init_weights=STD)), 1),
    ],
    ids=["RHN", "GRU", "Opaque"],
)
def test_exact_equals_rtrl_and_bptt(cell, loss_steps, monkeypatch):
    monkeypatch.setattr(exact, "BYTES", 20_000)  # several groups
    times, last = (2, 6, 9, 17, 40), 40
    with jax.enable_x64(True):
        online = learner(cell, kl.rtrl(), dtype="float64")
        whole = replace(online, estimator=kl.bptt())
        state = online.init(jax.random.key(0))
        got = exact.gradients(model(online), state.params, TEXT, times, loss_steps)
        _, each = online.gradients(state, *steps(0, last))
        for i, t in enumerate(times):
            weight = np.zeros((last, 1))
            weight[t - loss_steps : t] = 1
            back = whole.gradients(whole.init(jax.random.key(0)), *steps(0, last), weight=weight)[1]
            for a, b, c in zip(*map(jax.tree.leaves, (got, each.cell, back.cell)), strict=True):
                assert np.abs(a[i]).max() > 1e-3
                np.testing.assert_allclose(a[i], b[t - loss_steps : t].sum(0), 1e-9, 1e-13)
                np.testing.assert_allclose(a[i], last * c[0], 1e-9, 1e-13)


# -- every lane's own gradient ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "layout"),
    [
        (kl.kf_rtrl(), Vmap()),
        (kl.uoro(2), Vmap()),
        (kl.tbptt(3), Vmap()),
        (kl.uoro(), Loop()),
        (kl.kf_rtrl(), Shard()),
    ],
    ids=lambda v: getattr(v, "name", repr(v)),
)
def test_lanes_own_gradients_average_to_the_mean(method, layout):
    x, y = (a.reshape(6, 3) for a in steps(0, 18))
    net = learner(kl.GRU(3, S, init_weights=STD), method, layout=layout)
    state = net.init(jax.random.key(0), lanes=3)
    after, mean = net.gradients(state, x, y)
    after_own, own = net.gradients(state, x, y, average=False)
    for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(own), strict=True):
        assert b.shape == (a.shape[0], 3, *a.shape[1:])
        assert np.ptp(b, axis=1).max() > 1e-4  # lanes differ
        np.testing.assert_allclose(np.asarray(b).mean(1), a, rtol=1e-4, atol=1e-6)
    for a, b in zip(jax.tree.leaves(after.memory), jax.tree.leaves(after_own.memory), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# -- the measure -----------------------------------------------------------------------------------


def measured(net: kl.Learner, times, draws=4, key=0, **more):
    params = plans.fresh(net, jax.random.key(1))
    true = exact.gradients(model(net), params, TEXT, times, more.get("loss_steps", 1))
    return measure.measure(net, params, TEXT, times, true, jax.random.key(key), draws, **more)


@pytest.mark.parametrize(
    ("method", "loss_steps"),
    [(kl.rtrl(), 1), (kl.rtrl(window=2), 3)],
    ids=["rtrl", "rtrl with a window"],
)
def test_rtrl_is_exact_at_all_times(method, loss_steps):
    times = measure.log_spaced(120, 12, 2, loss_steps)
    found = measured(learner(kl.RHN(4, S), method), times, loss_steps=loss_steps)
    np.testing.assert_allclose(found.cosine, 1, atol=1e-5)
    assert found.error.max() < 1e-8


@pytest.mark.parametrize("method", [kl.tbptt(4), kl.kf_tbptt(4, pairs=1)], ids=lambda m: m.name)
def test_a_window_is_exact_within_its_first_segment_only(method):
    net = learner(kl.RHN(4, S, init_weights=STD), method)
    found = measured(net, (4, 8, 16), loss_steps=2)
    assert found.error[0].max() < 1e-8
    assert found.error[1:].min() > 1e-5
    noisy = np.ptp(found.cosine, axis=1) > 0
    assert not noisy.any() if method.name == "tbptt(4)" else noisy[2]


@pytest.mark.parametrize("method", [kl.kf_rtrl(), kl.uoro(2)], ids=lambda m: m.name)
def test_estimates_average_to_the_exact_gradient(method):
    net, t, lanes = learner(kl.RHN(4, S, init_weights=STD), method), 26, 4000
    params = plans.fresh(net, jax.random.key(1))
    true = exact.gradients(model(net), params, TEXT, (t,))
    state = measure._start(net, params, jax.random.key(2), lanes)
    at = 0
    for block, pusher in measure._pushers(net, blocks=True).items():
        count = (t - 1 - at) // block
        state = measure._pushed(pusher, state, stream(TEXT), jnp.int32(at), jnp.int32(count))
        at += count * block
    _, mean = net.gradients(state, *steps(t - 1, t, lanes))
    _, own = net.gradients(state, *steps(t - 1, t, lanes), average=False)
    g = true["W"][0]
    single = np.mean(np.sum((np.asarray(own.cell["W"][0]) - g) ** 2, axis=(1, 2, 3)))
    off = np.sum((np.asarray(mean.cell["W"][0]) - g) ** 2)
    assert single > 0.1 * np.sum(g**2)  # noisy, each by itself
    assert off < 4 * single / lanes


def test_kf_rtrl_is_nearer_than_uoro_and_averages_help():
    cell = kl.RHN(16, S)
    cosine = {
        m.name: measured(learner(cell, m), (20,), 40, blocks=False).cosine.mean()
        for m in (kl.kf_rtrl(), kl.uoro(), kl.uoro(16))
    }
    assert cosine["kf_rtrl()"] > 0.5 > 2 * cosine["uoro()"] > 0
    assert cosine["uoro(copies=16)"] > 2 * cosine["uoro()"]


def test_draws_are_independent_and_grouped_where_traces_are_large(monkeypatch):
    net = learner(kl.RHN(6, S), kl.uoro(3))
    found = measured(net, (2, 9), 6, blocks=False)
    assert len(np.unique(found.cosine[1])) == 6
    monkeypatch.setattr(measure, "BYTES", 2 * measure.lane_bytes(net))
    grouped = measured(net, (2, 9), 6, blocks=False)
    assert len(np.unique(grouped.cosine[1])) == 6


def test_times():
    times = measure.log_spaced(10_000, 50)
    assert len(times) == 50 and times[0] == 1 and times[-1] == 10_000
    assert sorted(set(times)) == list(times)
    ratio = np.array(times[21:]) / np.array(times[20:-1])
    assert ratio.min() > 1.05 and ratio.max() < 1.4  # evenly spaced in the logarithm
    spans = measure.log_spaced(10_000, 50, 15, 20)
    assert all(t % 15 == 0 and t >= 20 for t in spans) and max(spans) <= 10_000
    assert measure.log_spaced(4, 50) == (1, 2, 3, 4)


def test_n_in_an_estimator_is_the_number_of_units():
    assert estimator("uoro(copies=n)", 32) == kl.uoro(copies=32)
    assert estimator("uoro(n)", 7) == kl.uoro(7)
    assert estimator("kf_rtrl", 7) == kl.kf_rtrl()
    own = Path(__file__).parents[3] / "examples" / "own_trace.py"
    assert estimator(f"{own}:estimator", 7).span == 1


# -- runs ------------------------------------------------------------------------------------------

TINY = Variance(
    estimators=("kf_rtrl", "uoro(copies=n)", "tbptt(2)"),
    hidden=3,
    characters=20,
    times=5,
    networks=2,
    draws=3,
    avg_draws=2,
    units=(3,),
    steps=9,
    units_networks=2,
    units_draws=3,
    json=True,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("variance") / "run"
    assert main(replace(TINY, out=path)) == 0
    return path


def test_a_run_has_all_lines_in_order(finished, capsys):
    run = folder.read(finished)
    assert (run.kind, run.state, run.status["step"]) == ("variance", "finished", 12)
    assert run.about["data"]["name"] and run.about["parameters"] > 0
    assert [m["estimator"] for m in run.metrics] == sorted(
        (m["estimator"] for m in run.metrics), key=TINY.estimators.index
    )
    for m in run.metrics:
        draws = 2 if m["estimator"] == "uoro(copies=n)" and m["experiment"] == "time" else 3
        assert len(m["cosine"]) == len(m["error"]) == draws
        assert m["t"] % 2 == 0 and np.abs(m["cosine"]).max() <= 1 + 1e-5
        assert m["t"] == 10 or m["experiment"] == "time"
    assert len(run.timing) == 12
    assert continue_(finished, as_json=True) == 0  # finished: shown again
    found = json.loads(capsys.readouterr().out)
    assert [p["n"] for p in found["units"]["kf_rtrl"]] == [3]
    assert (
        found["time"]["kf_rtrl"][-1]["t"] == 20 and found["time"]["kf_rtrl"][0]["repetitions"] == 6
    )
    assert continue_(finished) == 0
    assert "tbptt(2)" in capsys.readouterr().out


@pytest.mark.parametrize("cut", [0, 1, 700, -1, -300])
def test_an_interrupted_run_ends_the_same(finished, tmp_path, cut):
    want = (finished / folder.METRICS).read_bytes()
    for name in (folder.CONFIG, folder.ABOUT):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    (tmp_path / folder.METRICS).write_bytes(want[:cut])
    folder.set_status(tmp_path, "running", step=3, steps=12)
    assert continue_(tmp_path) == 0
    assert (tmp_path / folder.METRICS).read_bytes() == want
    assert folder.read(tmp_path).state == "finished"


def test_a_signal_stops_a_run_which_then_goes_on(finished, tmp_path, monkeypatch, capsys):
    run, count = plans.Plan.run, []

    def signalled(self, unit, tick):
        count.append(unit)
        if len(count) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return run(self, unit, tick)

    monkeypatch.setattr(plans.Plan, "run", signalled)
    path = tmp_path / "run"
    assert main(replace(TINY, out=path)) == 128 + signal.SIGTERM
    assert folder.read(path).status["state"] == "stopped"
    assert "3 of 12" in capsys.readouterr().out
    assert continue_(path) == 0
    assert (path / folder.METRICS).read_bytes() == (finished / folder.METRICS).read_bytes()


def test_a_trained_network(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 40)
    run = TextTask(
        out=tmp_path / "text", data=str(text), hidden=6, lanes=2, epochs=0.2, log_every=20,
        save_every=40, valid_every=40,
    )  # fmt: skip
    assert trained.new(run)[1].state == "finished"
    out = tmp_path / "variance"
    args = Variance(run=run.out, estimators=("rtrl", "uoro"), characters=30, times=4, out=out)
    assert main(args) == 0
    metrics = folder.read(out).metrics
    assert {(m["experiment"], m["n"], m["network"]) for m in metrics} == {("time", 6, 0)}
    exactly = [c for m in metrics if m["estimator"] == "rtrl" for c in m["cosine"]]
    np.testing.assert_allclose(exactly, 1, atol=1e-4)
    plan = plans.make(args)
    np.testing.assert_array_equal(plan.params.cell["W"], trained.load(run.out).params.cell["W"])


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimators": ("bptt",)}, "whole run"),
        ({"estimators": ("kf_rtl",)}, "did you mean 'kf_rtrl'"),
        ({"estimators": ("uoro(copies=m)",)}, "got 'm'"),
        ({"estimators": ()}, "estimators needs one or more"),
        ({"estimators": ("uoro", "uoro")}, "each once"),
        ({"estimators": ("tbptt(50)",)}, "characters must be at least 50"),
        ({"cell": "RNH"}, "did you mean 'RHN'"),
        ({"units": (4, 0)}, "sizes >= 1"),
        ({"draws": 0}, "draws must be >= 1"),
        ({"seed": -1}, "seed must be"),
        ({"characters": 10**7}, "needed 10,000,001 characters"),
        ({"run": Path("nowhere")}, "is not a run"),
        ({"run": Path("nowhere"), "experiment": "units"}, "one size"),
        ({"data": "nowhere.txt"}, "no file or folder"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_what_is_wrong_is_said_before_a_folder_is_made(tmp_path, change, words):
    path = tmp_path / "run"
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        main(replace(TINY, out=path, **change))
    assert not path.exists()


def test_kronecker_factors_need_visible_weights(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "import kronline as kl\ndef Hidden(n, m):\n    return kl.Opaque(kl.Tanh(n, m))\n"
    )
    with pytest.raises(UsageError, match=r"kf_rtrl.*use uoro"):
        plans.make(replace(TINY, cell=f"{own}:Hidden"))


def test_another_text_or_damaged_metrics_are_refused(finished, tmp_path):
    for name in (folder.CONFIG, folder.ABOUT):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    folder.set_status(tmp_path, "stopped", step=1, steps=12)
    other = tmp_path / "other.txt"
    other.write_text("abc" * 100)
    with pytest.raises(UsageError, match="not the one that it began with"):
        continue_(tmp_path, str(other))
    lines = (finished / folder.METRICS).read_bytes().split(b"\n")
    (tmp_path / folder.METRICS).write_bytes(b"\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(UsageError, match="is damaged"):
        whole_units(tmp_path / folder.METRICS, plans.make(TINY).units)


def test_an_exploding_estimate_stops_the_run(tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(
        "import kronline as kl\n"
        "def Wild(n, m):\n"
        "    return kl.LeakyTanh(n, m, init_weights=kl.Normal(1e15))\n"
    )
    args = replace(TINY, cell=f"{own}:Wild", estimators=("uoro",), out=tmp_path / "run")
    code = main(args)
    assert code == loop.DIVERGED
    assert folder.read(tmp_path / "run").state == "diverged"
    assert "t = " in capsys.readouterr().err

"""The noise monitor: what it says is what the lanes' own gradients, and all signs, say."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kills import same
from kronline.estimators.base import Model
from kronline.lab.runs import folder
from kronline.lab.runs.grid import members, sweep_of
from kronline.lab.tasks.copy import CopyTask
from kronline.linearised import gradients as gr
from kronline.traces import one_step, uoro
from running import command, killed, words

CopySweep = sweep_of(CopyTask)

LANES, INPUTS = 5, 3
WIDE = kl.Normal(0.6)


def data(steps, lanes=LANES):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, INPUTS, (2, steps, lanes))
    return {"x": x, "y": y, "reset": rng.random((steps, lanes)) < 0.1}


def learner(cell, estimator, **kwargs):
    return kl.Learner(cell, kl.softmax(INPUTS), estimator, optax.sgd(0.0), **kwargs)


@pytest.mark.parametrize(
    ("cell", "estimator", "layout"),
    [
        (kl.RHN(6, INPUTS, init_weights=WIDE), kl.kf_rtrl(), kl.Loop()),
        (kl.RHN(6, INPUTS, init_weights=WIDE), kl.kf_rtrl(window=3), kl.Vmap()),
        (kl.RHN(6, INPUTS, init_weights=WIDE), kl.bptt(), kl.Vmap()),
        (kl.GRU(6, INPUTS, init_weights=WIDE), kl.kf_rtrl(copies=2), kl.Vmap()),  # with a mask
        (kl.DeepRHN(6, INPUTS, init_weights=WIDE), kl.ok(2), kl.Vmap()),
        (kl.LSTM(6, INPUTS, init_weights=WIDE), kl.uoro(copies=3), kl.Loop()),
        (kl.Opaque(kl.Tanh(6, INPUTS, init_weights=WIDE)), kl.rtrl(), kl.Vmap()),
    ],
    ids=lambda p: getattr(p, "name", type(p).__name__),
)
def test_signal_and_noise_are_those_of_the_lanes_gradients(cell, estimator, layout):
    with jax.enable_x64(True):
        a = learner(cell, estimator, layout=layout, dtype="float64")
        state, d = a.init(jax.random.key(0), LANES), data(12)
        _, out = a.run(state, **d, monitor=True)
        _, each = a.gradients(state, **d, average=False)  # sgd(0): the same parameters throughout
        g = np.concatenate(
            [np.asarray(p).reshape(*p.shape[:2], -1) for p in jax.tree.leaves(each.cell)], axis=-1
        )
        noise = g.var(axis=1, ddof=1).sum(-1)
        signal = (g.mean(1) ** 2).sum(-1) - noise / LANES
        np.testing.assert_allclose(out.spread.noise, noise, rtol=1e-10)
        np.testing.assert_allclose(out.spread.signal, signal, rtol=1e-10, atol=1e-12)
        assert float(out.spread.snr) == pytest.approx(signal.sum() / noise.sum())


def test_the_signal_is_unbiased():
    """Gradients of many lanes from one state and stream, which differ by their signs alone."""
    a = learner(kl.RHN(4, INPUTS, init_weights=WIDE), kl.kf_rtrl())
    x, y = np.random.default_rng(1).integers(0, INPUTS, (2, 8))
    lanes = 2000
    state = a.init(jax.random.key(0), lanes)
    _, out = a.run(state, *(np.tile(v[:, None], (1, lanes)) for v in (x, y)), monitor=True)
    exact = learner(kl.RHN(4, INPUTS, init_weights=WIDE), kl.rtrl())
    alone = exact.init(jax.random.key(0), 1)
    _, g = exact.gradients(alone, x[:, None], y[:, None])
    want = float(jnp.sum(g.cell["W"][-1] ** 2))
    assert float(out.spread.signal[-1]) == pytest.approx(want, rel=0.1)
    assert float(out.spread.noise[-1]) > 0


def test_one_lane_has_no_spread_and_a_buffer_is_refused():
    a = learner(kl.RHN(4, INPUTS), kl.tbptt(2))
    d = data(4, lanes=1)
    assert a.run(a.init(jax.random.key(0), 1), **d, monitor=True)[1].spread is None
    buffered = a.init(jax.random.key(0), 1, example=(d["x"][0], d["y"][0]))
    with pytest.raises(ValueError, match="monitor needs a state without a buffer"):
        a.run(buffered, **d, monitor=True)


def test_looking_changes_nothing():
    a = learner(kl.RHN(6, INPUTS), kl.kf_rtrl())
    state, d = a.init(jax.random.key(0), LANES), data(6)
    plain, one = a.run(state, **d)
    watched, two = a.run(state, **d, monitor=True)
    assert one.spread is None and two.spread is not None
    jax.tree.map(
        np.testing.assert_array_equal, (plain.params, one.loss), (watched.params, two.loss)
    )


FORMULAS = [kl.KF(), kl.OK(1), kl.ReverseKF(), kl.UORO(), kl.Average(kl.KF(), 2)]


@pytest.mark.parametrize(
    ("cell", "trace"),
    [
        *((kl.RHN(2, 2, init_weights=WIDE), t) for t in FORMULAS),
        *((kl.DeepRHN(2, 2, init_weights=WIDE), t) for t in (kl.KF(), kl.UORO())),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_share_is_that_over_all_signs(cell, trace):
    """`E‖G' − E G'‖² / E‖G'‖²` of the next trace, by enumeration."""
    with jax.enable_x64(True):
        estimator = kl.Online(trace)
        assert estimator.closed_form
        params = kl.Params(cell.init(jax.random.key(0), jnp.float64), ())
        memory, s = trace.init(cell.structure(params.cell)), jnp.zeros(cell.size)
        draws = trace.draws(cell.structure(params.cell), 1)
        leaves, tree = jax.tree.flatten(draws, is_leaf=lambda d: isinstance(d, kl.Draw))
        size = sum(int(np.prod(d.shape)) for d in leaves)

        def noise(signs):
            cuts = np.cumsum([int(np.prod(d.shape)) for d in leaves])[:-1]
            parts = jnp.split(jnp.asarray(signs, jnp.float64), cuts)
            return jax.tree.unflatten(
                tree, [p.reshape(d.shape) for p, d in zip(parts, leaves, strict=True)]
            )

        def pushed(memory, lin, noise):
            nowhere, never = jnp.zeros(cell.size), jnp.zeros((), bool)
            return trace.segment(memory, one_step(lin, never), noise, nowhere, "end")[1]

        rng = np.random.default_rng(0)
        for x in rng.normal(size=(3, 2)):
            lin = cell.linearise(params.cell, s, x)
            memory, s = pushed(memory, lin, noise(rng.choice([-1.0, 1.0], size))), lin.state
        x, reset = jnp.asarray([0.3, -1.0]), jnp.zeros((), bool)
        lin = cell.linearise(params.cell, s, x)

        def next_G(signs):
            new = pushed(memory, lin, noise(signs))
            rows = jax.vmap(lambda e: gr.written_out(trace.pull(new, e)))(jnp.eye(cell.size))
            return jnp.concatenate([r.reshape(-1) for r in jax.tree.leaves(rows)])

        G = np.stack([next_G(signs) for signs in itertools.product((-1.0, 1.0), repeat=size)])
        want = ((G - G.mean(0)) ** 2).sum(1).mean() / (G**2).sum(1).mean()
        now = (Model(cell, None), params, s, memory, x)
        assert 1e-3 < want < 1
        assert float(estimator.noise_share(*now, reset)) == pytest.approx(want, rel=1e-9)
        if not isinstance(trace, kl.ReverseKF | kl.UORO):  # whose first step is noisy already
            assert float(estimator.noise_share(*now, jnp.ones((), bool))) == pytest.approx(
                0, abs=1e-9
            )


@pytest.mark.parametrize(
    ("cell", "most"), [(kl.RHN(6, 2, init_weights=WIDE), 1e-6), (kl.LSTM(4, 2), 0.1)]
)
def test_uoro_of_many_units_is_bounded_closely(cell, most, monkeypatch):
    """E‖νF‖ <= ‖F‖: equal where a unit has one slot, close for many units."""
    params, trace = cell.init(jax.random.key(0)), kl.UORO()
    s = 0.1 * jnp.arange(cell.size) / cell.size

    @jax.jit
    def step(memory, nu):
        lin = cell.linearise(params, s, jnp.ones(2))
        return trace.step(memory, lin, nu), trace.variance(memory, lin)

    nu = jax.random.rademacher(jax.random.key(0), (3, 1, cell.size), jnp.float32)
    memory = trace.init(cell.structure(params))
    for v in nu[:2]:
        memory, _ = step(memory, v)
    exact = float(step(memory, nu[2])[1])
    monkeypatch.setattr(uoro, "ENUMERATED", 0)
    step.clear_cache()
    bound = float(step(memory, nu[2])[1])
    assert exact * (1 - 1e-5) <= bound <= exact * (1 + most)


KNOWN = [kl.kf_rtrl(), kl.ok(2), kl.uoro(2), kl.reverse_kf(), kl.kf_tbptt(4)]


def test_which_estimators_know_their_noise():
    others = (kl.tbptt(4), kl.rtrl(), kl.rolling_tbptt(3), kl.dni(2), kl.snap(1))
    for estimator in (*KNOWN, *others):
        a = learner(kl.RHN(4, INPUTS, init_weights=WIDE), estimator)
        share = a.noise_share(a.init(jax.random.key(0), LANES), np.ones(LANES, int))
        assert (share is not None) == (estimator in KNOWN)
        assert share is None or share.shape == (LANES,)
    a, d = learner(kl.RHN(4, INPUTS, init_weights=WIDE), kl.kf_tbptt(4, pairs=1)), data(12)
    share = a.noise_share(a.run(a.init(jax.random.key(0), LANES), d["x"], d["y"])[0], d["x"][0])
    assert ((share > 0) & (share < 1)).all()  # of all segments so far


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copy", "text"])
def test_a_monitored_run_goes_on_bit_for_bit(kind, unbroken, book, tmp_path, capsys):
    """With regularisers; snr and noise are in its metrics, its summary, its report."""
    how = ["--monitor", "--regulariser", "row_norm(0.5) + activation(1e-3) + noise(0.1)"]
    first = tmp_path / kind
    assert command("train", *words(kind, book), *how, "--out", first, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    lines = folder.lines(first / "metrics.jsonl")
    assert all(np.isfinite(m["snr"]) and 0 <= m["noise"] < 1 for m in lines[:-1])
    assert (result["snr"], result["noise"]) == (lines[-2]["snr"], lines[-2]["noise"])
    run = killed(first, tmp_path / "run", 100)
    assert command("resume", run) == 0
    assert same(first, run) == []
    # the monitor alone changes nothing but what is written down
    watched = tmp_path / "watched"
    assert command("train", *words(kind, book), "--monitor", "--out", watched) == 0
    bare = [
        {k: v for k, v in m.items() if k not in ("snr", "noise")}
        for m in folder.lines(watched / "metrics.jsonl")
    ]
    assert bare == folder.lines(unbroken[kind] / "metrics.jsonl")
    assert command("report", first, watched, "--out", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "The noise of gradients while learning" in page
    assert "row_norm(0.5) + activation(1e-3) + noise(0.1)" in page
    assert "unregularised" in page
    plot = ["plot", first, watched, "--out", tmp_path / "a.png", "--over"]
    assert command(*plot, "regulariser") == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert command(*plot, "hidden") == 2
    assert "several values in these runs, got 'hidden' with 8" in capsys.readouterr().err


def test_one_lane_and_no_formula(tmp_path):
    small = ["--hidden", 4, "--lanes", 1, "--steps", 40, "--log-every", 20, "--monitor"]
    train = ["train", "copy", *small, "--estimator", "tbptt(5)", "--out", tmp_path / "a"]
    assert command(*train) == 0
    for line in folder.lines(tmp_path / "a" / "metrics.jsonl"):
        assert "snr" not in line and "noise" not in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("row_nrm(1)", "did you mean 'row_norm'?"),
        ("row_norm(0)", "limit must be a positive number, got 0"),
        ("row_norm", "missing a required argument: 'limit'"),
        ("row_norm(1) +", "regulariser must be NAME"),
    ],
)
def test_wrong_regularisers_are_explained(given, message, tmp_path, capsys):
    assert command("train", "copy", "--regulariser", given, "--out", tmp_path / "a") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_regularisers_can_be_swept(tmp_path):
    args = CopySweep(
        estimators=("kf_rtrl",),
        rates=(1e-3,),
        seeds=(0,),
        vary=("regulariser=none, row_norm(1), row_norm(1) + uoro(1, 2)",),
    )
    found = [m.settings.regulariser for m in members(args, tmp_path)]
    assert found == [None, "row_norm(1)", "row_norm(1) + uoro(1, 2)"]

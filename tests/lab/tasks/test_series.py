"""Chaotic series: the generators, the scaling, the resets, and what NMSE is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kronline.errors import UsageError
from kronline.lab.runs import folder, training
from kronline.lab.tasks.series import (
    EVERY,
    LAST,
    SCALED,
    SYSTEMS,
    TRANSIENT,
    WINDOW,
    Series,
    SeriesTask,
    closing_nmse,
    henon,
    lorenz,
    mackey_glass,
    nmse,
    values,
)
from running import command


def test_henon():
    x = henon(3, 500, seed=0)
    np.testing.assert_allclose(x[0], [0.1, 0.11, 0.12], rtol=1e-15)
    # y is 0.3 of the x before: x'' = 1 − 1.4 x'² + 0.3 x
    np.testing.assert_array_equal(x[1], 1 - 1.4 * x[0] ** 2)
    np.testing.assert_allclose(x[2:], 1 - 1.4 * x[1:-1] ** 2 + 0.3 * x[:-2], rtol=0, atol=1e-14)


def test_mackey_glass():
    x = mackey_glass(3, 500, seed=1)
    past, now, then = x[:-18], x[17:-1], x[18:]
    want = now + 0.2 * past / (1 + past**10) - 0.1 * now
    np.testing.assert_allclose(then, want, rtol=1e-12)
    assert ((x[0] >= 1.2) & (x[0] <= 1.4)).all() and len(set(x[0])) == 3
    assert (mackey_glass(3, 500, seed=1) == x).all() and (mackey_glass(3, 9, seed=2) != x[:9]).any()


def test_lorenz():
    x = lorenz(2, 500, seed=0)
    state = np.array([[1.0, 2.0], [1.0, 2.0], [20.0, 20.0]])
    for t in range(500):
        np.testing.assert_allclose(x[t], state[0], rtol=1e-9)
        for _ in range(2):
            a, b, c = state
            state = state + 0.01 * np.array([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])
    # on the attractor, which has two wings
    assert x.min() < -10 and x.max() > 10


@pytest.mark.parametrize("system", SYSTEMS)
def test_values_are_scaled_lane_by_lane_and_begin_alike(system):
    many = values(system, 8, SCALED + 100, 0)
    np.testing.assert_allclose(many[:SCALED].mean(0), 0, atol=1e-10)
    np.testing.assert_allclose(many[:SCALED].var(0), 1, rtol=1e-10)
    np.testing.assert_array_equal(values(system, 8, 50, 0), many[:50])
    raw = SYSTEMS[system](8, TRANSIENT + SCALED, 0)[TRANSIENT:]
    np.testing.assert_allclose(many[:9], ((raw - raw.mean(0)) / raw.std(0))[:9], rtol=1e-9)
    lanes = np.corrcoef(many.T)  # from conditions of their own
    assert np.abs(lanes - np.eye(8)).max() < 0.3


def test_a_lane_that_leaves_the_attractor_is_named():
    with pytest.raises(UsageError, match=r"lane \d+ of henon leaves .* use at most \d+ --lanes"):
        values("henon", 400, 10, 0)


def test_steps_follow_each_other_and_resets_are_where_they_should_be():
    data = jnp.arange(60.0).reshape(30, 2)
    stream = Series(reset_every=7)
    state, parts = stream.init(jax.random.key(0), 2), []
    for steps in (3, 10, 5):
        state, seg = stream.batch(state, data, steps)
        parts.append(seg)
    x, y, reset, weight = (jnp.concatenate(a) for a in zip(*parts, strict=True))
    np.testing.assert_array_equal(x[..., 0], data[:18])
    np.testing.assert_array_equal(y[..., 0], data[1:19])
    assert np.flatnonzero(reset[:, 0]).tolist() == [0, 7, 14]
    assert (reset[:, 0] == reset[:, 1]).all() and (weight == 1).all()
    assert x.shape == (18, 2, 1)


def by_definition(errors):
    """Over the last WINDOW steps, every EVERY steps; the last of them averaged."""
    ends = range(EVERY, len(errors) + 1, EVERY)
    return np.mean([errors[t - WINDOW : t].mean() for t in ends][-LAST:])


@pytest.mark.parametrize("steps", [250, 1000, 1999])
@pytest.mark.parametrize("block", [1, 10, 7, 600])
def test_nmse_is_what_was_published_however_the_steps_are_cut(steps, block):
    rng = np.random.default_rng(0)
    errors = rng.exponential(size=(steps, 3)) * np.linspace(2, 1, steps)[:, None]
    stream = Series()
    state, feedback = stream.init(jax.random.key(0), 3), jax.jit(stream.feedback)
    for at in range(0, steps, block):
        some = jnp.asarray(errors[at : at + block], jnp.float32)
        state = feedback(state._replace(at=jnp.int32(at + len(some))), some)
    np.testing.assert_allclose(closing_nmse(state), by_definition(errors.mean(1)), rtol=1e-6)
    np.testing.assert_allclose(nmse(state), errors[-WINDOW:].mean(), rtol=1e-6)


def test_nmse_of_few_steps_is_of_those():
    state = Series().init(jax.random.key(0), 2)._replace(at=jnp.int32(3))
    state = Series().feedback(state, jnp.array([[1.0, 3.0], [2.0, 2.0], [5.0, 5.0]]))
    assert nmse(state) == closing_nmse(state) == pytest.approx(3.0)


def test_a_run_reports_its_own_errors():
    """From the losses of every step, with weights that start as they should."""
    task = SeriesTask(estimator="tbptt(5)", hidden=9, lanes=2, steps=500, rate=0.02)
    exp = task.build()
    state = training.start(exp.learner, exp.stream, jax.random.key(0), task.lanes)
    W = np.asarray(state.learner.params.cell["W"])
    assert (W[-1] == 0).all() and 0.3 < np.abs(W[:-1]).max() <= 1 / 3
    state, seen = training.stretch(exp.learner, exp.stream, exp.data, state, 500)
    errors = np.asarray(seen.loss)
    want = (errors[50:250].mean() + errors[300:].mean()) / 2
    assert closing_nmse(state.task) == pytest.approx(want, rel=1e-5)
    assert task.meter(exp).last(state, 500)["nmse_end"] == pytest.approx(want, rel=1e-5)
    # the first prediction is about zero, so that its squared error is about the target's square
    assert errors[0] == pytest.approx(np.square(exp.data[1]).mean(), rel=0.1)
    assert errors[-100:].mean() < 0.9 * errors[:100].mean()


def test_a_longer_run_reads_the_same_series():
    short, long = (SeriesTask(series="lorenz", steps=s, lanes=3).build().data for s in (20, 20_000))
    np.testing.assert_array_equal(short, long[: len(short)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--series", "lorentz"], "lorenz"),
        (["--reset-every", 0], "reset_every must be >= 1"),
        (["--steps", 0], "steps must be >= 1"),
        (["--cell", "LowRank(Tanh, 2)"], "use --weights cell"),
    ],
)
def test_wrong_settings_are_explained(words, message, tmp_path, capsys):
    assert command("train", "series", *words, "--out", tmp_path / "run") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_every_system_has_a_figure_of_its_own(tmp_path, capsys):
    for system in SYSTEMS:
        words = ["--series", system, "--hidden", 3, "--lanes", 2, "--steps", 20, "--log-every", 10]
        assert command("train", "series", *words, "--out", tmp_path / system) == 0
    assert command("report", tmp_path, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    for system, name, published in (
        *(("henon", "Hénon", "0.0384"), ("mackey-glass", "Mackey-Glass", "0.0286")),
        ("lorenz", "Lorenz", "0.0126"),
    ):
        assert f'id="series-{system}"' in page and f"Chaotic series: {name}" in page
        assert f'<td class="n">{published}</td>' in page  # of KF-RTRL, beside ours
    assert command("plot", tmp_path, "--out", tmp_path / "p.svg") == 0
    svg = (tmp_path / "p.svg").read_text()
    assert all(f">NMSE, {name}<" in svg for name in ("Hénon", "Mackey-Glass", "Lorenz"))
    assert svg.count(">KF-RTRL<") == 1  # one look in all of them
    assert {r.kind for r in folder.find([tmp_path])} == {SeriesTask.kind}

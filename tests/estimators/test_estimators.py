"""Traces and windows: what each estimator's gradient is made of."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.noise import Draw, count, patterns, repeat, sample
from small import INPUTS, LANES, SYMBOLS, close, data, start

ADAM = optax.adam(1e-2)  # one, so that equal learners share their compiled programs


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def learner(cell, estimator, **kwargs):
    return kl.Learner(cell, kl.softmax(SYMBOLS), estimator, ADAM, dtype="float64", **kwargs)


def truncated(a, state, d, k):
    """TBPTT-k written out: the state is carried over blocks, the gradient is not."""

    def block(params, s, t0):
        total = 0.0
        for t in range(t0, t0 + k):
            s = jnp.where(d["reset"][t][:, None], 0.0, s)
            s = jax.vmap(a.cell.step, in_axes=(None, 0, 0))(params.cell, s, jnp.asarray(d["x"][t]))
            h = jax.vmap(a.cell.output)(s)
            o = jax.vmap(a.readout.predict, in_axes=(None, 0))(params.readout, h)
            losses = jax.vmap(a.readout.loss)(o, jnp.asarray(d["y"][t]))
            total += jnp.sum(d["weight"][t] * losses) / (LANES * k)
        return total, s

    @jax.jit
    def blocks(params, s):
        out = []
        for t0 in range(0, len(d["x"]), k):
            grads, s = jax.grad(block, has_aux=True)(params, jax.lax.stop_gradient(s), t0)
            out.append(grads)
        return jax.tree.map(lambda *g: jnp.stack(g), *out)

    return blocks(state.params, state.s)


@pytest.mark.parametrize("cell", [kl.LSTM(3, INPUTS), kl.Opaque(kl.LSTM(3, INPUTS))])
@pytest.mark.parametrize("k", [1, 2])
def test_tbptt_is_truncated_in_blocks(cell, k):
    a, d = learner(cell, kl.tbptt(k)), data(4)
    state = start(a)
    close(a.gradients(state, **d)[1], truncated(a, state, d, k))


def test_bptt_is_one_block():
    a, d = learner(kl.RHN(3, INPUTS), kl.bptt()), data(6)
    state = start(a)
    close(a.gradients(state, **d)[1], truncated(a, state, d, 6))


@pytest.mark.parametrize("window", [None, 1, 3])
def test_every_window_of_rtrl_is_exact(window):
    # the sum over a run is the same, however it is cut: BPTT's over the whole
    d, cell = data(6), kl.LSTM(3, INPUTS)
    want = learner(cell, kl.bptt())
    a = learner(cell, kl.rtrl(window))
    grads = a.gradients(start(a), **d)[1]
    close(jax.tree.map(lambda g: g.mean(0), grads),
          jax.tree.map(lambda g: g[0], want.gradients(start(want), **d)[1]))  # fmt: skip


ONLINE = [kl.kf_rtrl(), kl.kf_rtrl(window=2), kl.uoro(2, window=1)]


@pytest.mark.parametrize("estimator", ONLINE, ids=lambda e: e.name)
def test_results_cross_the_boundaries_of_runs(estimator):
    a, d = learner(kl.GRU(3, INPUTS), estimator), data(8)
    whole, out = a.run(start(a), **d)
    state, losses = start(a), []
    for t in range(0, 8, 2):
        state, part = a.run(state, **{k: v[t : t + 2] for k, v in d.items()})
        losses.append(part.loss)
    close((state.params, state.s, state.memory), (whole.params, whole.s, whole.memory), 1e-13)
    close(np.concatenate(losses), out.loss, 1e-13)
    assert jnp.array_equal(state.key, whole.key)


@pytest.mark.parametrize("estimator", ONLINE, ids=lambda e: e.name)
def test_step_by_step_is_the_same_as_run(estimator):
    a, d = learner(kl.RHN(3, INPUTS), estimator), data(6)
    whole, out = a.run(start(a), **d, predictions=True)
    state = start(a, example=(d["x"][0], d["y"][0]))
    for t in range(6):
        state, one = a.step(state, **{k: v[t] for k, v in d.items()})
        close(one.loss, out.loss[t])
        close(one.prediction, out.prediction[t])
    close((state.params, state.s, state.memory), (whole.params, whole.s, whole.memory))


def test_a_buffered_state_takes_any_number_of_steps():
    a, d = learner(kl.RHN(3, INPUTS), kl.tbptt(3)), data(12)
    whole, _ = a.run(start(a), **d)
    state = start(a, example=(d["x"][0], d["y"][0]))
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        state, _ = a.run(state, **{k: v[part] for k, v in d.items()})
    close((state.params, state.s), (whole.params, whole.s))


@pytest.mark.parametrize("estimator", [kl.kf_rtrl(), kl.uoro()], ids=lambda e: e.name)
def test_a_reset_cuts_all_that_is_older(estimator):
    # after a reset in one lane, what came before it in that lane is of no matter
    a, d = learner(kl.LSTM(3, INPUTS), estimator), data(6)
    d["reset"][:] = False
    d["reset"][3] = True
    other = {k: v.copy() for k, v in d.items()}
    other["x"][:3] = (other["x"][:3] + 1) % INPUTS
    (_, g), (_, h) = (a.gradients(start(a), **e) for e in (d, other))
    assert not jnp.allclose(g.cell["W"][2], h.cell["W"][2])
    close(jax.tree.map(lambda a: a[3:], g), jax.tree.map(lambda a: a[3:], h))


@pytest.mark.parametrize("make", [kl.kf_rtrl, kl.uoro], ids=["kf", "uoro"])
def test_the_first_step_is_exact(make):
    # zero factors are dropped, not drawn: KF's first step is F itself; a windowed one always is
    d, cell = data(1), kl.RHN(4, INPUTS)
    want = learner(cell, kl.rtrl())
    exact = want.gradients(start(want), **d)[1]
    for window in (None, 1) if make is kl.kf_rtrl else (1,):
        a = learner(cell, make(window=window))
        close(a.gradients(start(a), **d)[1], exact)


@pytest.mark.parametrize("trace", [kl.KF(), kl.UORO()], ids=["kf", "uoro"])
def test_float32_stays_finite_and_balanced_for_long(trace):
    # without the gauge KF's factors would drift apart by 2^83 within 100 steps
    with jax.enable_x64(False):
        a = kl.Learner(kl.RHN(8, INPUTS), kl.softmax(SYMBOLS), kl.Online(trace), optax.sgd(0.0))
        d = {k: v for k, v in data(5000).items() if k in ("x", "y")}
        state, out = a.run(a.init(jax.random.key(1), LANES), **d)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.memory))
        assert jnp.isfinite(out.loss).all()
        if isinstance(trace, kl.KF):
            pair = state.memory["W"]
            u, A = jnp.linalg.norm(pair.u, axis=1), jnp.sqrt((pair.A**2).sum((1, 2, 3)))
            assert (u > 0).all()
            assert (jnp.abs(jnp.log2(u / A)) < 10).all()


@pytest.mark.parametrize("window", [None, 1])
def test_a_reset_heals_a_trace_that_overflowed(window):
    a, d = learner(kl.RHN(3, INPUTS), kl.kf_rtrl(window)), data(2)
    d["reset"][:] = True
    state = start(a)
    pair = state.memory["W"]
    full = state._replace(memory={"W": pair._replace(u=pair.u + 1, A=pair.A + jnp.inf)})
    close(a.gradients(full, **d)[1], a.gradients(state, **d)[1])


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int64])
def test_symbols_may_be_of_any_integer_type(kind):
    a = learner(kl.Tanh(3, 257), kl.kf_rtrl())
    x = np.array([[3, 200], [255, 0]])
    y = np.array([[3, 2], [1, 0]])
    want = a.gradients(start(a), x, y)[1]
    close(a.gradients(start(a), x.astype(kind), y.astype(kind))[1], want)


def test_noise_may_be_given_as_integers():
    for cell, estimator in (
        (kl.Tanh(3, INPUTS), kl.kf_rtrl()),
        (kl.Opaque(kl.Tanh(3, INPUTS)), kl.uoro()),
    ):
        a, d = learner(cell, estimator), data(4)
        noise, _ = patterns(a.draws(LANES), 1 << 20)
        signs = jax.tree.map(lambda z: np.stack([z[1], z[3], z[2], z[1]]), noise)
        whole = jax.tree.map(lambda z: z.astype(int), signs)
        close(*(a.gradients(start(a), **d, noise=z)[1] for z in (whole, signs)))


def test_sparse_weights_are_a_mask():
    @dataclass(frozen=True)
    class Sparse(kl.RHN):
        """Half of the recurrent weights do not exist; one pattern for both gates."""

        def mask(self):
            rng = np.random.default_rng(0)
            mask = np.ones((self.hidden + self.inputs + 1, 2, self.hidden))
            mask[: self.hidden] = rng.permutation(np.eye(self.hidden))[:, None]
            return mask

    for estimator in (kl.kf_rtrl(), kl.uoro()):
        assert kl.verify(Sparse(2, 2), estimator).ok


def test_kf_refuses_what_it_cannot_follow():
    with pytest.raises(TypeError, match=r"opaque; use uoro, rtrl or tbptt"):
        learner(kl.Opaque(kl.RHN(2, 2)), kl.kf_rtrl())


@pytest.mark.parametrize(
    "make",
    [
        lambda: kl.tbptt(0),
        lambda: kl.tbptt(2.5),
        lambda: kl.kf_rtrl(window=0),
        lambda: kl.kf_rtrl(window=-1),
        lambda: kl.uoro(copies=0),
        lambda: kl.Online(kl.KF(), "some"),
        lambda: kl.Online(kl.Nothing()),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"needs|must|needed"):
        make()


# -- noise -----------------------------------------------------------------------------------------


def test_patterns_are_all_patterns_and_their_probabilities_add_up():
    draws = {"a": Draw((2,)), "b": Draw((), (0.0, 1.0), (0.25, 0.75))}
    noise, probs = patterns(draws)
    rows = np.column_stack([noise["a"], noise["b"]])
    assert len(rows) == count(draws) == 8
    assert len({tuple(r) for r in rows}) == 8
    assert probs.sum() == pytest.approx(1)
    assert (probs * noise["b"]).sum() == pytest.approx(0.75)
    with pytest.raises(ValueError, match="fewer"):
        patterns(Draw((40,)))


def test_samples_have_the_stated_distribution():
    draws = repeat({"a": Draw((2,)), "b": Draw((), (0.0, 1.0), (0.25, 0.75))}, 20_000)
    noise = sample(jax.random.key(0), draws, jnp.float32)
    assert noise["a"].shape == (20_000, 2)
    assert set(np.unique(noise["a"])) == {-1.0, 1.0}
    assert abs(noise["a"].mean()) < 0.02
    assert abs(np.corrcoef(noise["a"].T)[0, 1]) < 0.03
    assert abs(noise["b"].mean() - 0.75) < 0.02

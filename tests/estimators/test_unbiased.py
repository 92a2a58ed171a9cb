"""The unbiased relatives of KF-RTRL, and truncation that rolls: are they what they say they are?"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from broken import Wrapped
from kronline import native, spec
from kronline.estimators import Segment
from kronline.learner.engine import Engine
from kronline.noise import patterns, repeat
from kronline.verifier import enumeration as proofs
from kronline.verifier.problem import flat
from small import INPUTS, LANES, SYMBOLS, close, data, start

SGD = optax.sgd(0.3)  # one, so that equal learners share their compiled programs


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def learner(cell, estimator, **kwargs):
    return kl.Learner(cell, kl.softmax(SYMBOLS), estimator, SGD, dtype="float64", **kwargs)


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1])
def test_copies_are_the_mean_of_runs_with_their_signs(window):
    d, cell = data(4), kl.RHN(2, INPUTS)
    one, three = (learner(cell, kl.kf_rtrl(window=window, copies=r)) for r in (1, 3))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (4, LANES, 3, 1))
    state, mean = three.gradients(start(three), **d, noise={"W": signs})
    alone = [one.gradients(start(one), **d, noise={"W": signs[:, :, r]}) for r in range(3)]
    close(mean, jax.tree.map(lambda *g: sum(g) / 3, *(g for _, g in alone)))
    close(state.memory["W"].A[:, 1], alone[1][0].memory["W"].A)


def test_copies_have_less_variance():
    # `kronline verify` has it without a window
    one, two = kl.kf_rtrl(window=2), kl.kf_rtrl(window=2, copies=2)
    (check,) = proofs.copies(kl.Tanh(2, 1), one, two, 2, "tanh")
    assert check.ok


@dataclass(frozen=True)
class SharedCopies(kl.Trace):
    """Copies that share their signs: their mean is as noisy as one."""

    inner: kl.Average

    def spec(self, window):
        return "shared copies"

    def init(self, structure):
        return self.inner.init(structure)

    def draws(self, structure, k):
        return self.inner.draws(structure, k)

    def segment(self, memory, steps, noise, delta, read):
        noise = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), noise)
        return self.inner.segment(memory, steps, noise, delta, read)

    def pull(self, memory, delta):
        return self.inner.pull(memory, delta)


def test_copies_that_share_their_signs_fail():
    shared = kl.Online(SharedCopies(kl.Average(kl.KF(), 2)))
    (check,) = proofs.copies(kl.Tanh(2, 1), kl.kf_rtrl(), shared, 2, "tanh")
    assert check.value == pytest.approx(1)  # the variance is not halved at all


@pytest.mark.skipif(not native.status().active, reason="no native kernel here")
def test_copies_take_the_native_kernel_and_equal_pure_jax():
    a, d = learner(kl.RHN(5, INPUTS), kl.kf_rtrl(copies=3)), data(4)
    seg = Segment(**d)
    # one call for all lanes and copies, with one W
    run = Engine.run_kept.lower(a.engine, start(a), seg, None, False, False, False)
    program = run.as_text()
    assert program.count("@kronline_merge_pair") == 1
    assert "tensor<1x1x5x2x5xf64>" in program
    noise = {"W": np.random.default_rng(1).choice([-1.0, 1.0], (4, LANES, 3, 1))}
    fast = a.gradients(start(a), **d, noise=noise)
    with native.use(False):
        close(fast[1], a.gradients(start(a), **d, noise=noise)[1])


# -- R-KF ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sparse(kl.RHN):
    """A mask that differs from unit to unit, and one for both gates."""

    def mask(self):
        mask = np.ones((self.hidden + self.inputs + 1, 2, self.hidden))
        mask[: self.hidden] = np.random.default_rng(0).permutation(np.eye(self.hidden))[:, None]
        return mask


@dataclass(frozen=True)
class SparseGroups(kl.DeepRHN):
    """The same where a weight touches all units."""

    def weights(self):
        def sparse(w):
            mask = np.ones(w.shape)
            mask[: self.hidden] = np.tril(np.ones((self.hidden, self.hidden)))[:, None]
            return replace(w, mask=mask)

        return {name: sparse(w) for name, w in super().weights().items()}


@pytest.mark.parametrize("cell", [Sparse(2, 2), SparseGroups(2, 2)], ids=["units", "groups"])
def test_reverse_kf_with_masks(cell):
    # `kronline verify` has the cells without, and GRU's
    checks = proofs.trace(cell, kl.ReverseKF(), "sparse", "reverse_kf()")
    assert len(checks) == 4
    assert all(c.ok for c in checks)


@dataclass(frozen=True)
class SignDependentP(Wrapped):
    """p1 depends on the sign: a bias."""

    def step(self, memory, lin, noise):
        wrong = {k: nu * (1 + 0.1 * nu) for k, nu in noise.items()}
        return super().step(memory, lin, wrong)


def test_reverse_kf_with_unfair_signs_fails():
    (check,) = proofs.bias(kl.Tanh(2, 2), kl.Online(SignDependentP(kl.ReverseKF())), "tanh")
    assert not check.ok


@pytest.mark.parametrize("window", [None, 1])
def test_reverse_kf_heals_by_a_reset(window):
    a, d = learner(kl.RHN(3, INPUTS), kl.reverse_kf(window)), data(2)
    d["reset"][:] = True
    state = start(a)
    pair = state.memory["W"]
    full = state._replace(memory={"W": pair._replace(a=pair.a + 1, B=pair.B + jnp.inf)})
    close(a.gradients(full, **d)[1], a.gradients(state, **d)[1])


def test_reverse_kf_stays_finite_and_balanced_in_float32():
    with jax.enable_x64(False):
        a = kl.Learner(kl.RHN(8, INPUTS), kl.softmax(SYMBOLS), kl.reverse_kf(), SGD)
        d = {k: v for k, v in data(3000).items() if k in ("x", "y")}
        pair = a.run(a.init(jax.random.key(1), LANES), **d)[0].memory["W"]
        na, nb = jnp.linalg.norm(pair.a, axis=1), jnp.sqrt((pair.B**2).sum((1, 2, 3)))
        assert (na > 0).all()
        assert (jnp.abs(jnp.log2(na / nb)) < 10).all()


def test_reverse_kf_refuses_what_it_cannot_follow():
    with pytest.raises(TypeError, match=r"opaque; use uoro, rtrl or tbptt"):
        learner(kl.Opaque(kl.RHN(2, 2)), kl.reverse_kf())


# -- rolling truncation ----------------------------------------------------------------------------


def rolled(a, state, d, k, every=1, xi=None):
    """Step by step, by plain vjps: the gradients, and the parameters at the end.

    States stay as they were met; xi, (steps, lanes), is what δ is multiplied with before it passes
    from a step to the one before.
    """
    lanes = len(state.s)

    @jax.jit
    def forward(params, s, x):
        return jax.vmap(a.cell.step, (None, 0, 0))(params.cell, s, x)

    @jax.jit
    def read(params, s, y, weight):
        def loss(readout, s):
            o = jax.vmap(a.readout.predict, (None, 0))(readout, jax.vmap(a.cell.output)(s))
            return jnp.sum(weight * jax.vmap(a.readout.loss)(o, y)) / (every * lanes)

        return jax.grad(loss, (0, 1))(params.readout, s)

    @jax.jit
    def back(params, s, x, delta):
        def step(p, s):
            return jax.vmap(a.cell.step, (None, 0, 0))(p, s, x)

        return jax.vjp(step, params.cell, s)[1](delta)

    x, y = jnp.asarray(d["x"]), jnp.asarray(d["y"])
    xi = np.where(d["reset"], 0.0, 1.0 if xi is None else xi)
    params, s, opt = state.params, state.s, a.optimiser.init(state.params)
    met, after, out = [], [], []
    for t0 in range(0, len(x), every):
        for t in range(t0, t0 + every):
            met.append(jnp.where(d["reset"][t][:, None], 0.0, s))
            s = forward(params, met[t], x[t])
            after.append(s)
        total, delta = jax.tree.map(jnp.zeros_like, params), jnp.zeros_like(s)
        for t in reversed(range(max(0, t0 - k + 1), t0 + every)):
            g_readout = jax.tree.map(jnp.zeros_like, params.readout)
            if t >= t0:
                g_readout, more = read(params, after[t], y[t], d["weight"][t])
                delta += more
            g_cell, delta = back(params, met[t], x[t], delta)
            delta *= xi[t][:, None]
            total = jax.tree.map(jnp.add, total, kl.Params(g_cell, g_readout))
        out.append(total._replace(cell=a.cell.project(total.cell)))
        updates, opt = a.optimiser.update(out[-1], opt, params)
        params = optax.apply_updates(params, updates)
    return jax.tree.map(lambda *g: jnp.stack(g), *out), params


def frozen(a):
    return replace(a, optimiser=optax.sgd(0.0))


ROLLING = [
    (kl.RHN(3, INPUTS), kl.rolling_tbptt(3)),
    (kl.Opaque(kl.LSTM(2, INPUTS)), kl.rolling_tbptt(2)),
    (kl.Embedded(kl.GRU(2, 2), INPUTS), kl.rolling_tbptt(3, every=2)),
]


@pytest.mark.parametrize(("cell", "estimator"), ROLLING, ids=lambda a: getattr(a, "name", ""))
def test_rolling_is_the_truncated_gradient(cell, estimator):
    a, d = learner(cell, estimator), data(8)
    want = rolled(frozen(a), start(a), d, estimator.horizon, estimator.every)[0]
    close(a.gradients(start(a), **d)[1], want)


def test_rolling_with_parameters_that_move():
    # the states that were met, the parameters of now
    a, d = learner(kl.RHN(3, INPUTS), kl.rolling_tbptt(3)), data(7)
    close(a.run(start(a), **d)[0].params, rolled(a, start(a), d, 3)[1])


def test_blocks_without_a_past_are_tbptt():
    d, cell = data(4), kl.Tanh(3, INPUTS)
    a, b = learner(cell, kl.rolling_tbptt(1, every=4)), learner(cell, kl.tbptt(4))
    close(a.gradients(start(a), **d)[1], b.gradients(start(b), **d)[1])


def test_a_change_of_the_kind_of_input_cuts_the_past():
    a, d = learner(kl.Tanh(3, INPUTS), kl.rolling_tbptt(3)), data(6)
    d["reset"][:] = False
    vectors = {**d, "x": np.eye(INPUTS)[d["x"]]}

    def part(which, t):
        return {k: v[t : t + 2] for k, v in which.items()}

    grads, state = [], start(a)
    for which, t in ((d, 0), (vectors, 2), (d, 4)):
        state, g = a.gradients(state, **part(which, t))
        grads.append(g)
    got = jax.tree.map(lambda *g: jnp.concatenate(g), *grads)
    cuts = np.ones((6, LANES))
    cuts[2] = cuts[4] = 0
    close(got, rolled(frozen(a), start(a), d, 3, xi=cuts)[0])


@dataclass(frozen=True)
class Short(kl.Rolling):
    """One step less than it says."""

    def init(self, model, params):
        return kl.Rolling(self.horizon - 1).init(model, params)

    def segment(self, model, params, s, memory, seg, noise):
        return kl.Rolling(self.horizon - 1).segment(model, params, s, memory, seg, noise)


def test_the_verifier_knows_the_window():
    cell = kl.Tanh(2, 2)
    for k, checks in ((3, ["gradient = definition", "biased as stated"]),
                      (5, ["gradient = definition"])):  # fmt: skip
        report = kl.verify(cell, kl.rolling_tbptt(k))
        assert report.ok
        assert [c.name.split(",")[0] for c in report.checks] == checks
    first, second = kl.verify(cell, Short(3)).checks
    assert not first.ok
    assert second.ok


# -- ARTBP -----------------------------------------------------------------------------------------


def test_artbp_is_unbiased_for_its_window():
    # `kronline verify` has a window that holds all
    (check,) = proofs.bias(kl.LSTM(2, 2), kl.artbp(0.4, 2), "LSTM")
    assert check.ok
    assert check.name == "bias of the gradient through 2 steps, 64 patterns"


@dataclass(frozen=True)
class Unweighted(kl.Rolling):
    """What is not cut is not made larger for it."""

    def segment(self, model, params, s, memory, seg, noise):
        return super().segment(model, params, s, memory, seg, noise * (1 - self.cut))


def test_cuts_without_weights_fail():
    (check,) = proofs.bias(kl.Tanh(2, 2), Unweighted(8, 1, 0.3), "tanh")
    assert not check.ok


def test_artbp_sums_to_the_published_recursion():
    # δ_{t−1} = dL_{t−1}/ds + ξ_t δ_t H_t over the whole run, for given cuts, however it is grouped
    c, every, d = 0.4, 2, data(8)
    a = learner(kl.RHN(3, INPUTS), kl.artbp(c, 8, every))
    passed = np.random.default_rng(3).choice([0.0, 1.0], (8, LANES), p=[c, 1 - c])
    noise = passed.reshape(-1, every, LANES).swapaxes(1, 2)
    grads = a.gradients(start(a), **d, noise=noise)[1]
    want = rolled(frozen(a), start(a), d, 8, every=8, xi=passed / (1 - c))[0]
    close(jax.tree.map(lambda g: g.mean(0), grads), jax.tree.map(lambda g: g[0], want))


def test_artbp_has_the_variance_that_it_says():
    # g = Σ_e ξ_1 ... ξ_e g_e, so Var = Σ_ef ((1−c)^−min(e,f) − 1) ⟨g_e, g_f⟩
    c, steps = 0.3, 5
    d = data(steps, lanes=1)
    d["reset"][:] = False
    a = frozen(learner(kl.RHN(3, INPUTS), kl.artbp(c, steps, 1)))
    noise, probs = patterns(repeat(a.draws(1), steps))
    grads = jax.vmap(lambda z: a.gradients(start(a, 1), **d, noise=z)[1].cell)(noise)
    grads = flat(grads, 2)[:, -1]
    mean = probs @ grads
    last = [jax.tree.map(lambda g: g[-1:], rolled(a, start(a, 1), d, k)[0].cell) for k in range(6)]
    through = np.concatenate([flat(g, 1) for g in last])  # the last k steps
    parts = np.diff(through, axis=0)
    e = np.arange(steps)
    factor = (1 - c) ** -np.minimum(e[:, None], e).astype(float) - 1
    np.testing.assert_allclose(mean, parts.sum(0), atol=1e-13)
    variance = probs @ ((grads - mean) ** 2).sum(1)
    np.testing.assert_allclose(variance, (factor * (parts @ parts.T)).sum(), rtol=1e-10)


# -- all of them -----------------------------------------------------------------------------------

ALL = [kl.kf_rtrl(copies=2), kl.reverse_kf(), kl.rolling_tbptt(3), kl.artbp(0.4, 5)]
by_name = pytest.mark.parametrize("estimator", ALL, ids=lambda e: e.name)


@by_name
def test_layouts_agree(estimator):
    # in a loop every lane goes back as far as it needs to itself, else as far as any of them does
    cell, d = kl.Tanh(2, INPUTS), data(8)
    a = learner(cell, estimator)
    s, out = a.run(start(a), **d)
    layouts = [kl.Loop()] + [kl.Shard(1)] * (estimator.span > 1)
    for layout in layouts:
        b = learner(cell, estimator, layout=layout)
        t, other = b.run(start(b), **d)
        close((s.params, s.memory, out.loss), (t.params, t.memory, other.loss), 1e-12)


@by_name
def test_steps_and_parts_are_the_run(estimator, tmp_path):
    a, d = learner(kl.Tanh(2, INPUTS), estimator), data(8)
    example = None if estimator.span == 1 else (d["x"][0], d["y"][0])
    whole, out = a.run(start(a), **d)
    state = start(a) if example is None else start(a, example=example)
    for t in range(8):
        if t == 5:  # through a file
            kl.save(tmp_path / "a", a, state)
            b, state = kl.load(tmp_path / "a", optimiser=SGD, example=example)
            assert b == a
        state, one = a.step(state, **{k: v[t] for k, v in d.items()})
        assert one.prediction.shape == (LANES, SYMBOLS)
    close((state.params, state.memory), (whole.params, whole.memory), 1e-12)
    assert np.isfinite(out.loss).all()


def test_a_window_of_one_is_saved(tmp_path):
    a, d = learner(kl.RHN(3, INPUTS), kl.rolling_tbptt(1)), data(2)
    state, _ = a.run(start(a), **d)
    kl.save(tmp_path / "a", a, state)
    close(kl.load(tmp_path / "a", learner=a)[1].params, state.params)


@pytest.mark.parametrize(
    "estimator",
    [*ALL, kl.kf_rtrl(window=1, copies=3), kl.reverse_kf(1), kl.rolling_tbptt(4, every=2)],
    ids=lambda e: e.name,
)
def test_names_are_calls(estimator):
    assert spec.given(estimator.name, "estimator") == estimator


@pytest.mark.parametrize(
    "make",
    [
        lambda: kl.kf_rtrl(copies=0),
        lambda: kl.reverse_kf(window=0),
        lambda: kl.rolling_tbptt(0),
        lambda: kl.rolling_tbptt(2.5),
        lambda: kl.artbp(0.0, 5),
        lambda: kl.artbp(1, 5),
        lambda: kl.artbp("0.1", 5),
        lambda: kl.artbp(0.1, 0),
        lambda: kl.artbp(0.1, 5, every=0),
        lambda: kl.Rolling(3, cut=1.0),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(ValueError, match="needs"):
        make()

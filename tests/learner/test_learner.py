"""The learner: lanes, weights, updates, losses of one's own, seeds and learning rates."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.lanes import lane_by_lane
from kronline.noise import keys, tick

INPUTS, SYMBOLS = 3, 4
SGD = optax.sgd(0.1)


def data(steps, lanes=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(0, INPUTS, (steps, lanes)),
        "y": rng.integers(0, SYMBOLS, (steps, lanes)),
        "reset": rng.random((steps, lanes)) < 0.1,
    }


def learner(cell=None, estimator=None, optimiser=SGD, **kwargs):
    cell = cell or kl.RHN(5, INPUTS, init_weights=kl.Normal(0.5))
    return kl.Learner(cell, kl.softmax(SYMBOLS), estimator or kl.kf_rtrl(), optimiser, **kwargs)


def close(a, b, rtol=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6), a, b)


# gradients as outer products, and as arrays
@pytest.mark.parametrize("estimator", [kl.kf_rtrl(), kl.uoro()], ids=lambda e: e.name)
def test_lanes_may_be_laid_out_in_any_way(estimator):
    results = []
    for layout in (kl.Vmap(), kl.Loop(), kl.Shard(1)):
        a = learner(estimator=estimator, layout=layout)
        state, out = a.run(a.init(jax.random.key(0), 4), **data(6))
        results.append((state.params, state.s, state.memory, out.loss))
    for other in results[1:]:
        close(other, results[0])


TWO_DEVICES = """
import jax, numpy as np, optax, kronline as kl
from kronline import lanes
assert len(jax.devices()) == 2
x, y = np.random.default_rng(0).integers(0, 3, (2, 12, 4))
results = []
best = kl.Shard()
with kl.native.use(False):
    assert lanes.best(4) == best and lanes.best(3) == kl.Vmap()
for layout, native in ((kl.Vmap(), 1), (kl.Shard(2), 1), (kl.Shard(2, kl.Loop()), 0), (best, 0)):
    with kl.native.use(bool(native)):
        a = kl.Learner(kl.RHN(5, 3), kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1), layout=layout)
        state, out = a.run(a.init(jax.random.key(0), 4), x, y)
    results.append([np.asarray(p) for p in jax.tree.leaves((state.params, state.memory, out.loss))])
assert len(state.memory["W"].A.devices()) == 2
for other in results[1:]:
    for p, q in zip(results[0], other):
        np.testing.assert_allclose(p, q, rtol=2e-5, atol=1e-6)
results = []
for layout in (kl.Vmap(), kl.Shard(2)):  # of so many lanes sums are less to send than factors
    a = kl.Learner(kl.RHN(5, 3), kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1), layout=layout)
    state, x_ = a.init(jax.random.key(0), 12), np.tile(x, 3)
    program = jax.jit(a.run).lower(state, x_, x_).compile()
    assert layout == kl.Vmap() or "all-gather" not in program.as_text().split("ENTRY")[0]
    results.append(jax.tree.leaves(program(state, x_, x_)[0].params))
for p, q in zip(*results):
    np.testing.assert_allclose(p, q, rtol=2e-5, atol=1e-6)
a = kl.Learner(kl.RHN(5, 3), kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1), layout=kl.Shard())
try:
    a.run(a.init(jax.random.key(0), 3), x[:, :3], y[:, :3])
except ValueError as e:
    print(e)
"""


def test_lanes_over_two_devices():
    flags = "--xla_force_host_platform_device_count=2"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "multiple of 2 lanes" in done.stdout


def test_more_devices_than_there_are():
    a = learner(layout=kl.Shard(64))
    with pytest.raises(ValueError, match="64 devices"):
        a.run(a.init(jax.random.key(0), 64), **data(2, 64))


def test_every_lane_has_its_own_noise_and_the_gradient_is_their_mean():
    a, d = learner(), data(5, lanes=3)
    rng = np.random.default_rng(1)
    noise = {"W": rng.choice([-1.0, 1.0], (5, 3, 1))}
    state = a.init(jax.random.key(0), 3)
    _, together = a.gradients(state, **d, noise=noise)
    alone = []
    for i in range(3):
        one = {k: v[:, i : i + 1] for k, v in d.items()}
        lane = a.init(jax.random.key(0), 1)._replace(params=state.params)
        alone.append(a.gradients(lane, **one, noise={"W": noise["W"][:, i : i + 1]})[1])
    close(together, jax.tree.map(lambda *g: sum(g) / 3, *alone))


def test_loss_weights_scale_the_gradient_and_nothing_else():
    a, d = learner(estimator=kl.rtrl()), data(4)
    state = a.init(jax.random.key(0), 4)
    weight = np.zeros((4, 4))
    weight[2, 1] = 3.0
    after, g = a.gradients(state, **d, weight=weight)
    plain, h = a.gradients(state, **d)
    assert not any(np.asarray(leaf)[[0, 1, 3]].any() for leaf in jax.tree.leaves(g))
    # by lanes · k, never by the sum of the weights
    one = a.init(jax.random.key(0), 1)._replace(params=state.params)
    _, single = a.gradients(one, **{k: v[:, 1:2] for k, v in d.items()})
    close(jax.tree.map(lambda a: a[2], g), jax.tree.map(lambda a: 3 / 4 * a[2], single))
    close(after.memory, plain.memory)
    assert any(leaf.any() for leaf in jax.tree.leaves(h))


def test_updates_every_k_steps_use_the_mean_gradient():
    d = data(6)
    every = learner(estimator=kl.kf_rtrl(), update_every=3)
    state = every.init(jax.random.key(0), 4)
    got, _ = every.run(state, **d)
    # by hand: two averages of three gradients
    a = learner()
    params, s = state.params, state._replace(opt=SGD.init(state.params))
    for t in (0, 3):
        part = {k: v[t : t + 3] for k, v in d.items()}
        s, g = a.gradients(s._replace(params=params), **part)
        params = jax.tree.map(lambda p, g: p - 0.1 * g.mean(0), params, g)
    close(got.params, params)
    # and also when it is fed step by step
    for t in range(6):
        state, _ = every.step(state, **{k: v[t] for k, v in d.items()})
    close(state.params, params)


def test_a_loss_of_ones_own_through_the_readout():
    def hinge(prediction, target):
        return jnp.maximum(0.0, 1 - target["sign"] * prediction[0]) * target["scale"]

    cell = kl.Tanh(4, 2, init_weights=kl.Normal(0.5))
    a = kl.Learner(cell, kl.Readout(1, hinge), kl.rtrl(), SGD)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3, 2))
    y = {"sign": rng.choice([-1.0, 1.0], (6, 3)), "scale": rng.uniform(1, 2, (6, 3))}
    _, out = a.run(a.init(jax.random.key(0), 3), x, y, predictions=True)
    want = np.maximum(0, 1 - y["sign"] * np.asarray(out.prediction)[..., 0]) * y["scale"]
    close(out.loss, want)


def test_ones_own_delta_gives_the_learners_gradient():
    a, d = learner(), data(4, lanes=2)
    state = a.init(jax.random.key(3), 2)
    noise = {"W": np.random.default_rng(0).choice([-1.0, 1.0], (4, 2, 1))}
    _, want = a.gradients(state, **d, noise=noise)

    def loss(h, y):
        return a.readout.loss(a.readout.predict(state.params.readout, h), y)

    delta = jax.jit(jax.vmap(jax.grad(loss)))
    mine = kl.Learner(a.cell, None, kl.kf_rtrl(), SGD)
    s = mine.init(jax.random.key(3), 2)
    s = s._replace(params=s.params._replace(cell=state.params.cell))
    for t in range(4):
        s, h = mine.advance(s, d["x"][t], reset=d["reset"][t], noise={"W": noise["W"][t]})
        grads = mine.pull(s, delta(h, d["y"][t]))
        close(grads, jax.tree.map(lambda g, t=t: g[t], want.cell))
    updated = mine.update(s, grads)
    close(updated.params.cell["W"], s.params.cell["W"] - 0.1 * grads["W"])
    with pytest.raises(TypeError, match="needs a readout"):
        mine.run(s, **d)


def test_seeds_and_learning_rates_can_be_vmapped():
    d = data(6)

    def final(seed, rate):
        a = learner(optimiser=optax.adam(rate))
        return a.run(a.init(jax.random.key(seed), 4), **d)[1].loss[-1].mean()

    seeds, rates = jnp.array([0, 1]), jnp.array([1e-1, 1e-2, 1e-3])
    grid = jax.jit(jax.vmap(jax.vmap(final, (None, 0)), (0, None)))(seeds, rates)
    assert grid.shape == (2, 3)
    assert len(np.unique(np.asarray(grid))) == 6
    close(grid[1, 2], final(1, 1e-3))


def test_real_valued_streams_are_learnt():
    # repeat the input of two steps ago: cannot be done without a gradient through time
    x = np.random.default_rng(0).choice([-1.0, 1.0], (2500, 8, 1))
    final = {}
    for estimator in (kl.kf_rtrl(window=1), kl.tbptt(1)):
        cell = kl.GRU(16, 1, init_weights=kl.Orthogonal())
        a = kl.Learner(cell, kl.linear(1), estimator, optax.adam(3e-3))
        _, out = a.run(a.init(jax.random.key(0), 8), x, np.roll(x, 2, axis=0))
        final[estimator.name] = float(out.loss[-500:].mean())
    assert final["kf_rtrl(window=1)"] < 0.002
    assert final["immediate()"] > 10 * final["kf_rtrl(window=1)"]


def test_the_same_seed_gives_the_same_run():
    a, d = learner(), data(5)
    first, second = (a.run(a.init(jax.random.key(4), 4), **d) for _ in range(2))
    keys = [state.key for state, _ in (first, second)]
    assert np.array_equal(*keys)
    first, second = ((state._replace(key=None), out) for state, out in (first, second))
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("estimator", [kl.kf_rtrl(), kl.uoro()], ids=lambda e: e.name)
def test_noise_does_not_depend_on_how_steps_are_grouped(estimator, monkeypatch):
    """In one run, in several, step by step; drawn for all segments at once or for a few."""
    monkeypatch.setattr(
        "kronline.learner.engine.DRAWN_AHEAD", 100
    )  # UORO: 4 lanes x 5 numbers a step
    a, d = learner(estimator=estimator), data(12)
    state, _ = a.run(a.init(jax.random.key(4), 4), **d)
    parts = a.init(jax.random.key(4), 4)
    for part in (slice(0, 7), slice(7, 12)):
        parts, _ = a.run(parts, **jax.tree.map(lambda v, part=part: v[part], d))
    steps = a.init(jax.random.key(4), 4)
    for t in range(12):
        steps, _ = a.step(steps, **jax.tree.map(lambda v, t=t: v[t], d))
    for other in (parts, steps):
        assert np.array_equal(other.clock, [12, 0])
        close((other.params, other.memory), (state.params, state.memory))


def test_a_stream_outlasts_32_bits():
    key, last = jax.random.key(0), 2**32 - 2
    clock = jnp.array([last, 0], jnp.uint32)
    across = jax.random.key_data(keys(key, clock, 4))
    later = jax.random.key_data(keys(key, tick(clock, 2), 2))
    assert np.array_equal(tick(clock, 3), [1, 1])
    assert np.array_equal(across[2:], later)
    early = jax.random.key_data(keys(key, jnp.zeros(2, jnp.uint32), 2))
    assert not np.any(np.all(across[2:] == early, axis=1))  # not the stream's beginning again


def test_a_donated_state_gives_the_same_run_and_is_gone():
    d, results = data(5), []
    for donate in (False, True):
        a = learner(donate=donate)
        state = a.init(jax.random.key(0), 4)
        new, out = a.run(state, **d)
        new, _ = a.step(new, **jax.tree.map(lambda v: v[0], d))
        results.append((new.params, new.memory, out.loss))
        assert state.params.cell["W"].is_deleted() == donate
    close(*results)
    given = a.init(jax.random.key(0), 4).params
    a.run(a.start(given, jax.random.key(1), 4), **d)
    assert not given.cell["W"].is_deleted()  # what was given stays the caller's


def test_a_donated_state_that_is_used_again_is_explained(tmp_path):
    d, a = data(5), learner(donate=True)
    now = jax.tree.map(lambda v: v[0], d)
    own = kl.Learner(a.cell, None, a.estimator, a.optimiser)
    old = a.init(jax.random.key(0), 4)
    copy = jax.tree.map(jnp.copy, old)
    new, _ = a.run(old, **d)
    uses = {
        "run": lambda s: a.run(s, **d),
        "step": lambda s: a.step(s, **now),
        "gradients": lambda s: a.gradients(s, **d),
        "advance": lambda s: own.advance(s, now["x"]),
        "pull": lambda s: own.pull(s, np.ones((4, 5))),
        "update": lambda s: a.update(s, jax.tree.map(np.zeros_like, copy.params)),
        "noise_share": lambda s: a.noise_share(s, now["x"]),
        "evaluate": lambda s: a.evaluate(s.params, d["x"], d["y"]),
        "start": lambda s: a.start(s.params, jax.random.key(0)),
        "save": lambda s: kl.save(tmp_path / "a", a, s),
    }
    for use in uses.values():
        for dead in (old, new._replace(params=old.params)):
            with pytest.raises(ValueError, match=r"donate=True .* Go on with the state that came"):
                use(dead)
    for name, use in uses.items():  # the fix, as the message says it
        use(jax.tree.map(jnp.copy, copy) if name in ("run", "step") else copy)
    a.run(new, **d)


@pytest.mark.parametrize("together", [0, 100, 10**6])
def test_lane_by_lane_is_vmap(together):
    rng = np.random.default_rng(0)
    own, x = rng.standard_normal((6, 5)), rng.standard_normal((6, 5))
    shared = rng.standard_normal((5, 5))

    def fn(own, shared, x):
        new = {"a": shared @ own["a"] + x}
        return new, (new["a"].sum(), own["b"])

    tree = {"a": jnp.asarray(own), "b": jnp.arange(6.0)}

    def keep_b(f):  # own is replaced: it keeps its structure
        def g(own, *rest):
            new, out = f(own, *rest)
            return {**own, **new}, out

        return g

    axes = (0, None, 0)
    want = jax.vmap(keep_b(fn), axes)(tree, shared, x)
    close(jax.vmap(lane_by_lane(keep_b(fn), together), axes)(tree, shared, x), want)
    # an `own` that all lanes share at first
    one = jax.tree.map(lambda a: a[0], tree)
    want = jax.vmap(keep_b(fn), (None, None, 0))(one, shared, x)
    close(jax.vmap(lane_by_lane(keep_b(fn), together), (None, None, 0))(one, shared, x), want)


def test_evaluation_starts_from_zero_and_learns_nothing():
    a, d = learner(), data(5)
    state = a.init(jax.random.key(0), 4)
    still = learner(optimiser=optax.sgd(0.0))
    _, want = still.run(still.init(jax.random.key(0), 4), **d)
    close(a.evaluate(state.params, **d).loss, want.loss)


def test_lists_and_numpy_scalars_are_fine():
    cell = kl.RHN(np.int64(5), INPUTS)
    assert cell == kl.RHN(5, INPUTS)
    assert kl.tbptt(np.int32(3)) == kl.tbptt(3)
    a = learner(cell)
    state = a.init(jax.random.key(0), 2)
    one, _ = a.step(state, [0, 1], [1, 2], reset=[True, False], weight=[1.0, 0.5])
    want, _ = a.run(state, [[0, 1]], [[1, 2]], reset=[[True, False]], weight=[[1.0, 0.5]])
    close(one.params, want.params)


def test_a_buffer_keeps_real_targets_real():
    a = kl.Learner(kl.Tanh(3, 2), kl.linear(1), kl.tbptt(2), SGD)
    x, y = np.zeros((4, 2, 2)), np.full((4, 2, 1), 0.7)
    whole, _ = a.run(a.init(jax.random.key(0), 2), x, y)
    state = a.init(jax.random.key(0), 2, example=(x[0], np.zeros((2, 1), int)))
    for t in range(4):
        state, _ = a.step(state, x[t], y[t])
    close(state.params, whole.params)


def test_a_cell_that_reads_symbols_only_can_be_verified():
    class Table(kl.Cell):
        """Opaque, and indexed by its input."""

        inputs, size = 3, 2

        def init(self, key, dtype=jnp.float32):
            return {"E": jax.random.normal(key, (3, 2), dtype)}

        def step(self, params, s, x):
            return jnp.tanh(params["E"][x] * (1 + s[::-1]))

    report = kl.verify(Table(), kl.uoro(), symbols=True)
    assert report.ok
    assert kl.verify(Table(), kl.rtrl(), symbols=True).ok

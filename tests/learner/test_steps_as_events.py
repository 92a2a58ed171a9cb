"""Steps as events: without targets, of some lanes, with late targets, with overflow."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl

INPUTS, LANES, STEPS = 3, 4, 12
ESTIMATORS = [
    kl.kf_rtrl(),
    kl.kf_rtrl(window=1),
    kl.uoro(),
    kl.rtrl(),
    kl.snap(),
    kl.rolling_tbptt(3),
    kl.ok(2),
    kl.tbptt(3),
    kl.kf_tbptt(3, pairs=2),
]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)


def make(estimator, cell=None, optimiser=None, **more):
    cell = cell or kl.RHN(5, INPUTS, init_weights=kl.Normal(0.5))
    return kl.Learner(cell, kl.linear(1), estimator, optimiser or optax.adam(0.01), **more)


def data(seed=0, steps=STEPS):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, LANES, INPUTS)), rng.normal(size=(steps, LANES, 1))


def begin(learner, lanes=LANES):
    x, y = data()
    return learner.init(jax.random.key(0), lanes, (x[0, :lanes], y[0, :lanes]))


def same(a, b):
    jax.tree.map(lambda p, q: np.testing.assert_array_equal(np.asarray(p), np.asarray(q)), a, b)


def close(a, b):
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=2e-5, atol=1e-6), a, b)


def moved(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return any(not np.array_equal(p, q) for p, q in leaves)


@each_estimator
def test_without_targets_lanes_move_on_and_nothing_is_learnt(estimator):
    learner, (x, y) = make(estimator), data()
    state = begin(learner)
    for t in range(6):
        state, _ = learner.step(state, x[t], y[t])
    held = state
    for t in range(6, STEPS):
        state, out = learner.step(state, x[t])
        assert not out.loss.any()
        same((state.params, state.opt), (held.params, held.opt))
    assert moved(state.s, held.s)
    # the trace goes on as well: the next gradient is that of a learner that was given weight 0
    other = held
    for t in range(6, STEPS):
        other, _ = learner.step(other, x[t], y[t], weight=np.zeros(LANES))
    same(state.memory, other.memory)
    state, _ = learner.step(state, x[0], y[0])
    state, _ = learner.step(state, x[1], y[1])
    state, _ = learner.step(state, x[2], y[2])
    assert moved(state.params, held.params)


@each_estimator
def test_peek_sees_what_step_would_and_does_not_move(estimator):
    learner, (x, y) = make(estimator), data()
    state = begin(learner)
    for t in range(5):
        state, _ = learner.step(state, x[t], y[t])
    close(learner.peek(state, x[5]), learner.step(state, x[5])[1].prediction)
    some = learner.peek(state, x[5, [3, 1]], lanes=[3, 1])
    close(some, learner.peek(state, x[5])[jnp.array([3, 1])])


@each_estimator
def test_lanes_without_an_event_keep_everything(estimator):
    learner, (x, y) = make(estimator), data()
    state = begin(learner)
    for t in range(4):
        state, _ = learner.step(state, x[t], y[t])
    on = np.array([True, False, True, True])
    wild = np.where(on[:, None], x[4], np.nan)  # what the others hold is not looked at
    after, out = learner.step(state, wild, y[4], active=on)

    def waits(state):
        return jax.tree.map(lambda a: a[1], (state.s, state.memory, state.buffer))

    same(waits(state), waits(after))
    assert moved(state.s[0], after.s[0])
    again, few = learner.step(state, x[4][on], y[4][on], lanes=[0, 2, 3])
    same(jax.tree.leaves(again), jax.tree.leaves(after))
    np.testing.assert_array_equal(out.prediction[jnp.array([0, 2, 3])], few.prediction)


@each_estimator
def test_some_lanes_are_learnt_from_as_if_there_were_no_others(estimator):
    """Noise aside: an estimator without noise gives the same parameters."""
    if jax.tree.leaves(make(estimator).draws(1)):
        pytest.skip("with noise, lanes draw their own")
    learner, (x, y) = make(estimator), data()
    few, all_ = begin(learner, 2), begin(learner)
    for t in range(6):
        few, _ = learner.step(few, x[t, :2], y[t, :2])
        all_, _ = learner.step(all_, x[t, [3, 1]] if t < 0 else x[t, :2], y[t, :2], lanes=[3, 1])
    close(few.params, all_.params)
    close(few.s, all_.s[jnp.array([3, 1])])


@pytest.mark.parametrize("estimator", [kl.rtrl(), kl.tbptt(3), kl.kf_rtrl()], ids=lambda e: e.name)
def test_late_targets_are_learnt_from_as_if_they_came_at_once(estimator):
    """The parameters after a delay of d are those of an undelayed learner, d steps before."""
    d, (x, y) = 2, data()
    plain, late = make(estimator), make(estimator, delay=d)
    now, behind = begin(plain), begin(late)
    given = now.buffer is None  # a buffered state draws its own noise
    draws, rng = plain.draws(LANES), np.random.default_rng(1)
    noise = [
        jax.tree.map(
            lambda n: rng.choice(n.values, n.shape), draws, is_leaf=lambda n: isinstance(n, kl.Draw)
        )
        for _ in range(STEPS)
    ]
    history = []
    for t in range(STEPS):
        now, _ = plain.step(now, x[t], y[t], noise=noise[t] if given else None)
        history.append(now)
        old = max(t - d, 0)
        behind, _ = late.step(behind, x[t], y[old], noise=noise[old] if given else None)
        if t >= d:
            close(behind.params, history[old].params)
            close(behind.memory, history[old].memory)
        else:
            same(behind.params, begin(late).params)
    # what it predicts is up to date with the inputs
    assert moved(behind.pending.ahead, behind.s)
    if not jax.tree.leaves(noise):
        whole, _ = late.run(begin(late), x, np.concatenate([y[:d], y[:-d]]))
        close(whole.params, behind.params)


def test_a_delay_needs_an_example_and_a_window():
    with pytest.raises(ValueError, match=r"example=\(x, y\)"):
        make(kl.rtrl(), delay=1).init(jax.random.key(0))
    with pytest.raises(ValueError, match="takes no delay"):
        make(kl.bptt(), delay=1)
    with pytest.raises(ValueError, match="0 or more"):
        make(kl.rtrl(), delay=-1)


@each_estimator
def test_an_update_that_overflows_is_left_out_and_its_lane_starts_anew(estimator):
    learner, (x, y) = make(estimator), data()
    state = begin(learner)
    for t in range(6):
        state, _ = learner.step(state, x[t], y[t])
    held = state
    state = state._replace(s=state.s.at[2].set(jnp.nan))
    for t in range(6, 9):
        state, _ = learner.step(state, x[t], y[t])
    assert int(state.skipped) >= 1
    assert all(np.isfinite(a).all() for a in jax.tree.leaves((state.params, state.opt)))
    for t in range(9, 12):
        state, out = learner.step(state, x[t], y[t])
    assert np.isfinite(out.loss).all() and np.isfinite(state.s).all()
    assert int(state.skipped) == 1 and moved(state.params, held.params)


@pytest.mark.parametrize("layout", [kl.Vmap(), kl.Loop(), kl.Shard(1)], ids=str)
@pytest.mark.parametrize("estimator", [kl.kf_rtrl(), kl.uoro(), kl.rtrl()], ids=lambda e: e.name)
def test_only_the_lane_that_overflowed_starts_anew(estimator, layout):
    learner, (x, y) = make(estimator, layout=layout), data()
    state = begin(learner)
    for t in range(4):
        state, _ = learner.step(state, x[t], y[t])
    huge = np.array(y[4])
    huge[1] = 1e30  # its square is not finite in float32
    state, _ = learner.step(state, x[4], huge)
    assert int(state.skipped) == 1
    assert np.asarray(state.anew).tolist() == [False, True, False, False]
    state, _ = learner.step(state, x[5], y[5])
    assert int(state.skipped) == 1 and not np.asarray(state.anew).any()


def test_which_lanes_must_be_said_clearly():
    learner, (x, y) = make(kl.rtrl()), data()
    state = begin(learner)
    with pytest.raises(ValueError, match="each lane once"):
        learner.step(state, x[0, :2], y[0, :2], lanes=[1, 1])
    with pytest.raises(ValueError, match=r"0\.\.3"):
        learner.step(state, x[0, :1], y[0, :1], lanes=[4])
    with pytest.raises(ValueError, match="not both"):
        learner.step(state, x[0], y[0], lanes=[1], active=np.ones(LANES, bool))
    with pytest.raises(ValueError, match="give y of the right kind"):
        other = kl.Learner(
            kl.RHN(5, INPUTS), kl.Readout(1, lambda p, y: p[0] * y), kl.rtrl(), optax.sgd(0.1)
        )
        other.step(other.init(jax.random.key(0), LANES), x[0])
    nobody, out = learner.step(state, x[0], y[0], active=np.zeros(LANES, bool))
    assert nobody is state and out.loss.shape == (LANES,)

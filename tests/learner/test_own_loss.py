"""A loss of one's own: the gradients are those of the same loss in a readout, lane by lane."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from small import INPUTS, LANES, SYMBOLS, close, data

STEPS = 5
SGD = optax.sgd(0.1)
CELL = kl.RHN(4, INPUTS)
ESTIMATORS = [
    kl.kf_rtrl(),
    kl.kf_rtrl(window=1),
    kl.kf_rtrl(window=1, copies=2),
    kl.ok(2, window=1),
    kl.uoro(2),
    kl.uoro(window=1),
    kl.rtrl(),
    kl.rtrl(window=1),
    kl.snap(1, window=1),
    kl.immediate(),
    kl.rolling_tbptt(3),
    kl.rolling_tbptt(1),
]


@pytest.fixture(autouse=True, scope="module")
def doubles():
    with jax.enable_x64(True):
        yield


def delta_of(readout, params):
    """dL/dh of each lane, as a user would have it."""

    def loss(h, y):
        return readout.loss(readout.predict(params, h), y)

    return jax.jit(jax.vmap(jax.grad(loss)))


@pytest.mark.parametrize("vectors", [False, True], ids=["symbols", "vectors"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)
def test_gradients_are_those_of_the_same_loss_in_a_readout(estimator, vectors):
    if vectors and estimator not in ESTIMATORS[1:2] + ESTIMATORS[-2:-1]:
        pytest.skip("symbols are enough where inputs are not kept")
    d = data(STEPS, vectors=vectors) | {"weight": np.ones((STEPS, LANES))}
    theirs = kl.Learner(CELL, kl.softmax(SYMBOLS), estimator, SGD, dtype="float64")
    state = theirs.init(jax.random.key(0), LANES)
    params = jax.tree.map(lambda p: 30 * p, state.params)
    state = state._replace(params=params)
    draws = theirs.draws(LANES)
    rng = np.random.default_rng(1)
    noise = jax.tree.map(
        lambda n: rng.choice([-1.0, 1.0], (STEPS, *n.shape)),
        draws,
        is_leaf=lambda n: isinstance(n, kl.Draw),
    )
    _, want = theirs.gradients(state, **d, noise=noise, average=False)

    mine = kl.Learner(CELL, None, estimator, SGD, dtype="float64")
    s = mine.start(params._replace(readout=()), jax.random.key(1), LANES, example=d["x"][0])
    delta = delta_of(theirs.readout, params.readout)
    for t in range(STEPS):
        now = jax.tree.map(lambda a, t=t: a[t], noise)
        s, h = mine.advance(s, d["x"][t], reset=d["reset"][t], noise=now)
        dh = delta(h, d["y"][t])
        each = mine.pull(s, dh, average=False)
        close(each, jax.tree.map(lambda g, t=t: g[t], want.cell))
        close(mine.pull(s, dh), jax.tree.map(lambda g: g.mean(0), each))


def test_one_optimiser_for_the_cell_and_ones_own_readout():
    V = np.random.default_rng(0).normal(size=(CELL.outputs, 2))
    learner = kl.Learner(CELL, None, kl.kf_rtrl(window=1), optax.adam(0.1), dtype="float64")
    x = np.zeros(LANES, int)
    state = learner.init(jax.random.key(0), LANES, example=x, readout={"V": jnp.asarray(V)})
    state, h = learner.advance(state, x)

    def loss(h, readout):
        return jnp.sum((h @ readout["V"] - 1) ** 2)

    dh, dV = jax.grad(loss, argnums=(0, 1))(h, state.params.readout)
    grads = learner.pull(state, dh)
    new = learner.update(state, grads, readout=dV)
    want = optax.adam(0.1)
    both = (state.params.cell, state.params.readout)
    updates, _ = want.update((grads, dV), want.init(both), both)
    close((new.params.cell, new.params.readout), optax.apply_updates(both, updates))
    assert not np.allclose(new.params.readout["V"], V)


def test_noise_comes_from_the_key_and_is_each_lanes_own():
    learner = kl.Learner(kl.RHN(4, INPUTS), None, kl.kf_rtrl(), SGD, dtype="float64")
    state = learner.init(jax.random.key(0), 64)
    for _ in range(3):
        state, _ = learner.advance(state, np.zeros(64, int))
    assert len(np.unique(np.asarray(state.memory["W"].u).round(12), axis=0)) == 4  # 2 free signs
    assert np.array_equal(state.clock, [3, 0])


@pytest.mark.parametrize(
    "estimator",
    [kl.tbptt(3), kl.bptt(), kl.kf_tbptt(4), kl.dni(2), kl.reservoir(), kl.artbp(0.3, 5)],
    ids=lambda e: e.name,
)
def test_what_cannot_wait_for_its_loss_says_so_at_once(estimator):
    with pytest.raises(TypeError, match=r"rolling_tbptt\(k\)"):
        kl.Learner(CELL, None, estimator, SGD)


def test_what_is_missing_is_named():
    learner = kl.Learner(CELL, None, kl.rolling_tbptt(3), SGD)
    with pytest.raises(ValueError, match=r"example=x"):
        learner.init(jax.random.key(0), 2)
    with_readout = kl.Learner(CELL, kl.softmax(2), kl.kf_rtrl(), SGD)
    state = with_readout.init(jax.random.key(0), 2)
    with pytest.raises(TypeError, match="readout=None"):
        with_readout.advance(state, np.zeros(2, int))
    with pytest.raises(ValueError, match="readout=None"):
        with_readout.init(jax.random.key(0), 2, readout={"V": np.zeros(3)})

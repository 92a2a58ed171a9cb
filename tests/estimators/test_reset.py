"""Numbers that overflow: refused at the door, cleared by a reset, and avoided where they can be.

A lane whose state and memory hold anything at all must be, after a reset, what a fresh lane is: for
every estimator, by the native kernel and in pure JAX, at the start of a segment and inside it.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import native
from kronline.cells.opaque import Opaque
from kronline.estimators import methods
from kronline.linearised import UnitH, UnitM, WeightJac
from kronline.traces import segment_merge
from kronline.traces.cross_layer import Crossed
from kronline.traces.kf_tbptt import Carried
from kronline.traces.segment_merge import Pairs
from small import INPUTS, LANES, SYMBOLS, start

STEPS, AT = 8, 2  # of a run; where a reset inside it comes
POISON = (np.inf, np.nan, 1e38)
PATHS = pytest.mark.parametrize("use", [True, False], ids=["native", "pure"])

UNITS, LAYERS = kl.LSTM(2, INPUTS), kl.Stack((kl.Tanh(2, INPUTS), kl.RHN(2, 2)))
DIAGONAL = kl.Stack((kl.LRU(2, INPUTS), kl.ELSTM(2, 4)))
ANY, LINEAR = Opaque(kl.Tanh(2, INPUTS)), kl.DeepRHN(2, INPUTS)

EVERY = {
    UNITS: [
        kl.artbp(0.3, 6, every=4),
        kl.bptt(),
        kl.dni(4),
        kl.immediate(),
        kl.kf_rtrl(),
        kl.kf_rtrl(1),
        kl.kf_rtrl(4),
        kl.kf_rtrl(4, copies=2),
        kl.kf_tbptt(1, pairs=2),
        kl.kf_tbptt(4, pairs=3, tail="auto"),
        kl.ok(2),
        kl.ok(2, 1),
        kl.ok(2, 4),
        kl.reservoir(),
        kl.reverse_kf(),
        kl.reverse_kf(1),
        kl.reverse_kf(4),
        kl.rflo(),
        kl.rflo(1),
        kl.rflo(4),
        kl.rolling_tbptt(3),
        kl.rolling_tbptt(6, every=4),
        kl.rtrl(),
        kl.rtrl(1),
        kl.rtrl(4),
        kl.snap(),
        kl.snap(1, 1),
        kl.snap(1, 4),
        kl.snap(2, 4),
        kl.tbptt(4),
        kl.uoro(),
        kl.uoro(window=1),
        kl.uoro(window=4),
        kl.uoro(2, window=4),
    ],
    LAYERS: [kl.snap(1, 1), kl.snap(1, 4)],
    LINEAR: [kl.kf_tbptt(4, pairs=3), kl.ok(2, 1)],
    DIAGONAL: [kl.spatial(1), kl.spatial(4), kl.kf_tbptt(4, pairs=2)],
    kl.RTU(2, INPUTS): [kl.rtrl(), kl.rtrl(4)],
    ANY: [kl.rtrl(4), kl.uoro(window=4), kl.tbptt(4), kl.rolling_tbptt(6, every=4)],
}
# the kernel takes the products of these, for unit-wise cells: for all others there is one path
KERNEL = ("kf_rtrl", "kf_tbptt", "ok")
CASES = [
    (cell, estimator, use)
    for cell, some in EVERY.items()
    for estimator in some
    for use in (True, False)
    if use or (cell is UNITS and estimator.name.startswith(KERNEL)) or cell.structure().layers
]
NAMES = [f"{type(c).__name__}-{e.name}-{'native' if use else 'pure'}" for c, e, use in CASES]


def test_no_estimator_is_left_out():
    tried = {estimator.name.split("(")[0] for _, estimator, _ in CASES}
    assert tried == set(methods.__all__)


def lane_0(state, value):
    """State and memory of the first lane hold nothing but `value`; what is set by users stays."""

    def put(a):
        a = np.array(a)  # in numpy: nothing to compile
        if np.issubdtype(a.dtype, np.floating):
            a[0] = value
        return a

    s, memory = jax.tree.map(put, (state.s, state.memory))
    if isinstance(memory, Carried):
        memory = memory._replace(tail=state.memory.tail)
    if isinstance(memory, Crossed):
        memory = replace(memory, tail=state.memory.tail)
    return state._replace(s=s, memory=memory)


def fresh_lane_0(state, fresh):
    def put(a, b):
        return np.concatenate([b[:1], a[1:]])

    state_and_memory = [jax.tree.map(np.asarray, (of.s, of.memory)) for of in (state, fresh)]
    s, memory = jax.tree.map(put, *state_and_memory)
    return state._replace(s=s, memory=memory)


def data():
    rng = np.random.default_rng(0)
    lead = (STEPS, LANES)
    x, y = rng.integers(0, INPUTS, lead), rng.integers(0, SYMBOLS, lead)
    return x, y, np.zeros(lead, bool), rng.uniform(0.5, 2, lead)


def same(a, b):
    """Bit by bit, and finite."""

    def leaf(a, b):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            return
        assert np.isfinite(a).all()
        np.testing.assert_array_equal(a, b)

    jax.tree.map(leaf, a, b)


@pytest.mark.parametrize(("cell", "estimator", "use"), CASES, ids=NAMES)
def test_a_reset_clears_whatever_is_there(cell, estimator, use):
    learner = kl.Learner(cell, kl.softmax(SYMBOLS), estimator, optax.sgd(0.1))
    x, y, reset, weight = data()

    def gradients(state, reset, weight):
        return learner.gradients(state, x, y, reset=reset, weight=weight, average=False)

    first, inside, waits = reset.copy(), reset.copy(), weight.copy()
    first[0, 0] = inside[AT, 0] = True
    waits[:AT, 0] = 0
    span = estimator.span or STEPS

    def same_from(segment, a, b):
        same(*(jax.tree.map(lambda g: np.asarray(g)[segment:], part) for part in (a, b)))

    with native.use(use):
        fresh = start(learner)
        used, _ = gradients(fresh, reset, weight)
        fresh = fresh_lane_0(used, fresh)
        wanted = [gradients(fresh, *how) for how in ((first, weight), (inside, waits))]
        for value in POISON:
            poisoned = lane_0(used, value)
            same(gradients(poisoned, first, weight), wanted[0])
            # steps before the reset that no loss weighs: their segment has a gradient, too
            state, grads = gradients(poisoned, inside, waits)
            same(state, wanted[1][0])
            same_from(AT // span, grads, wanted[1][1])  # segments that end before it are lost
            # losses before the reset: the state and the memory after it are those of a fresh lane
            state, grads = gradients(poisoned, inside, weight)
            same((state.s, state.memory), (wanted[1][0].s, wanted[1][0].memory))
            same_from(-(-AT // span), grads, wanted[1][1])


OWN_LOSS = [kl.ok(2), kl.uoro(2), kl.reverse_kf(), kl.kf_rtrl(window=1), kl.rolling_tbptt(3)]


@pytest.mark.parametrize("estimator", OWN_LOSS, ids=lambda a: a.name)
def test_with_a_loss_of_ones_own(estimator):
    learner = kl.Learner(UNITS, None, estimator, optax.sgd(0.1))
    x, reset, delta = np.array([0, 1]), np.array([True, False]), np.ones((LANES, UNITS.outputs))
    fresh = start(learner, example=x)
    wanted, h = learner.advance(fresh, x, reset=reset)
    for value in POISON:
        state, got = learner.advance(lane_0(fresh, value), x, reset=reset)
        same((state, got), (wanted, h))
        same(learner.pull(state, delta), learner.pull(wanted, delta))


SHARES = [kl.kf_rtrl(), kl.ok(2), kl.uoro(), kl.reverse_kf(), kl.kf_tbptt(4, pairs=3)]


@pytest.mark.parametrize("estimator", SHARES, ids=lambda a: a.name)
def test_the_share_of_noise(estimator):
    learner = kl.Learner(UNITS, kl.softmax(SYMBOLS), estimator, optax.sgd(0.1))
    fresh, x = start(learner), np.array([0, 1])
    reset = np.array([True, False])
    wanted = learner.noise_share(fresh, x, reset=reset)
    for value in POISON:
        same(learner.noise_share(lane_0(fresh, value), x, reset=reset), wanted)


@pytest.mark.parametrize("at", [0, 1])
def test_steps_that_wait_in_a_buffer(at):
    learner = kl.Learner(UNITS, kl.softmax(SYMBOLS), kl.kf_tbptt(2, pairs=2), optax.sgd(0.1))
    x, y, reset, weight = data()
    reset[at, 0], weight[:at, 0] = True, 0
    fresh = start(learner, example=(x[0], y[0]))
    wanted, _ = learner.run(fresh, x, y, reset=reset, weight=weight)
    for value in POISON:
        got, _ = learner.run(lane_0(fresh, value), x, y, reset=reset, weight=weight)
        same(got, wanted)


# -- weights of a thousand -------------------------------------------------------------------------


LARGE = [
    (kl.ok(2), kl.rtrl()),
    (kl.kf_tbptt(4, pairs=3), kl.rtrl(4)),
]


def of_large_weights(estimator):
    cell, rng = kl.Tanh(5, INPUTS), np.random.default_rng(0)
    learner = kl.Learner(cell, kl.linear(2), estimator, optax.sgd(0.1))
    W = np.zeros((cell.hidden + INPUTS + 1, 1, cell.hidden), np.float32)
    W[: cell.hidden] = rng.normal(0, 1e3, (cell.hidden, 1, cell.hidden))
    state = start(learner)
    state = state._replace(params=state.params._replace(cell={"W": jnp.asarray(W)}))
    x, y = np.zeros((12, LANES, INPUTS), np.float32), rng.normal(size=(12, LANES, 2))
    return learner.gradients(state, x, y)


@PATHS
@pytest.mark.parametrize(("estimator", "exact"), LARGE, ids=lambda a: a.name)
def test_large_weights(estimator, exact, use):
    """G grows to 1e35 within 12 steps, and its square does not fit.

    Without inputs the state stays zero, so that ĥ is the same at every step and G is one product:
    there is no noise, and the gradient is RTRL's.
    """
    with native.use(use):
        state, got = of_large_weights(estimator)
    _, wanted = of_large_weights(exact)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(state.memory))
    assert np.abs(wanted.cell["W"]).max() > 1e33
    for g, w in zip(got.cell["W"], wanted.cell["W"], strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=1e-4 * np.abs(w).max())


@PATHS
def test_the_mix_is_the_same_for_factors_of_any_size(use):
    """Left factors times 2^40 and right ones times 2^45: the same pairs, as much larger."""
    q, r, n, k, p, m = 2, 2, 5, 4, 3, 8
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    W, D, E = normal(1, n, r, n) / n, normal(k, q, r, n), normal(k, q, q, n)
    A, U, feats = normal(q * n, p, r, n), normal(p, m), normal(k, m)
    signs, delta = jnp.sign(normal(k + p - 1)), normal(q * n)
    resets = jnp.zeros(k, bool)

    def merged(left, right):
        H, group = UnitH(W / right, right * D, E, (0,)), WeightJac(left * feats, UnitM(right * D))
        pairs = Pairs(left * U, right * A)
        with native.use(use):
            run = jax.jit(
                lambda: segment_merge.merge_segment(
                    pairs, group, H, resets, signs, delta, rows=8, start=False
                )
            )
            (U_new, A_new), said, _ = run()
        A_new = np.asarray(A_new, float).reshape(q * n, p, -1)
        return np.einsum("pm,Npk->mNk", np.asarray(U_new, float), A_new), said

    (G, said), (large, most) = merged(1.0, 1.0), merged(2.0**40, 2.0**45)
    assert np.abs(G).max() > 1
    np.testing.assert_allclose(large / 2.0**85, G, rtol=0, atol=1e-5 * np.abs(G).max())
    assert np.isfinite(said).all() and np.all(np.array(most) == np.finfo(np.float32).max)


# -- numbers that are too large for the learner's precision ----------------------------------------


def test_numbers_that_overflow_are_refused():
    learner = kl.Learner(kl.RHN(3, 4), kl.linear(2), kl.kf_rtrl(), optax.sgd(0.1))
    anything = kl.Learner(
        kl.RHN(3, 4), kl.Readout(2, lambda o, y: o @ y), kl.kf_rtrl(), optax.sgd(0.1)
    )
    state = learner.init(jax.random.key(0), 2)
    x, y, weight = np.zeros((6, 2, 4)), np.zeros((6, 2, 2)), np.ones((6, 2))

    def large(a, number=1e39):
        a = a.copy()
        a.flat[1] = number
        return a

    def refused(name):
        return pytest.raises(
            ValueError, match=rf"{name} must be finite in float32.*3.4e\+38, got -?1e\+39 at index"
        )

    for learn in (learner.run, learner.gradients):
        with refused("x"):
            learn(state, large(x), y)
        with refused("y"):
            learn(state, x, large(y))
        with refused("weight"):
            learn(state, x, y, weight=large(weight, -1e39))
    with refused("x"):
        learner.step(state, large(x[0]), y[0])
    with refused("y"):
        learner.step(state, x[0], large(y[0]))
    with refused("y"):
        anything.run(state, x, large(y))
    with refused("x"):
        learner.evaluate(state.params, large(x), y)
    with refused("x"):
        learner.noise_share(state, large(x[0]))
    own = kl.Learner(kl.RHN(3, 4), None, kl.kf_rtrl(), optax.sgd(0.1))
    alone = own.init(jax.random.key(0), 2)
    with refused("x"):
        own.advance(alone, large(x[0]))
    with refused("delta"):
        own.pull(alone, large(np.zeros((2, 3))))
    with refused("x"):
        kl.Learner(kl.RHN(3, 4), kl.linear(2), kl.tbptt(2), optax.sgd(0.1)).init(
            jax.random.key(0), 2, example=(large(x[0]), y[0])
        )


def test_the_same_numbers_are_fine_in_float64():
    with jax.enable_x64(True):
        learner = kl.Learner(
            kl.Tanh(3, 4), kl.linear(2), kl.kf_rtrl(), optax.sgd(0.1), dtype="float64"
        )
        state = learner.init(jax.random.key(0), 2)
        x, y = np.zeros((1, 2, 4)), np.full((1, 2, 2), 1e39)
        _, out = learner.run(state, x, y)
        np.testing.assert_allclose(out.loss, 1e78)
        with pytest.raises(ValueError, match="x must be finite, got inf at index"):
            learner.run(state, x + np.inf, y)

"""Bad input: every error says what was needed, what came, and is raised before compilation."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.lab.runs import training as train
from kronline.lab.tasks.strings import Copy

LEARNER = kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.kf_rtrl(), optax.sgd(0.1))
BLOCKS = kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.tbptt(5), optax.sgd(0.1))
VECTORS = kl.Learner(kl.RHN(3, 4), kl.linear(2), kl.kf_rtrl(), optax.sgd(0.1))
GOOD = np.zeros((10, 2), int)


@pytest.fixture(scope="module")
def state():
    return LEARNER.init(jax.random.key(0), 2)


@pytest.fixture(scope="module")
def real_state():
    return VECTORS.init(jax.random.key(0), 2)


def with_nan(shape, value=np.nan):
    a = np.zeros(shape)
    a.flat[3] = value
    return a


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((0, 2), int), r"steps >= 1, got \(0, 2\)"),
        (np.zeros(10, int), r"shape \(steps, lanes, ...\)"),
        (np.zeros((10, 3), int), r"needs shape \(10, 2\).*got \(10, 3\)"),
        (np.full((10, 2), 4), r"symbols 0..3, got 4"),
        (np.full((10, 2), -1), r"symbols 0..3, got -1"),
        (np.zeros((10, 2)), r"needs shape \(10, 2, 4\).*got \(10, 2\)"),
        (np.zeros((10, 2, 5)), r"needs shape \(10, 2, 4\).*got \(10, 2, 5\)"),
        (with_nan((10, 2, 4)), r"finite, got nan at index \(0, 0, 3\)"),
        (with_nan((10, 2, 4), np.inf), r"finite, got inf"),
    ],
)
def test_inputs(state, x, message):
    with pytest.raises(ValueError, match=message):
        LEARNER.run(state, x, GOOD)


@pytest.mark.parametrize("x", [np.zeros((10, 2), complex), np.zeros((10, 2), bool)])
def test_input_types(state, x):
    with pytest.raises(TypeError, match=r"symbols \(integers\) or vectors"):
        LEARNER.run(state, x, GOOD)


def test_ragged_and_non_numeric_input(state):
    with pytest.raises(ValueError, match="ragged"):
        LEARNER.run(state, [[1, 2], [1]], GOOD)
    with pytest.raises(TypeError, match=r"numbers|symbols"):
        LEARNER.run(state, [["a", "b"]] * 10, GOOD)


def test_targets(state, real_state):
    with pytest.raises(ValueError, match=r"y must hold symbols 0..3, got 9"):
        LEARNER.run(state, GOOD, GOOD + 9)
    with pytest.raises(ValueError, match=r"y needs shape \(10, 2\)"):
        LEARNER.run(state, GOOD, GOOD[:5])
    with pytest.raises(TypeError, match=r"y must hold symbols \(integers\).*float64"):
        LEARNER.run(state, GOOD, GOOD.astype(float))
    with pytest.raises(ValueError, match=r"y needs shape \(10, 2, 2\)"):
        VECTORS.run(real_state, GOOD, np.zeros((10, 2)))
    with pytest.raises(ValueError, match="y must be finite"):
        VECTORS.run(real_state, GOOD, with_nan((10, 2, 2)))


def test_resets_and_weights(state):
    with pytest.raises(TypeError, match=r"reset must hold booleans, got dtype int64"):
        LEARNER.run(state, GOOD, GOOD, reset=GOOD)
    with pytest.raises(ValueError, match=r"reset needs shape \(10, 2\)"):
        LEARNER.run(state, GOOD, GOOD, reset=np.zeros(10, bool))
    with pytest.raises(ValueError, match=r"weight needs shape \(10, 2\)"):
        LEARNER.run(state, GOOD, GOOD, weight=np.ones(10))
    with pytest.raises(ValueError, match="weight must be finite"):
        LEARNER.run(state, GOOD, GOOD, weight=with_nan((10, 2)))


def test_noise(state):
    with pytest.raises(ValueError, match="structure"):
        LEARNER.run(state, GOOD, GOOD, noise=np.ones((10, 2, 1)))
    with pytest.raises(ValueError, match=r"noise needs shape \(10, 2, 1\)"):
        LEARNER.run(state, GOOD, GOOD, noise={"W": np.ones((10, 2))})
    with pytest.raises(ValueError, match="values"):
        LEARNER.run(state, GOOD, GOOD, noise={"W": np.zeros((10, 2, 1))})


def test_segments():
    state = BLOCKS.init(jax.random.key(0), 2)
    with pytest.raises(ValueError, match=r"multiple of 5 steps, got 7"):
        BLOCKS.run(state, GOOD[:7], GOOD[:7])
    with pytest.raises(ValueError, match=r"multiple of 5 steps, got 1; .*example"):
        BLOCKS.step(state, GOOD[0], GOOD[0])


def test_step_has_no_time_axis(state):
    with pytest.raises(ValueError, match="x needs shape"):
        LEARNER.step(state, GOOD, GOOD)


def test_settings():
    cell, readout, sgd = kl.RHN(3, 4), kl.softmax(4), optax.sgd(0.1)
    for args, message in [
        ((None, readout, kl.kf_rtrl(), sgd), "cell must be a cell"),
        ((cell, "softmax", kl.kf_rtrl(), sgd), "readout must be"),
        ((cell, readout, kl.KF(), sgd), "estimator must be"),
        ((cell, readout, kl.kf_rtrl, sgd), "estimator must be"),
        ((cell, readout, kl.kf_rtrl(), 0.1), "optimiser must be"),
    ]:
        with pytest.raises(TypeError, match=message):
            kl.Learner(*args)
    with pytest.raises(ValueError, match="dtype must be"):
        kl.Learner(cell, readout, kl.kf_rtrl(), sgd, dtype="float16")
    with pytest.raises(ValueError, match="multiple of the estimator's window"):
        kl.Learner(cell, readout, kl.tbptt(4), sgd, update_every=6)
    with pytest.raises(ValueError, match="outputs >= 1"):
        kl.softmax(0)
    with pytest.raises(TypeError, match="loss must be a function"):
        kl.Readout(3, "mse")


def test_start():
    with pytest.raises(ValueError, match="lanes >= 1"):
        LEARNER.init(jax.random.key(0), 0)
    with pytest.raises(TypeError, match=r"jax.random.key\(seed\), got 3"):
        LEARNER.init(3)
    wide = kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.kf_rtrl(), optax.sgd(0.1), dtype="float64")
    with pytest.raises(ValueError, match="jax_enable_x64"):
        wide.init(jax.random.key(0))


def test_ones_own_delta():
    mine = kl.Learner(kl.RHN(3, 4), None, kl.kf_rtrl(), optax.sgd(0.1))
    state = mine.init(jax.random.key(0), 2)
    with pytest.raises(ValueError, match=r"delta needs shape \(2, 3\)"):
        mine.pull(state, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="delta must be finite"):
        mine.pull(state, np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="structure"):
        mine.advance(state, GOOD[0], noise={"V": np.ones((2, 1))})
    with pytest.raises(ValueError, match=r"noise needs shape \(2, 1\)"):
        mine.advance(state, GOOD[0], noise={"W": np.ones(2)})


def test_shapes_are_checked_under_jit_too(state):
    with pytest.raises(ValueError, match=r"needs shape \(10, 2\)"):
        jax.jit(lambda x: LEARNER.run(state, x, GOOD))(jnp.zeros((10, 3), int))


def test_buffers():
    state = BLOCKS.init(jax.random.key(0), 2, example=(GOOD[0], GOOD[0]))
    with pytest.raises(ValueError, match="without a buffer"):
        BLOCKS.gradients(state, GOOD, GOOD)
    with pytest.raises(ValueError, match=r"init's example, int32\(\), .*got float64\(4,\)"):
        BLOCKS.step(state, np.zeros((2, 4)), GOOD[0])
    with pytest.raises(ValueError, match="buffered"):
        BLOCKS.run(state, GOOD, GOOD, noise=())
    whole = kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.bptt(), optax.sgd(0.1))
    with pytest.raises(ValueError, match="no window to buffer"):
        whole.init(jax.random.key(0), 2, example=(GOOD[0], GOOD[0]))
    with pytest.raises(ValueError, match="learns from a whole run"):
        whole.step(whole.init(jax.random.key(0), 2), GOOD[0], GOOD[0])


def test_integer_vectors_and_complex_weights(state):
    with pytest.raises(ValueError, match=r"use x.astype\(float\)"):
        LEARNER.run(state, np.zeros((10, 2, 4), int), GOOD)
    with pytest.raises(TypeError, match="weight must hold real numbers"):
        LEARNER.run(state, GOOD, GOOD, weight=np.zeros((10, 2), complex))


def test_keys_layouts_and_unhashable_parts():
    with pytest.raises(ValueError, match="single key"):
        LEARNER.init(jax.random.split(jax.random.key(0), 3))
    zero = kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.kf_rtrl(), optax.sgd(0.1), layout=kl.Shard(0))
    with pytest.raises(ValueError, match="devices >= 1"):
        zero.run(zero.init(jax.random.key(0), 2), GOOD, GOOD)

    @dataclass
    class Thawed(kl.Trace):
        init = spec = segment = pull = None

    with pytest.raises(TypeError, match="frozen dataclasses"):
        kl.Learner(kl.RHN(3, 4), kl.softmax(4), kl.Online(Thawed()), optax.sgd(0.1))


def test_stretches_of_whole_segments():
    training = train.start(BLOCKS, Copy(), jax.random.key(0), 2)
    with pytest.raises(ValueError, match="multiple of 5 steps, got 7"):
        train.stretch(BLOCKS, Copy(), (), training, 7)

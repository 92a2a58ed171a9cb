"""δ·e added up over lanes in the pass that reads it: the same sum, and the same lanes to blame."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import native
from kronline.linearised import gradients as gr
from kronline.traces import in_layer

PATHS = ["native", "jax"]
# (lanes, k, m, c, g, n): few rows, many rows, units that fill no tile, a single lane
SHAPES = [(5, 1, 3, 2, 1, 33), (3, 4, 11, 1, 2, 70), (2, 2, 6, 3, 1, 8), (1, 1, 1, 4, 3, 64)]


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def given(shape, seed=0):
    lanes, k, m, c, g, n = shape
    rng = np.random.default_rng(seed)
    shapes = [(m, c, g, n), (k, m), (k, c, g, n), (c, c, n)]
    e, feats, SD, S = (jnp.asarray(rng.normal(size=(lanes, *s))) for s in shapes)
    feats = jnp.where(jnp.asarray(rng.integers(0, 2, feats.shape), bool), feats, 0)
    cut = jnp.arange(lanes) % 3 == 1
    delta = jnp.where(jnp.arange(lanes)[:, None, None] == 2, 0, rng.normal(size=(lanes, c, n)))
    return e, in_layer.Move(feats, SD, S), cut, delta


def pushed(args, path, add):
    """Of all lanes: the new e, and the gradient's part."""
    with native.use(path == "native"), in_layer.adding(add):
        return jax.jit(jax.vmap(in_layer._pushed))(*args)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_sum_is_that_of_the_lanes(shape, path):
    args = given(shape)
    want_e, each = pushed(args, "jax", add=False)
    e, part = pushed(args, path, add=True)
    assert isinstance(part, gr.Added) and not np.asarray(part.odd).any()
    np.testing.assert_allclose(e, want_e, atol=1e-12)
    np.testing.assert_allclose(gr.total(part), np.asarray(each).sum(0), atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_a_lane_that_is_not_finite_is_known_and_silent_lanes_count_for_nothing(path):
    e, *rest = given((4, 1, 5, 2, 1, 40))  # δ of lane 2 is zero
    e = e.at[1, 0, 0, 0, 0].set(jnp.inf).at[2, 0, 0, 0, 0].set(jnp.nan)
    _, part = pushed((e, *rest), path, add=True)
    assert np.isfinite(np.asarray(part.odd)).tolist() == [True, False, True, True]
    assert not np.isfinite(np.asarray(gr.total(part))[0, 0, 0])


@pytest.mark.parametrize("path", PATHS)
def test_the_axis_of_lanes_is_the_innermost(path):
    """As in a population of learners, each with lanes of its own."""
    some = [given((3, 2, 4, 2, 1, 9), seed) for seed in range(2)]
    args = jax.tree.map(lambda *a: jnp.stack(a), *some)
    with native.use(path == "native"), in_layer.adding(True):
        e, part = jax.jit(jax.vmap(jax.vmap(in_layer._pushed)))(*args)
    for i, one in enumerate(some):
        want_e, want = pushed(one, "jax", add=True)
        np.testing.assert_allclose(e[i], want_e, atol=1e-12)
        np.testing.assert_allclose(part.whole[i, 0], want.whole[0], atol=1e-12)


def test_a_lanes_own_gradient_is_not_there_to_be_read():
    with in_layer.adding(True):
        _, part = in_layer._pushed(*jax.tree.map(lambda a: a[0], given(SHAPES[0])))
    for read in (gr.dense, gr.norm2, gr.side_by_side, lambda g: gr.scaled(g, 2.0)):
        with pytest.raises(TypeError):
            read(gr.Placed(part, (0,), 1))


STACK = kl.Stack((kl.Block(kl.LRU(2, 3), 2), kl.Block(kl.ELSTM(2, 2), 2)))
TRACES = {
    "rtrl": (kl.LRU(4, 3), kl.rtrl()),
    "spatial": (STACK, kl.spatial(2)),
    "unbiased": (STACK, kl.kf_tbptt(2, pairs=2)),
    "copies": (kl.ELSTM(4, 3), kl.Online(kl.Average(kl.InLayer(), copies=2), 2)),
}


@pytest.mark.parametrize(
    ("path", "layout"),
    [("native", kl.Vmap()), ("jax", kl.Vmap()), ("native", kl.Loop()), ("native", kl.Shard(1))],
    ids=str,
)
@pytest.mark.parametrize("name", TRACES)
def test_the_mean_gradient_is_that_of_the_lanes_own(name, path, layout):
    cell, estimator = TRACES[name]
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (2, 6, 4))
    reset = np.zeros((6, 4), bool)
    reset[3, 1] = True
    settings = (cell, kl.softmax(3), estimator, optax.sgd(0.1))
    with native.use(path == "native"):
        learner = kl.Learner(*settings, layout=layout, dtype="float64")
        state = learner.init(jax.random.key(0), 4)
        mean = learner.gradients(state, x, y, reset=reset)[1]
        own = learner.gradients(state, x, y, reset=reset, average=False)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.mean(1), atol=1e-12), mean, own)

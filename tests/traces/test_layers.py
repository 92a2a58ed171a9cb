"""The exact traces inside layers, and the pairs between them."""

import jax
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import native
from kronline.verifier.definition import biased
from kronline.verifier.enumeration import bias
from small import close, data, start

TWO = kl.Stack((kl.LRU(1, 3), kl.ELSTM(2, 2)))
BLOCKS = kl.Stack((kl.Block(kl.LRU(3, 3), 4), kl.Block(kl.MinGRU(3, 4))))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def gradients(cell, estimator, steps=8, **settings):
    learner = kl.Learner(
        cell, kl.softmax(4), estimator, optax.sgd(0.0), dtype="float64", **settings
    )
    return learner.gradients(start(learner), **data(steps))[1]


@pytest.mark.parametrize("estimator", [kl.rtrl(), kl.rtrl(window=4), kl.spatial(2)], ids=str)
def test_the_kernel_and_pure_jax_agree(estimator):
    if not native.status().active:
        pytest.skip(f"no native kernel: {native.status().reason}")
    for cell in (kl.LRU(35, 3), kl.ELSTM(3, 3)):
        fast = gradients(cell, estimator)
        with native.use(False):
            close(fast, gradients(cell, estimator))


@pytest.mark.parametrize("layout", [kl.Loop(), kl.Shard(1)], ids=str)
def test_layouts_agree(layout):
    close(gradients(BLOCKS, kl.spatial(4)), gradients(BLOCKS, kl.spatial(4), layout=layout))


def test_one_layer_is_exact_with_both_and_draws_nothing():
    cell = kl.Stack((kl.Block(kl.LRU(2, 3), 4),))
    exact = gradients(kl.Opaque(cell), kl.rtrl(window=4))
    for estimator in (kl.spatial(4), kl.kf_tbptt(4, pairs=2), kl.rtrl(window=4)):
        assert not estimator.ignores(cell)
        close(gradients(cell, estimator), exact)


def test_the_upper_layer_is_exact_and_the_lower_one_is_not():
    exact = gradients(kl.Opaque(TWO), kl.rtrl(window=2))
    got = gradients(TWO, kl.spatial(2))
    close(got.cell["layer1.W"], exact.cell["layer1.W"])
    close(got.cell["layer1.own"], exact.cell["layer1.own"])
    error = np.linalg.norm(got.cell["layer0.W"] - exact.cell["layer0.W"])
    assert error > 1e-3 * np.linalg.norm(exact.cell["layer0.W"])


def test_spatial_is_its_definition_and_biased():
    assert all(check.ok for check in biased(TWO, kl.spatial(2), "two layers"))


@pytest.mark.parametrize("estimator", [kl.kf_tbptt(2, 1), kl.kf_tbptt(3, 2)], ids=str)
def test_between_layers_it_is_unbiased(estimator):
    assert all(check.ok for check in bias(TWO, estimator, "two layers"))


def test_pairs_without_their_own_rows_are_biased(monkeypatch):
    """What a layer's past leaves in the one above must not be forgotten."""
    from kronline.traces import cross_layer  # noqa: PLC0415

    merged = cross_layer.merged

    def forgetful(old, *rest):
        return merged({name: p._replace(own=0 * p.own) for name, p in old.items()}, *rest)

    monkeypatch.setattr(cross_layer, "merged", forgetful)
    jax.clear_caches()
    assert not all(check.ok for check in bias(TWO, kl.kf_tbptt(2, 1), "two layers"))
    monkeypatch.undo()
    jax.clear_caches()


def test_weights_with_no_more_inputs_than_pairs_are_exact_in_every_lane():
    """With enough pairs nothing is drawn; with one, only weights of several inputs have noise."""
    exact = gradients(kl.Opaque(TWO), kl.rtrl(window=2)).cell
    close(gradients(TWO, kl.kf_tbptt(2, 9)).cell, exact)
    got = gradients(TWO, kl.kf_tbptt(2, 1)).cell
    close(got["layer0.own"], exact["layer0.own"])
    assert np.abs(got["layer0.W"] - exact["layer0.W"]).max() > 1e-6


def test_the_rows_of_a_segment_of_one_are_those_of_H_and_M():
    """`rows` by reverse passes through the layers' inputs; `rows_of` from H and M."""
    params = BLOCKS.init(jax.random.key(0), float)
    rng = np.random.default_rng(0)
    s, (low, top) = rng.normal(size=BLOCKS.size), BLOCKS.structure().layers
    S, P = rng.normal(size=(1, 1, 3)), (rng.normal(size=(3, 2, 3)),)
    names = [n for n, first in BLOCKS.structure().above.items() if first < 2]
    of = ((low, top), 1, S, P, tuple(names))

    def both(params, s):
        return BLOCKS.rows(params, s, 1, *of), BLOCKS.linearise(params, s, 1).rows_of(*of)

    close(*jax.jit(both)(params, s))

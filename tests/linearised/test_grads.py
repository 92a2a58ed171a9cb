"""Gradients as factors: sums, scales and totals are those of the same gradients written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kronline.linearised import gradients as gr

RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def outer(*lead):
    return gr.Outer(normal(*lead, 2, 5), normal(*lead, 2, 3, 4))


def weighted(*lead):
    return gr.Weighted(normal(*lead, 3), normal(*lead, 3, 5, 3, 4))


def array(*lead):
    return normal(*lead, 5, 3, 4)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("a", [outer, weighted, array])
@pytest.mark.parametrize("b", [outer, weighted, array])
def test_a_sum_of_any_kinds(a, b):
    x, y = a(7), b(7)  # of seven lanes, or steps
    want = jax.vmap(gr.dense)(x) + jax.vmap(gr.dense)(y)
    both = jax.vmap(gr.add)(x, y)
    close(jax.vmap(gr.dense)(both), want)
    close(gr.total(both), want.sum(0))
    close(gr.dense(gr.side_by_side(both)), want.sum(0))
    close(gr.total(gr.scaled(both, 0.5)), want.sum(0) / 2)
    close(jax.vmap(gr.norm2)(both), (want**2).sum((1, 2, 3)))


def test_factors_stay_factors():
    assert isinstance(gr.add(outer(), outer()), gr.Outer)
    assert isinstance(gr.add(outer(), weighted()), gr.Sum)  # never written out a lane


def test_norms_from_factors():
    rng = np.random.default_rng(0)
    for p in (1, 2, 40):  # few terms by their Gram matrices, many written out
        g = {
            "a": gr.Outer(*(jnp.asarray(rng.normal(size=s)) for s in ((p, 7), (p, 2, 5)))),
            "b": gr.Weighted(*(jnp.asarray(rng.normal(size=s)) for s in ((p,), (p, 3)))),
            "c": jnp.asarray(rng.normal(size=(2, 2))),
        }
        want = sum(float(jnp.sum(v**2)) for v in jax.tree.leaves(gr.written_out(g)))
        assert float(gr.norm2(g)) == pytest.approx(want, rel=1e-5)

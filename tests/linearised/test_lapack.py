"""Small decompositions: right, and never a batch, for which XLA's threads might wait for ever."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import native, regularise
from kronline.cells.init import Spectral
from kronline.linearised import decompositions


def gram(K, rank, seed=0):
    A = np.random.default_rng(seed).normal(size=(K, rank))
    return jnp.asarray(A @ A.T)


@pytest.mark.parametrize(("K", "rank"), [(1, 1), (4, 4), (9, 3), (33, 40)])
def test_factor_and_solve(K, rank):
    with jax.enable_x64(True):
        G, B = gram(K, rank), jnp.asarray(np.random.default_rng(1).normal(size=(K, 2)))
        jitter = jnp.float64(1e-9)
        R = decompositions.cholesky(G + jitter * jnp.eye(K), jitter)
        np.testing.assert_allclose(R @ R.T, G + jitter * jnp.eye(K), atol=1e-7)
        assert (jnp.triu(R, 1) == 0).all()
        np.testing.assert_allclose(R.T @ decompositions.solve(R, B), B, rtol=1e-6, atol=1e-6)


def test_eigenvectors_and_their_derivative():
    with jax.enable_x64(True):
        S, by = gram(5, 7), gram(5, 5, seed=1)

        def both(S, eigh):
            w, V = eigh(S)
            # a function of S that no sign of an eigenvector changes
            return jnp.sum(jnp.sin(w)) + jnp.sum((V @ jnp.diag(jnp.cos(w)) @ V.T) * by)

        for f in (both, jax.grad(both)):
            got, want = f(S, decompositions.eigh), f(S, jnp.linalg.eigh)
            np.testing.assert_allclose(got, want, rtol=1e-10)
        stack = jnp.stack([S, S + by])
        w, V = jax.vmap(decompositions.eigh)(stack)
        np.testing.assert_allclose(stack @ V, V * w[:, None], atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_spectral_radius_without_eigenvalues(n):
    """As accelerators compute it: also of complex pairs, of nilpotent matrices, and of zero."""
    W = np.random.default_rng(n).normal(size=(n, n))
    turned = np.eye(n)[::-1] @ np.diag(np.arange(n) - n / 2)  # pairs of equal size
    with jax.enable_x64(True):
        for A in (W, turned, 1e-9 * W, 1e9 * W):
            want = np.abs(np.linalg.eigvals(A)).max()
            np.testing.assert_allclose(decompositions.by_powers(jnp.asarray(A)), want, rtol=1e-6)
            np.testing.assert_allclose(decompositions.spectral_radius(A), want, rtol=1e-12)
        for A in (np.triu(W, 1), np.zeros((n, n))):
            assert decompositions.by_powers(jnp.asarray(A)) == 0
    got = decompositions.by_powers(jnp.asarray(W, jnp.float32))
    np.testing.assert_allclose(got, np.abs(np.linalg.eigvals(W)).max(), rtol=1e-5)


def batches(function, *args):
    """The shapes of all operands of LAPACK in a program that are more than one matrix."""
    text = jax.jit(function).lower(*args).as_text()
    calls = re.findall(r"@lapack_\w+\(.*?\) -> \(?(.*)", text)
    assert calls, "no LAPACK in it at all: is this the right program?"
    shapes = [s for call in calls for s in re.findall(r"tensor<([\dx]+)x[fci]", call)]
    return [s for s in shapes if s.count("x") > 1]


@pytest.mark.parametrize("estimator", [kl.ok(2), kl.kf_tbptt(2, pairs=2)], ids=lambda e: e.name)
def test_a_learner_with_several_weights_has_no_batches(estimator):
    cell = kl.DeepRHN(3, 2)
    a = kl.Learner(
        cell, kl.softmax(2), estimator, optax.sgd(0.1), regularisers=(regularise.spectral(1.0),)
    )
    state, x = a.init(jax.random.key(0), 4), np.zeros((2, 4), int)
    with native.use(False):
        assert batches(lambda s: a.run(s, x, x), state) == []


def test_nor_has_an_initialisation():
    cell = kl.LSTM(3, 2, init_weights=Spectral())
    keys = jax.random.split(jax.random.key(0), 3)
    assert batches(jax.vmap(cell.init), keys) == []
    assert batches(jax.vmap(jnp.linalg.eigh), jnp.ones((4, 3, 3))) != []  # such as this one

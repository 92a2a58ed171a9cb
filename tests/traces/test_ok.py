"""Kronecker sums: the merge itself, OK against KF, and KF-TBPTT beside TBPTT."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.traces import KF, OK, mixing
from kronline.traces.segment_merge import Pairs
from kronline.verifier import enumeration
from kronline.verifier.problem import Problem


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def products(K, seed=0, dead=()):
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(K, 5)) + rng.normal(size=5)  # alike, as hidden states are
    B = rng.normal(size=(K, 7)) * np.exp(1.5 * rng.normal(size=(K, 1)))
    U[list(dead)] = 0
    return U, B


def all_mixes(U, B, r):
    """`Σ_i u'_i ⊗ b'_i` for every pattern of signs, and the variance that is claimed."""
    signs = jnp.array(list(itertools.product([-1.0, 1.0], repeat=len(U) - 1)))
    mixed = jax.jit(jax.vmap(lambda s: mixing.mix(U @ U.T, B @ B.T, s, r)))(signs)
    left, right = np.einsum("ski,km->sim", mixed.left, U), np.einsum("ski,kb->sib", mixed.right, B)
    return np.einsum("sim,sib->smb", left, right), float(mixed.variance[0])


def least_variance(d, K, r):
    """`S²/r' − Σ_mixed d²`, of the singular values of the sum itself; m of them are kept."""
    if r >= K:
        return 0.0
    for m in range(r):
        if d[m] * (r - m) <= d[m:].sum() * (1 + 1e-12):
            return d[m:].sum() ** 2 / (r - m) - (d[m:] ** 2).sum()
    raise AssertionError


@pytest.mark.parametrize(("K", "r"), [(2, 1), (3, 2), (5, 4), (6, 1), (7, 3), (8, 5), (4, 4)])
def test_the_merge_is_unbiased_and_its_variance_is_the_formula(K, r):
    U, B = products(K)
    got, claimed = all_mixes(U, B, r)
    want = U.T @ B
    np.testing.assert_allclose(got.mean(0), want, atol=1e-11 * np.abs(want).max())
    variance = ((got - got.mean(0)) ** 2).sum((1, 2)).mean()
    np.testing.assert_allclose(variance, claimed, rtol=1e-5, atol=1e-9 * (want**2).sum())
    best = least_variance(np.linalg.svd(want, compute_uv=False), K, r)
    np.testing.assert_allclose(claimed, best, rtol=1e-5, atol=1e-7 * (want**2).sum())


def test_dead_terms_do_no_harm():
    U, B = products(5, dead=(0, 3))
    got, _ = all_mixes(U, B, 2)
    np.testing.assert_allclose(got.mean(0), U.T @ B, atol=1e-8)
    got, _ = all_mixes(np.zeros_like(U), B, 2)
    assert (got == 0).all()


def test_the_rows_of_z_have_the_norms_that_were_asked_for():
    p = jnp.array([1.0, 1.0, 0.9, 0.5, 0.35, 0.2, 0.05])
    Z = mixing.rows(p, 4) * jnp.sqrt(p)[:, None]
    np.testing.assert_allclose(Z.T @ Z, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("cell", [kl.Tanh(3, 2), kl.RHN(3, 2), kl.LSTM(2, 2), kl.DeepRHN(2, 2)])
def test_one_optimal_pair_is_never_noisier_than_kf_rtrl(cell):
    problem = Problem(cell, 4)
    params = problem.params.cell
    key = jax.random.key(0)
    kf, ok = KF(), OK(1)
    memory = kf.init(cell.structure(params))
    s = jnp.zeros(cell.size)
    for t in range(4):
        lin = cell.linearise(params, s, problem.data["x"][t, 0])
        same = {name: Pairs(p.u[None], p.A[:, None]) for name, p in memory.items()}
        assert ok.variance(same, lin) <= kf.variance(memory, lin) * (1 + 1e-9) + 1e-30
        signs = {n: jax.random.rademacher(jax.random.fold_in(key, t), (), s.dtype) for n in params}
        memory, s = kf.step(memory, lin, signs), lin.state


@pytest.mark.parametrize(
    ("cell", "estimator"),
    [
        (kl.RHN(2, 2), kl.kf_tbptt(3, pairs=1)),
        (kl.LSTM(1, 2), kl.kf_tbptt(2, pairs=2)),
        (kl.DeepRHN(2, 2), kl.kf_tbptt(2, pairs=1)),
        (kl.Tanh(2, 2), kl.ok(2, window=1)),
    ],
    ids=lambda x: getattr(x, "name", type(x).__name__),
)
def test_no_bias(cell, estimator):
    (check,) = enumeration.bias(cell, estimator, "")
    assert check.value < 1e-10


def gradients(estimator, tail=None):
    problem = Problem(kl.RHN(4, 3), 12)
    learner = problem.learner(estimator)
    state = problem.start(learner)
    if tail is not None:
        state = state._replace(memory=state.memory._replace(tail=jnp.full((1,), tail)))
    return learner.gradients(state, **problem.data)[1].cell["W"]


def test_without_its_tail_it_is_tbptt():
    want = gradients(kl.tbptt(3))
    np.testing.assert_allclose(gradients(kl.kf_tbptt(3, 2, tail=0.0)), want, atol=1e-12)
    # the weight is a number in the state: nothing is compiled anew for another one
    np.testing.assert_allclose(gradients(kl.kf_tbptt(3, 2), tail=0.0), want, atol=1e-12)
    whole, half = gradients(kl.kf_tbptt(3, 2)), gradients(kl.kf_tbptt(3, 2), tail=0.5)
    np.testing.assert_allclose(half, (want + whole) / 2, atol=1e-12)
    assert np.abs(whole - want).max() > 1e-3


def test_the_automatic_weight_is_between_the_two():
    none, whole, auto = (gradients(kl.kf_tbptt(3, 1, tail=t)) for t in (0.0, 1.0, "auto"))
    share = ((auto - none) * (whole - none)).sum((1, 2, 3)) / ((whole - none) ** 2).sum((1, 2, 3))
    assert np.isnan(share[0])  # nothing lies before the first block
    assert ((share[1:] >= 0) & (share[1:] <= 1)).all()
    assert (share[2:] < 1).any()


def test_wrong_settings_are_explained():
    with pytest.raises(ValueError, match="tail must be between 0 and 1, or 'auto', got 2"):
        kl.kf_tbptt(3, tail=2)
    with pytest.raises(ValueError, match="pairs >= 1"):
        kl.ok(0)
    with pytest.raises(TypeError, match="Kronecker factors need a cell"):
        kl.Learner(kl.Opaque(kl.Tanh(2, 2)), kl.softmax(2), kl.kf_tbptt(3), optax.sgd(1))

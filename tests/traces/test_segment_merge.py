"""The merge of a segment: the native kernel and pure JAX, against the terms written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_native import kernel

import kronline as kl
from kronline import native
from kronline.linearised import UnitH, UnitM, WeightJac
from kronline.traces import segment_merge
from kronline.traces.base import Steps
from kronline.traces.segment_merge import Pairs

# slots, gates, units, slots that are read, steps, pairs
SHAPES = [
    (1, 2, 37, (0,), 5, 3),
    (2, 4, 16, (0,), 7, 8),
    (2, 3, 33, (0, 1), 4, 9),
    (3, 2, 20, (2, 0), 5, 2),
    (1, 2, 64, (0,), 6, 1),
    (1, 1, 3, (0,), 1, 1),
]


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def weights(shape):
    _, r, n, reads = shape[:4]
    return jnp.asarray(np.random.default_rng(1).normal(size=(len(reads), n, r, n))) / n


def segment(shape, lanes, resets):
    """H, M, features, signs and pairs of so many lanes; the lane that is cut holds NaN."""
    q, r, n, reads, k, p = shape
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape))

    W = weights(shape)
    D, E = normal(lanes, k, q, r, n), 0.5 * normal(lanes, k, q, q, n)
    A = normal(lanes, q * n, p, r, n)
    A = jnp.where(resets.any(1)[:, None, None, None, None], jnp.nan, A)
    U, feats = normal(lanes, p, n + 3), normal(lanes, k, n + 3)
    signs, delta = jnp.sign(normal(lanes, k + p - 1)), normal(lanes, q * n)
    delta = jnp.where(resets.any(1)[:, None], 0, delta)  # δ0 does not pass a reset

    def lane(D, E, A, U, feats, signs, delta, resets, start, rows):
        H, group = UnitH(W, D, E, reads), WeightJac(feats, UnitM(D))
        return segment_merge.merge_segment(
            Pairs(U, A), group, H, resets, signs, delta, rows=min(rows, q * n), start=start
        )

    return lane, (D, E, A, U, feats, signs, delta, resets)


def run(shape, lanes, resets, use, start=True, rows=16):
    lane, args = segment(shape, lanes, resets)
    with native.use(use):
        return jax.jit(jax.vmap(lambda *a: lane(*a, start, rows)))(*args)


@kernel
@pytest.mark.parametrize(
    ("shape", "lanes"),  # one lane is split over threads
    [*((shape, 3) for shape in SHAPES), (SHAPES[0], 1), (SHAPES[1], 1)],
    ids=str,
)
def test_the_kernel_equals_pure_jax(shape, lanes):
    resets = jnp.zeros((lanes, shape[4]), bool)
    resets = resets.at[-1, shape[4] // 2].set(lanes > 1)
    for start in (True, False):
        if not start:  # at the end, NaN or not, δ meets the new A
            resets = jnp.zeros_like(resets)
        got, want = (run(shape, lanes, resets, use, start) for use in (True, False))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            # as close as eigenvectors that are known to √ε
            np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max() + 1e-12)


@kernel
@pytest.mark.parametrize("use", [True, False])
def test_the_mean_over_all_signs_is_what_the_steps_do(use):
    """`Σ_t ĥ_t ⊗ P_t D_t + Σ_i u_i ⊗ P_0 A_i`, with P by hand, a reset in one of the lanes."""
    shape, lanes = (2, 2, 2, (0,), 3, 2), 2
    k, p = shape[4:]
    resets = jnp.zeros((lanes, k), bool).at[1, 1].set(True)
    lane, (D, E, A, U, feats, _, delta, resets) = segment(shape, lanes, resets)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * (k + p - 1))).reshape(k + p - 1, -1).T

    def product(signs):
        pairs, _, _ = jax.vmap(lambda *a: lane(*a[:5], signs, *a[5:], True, 2))(
            D, E, A, U, feats, delta, resets
        )
        return jnp.einsum("lpm,lNprn->lmNrn", pairs.U, pairs.A)

    with native.use(use):
        mean = jax.jit(lambda s: jax.lax.map(product, s).mean(0))(jnp.asarray(signs))

    q, _, n, reads = shape[:4]
    for i in range(lanes):
        P, want = np.eye(q * n), 0.0
        for t in reversed(range(k)):
            lin = UnitM(D[i, t])
            want = want + np.einsum("m,Nrn->mNrn", feats[i, t], np.asarray(lin.lmul(P)))
            H = UnitH(weights(shape), D[i, t], E[i, t], reads)
            P = np.zeros_like(P) if resets[i, t] else P @ np.asarray(H.dense())
        if not resets[i].any():
            want = want + np.einsum("pm,NM,Mprn->mNrn", U[i], P, A[i])
        np.testing.assert_allclose(mean[i], want, atol=1e-11 * np.abs(want).max())


def test_steps_are_linearised_together_without_a_copy_of_the_weights():
    cell = kl.RHN(3, 2)
    params = cell.init(jax.random.key(0), jnp.float64)
    s = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    steps = Steps(4, lambda t: cell.linearise(params, s[t], jnp.int32(1)), jnp.zeros(4, bool))
    lins = segment_merge.linearised(steps)
    assert lins.H.W.shape == (1, 3, 2, 3)
    for t in range(4):
        one = steps.at(t)
        np.testing.assert_array_equal(lins.H.D[t], one.H.D)
        np.testing.assert_array_equal(lins.groups["W"].feats[t], one.groups["W"].feats)

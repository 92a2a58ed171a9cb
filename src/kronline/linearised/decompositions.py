"""Decompositions of small matrices, without the deadlock that `jnp.linalg` can have.

On CPU, `jnp.linalg` hands a batch of matrices to XLA's threads, and waits for them on one of these
threads. With two batches at a time (of two weights, or of two programs) on two cores, all threads
wait for each other. A single matrix is decomposed by the calling thread, without waiting; so
batches are taken one matrix at a time here.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

alone = jax.custom_batching.sequential_vmap


def cholesky(G: Float[Array, "K K"], least: Float[Array, ""]) -> Float[Array, "K K"]:
    """`G = R Rᵀ`, R lower triangular; pivots below `least`, by rounding, are set to it."""
    rows = jnp.arange(G.shape[0])

    def column(j: int, R: Array) -> Array:
        c = G[:, j] - R @ R[j]
        pivot = jnp.sqrt(jnp.maximum(c[j], least))
        return R.at[:, j].set(jnp.where(rows > j, c / pivot, jnp.where(rows == j, pivot, 0)))

    return jax.lax.fori_loop(0, G.shape[0], column, jnp.zeros_like(G))


def solve(R: Float[Array, "K K"], B: Float[Array, "K m"]) -> Float[Array, "K m"]:
    """X with `Rᵀ X = B`, R lower triangular."""
    K = R.shape[0]

    def row(i: int, X: Array) -> Array:
        j = K - 1 - i
        return X.at[j].set((B[j] - R[:, j] @ X) / R[j, j])

    return jax.lax.fori_loop(0, K, row, jnp.zeros_like(B))


@alone
def _eigh(S: Float[Array, "K K"]) -> tuple[Array, Array]:
    w, V = jnp.linalg.eigh(S)
    return w, V


@jax.custom_jvp
def eigh(S: Float[Array, "K K"]) -> tuple[Float[Array, " K"], Float[Array, "K K"]]:
    """Eigenvalues of a symmetric matrix, smallest first, and eigenvectors as columns."""
    w, V = _eigh(S)
    return w, V


@eigh.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> Any:
    """`dw = diag(Vᵀ dS V)`, `dV = V (Vᵀ dS V / (w_j − w_i))`."""
    w, V = eigh(*primals)
    inner = V.T @ tangents[0] @ V
    inner = (inner + inner.T) / 2
    gap = w[None] - w[:, None]
    turned = jnp.where(gap == 0, 0, inner / jnp.where(gap == 0, 1, gap))
    return (w, V), (jnp.diagonal(inner), V @ turned)


@alone
def svd(W: Float[Array, "m n"]) -> tuple[Array, Array, Array]:
    """`W = U diag(s) Vᵀ`: U, s, Vᵀ; s largest first. No derivative."""
    U, s, V = jnp.linalg.svd(W, full_matrices=False)
    return U, s, V


SQUARINGS = 24  # powers up to 2²⁴: what is missing of the limit is below the rounding of float32


@alone
def spectral_radius(W: Float[Array, "n n"]) -> Float[Array, ""]:
    """The largest |eigenvalue| of any square matrix. No derivative.

    On CPU by LAPACK. Elsewhere by Gelfand's formula, since XLA has no general eigenvalues for TPUs.
    """
    return jax.lax.platform_dependent(W, cpu=_by_lapack, default=by_powers)


def _by_lapack(W: Float[Array, "n n"]) -> Float[Array, ""]:
    return jnp.abs(jnp.linalg.eigvals(W)).max()


def by_powers(W: Float[Array, "n n"]) -> Float[Array, ""]:
    """`ρ(W) = lim |W^k|^(1/k)`, k = 2^i by squaring, each power scaled to norm 1."""

    def scaled(P: Array) -> tuple[Array, Array]:
        norm = jnp.linalg.norm(P)
        return P / jnp.where(norm > 0, norm, 1), jnp.log(norm)  # of zero: -inf, and ρ = 0

    def square(i: int, seen: tuple[Array, Array]) -> tuple[Array, Array]:
        P, log = seen
        P, more = scaled(P @ P)
        # log |W^(2k)|/2k = log |W^k|/k + log |P²|/2k
        return P, log + more * 0.5 ** (i + 1)

    _, log = jax.lax.fori_loop(0, SQUARINGS, square, scaled(W))
    return jnp.exp(log)

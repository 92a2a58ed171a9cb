"""K Kronecker products to r of them, unbiased, with the least variance: small linear algebra.

`Σ_i u_i ⊗ b_i` (i = 1..K) is first written in the basis in which both factors are orthogonal:

    Σ_i u_i ⊗ b_i = Σ_j (uX)_j ⊗ (bY)_j,   Y = X⁻ᵀ,   ‖(uX)_j‖‖(bY)_j‖ = d_j   (an SVD);

then the large d are kept, and the others are mixed: with Z, K × r, orthonormal columns, rows of
norm² p_j = min(1, d_j/c) (Σ p = r), and random signs s,

    u'_i = Σ_j s_j Z_ji/√p_j (uX)_j,   b'_i = Σ_j s_j Z_ji/√p_j (bY)_j.

The mean is exact for ANY X and Z: rounding, and what keeps X well-conditioned, only make the
variance a little larger than the optimum. It is `c² r' − Σ_mixed d²`, r' the columns that are left
for the mixed ones: the least that is possible. For K = r + 1 this is the optimal Kronecker sum of
Benzing et al., 2019; for larger K it needs Z with prescribed row norms (Schur-Horn), made here by
K − 1 rotations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.linearised import decompositions


class Basis(NamedTuple):
    """`Σ u_i ⊗ b_i = Σ (uX)_j ⊗ (bY)_j`, largest first."""

    X: Float[Array, "K K"]
    Y: Float[Array, "K K"]
    d: Float[Array, " K"]  # ‖(uX)_j‖‖(bY)_j‖


def basis(Gu: Float[Array, "K K"], Gb: Float[Array, "K K"]) -> Basis:
    """From the Gram matrices of the two factors, which may be singular.

    With Gu = R Rᵀ and Rᵀ Gb R = V d² Vᵀ: X = R⁻ᵀ V √d, Y = R V/√d.
    """
    K = Gu.shape[0]
    tiny = jnp.finfo(Gu.dtype).eps ** 0.75
    scale = jnp.trace(Gu) / K
    # positive definite for every Gu: any X is unbiased, and this one is nearly optimal
    jitter = tiny * scale + (scale == 0)
    R = decompositions.cholesky(Gu + jitter * jnp.eye(K, dtype=Gu.dtype), jitter)
    d2, V = decompositions.eigh(R.T @ Gb @ R)
    d, V = jnp.sqrt(jnp.maximum(d2[::-1], 0)), V[:, ::-1]
    # of the two signs of an eigenvector, the one whose largest entry is positive
    most = jnp.take_along_axis(V, jnp.argmax(jnp.abs(V), axis=0)[None], axis=0)
    V = jnp.where(most < 0, -V, V)
    root = jnp.sqrt(jnp.maximum(d, jnp.sqrt(tiny) * d[0]) + (d[0] == 0))
    X = decompositions.solve(R, V) * root[None]
    return Basis(X, R @ V / root[None], d)


def shares(d: Float[Array, " K"], r: int) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """`p_j = min(1, d_j/c)` with Σ p = r, for d in descending order; and the variance."""
    K = d.shape[0]
    if r == K:
        return jnp.ones(K, d.dtype), jnp.zeros((), d.dtype)
    # no row of Z may be zero, even where d is
    d = jnp.maximum(d, jnp.finfo(d.dtype).eps * d[0]) + (d[0] == 0)
    rest = jnp.cumsum(d[::-1])[::-1]  # Σ of d_j and all that are smaller
    m = jnp.arange(r)  # if m are kept, c = (Σ of the others)/(r − m); the first m that can be
    c = rest[:r] / (r - m)
    kept = jnp.argmax(d[:r] <= c)
    c = c[kept]
    p = jnp.where(jnp.arange(K) < kept, 1, d / c)
    mixed = jnp.where(jnp.arange(K) < kept, 0, d)
    return jnp.minimum(p, 1), c**2 * (r - kept) - jnp.sum(mixed**2)


def rows(p: Float[Array, " K"], r: int) -> Float[Array, "K r"]:
    """Z/√p: orthonormal columns in Z, rows of Z of norm² p; p in descending order, Σ p = r.

    The first r rows start as the unit matrix and the others as zero. Each rotation takes a row
    whose norm is too large and one whose norm is too small, and gives one of them its final norm.
    """
    K = p.shape[0]
    Z = jnp.eye(K, r, dtype=p.dtype)
    if r == K:
        return Z

    def rotate(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        Z, i, j = state
        zi, zj = Z[i], Z[j]
        a, b, x = zi @ zi, zj @ zj, zi @ zj
        gives = (a - p[i]) < (p[j] - b)  # i is done after this one, or else j
        new = jnp.where(gives, p[i], a + b - p[j])  # ‖z_i‖² after it
        # ‖z_i + t z_j‖² = new (1 + t²)
        root = jnp.sqrt(jnp.maximum(x**2 - (a - new) * (b - new), 0))
        t = jnp.where(new > b, (root + x) / jnp.maximum(new - b, jnp.finfo(p.dtype).tiny), 0)
        norm = jax.lax.rsqrt(1 + t**2)
        Z = Z.at[i].set((zi + t * zj) * norm).at[j].set((zj - t * zi) * norm)
        more = gives & (i > 0)
        return Z, jnp.where(more, i - 1, i), jnp.where(gives, j, jnp.minimum(j + 1, K - 1))

    start = (Z, jnp.int32(r - 1), jnp.int32(r))
    Z, _, _ = jax.lax.fori_loop(0, K - 1, rotate, start)
    norm = jnp.sqrt(jnp.sum(Z**2, axis=1, keepdims=True))
    # a row that became zero by rounding may have any direction
    return jnp.where(norm > 0, Z / jnp.where(norm > 0, norm, 1), jnp.eye(1, r, dtype=p.dtype))


class Mix(NamedTuple):
    """`u'_i = Σ_j left_ji u_j`, `b'_i = Σ_j right_ji b_j`."""

    left: Float[Array, "K r"]
    right: Float[Array, "K r"]
    variance: Float[Array, ""]


def mix(
    Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], signs: Float[Array, " K-1"], r: int
) -> Mix:
    """K products to r, from their Gram matrices and K − 1 signs (all signs flipped is the same)."""
    b = basis(Gu, Gb)
    p, variance = shares(b.d, r)
    L = rows(p, r) * jnp.concatenate([jnp.ones(1, signs.dtype), signs])[:, None]
    return Mix(b.X @ L, b.Y @ L, variance)


def balanced(
    Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], signs: Float[Array, " K-1"], r: int
) -> Mix:
    """`mix`, for factors of any size and order: pairs are balanced, those that are 0 dropped.

    The largest come first, as in the native kernel, which then needs fewer rotations.
    """
    order = jnp.argsort(-jnp.diagonal(Gu) * jnp.diagonal(Gb))
    Gu, Gb = Gu[order][:, order], Gb[order][:, order]
    nu, nb = jnp.diagonal(Gu), jnp.diagonal(Gb)
    alive = (nu > 0) & (nb > 0)
    # u s ⊗ b/s is the same product
    s = jnp.where(alive, (jnp.where(alive, nb, 1) / jnp.where(alive, nu, 1)) ** 0.25, 0)
    back = jnp.where(alive, 1 / jnp.where(alive, s, 1), 0)
    left, right, variance = mix(Gu * jnp.outer(s, s), Gb * jnp.outer(back, back), signs, r)
    variance = jnp.where(alive.sum() <= r, 0, variance)  # then all are kept
    first = jnp.argsort(order)
    return Mix((left * s[:, None])[first], (right * back[:, None])[first], variance)

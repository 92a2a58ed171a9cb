"""UORO over many steps at once: two passes over θ̃ for all of them, not per step.

θ̃ is large (UORO-AVG: k·|θ| numbers per lane), and each step does little arithmetic with it: step by
step, memory traffic takes most of the time. But within a block, with g_b = ĥ_b ⊗ ν_b M_b of step b,

    θ̃ = α₀ θ̃₀ + Σ_b α_b g_b,

so only the few numbers α change from step to step. The norm ‖θ̃‖, which the next ρ0 needs, follows
from `⟨θ̃₀, g_b⟩` and `⟨g_b, g_c⟩`: matrix products for the whole block. At its end θ̃ is written out,
by one more product. The result is that of single steps, up to rounding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import Kronecker, Lin, UnitH
from kronline.traces.base import Steps, safe_sqrt_ratio, since_reset

CACHED = 1 << 19  # bytes of θ̃ that are worked on at once


class Factors(NamedTuple):
    """Of one merge: `s̃ ← ρ0 H s̃ + ρ1 ν`, `θ̃ ← keep θ̃ + add νF`; 0 where a term is dropped."""

    rho0: Array
    rho1: Array
    keep: Array
    add: Array


def factors(
    norm_s: Float[Array, ""],
    norm_theta: Float[Array, ""],
    norm_nu: Float[Array, ""],
    norm_g: Float[Array, ""],
) -> Factors:
    """`ρ0² = ‖θ̃‖/‖H s̃‖`, `ρ1² = ‖νF‖/‖ν‖`; a term with a zero factor is dropped."""
    old, new = (norm_s > 0) & (norm_theta > 0), norm_g > 0
    rho0, rho1 = safe_sqrt_ratio(norm_theta, norm_s), safe_sqrt_ratio(norm_g, norm_nu)
    return Factors(
        jnp.where(old, rho0, 0),
        jnp.where(new, rho1, 0),
        jnp.where(old, 1 / rho0, 0),
        jnp.where(new, 1 / rho1, 0),
    )


def can(lin: Lin) -> bool:
    """Whether steps of this kind can be taken in blocks: those of unit-wise cells without masks."""
    if not (isinstance(lin, Kronecker) and isinstance(lin.H, UnitH)):
        return False
    return all(g.mask is None for g in lin.groups.values())


class Terms(NamedTuple):
    """The new terms of a block, `ĥ_b ⊗ ν_b M_b`, of one weight and copy."""

    feats: Float[Array, "k m"]
    dM: Float[Array, "k rn"]


class Products(NamedTuple):
    """What the norms of a block depend on, of one copy."""

    norm2: Float[Array, ""]  # ‖θ̃₀‖²
    cross: Float[Array, " k"]  # ⟨θ̃₀, g_b⟩
    gram: Float[Array, "k k"]  # ⟨g_b, g_c⟩


def push(
    s: Float[Array, "copies N"], theta: Any, steps: Steps, noise: Float[Array, "k copies N"]
) -> tuple[Float[Array, "copies N"], Any]:
    """All copies of one lane over k steps: the new s̃ and θ̃."""
    kept = since_reset(steps.resets)

    def at(t: Any) -> dict[str, Terms]:
        lin = steps.at(t)
        assert isinstance(lin, Kronecker)
        new = {
            name: Terms(g.feats, jax.vmap(lambda nu, M=g.M: M.vm(nu).reshape(-1))(noise[t]))
            for name, g in lin.groups.items()
        }
        # steps before a later reset are left out, even where they are not finite
        return jax.tree.map(lambda a: jnp.where(kept[t], a, jnp.zeros_like(a)), new)

    each: Any = dict.fromkeys(theta, Terms(0, 1))  # type: ignore[arg-type]
    terms = jax.vmap(at, out_axes=each)(jnp.arange(steps.length))  # dM: (copies, k, r·n)
    s, alpha = _coefficients(s, _products(theta, terms), steps, noise)
    return s, _written(theta, terms, alpha)


def _coefficients(
    s: Float[Array, "copies N"],
    products: Products,
    steps: Steps,
    noise: Float[Array, "k copies N"],
) -> tuple[Float[Array, "copies N"], Float[Array, "copies k1"]]:
    """The merges, step by step, without θ̃: the new s̃, and α, that of θ̃₀ first."""
    k = steps.length

    def step(carry: Any, inputs: Any) -> tuple[Any, None]:
        t, nu, cross, gram = inputs
        s, norm2, alpha = jax.tree.map(
            lambda a: jnp.where(steps.resets[t], jnp.zeros_like(a), a), carry
        )
        s = jax.vmap(steps.at(t).jvp)(s)
        g2 = gram[:, t]
        f = jax.vmap(factors)(norms(s), jnp.sqrt(norm2), norms(nu), jnp.sqrt(g2))
        # ⟨θ̃, g⟩ = α₀⟨θ̃₀, g⟩ + Σ_b α_b⟨g_b, g⟩
        inner = _unless_zero(alpha[:, 0], cross) + jnp.sum(alpha[:, 1:] * gram, axis=1)
        # ‖keep θ̃ + add g‖²
        norm2 = f.keep**2 * norm2 + 2 * f.keep * f.add * inner + f.add**2 * g2
        alpha = (f.keep[:, None] * alpha).at[:, t + 1].set(f.add)
        s = f.rho0[:, None] * s + f.rho1[:, None] * nu
        return (s, jnp.maximum(norm2, 0), alpha), None

    alpha = jnp.zeros((s.shape[0], k + 1), s.dtype).at[:, 0].set(1)
    gram = products.gram.swapaxes(0, 1)  # (k, copies, k): row t is step t's
    inputs = (jnp.arange(k), noise, products.cross.T, gram)
    (s, _, alpha), _ = jax.lax.scan(step, (s, products.norm2, alpha), inputs)
    return s, alpha


def _unless_zero(a: Array, b: Array) -> Array:
    """`a b`, and 0 where a is 0, even where b is not finite, as before a reset it may be."""
    return jnp.where(a != 0, a * b, 0)


def norms(rows: Float[Array, "copies N"]) -> Float[Array, " copies"]:
    """The norm of each row."""
    return jnp.sqrt(jnp.sum(rows**2, axis=1))


# Passes over θ̃: where it is large, lane by lane and copy by copy, so that the working set stays in
# the cache.


def _pass(copy: Any, theta: Any, axes: tuple[Any, ...]) -> Any:
    """`copy(own, ...)` of one copy -> the same of all copies of a lane."""
    if size(theta) <= CACHED:
        return jax.vmap(copy, axes)
    return lane_by_lane(jax.vmap(lane_by_lane(copy), axes))


def size(theta: Any) -> int:
    """The size of all arrays in bytes."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(theta))


def _by_copy(terms: dict[str, Terms]) -> dict[str, Any]:
    """Axes for vmap: ĥ is the same for all copies."""
    return dict.fromkeys(terms, Terms(None, 0))  # type: ignore[arg-type]


def _products(theta: Any, terms: dict[str, Terms]) -> Products:
    def copy(own: tuple[()], theta: Any, terms: dict[str, Terms]) -> tuple[Any, Products]:
        norm2: Any = 0
        cross: Any = 0
        gram: Any = 0
        for name, (feats, dM) in terms.items():
            old = theta[name].reshape(feats.shape[1], -1)
            norm2 = norm2 + jnp.sum(old**2)
            cross = cross + jnp.sum((feats @ old) * dM, axis=1)
            gram = gram + (feats @ feats.T) * (dM @ dM.T)
        return own, Products(norm2, cross, gram)

    return _pass(copy, theta, (0, 0, _by_copy(terms)))((), theta, terms)[1]


def _written(theta: Any, terms: dict[str, Terms], alpha: Float[Array, "copies k1"]) -> Any:
    def copy(theta: Any, terms: dict[str, Terms], alpha: Float[Array, " k1"]) -> tuple[Any, Any]:
        def new(old: Array, term: Terms) -> Array:
            feats, dM = term
            add = feats.T @ (alpha[1:, None] * dM)
            return _unless_zero(alpha[0], old) + add.reshape(old.shape)

        return {name: new(old, terms[name]) for name, old in theta.items()}, ()

    return _pass(copy, theta, (0, _by_copy(terms), 0))(theta, terms, alpha)[0]

"""UORO (Tallec & Ollivier, 2017): G as one random rank-one matrix; UORO-AVG: the mean of k."""

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.errors import whole_numbers
from kronline.lanes import lane_by_lane
from kronline.linearised import Grads, Kronecker, Lin, Structure, Weighted
from kronline.noise import Draw, Draws
from kronline.show import called
from kronline.traces import uoro_block
from kronline.traces.base import Steps, Stepwise, one_step, safe_sqrt
from kronline.traces.uoro_block import CACHED, factors, norms

ENUMERATED = 8  # units of state up to which E‖νF‖ is a mean over all signs


class RankOne(NamedTuple):
    """`G' = s̃ θ̃ᵀ`, for each copy."""

    s: Array  # (copies, N)
    theta: Any  # the parameters' shapes, (copies, ...)


@final
@dataclass(frozen=True)
class UORO(Stepwise[RankOne]):
    """`G' = s̃ θ̃ᵀ` with `E[G'] = G`: O(|θ|) memory and time per step and copy. For any cell.

        s̃ ← ρ0 H s̃ + ρ1 ν,   θ̃ ← θ̃/ρ0 + νF/ρ1,   ρ0² = ‖θ̃‖/‖H s̃‖,   ρ1² = ‖νF‖/‖ν‖

    with random signs ν. A term with a zero factor is dropped, so no ε is needed. The variance of a
    step is `(N−1)‖F‖² + 2√N ‖Hs̃‖‖θ̃‖ E‖νF‖ + 2 (Hs̃)F·θ̃` (the paper's appendix has the first term).
    For more than a few units ‖F‖ stands for E‖νF‖: an upper bound (Jensen), equal where a unit has
    one slot, and close where n is large.

    Args:
        copies: k independent copies, averaged (UORO-AVG; the paper takes k = n).

    Example:
        >>> import kronline as kl
        >>> kl.UORO(4).init(kl.RHN(3, 2).structure()).s.shape  # (copies, N)
        (4, 3)

    Reference: Tallec & Ollivier, Unbiased Online Recurrent Optimization, 2017.
    """

    copies: int = 1

    def __post_init__(self) -> None:
        whole_numbers(self, "copies")

    def spec(self, window: int | Literal["all"] | None) -> str:
        """UORO, or UORO-AVG."""
        return called("uoro", copies=self.copies if self.copies > 1 else None, window=window)

    def init(self, structure: Structure) -> RankOne:
        """`0 0ᵀ`: exact, no noise."""
        k, params = self.copies, structure.params
        dtype = jax.tree.leaves(params)[0].dtype
        theta = jax.tree.map(lambda p: jnp.zeros((k, *p.shape), p.dtype), params)
        return RankOne(jnp.zeros((k, structure.size), dtype), theta)

    def step_draws(self, structure: Structure) -> Draws:
        """The signs ν, independent for every copy."""
        return Draw((self.copies, structure.size))

    def step(self, memory: RankOne, lin: Lin, noise: Float[Array, "copies N"]) -> RankOne:
        """`s̃ θ̃ᵀ ← (H s̃) θ̃ᵀ + ν (νF)`, merged into one rank, unbiased over ν, for each copy."""
        s = jax.vmap(lin.jvp)(memory.s)
        g = jax.vmap(lambda nu: pulled_F(lin, nu))(noise)
        merged = lane_by_lane(jax.vmap(merge_copy), CACHED)(memory.theta, g, norms(s), norms(noise))
        theta, (rho0, rho1) = merged
        return RankOne(rho0[:, None] * s + rho1[:, None] * noise, theta)  # s̃ ← ρ0 H s̃ + ρ1 ν

    def pull(self, memory: RankOne, delta: Float[Array, " N"]) -> Grads:
        """`(δ·s̃) θ̃`, averaged over the copies."""
        weights = memory.s @ delta / self.copies
        return jax.tree.map(lambda t: Weighted(weights, t), memory.theta)

    def step_pull(
        self,
        memory: RankOne,
        lin: Lin,
        reset: Bool[Array, ""],
        noise: Float[Array, "copies N"],
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, RankOne]:
        """One step; taken as a block of one where not even one copy fits the cache."""
        new = self.pushed(memory, one_step(lin, reset), noise[None])
        if past:
            return self.pull(self.reset(memory, reset), lin.vjp(delta)[0]), new
        return self.pull(new, delta), new

    def pushed(self, memory: RankOne, steps: Steps, noise: Float[Array, "k copies N"]) -> RankOne:
        """Over the k steps of a segment, with two passes over θ̃ in all, where the cell allows."""
        # a single step is faster copy by copy where not even one copy fits the cache
        each = uoro_block.size(memory.theta) / self.copies if self.copies > 1 else 0
        if (steps.length == 1 and each <= CACHED) or not uoro_block.can(steps.at(0)):
            return super().pushed(memory, steps, noise)
        return RankOne(*uoro_block.push(memory.s, memory.theta, steps, noise))

    @property
    def closed_form(self) -> bool:
        """It is."""
        return True

    def variance(self, memory: RankOne, lin: Lin) -> Float[Array, ""]:
        """The formula above."""
        N, dtype = lin.state.size, lin.state.dtype

        def norm2_F(v: Float[Array, " N"]) -> Float[Array, ""]:
            return _norm2(lin.times_F(v))

        F2 = jnp.sum(jax.lax.map(norm2_F, jnp.eye(N, dtype=dtype)))
        mean = safe_sqrt(F2)
        if N <= ENUMERATED:  # the mean over all ν
            signs = jnp.array([(1, *rest) for rest in product((-1, 1), repeat=N - 1)], dtype)
            mean = jnp.mean(jax.vmap(lambda nu: safe_sqrt(norm2_F(nu)))(signs))

        def one(m: RankOne) -> Float[Array, ""]:
            s = lin.jvp(m.s)
            norms = N**0.5 * safe_sqrt(jnp.sum(s**2)) * safe_sqrt(_norm2(m.theta))
            return (N - 1) * F2 + 2 * (norms * mean + _dot(lin.times_F(s), m.theta))

        return jnp.sum(jax.vmap(one)(memory)) / self.copies**2


class Term(NamedTuple):
    """`ĥ ⊗ νM`, one weight's part of νF, as factors."""

    feats: Array  # (m,)
    dM: Array  # (r, n)
    mask: Array | None

    def dense(self) -> Float[Array, "m r n"]:
        """Written out, for the weights that exist."""
        out = self.feats[:, None, None] * self.dM[None]
        return out if self.mask is None else out * self.mask

    def norm2(self) -> Float[Array, ""]:
        """`‖ĥ ⊗ νM‖²`, where all weights exist `‖ĥ‖² ‖νM‖²`."""
        if self.mask is None:
            return jnp.sum(self.feats**2) * jnp.sum(self.dM**2)
        return jnp.sum(self.dense() ** 2)


def pulled_F(lin: Lin, nu: Float[Array, " N"]) -> Any:
    """`νF`, as factors where it has them."""
    if isinstance(lin, Kronecker):
        return {k: Term(g.feats, g.M.vm(nu), g.mask) for k, g in lin.groups.items()}
    return lin.times_F(nu)


def merge_copy(
    theta: Any, g: Any, norm_s: Float[Array, ""], norm_nu: Float[Array, ""]
) -> tuple[Any, tuple[Array, Array]]:
    """All that needs a pass over θ̃: the new θ̃, and the factors of H s̃ and ν. One copy."""
    f = factors(norm_s, jnp.sqrt(_norm2(theta)), norm_nu, jnp.sqrt(_norm2(g)))
    # θ̃ ← θ̃/ρ0 + νF/ρ1
    theta = jax.tree.map(lambda t, g: f.keep * t + f.add * _dense(g), theta, g)
    return theta, (f.rho0, f.rho1)


def _is_term(t: Any) -> bool:
    return isinstance(t, Term)


def _dense(t: Any) -> Array:
    return t.dense() if isinstance(t, Term) else t


def _norm2(tree: Any) -> Float[Array, ""]:
    leaves = jax.tree.leaves(tree, is_leaf=_is_term)
    return jnp.sum(jnp.stack([t.norm2() if _is_term(t) else jnp.sum(t**2) for t in leaves]))


def _dot(a: Any, b: Any) -> Float[Array, ""]:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.sum(jnp.stack([jnp.sum(x * y) for x, y in pairs]))

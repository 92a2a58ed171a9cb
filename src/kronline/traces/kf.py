"""KF-RTRL (Algorithm 1 of the paper): G as one random Kronecker product per weight matrix."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import Grads, Kronecker, Lin, StateJac, Structure, WeightJac, outer
from kronline.noise import Draw, Draws
from kronline.show import called
from kronline.traces.base import Stepwise, safe_sqrt, safe_sqrt_ratio


class Pair(NamedTuple):
    """`G' = u ⊗ A` for one weight matrix."""

    u: Array  # (m,)
    A: Array  # (N, r, n)
    norm: Array  # (), approximately ‖A‖, known without a pass over A


Pairs = dict[str, Pair]  # one per weight matrix


@final
@dataclass(frozen=True)
class KF(Stepwise[Pairs]):
    """`G' = u ⊗ A` with `E[G'] = G`: O(n²) memory and O(n³) time per step. For linear cells.

    One sign c per step and weight matrix: a step depends on the paper's c1, c2 only through c1·c2,
    and on p1, p2 only through ρ = p1/p2. So c1 is 1 (`one_sign` converts), and A is not divided by
    p1; instead

        A ← H A + c ρ D,   u ← u + c ĥ/ρ,   ρ² = ‖H A‖ ‖ĥ‖ / (‖u‖ ‖D‖),

    and u is kept about as large as A by a power of two that is folded into H (A itself is never
    scaled). The step's variance is `2(‖u‖‖ĥ‖‖HA‖‖D‖ + ⟨u,ĥ⟩⟨HA,D⟩)`.

    Example:
        >>> import kronline as kl
        >>> pair = kl.KF().init(kl.RHN(3, 2).structure())["W"]
        >>> pair.u.shape, pair.A.shape  # (m,), (N, gates, units)
        ((6,), (3, 2, 3))

    Reference: Mujika, Meier & Steger, NeurIPS 2018.
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """KF-RTRL."""
        return called("kf_rtrl", window=window)

    def check(self, structure: Structure) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(structure)

    def init(self, structure: Structure) -> Pairs:
        """`0 ⊗ 0`: exact, no noise."""
        return {
            name: Pair(
                jnp.zeros(W.shape[0], W.dtype),
                jnp.zeros((structure.size, *W.shape[1:]), W.dtype),
                jnp.zeros((), W.dtype),
            )
            for name, W in structure.params.items()
        }

    def step_draws(self, structure: Structure) -> Draws:
        """One sign c per weight matrix."""
        return {name: Draw() for name in structure.params}

    def step(self, memory: Pairs, lin: Lin, noise: dict[str, Array]) -> Pairs:
        """`u ⊗ H A + ĥ ⊗ D`, merged into one pair, for each weight."""
        nowhere = jnp.zeros_like(lin.state)
        return self._merged(memory, lin, noise, nowhere, before=False)[0]

    def step_pull(
        self,
        memory: Pairs,
        lin: Lin,
        reset: Bool[Array, ""],
        noise: dict[str, Array],
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, Pairs]:
        """One step; `δ·HA` is computed in the same pass as HA."""
        memory = self.reset(memory, reset)
        pairs, dA = self._merged(memory, lin, noise, delta, before=past)
        u = memory if past else pairs
        return {name: outer(u[name].u, dA[name]) for name in pairs}, pairs

    def _merged(
        self,
        memory: Pairs,
        lin: Lin,
        noise: dict[str, Array],
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[Pairs, dict[str, Array]]:
        assert isinstance(lin, Kronecker)
        done = {
            name: merge_pair(memory[name], group, lin.H, noise[name], delta, before=before)
            for name, group in lin.groups.items()
        }
        return {k: pair for k, (pair, _) in done.items()}, {k: dA for k, (_, dA) in done.items()}

    def pull(self, memory: Pairs, delta: Float[Array, " N"]) -> Grads:
        """`u ⊗ (δ A)`."""

        def dA(p: Pair) -> Float[Array, "r n"]:  # 0 after a reset, even where A overflowed
            return jnp.where(jnp.any(p.u != 0), jnp.tensordot(delta, p.A, axes=1), 0)

        return {name: outer(p.u, dA(p)) for name, p in memory.items()}

    def reset(self, memory: Pairs, flag: Bool[Array, ""]) -> Pairs:
        """`0 ⊗ A`: the next step drops the term, even where A is not finite."""
        return {name: p._replace(u=jnp.where(flag, 0, p.u)) for name, p in memory.items()}

    @property
    def closed_form(self) -> bool:
        """It is."""
        return True

    def variance(self, memory: Pairs, lin: Lin) -> Float[Array, ""]:
        """`2(‖u‖‖ĥ‖‖HA‖‖D‖ + ⟨u,ĥ⟩⟨HA,D⟩)`, summed over the weights."""
        total = jnp.zeros(())
        for old, new, both in _sizes(memory, lin):
            total = total + 2 * (safe_sqrt(old) * safe_sqrt(new) + both)
        return total

    def mean2(self, memory: Pairs, lin: Lin) -> Float[Array, ""]:
        """`‖u‖²‖HA‖² + ‖ĥ‖²‖D‖² + 2⟨u,ĥ⟩⟨HA,D⟩`, summed over the weights."""
        total = jnp.zeros(())
        for old, new, both in _sizes(memory, lin):
            total = total + old + new + 2 * both
        return total


def _sizes(memory: Pairs, lin: Lin) -> list[tuple[Array, Array, Array]]:
    """`‖u⊗HA‖², ‖ĥ⊗D‖², ⟨u⊗HA, ĥ⊗D⟩` of each weight; after a reset the terms of A are 0."""
    assert isinstance(lin, Kronecker)
    found = []
    for name, g in lin.groups.items():
        u = memory[name].u
        HA = lin.H.mm(jnp.where(jnp.any(u != 0), memory[name].A, 0))
        old, new = jnp.sum(u**2) * jnp.sum(HA**2), jnp.sum(g.feats**2) * g.M.norm2()
        found.append((old, new, jnp.dot(u, g.feats) * g.M.inner(HA)))
    return found


def needs_linear_maps(structure: Structure) -> None:
    """Raise TypeError for a cell that has no Kronecker factors."""
    structure.needs_linear_maps(
        "Kronecker factors need",
        "uoro, rtrl or tbptt, which take any cell, or write the step with visible linear maps",
    )


def one_sign(c1: Any, c2: Any, reset: Any) -> np.ndarray:
    """This trace's signs c from the paper's c1 and c2, to replay another implementation.

    A step's noise is c1·c2, relative to the signs of the old pair (u, A). The paper's c1 flips the
    sign of both u and A, which leaves u ⊗ A as it was; this trace never flips them.

    Args:
        c1, c2, reset: with the steps on the leading axis; the first step counts as a reset.

    Returns:
        c, as `noise=` takes it.
    """
    c1, c2, reset = (np.asarray(a) for a in (c1, c2, reset))
    c, sigma = np.ones_like(c1), np.ones_like(c1[0])  # σ: the paper's pair over ours
    for t in range(len(c)):
        c[t] = sigma * c1[t] * c2[t]
        # u ← c2 p2 ĥ at a start, u ← c1 (p1 u + c1 c2 p2 ĥ) later
        sigma = np.where(reset[t] | (t == 0), c2[t], sigma * c1[t])
    return c


def merge_pair(
    pair: Pair,
    jac: WeightJac,
    H: StateJac,
    c: Float[Array, ""],
    delta: Float[Array, " N"],
    *,
    before: bool,
) -> tuple[Pair, Float[Array, "r n"]]:
    """`u ⊗ H A + ĥ ⊗ D` as one pair, unbiased (Lemma 2), and `δ·A` of it.

    Args:
        pair, jac, H: u and A; ĥ and D; H.
        c: the sign.
        delta: δ.
        before: return `δ·HA` of the old pair, not `δ·A` of the new one.
    """
    plain = lane_by_lane(partial(_merge, before=before))
    return H.merge_pair(plain, pair, jac, c, delta, before=before)


def _merge(
    pair: Pair,
    jac: WeightJac,
    H: StateJac,
    c: Float[Array, ""],
    delta: Float[Array, " N"],
    before: bool,
) -> tuple[Pair, Float[Array, "r n"]]:
    """`merge_pair` in pure JAX."""
    feats, M = jac.feats, jac.M
    # gauge: (u/σ) ⊗ (σ A) is the same matrix; σ is a power of two
    norm_u = jnp.sqrt(jnp.sum(pair.u**2))
    sigma = jnp.exp2(jnp.round(jnp.log2(safe_sqrt_ratio(norm_u, pair.norm))))
    alive = norm_u != 0  # true for NaN, which must stay visible
    u, norm_u = pair.u / sigma, norm_u / sigma
    # where u = 0, A is not multiplied: it may hold infinities, and 0·inf is NaN
    HA = jax.lax.cond(alive, H.scaled(sigma).mm, jnp.zeros_like, pair.A)
    dHA = jnp.tensordot(delta, HA, axes=1)

    norm_HA = jnp.sqrt(jnp.sum(HA**2))
    norm_h, norm_D = jnp.sqrt(jnp.sum(feats**2)), jnp.sqrt(M.norm2())
    # a term with a zero factor is dropped; the other is then exact, whatever its sign
    old, new = norm_HA > 0, (norm_h > 0) & (norm_D > 0)
    # ρ = p1/p2,  p1 = √(‖HA‖/‖u‖),  p2 = √(‖D‖/‖ĥ‖)
    rho = safe_sqrt_ratio(norm_h, norm_u * norm_D) * jnp.sqrt(norm_HA)
    rho = jnp.where(old, rho, safe_sqrt_ratio(norm_h, norm_D))
    a = jnp.where(new, jnp.where(old, c, 1), 0) * rho
    merged = Pair(
        u=jnp.where(old, u, 0) + jnp.where(a != 0, feats / a, 0),  # u ← u + c ĥ/ρ
        A=M.added(HA, a),  # A ← H A + c ρ D
        norm=jnp.sqrt(norm_HA**2 + (a * norm_D) ** 2),
    )
    return merged, dHA / sigma if before else dHA + a * M.vm(delta)

"""R-KF (reverse KF): G as one random Kronecker product that is split at the unit, not at ĥ."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.lanes import lane_by_lane
from kronline.linearised import (
    Grads,
    Kronecker,
    Lin,
    Outer,
    StateJac,
    Structure,
    UnitM,
    WeightJac,
)
from kronline.noise import Draw, Draws
from kronline.show import called
from kronline.traces.base import Stepwise, safe_sqrt, safe_sqrt_ratio
from kronline.traces.kf import needs_linear_maps


class Reverse(NamedTuple):
    """`G'[s, i, k, j] = a[j] B[s, k, i]`: how weight i of gate k of unit j moves the state."""

    a: Array  # (n,)
    B: Array  # (N, r, m)


@final
@dataclass(frozen=True)
class ReverseKF(Stepwise[dict[str, Reverse]]):
    """`G' = a ⊗ B` with `E[G'] = G`: O(n²) memory and O(n³) time per step. For linear cells.

    In KF-RTRL all units share ĥ, and F is one product without noise. Here the product is between
    the unit j whose weight it is, and everything else. F is a sum over units, so it takes a random
    sign ν_j for each:

        a ← p0 a + p1 ν,   B ← H B/p0 + X(ν)/p1,   X(ν) = Σ_j ν_j M_j ⊗ ĥ,

    p0² = ‖HB‖/‖a‖, p1² = ‖F‖/√n. For a unit-wise cell X(ν) is `(ν⊙D) ⊗ ĥ`. For other linear cells
    the unit of a weight is the output of its matrix, the column of z = ĥ W that it adds to, and M_j
    is that column's effect on the whole state: nothing else changes. Each weight matrix has its
    own signs. Weights that a mask leaves out are left out of X.

    Ignores nothing. One step's variance is `(n−1)‖F‖² + 2√n ‖a‖‖HB‖‖F‖ + 2⟨a⊗HB, F⟩`: unlike KF's
    it is above zero at the first step, as UORO's is. Costs one product `H B` of N × N by N × rm, as
    KF-RTRL's `H A` with m in place of n; in pure JAX.

    Example:
        >>> import kronline as kl
        >>> pair = kl.ReverseKF().init(kl.RHN(3, 2).structure())["W"]
        >>> pair.a.shape, pair.B.shape  # (n,), (N, gates, m)
        ((3,), (3, 2, 6))

    Reference: the unified framework of Marschall, Cho & Savin, JMLR 2020 ("Reverse KF-RTRL").
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """R-KF."""
        return called("reverse_kf", window=window)

    def check(self, structure: Structure) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(structure)

    def init(self, structure: Structure) -> dict[str, Reverse]:
        """`0 ⊗ 0`."""
        size = structure.size
        return {
            name: Reverse(
                jnp.zeros(W.shape[2], W.dtype), jnp.zeros((size, W.shape[1], W.shape[0]), W.dtype)
            )
            for name, W in structure.params.items()
        }

    def step_draws(self, structure: Structure) -> Draws:
        """The signs ν, one per unit of each weight matrix."""
        return {name: Draw((W.shape[2],)) for name, W in structure.params.items()}

    def step(
        self, memory: dict[str, Reverse], lin: Lin, noise: dict[str, Array]
    ) -> dict[str, Reverse]:
        """`a ⊗ H B + F`, merged into one product, for each weight."""
        nowhere = jnp.zeros_like(lin.state)
        return {k: new for k, (new, _) in _merged(memory, lin, noise, nowhere, False).items()}

    def step_pull(
        self,
        memory: dict[str, Reverse],
        lin: Lin,
        reset: Bool[Array, ""],
        noise: dict[str, Array],
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, dict[str, Reverse]]:
        """One step; `δ·B` is computed in the same pass as B."""
        memory = self.reset(memory, reset)
        done = _merged(memory, lin, noise, delta, past)
        new = {name: pair for name, (pair, _) in done.items()}
        a = memory if past else new
        return {name: _factored(a[name].a, dB) for name, (_, dB) in done.items()}, new

    def pull(self, memory: dict[str, Reverse], delta: Float[Array, " N"]) -> Grads:
        """`a ⊗ (δ B)`."""

        def dB(p: Reverse) -> Float[Array, "r m"]:  # 0 after a reset, even where B overflowed
            return jnp.where(jnp.any(p.a != 0), jnp.tensordot(delta, p.B, axes=1), 0)

        return {name: _factored(p.a, dB(p)) for name, p in memory.items()}

    def reset(self, memory: dict[str, Reverse], flag: Bool[Array, ""]) -> dict[str, Reverse]:
        """`0 ⊗ B`: the next step drops the term, even where B is not finite."""
        return {name: p._replace(a=jnp.where(flag, 0, p.a)) for name, p in memory.items()}

    @property
    def closed_form(self) -> bool:
        """It is."""
        return True

    def variance(self, memory: dict[str, Reverse], lin: Lin) -> Float[Array, ""]:
        """`(n−1)‖F‖² + 2√n ‖a‖‖HB‖‖F‖ + 2⟨a⊗HB, F⟩`, summed over the weights."""
        assert isinstance(lin, Kronecker)
        total = jnp.zeros(())
        for name, g in lin.groups.items():
            a, F = memory[name].a, _norm_F(g)
            HB = lin.H.mm(jnp.where(jnp.any(a != 0), memory[name].B, 0))  # 0 after a reset
            n = a.size
            norms = n**0.5 * safe_sqrt(jnp.sum(a**2)) * safe_sqrt(jnp.sum(HB**2)) * F
            total = total + (n - 1) * F**2 + 2 * (norms + jnp.sum(HB * signed(g, a)))
        return total


def signed(g: WeightJac, nu: Float[Array, " n"]) -> Float[Array, "N r m"]:
    """`X(ν) = Σ_j ν_j M_j ⊗ ĥ`, for the weights that exist."""
    feats = g.feats[None, None, :] if g.mask is None else g.mask.T * g.feats[None, None, :]
    if isinstance(g.M, UnitM):  # unit j's slots are all that its weights touch
        q, r, n = g.M.D.shape
        D = jnp.moveaxis(g.M.D * nu[None, None], 1, 2)[..., None]  # (q, n, r, 1)
        return (D * feats[None]).reshape(q * n, r, -1)
    M = g.M.dense()
    if feats.shape[0] == 1:
        return jnp.tensordot(M, nu, axes=1)[..., None] * feats
    return jnp.einsum("skj,jki->ski", M * nu[None, None], feats)


def _norm_F(g: WeightJac) -> Float[Array, ""]:
    """`‖F‖`, which is `√E‖X(ν)‖²`."""
    if g.mask is None:
        return jnp.sqrt(jnp.sum(g.feats**2) * g.M.norm2())
    columns = g.M.D if isinstance(g.M, UnitM) else g.M.dense()
    rows = jnp.tensordot(g.feats**2, g.mask**2, axes=1)  # (r, n) or (r, 1)
    return jnp.sqrt(jnp.sum(jnp.sum(columns**2, axis=0) * rows))


def _factored(a: Float[Array, " n"], dB: Float[Array, "r m"]) -> Outer:
    """`Σ_k (δB)_k ⊗ (e_k ⊗ a)`, in the shape of the weights."""
    eye = jnp.eye(dB.shape[0], dtype=a.dtype)
    return Outer(dB, eye[:, :, None] * a[None, None, :])


def _merged(
    memory: dict[str, Reverse],
    lin: Lin,
    noise: dict[str, Array],
    delta: Float[Array, " N"],
    before: bool,
) -> dict[str, tuple[Reverse, Array]]:
    assert isinstance(lin, Kronecker)
    run = lane_by_lane(partial(_merge, before=before))
    return {
        name: run(memory[name], group, lin.H, noise[name], delta)
        for name, group in lin.groups.items()
    }


def _merge(
    pair: Reverse,
    group: WeightJac,
    H: StateJac,
    nu: Float[Array, " n"],
    delta: Float[Array, " N"],
    before: bool,
) -> tuple[Reverse, Float[Array, "r m"]]:
    """`a ⊗ H B + F` as one product, unbiased; and `δ·B` of it, or `δ·HB` of the old one."""
    a, B = pair
    norm_a = jnp.sqrt(jnp.sum(a**2))
    # where a = 0, B is not multiplied: it may hold infinities. NaN != 0, so NaN stays visible
    HB = jax.lax.cond(norm_a != 0, H.mm, jnp.zeros_like, B)
    norm_HB, norm_F = jnp.sqrt(jnp.sum(HB**2)), _norm_F(group)
    # a term with a zero factor is dropped
    old, new = norm_HB != 0, norm_F > 0
    p0 = safe_sqrt_ratio(norm_HB, norm_a)
    p1 = safe_sqrt_ratio(norm_F, jnp.sqrt(jnp.sum(nu**2)))
    keep, add = jnp.where(old, 1 / p0, 0), jnp.where(new, 1 / p1, 0)
    merged = Reverse(
        a=jnp.where(old, p0, 0) * a + jnp.where(new, p1, 0) * nu,  # a ← p0 a + p1 ν
        B=keep * HB + add * signed(group, nu),  # B ← H B/p0 + X(ν)/p1
    )
    return merged, jnp.tensordot(delta, HB if before else merged.B, axes=1)

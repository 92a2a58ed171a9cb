"""OK (optimal Kronecker sum): G as r Kronecker products a weight, merged with the least variance.

`OK` merges after every step. `OKSegment` merges once a segment, after a walk over it backwards: that
is the trace of KF-TBPTT and OK-TBPTT.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.grads import Grads, Outer
from kronline.jacobians import Group, Kronecker, Lin, Sensitivity, StateJac
from kronline.lanes import looped
from kronline.noise import Draw, Draws
from kronline.traces.base import Steps, Trace
from kronline.traces.kf import needs_linear_maps
from kronline.traces.merge import Mix, mix

SKETCH = 16  # rows, at most, in which right factors are compared


class Pairs(NamedTuple):
    """`G' = Σ_i U_i ⊗ A_i` for one weight matrix."""

    U: Array  # (p, m)
    A: Array  # (N, p, r, n)


@dataclass(frozen=True)
class OK(Trace):
    """`G' = Σ_i u_i ⊗ A_i`, r pairs a weight, `E[G'] = G`. For linear cells.

    A step turns the r + 1 terms `Σ u_i ⊗ H A_i + ĥ ⊗ D` into r, with the least variance that an
    unbiased choice can have (`merge.py`): `2‖u‖‖ĥ‖‖HA‖‖D‖ sin α sin β` for r = 1, never above
    KF-RTRL's. O(r n²) memory, O(r n³) time.

    Args:
        pairs: r.

    Reference: Benzing, Gauy, Mujika, Martinsson & Steger, Optimal Kronecker-Sum Approximation of
    Real Time Recurrent Learning, ICML 2019.
    """

    pairs: int = 1

    def __post_init__(self) -> None:
        whole_numbers(self, "pairs")

    def check(self, cell: Cell) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(cell)

    def init(self, size: int, params: Any) -> dict[str, Pairs]:
        """Nothing."""
        return {
            name: Pairs(
                jnp.zeros((self.pairs, W.shape[0]), W.dtype),
                jnp.zeros((size, self.pairs, *W.shape[1:]), W.dtype),
            )
            for name, W in params.items()
        }

    def draws(self, size: int, params: Any) -> Draws:
        """r signs a weight matrix, for r + 1 terms."""
        return {name: Draw((self.pairs,)) for name in params}

    def step(self, memory: dict[str, Pairs], lin: Lin, noise: dict[str, Array]) -> dict[str, Pairs]:
        """`Σ u_i ⊗ H A_i + ĥ ⊗ D`, merged into r pairs, for each weight."""
        assert isinstance(lin, Kronecker)
        return {
            name: _merged(memory[name], group, lin.H, noise[name])
            for name, group in lin.groups.items()
        }

    def pull(self, memory: dict[str, Pairs], delta: Float[Array, " N"]) -> Grads:
        """`Σ_i u_i ⊗ (δ A_i)`."""
        return {
            name: Outer(p.U, jnp.tensordot(delta, p.A, axes=1)) for name, p in memory.items()
        }

    def variance(self, memory: dict[str, Pairs], lin: Lin) -> Float[Array, ""]:
        """`S²/(k − 1) − Σ_mixed d²`, summed over the weights."""
        assert isinstance(lin, Kronecker)
        total = jnp.zeros(())
        for name, g in lin.groups.items():
            U, (_, Gb) = memory[name].U, _pushed(memory[name].A, lin.H, g.M)
            signs = jnp.ones(self.pairs, U.dtype)
            total = total + _balanced(_with(U, g.feats), Gb, signs, self.pairs).variance
        return total


def _with(U: Float[Array, "p m"], feats: Float[Array, " m"]) -> Float[Array, "p+1 m"]:
    return jnp.concatenate([U, feats[None]])


def _merged(pairs: Pairs, group: Group, H: StateJac, signs: Float[Array, " p"]) -> Pairs:
    """One step of one weight. Only the two passes over A go lane by lane."""
    HA, Gb = looped(_pushed)(pairs.A, H, group.M)
    U = _with(pairs.U, group.feats)
    left, right, _ = _balanced(U, Gb, signs, pairs.U.shape[0])
    A, _ = looped(_mixed)(HA, group.M, right)
    return Pairs(left.T @ U, A)


def _pushed(
    A: Float[Array, "N p r n"], H: StateJac, M: Sensitivity
) -> tuple[Float[Array, "N p r n"], Float[Array, "p+1 p+1"]]:
    """`H A_i`, and the Gram matrix of these and D."""
    HA = H.mm(A)
    inner = jnp.tensordot(HA, HA, axes=((0, 2, 3), (0, 2, 3)))
    cross = jnp.stack([M.inner(HA[:, i]) for i in range(A.shape[1])])
    Gb = jnp.block([[inner, cross[:, None]], [cross[None], M.norm2()[None, None]]])
    return HA, Gb


def _mixed(
    HA: Float[Array, "N p r n"], M: Sensitivity, right: Float[Array, "p+1 p"]
) -> tuple[Float[Array, "N p r n"], tuple[()]]:
    """`A_i ← Σ_j right_ji H A_j + right_ki D`."""
    p = HA.shape[1]
    A = jnp.einsum("Njrn,ji->Nirn", HA, right[:p])
    return jnp.stack([M.added(A[:, i], right[p, i]) for i in range(p)], axis=1), ()


def _balanced(
    U: Float[Array, "K m"], Gb: Float[Array, "K K"], signs: Float[Array, " K-1"], r: int
) -> Mix:
    """`mix`, for factors of any size: each pair is balanced first, and dead ones are dropped."""
    Gu = U @ U.T
    nu, nb = jnp.diagonal(Gu), jnp.diagonal(Gb)
    alive = (nu > 0) & (nb > 0)
    # u s ⊗ b/s is the same product
    s = jnp.where(alive, (jnp.where(alive, nb, 1) / jnp.where(alive, nu, 1)) ** 0.25, 0)
    back = jnp.where(alive, 1 / jnp.where(alive, s, 1), 0)
    left, right, variance = mix(Gu * jnp.outer(s, s), Gb * jnp.outer(back, back), signs, r)
    variance = jnp.where(alive.sum() <= r, 0, variance)  # then all are kept
    return Mix(left * s[:, None], right * back[:, None], variance)


# -- a whole segment at once -----------------------------------------------------------------------


@dataclass(frozen=True)
class OKSegment(OK):
    """r pairs that are pushed over k steps at once: the trace of KF-TBPTT-k.

    The segment is walked backwards with P ← I: step s contributes `ĥ_s ⊗ (P D_s)`, then P ← P H_s;
    at the end the old pairs contribute `u_i ⊗ (P A_i)`. These k + r terms are merged into r. Costs
    one product of N × N by N × n a step, and `P A_i` once a segment: about half of KF-RTRL for
    r = 1.

    How alike two right factors are is measured on a sketch of them, 16 rows that are walked along:
    it only serves to choose the mix, which is unbiased whatever is chosen.
    """

    def segment_draws(self, size: int, params: Any, k: int) -> Draws:
        """A sign for each of k + r terms but one."""
        return {name: Draw((k + self.pairs - 1,)) for name in params}

    def push(self, memory: dict[str, Pairs], steps: Steps, noise: Any) -> dict[str, Pairs]:
        """Over the k steps of a segment."""
        state = steps.at(0).state
        N, dtype = state.size, state.dtype
        P = jnp.concatenate([jnp.eye(N, dtype=dtype), sketch(N, dtype)])

        def back(P: Array, t: Any) -> tuple[Array, Any]:
            lin = steps.at(t)
            assert isinstance(lin, Kronecker)
            # a reset before this step cuts off all that is older
            older = jnp.where(steps.resets[t], jnp.zeros_like(P), lin.H.rmm(P))
            return older, (P, lin.groups)

        P, (Ps, groups) = jax.lax.scan(back, P, jnp.arange(steps.length - 1, -1, -1))
        return {
            name: _gathered(memory[name], P, Ps, groups[name], noise[name]) for name in memory
        }


def sketch(N: int, dtype: Any) -> Float[Array, "q N"]:
    """Some rows of random signs, always the same ones; all N unit vectors where N is small."""
    if N <= SKETCH:
        return jnp.eye(N, dtype=dtype)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (SKETCH, N))
    return jnp.asarray(signs / np.sqrt(SKETCH), dtype)


def _gathered(
    pairs: Pairs,
    P: Float[Array, "N+q N"],
    Ps: Float[Array, "k N+q N"],
    groups: Group,
    signs: Float[Array, " K-1"],
) -> Pairs:
    """The terms of a segment, and the old pairs behind them, merged into r pairs."""
    N, p = pairs.A.shape[:2]
    # after a reset nothing is left of the old pairs, whatever they hold
    pairs = pairs._replace(A=jnp.where(jnp.any(P != 0), pairs.A, 0))
    U = jnp.concatenate([groups.feats, pairs.U])  # (k + p, m)
    new = jax.vmap(lambda P, M: M.lmul(P))(Ps[:, N:], groups.M)  # (k, q, r, n)
    old = jnp.tensordot(P[N:], pairs.A, axes=1).swapaxes(0, 1)
    Q = jnp.concatenate([new, old]).reshape(U.shape[0], -1)
    left, right, _ = _balanced(U, Q @ Q.T, signs, p)
    k = groups.feats.shape[0]
    B = groups.M.summed(Ps[:, :N], right[:k])  # (N, p, r, n)
    A = jnp.einsum("Njrn,ji->Nirn", pairs.A, right[k:])
    return Pairs(left.T @ U, B + jnp.tensordot(P[:N], A, axes=1))

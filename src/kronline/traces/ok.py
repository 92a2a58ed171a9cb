"""OK (optimal Kronecker sum): G as r Kronecker products a weight, with the least variance."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.grads import Grads, Outer
from kronline.jacobians import Group, Kronecker, Lin, Sensitivity, StateJac
from kronline.lanes import looped
from kronline.noise import Draw, Draws
from kronline.traces.base import Trace
from kronline.traces.kf import needs_linear_maps
from kronline.traces.merge import balanced
from kronline.traces.walk import Pairs


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
        return {name: Outer(p.U, jnp.tensordot(delta, p.A, axes=1)) for name, p in memory.items()}

    def variance(self, memory: dict[str, Pairs], lin: Lin) -> Float[Array, ""]:
        """`S²/(k − 1) − Σ_mixed d²`, summed over the weights."""
        assert isinstance(lin, Kronecker)
        total = jnp.zeros(())
        for name, g in lin.groups.items():
            U, (_, Gb) = _with(memory[name].U, g.feats), _pushed(memory[name].A, lin.H, g.M)
            signs = jnp.ones(self.pairs, U.dtype)
            total = total + balanced(U @ U.T, Gb, signs, self.pairs).variance
        return total


def _with(U: Float[Array, "p m"], feats: Float[Array, " m"]) -> Float[Array, "p+1 m"]:
    return jnp.concatenate([U, feats[None]])


def _merged(pairs: Pairs, group: Group, H: StateJac, signs: Float[Array, " p"]) -> Pairs:
    """One step of one weight. Only the two passes over A go lane by lane."""
    HA, Gb = looped(_pushed)(pairs.A, H, group.M)
    U = _with(pairs.U, group.feats)
    left, right, _ = balanced(U @ U.T, Gb, signs, pairs.U.shape[0])
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

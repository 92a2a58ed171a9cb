"""OK (optimal Kronecker sum): G as r Kronecker products a weight, with the least variance."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline import grads as gr
from kronline.cells.base import Cell
from kronline.errors import whole_numbers
from kronline.grads import Grads, Outer
from kronline.jacobians import Kronecker, Lin, Sensitivity, StateJac
from kronline.noise import Draw, Draws
from kronline.traces import walk
from kronline.traces.base import Steps, Trace
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
        one = Steps(1, lambda _: lin, jnp.zeros(1, bool))
        noise = {name: signs[None] for name, signs in noise.items()}
        return self.push_pull(memory, one, noise, jnp.zeros_like(lin.state), before=False)[0]

    def push_pull(
        self,
        memory: dict[str, Pairs],
        steps: Steps,
        noise: Any,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[dict[str, Pairs], Grads]:
        """One step: a walk over a segment of one."""
        lins = walk.linearised(steps)
        if before:  # (δH)·A of the old A, or nothing after a reset
            delta = jnp.where(steps.resets[0], 0, steps.at(0).vjp(delta)[0])
        new, grads = {}, {}
        for name, old in memory.items():
            signs, group = noise[name][0], lins.groups[name]
            new[name], _, dA = walk.merge(
                old, group, lins.H, steps.resets, signs, delta, rows=delta.size, start=before
            )
            grads[name] = Outer((old if before else new[name]).U, dA)
        return new, gr.unless_zero(delta, grads) if before else grads

    def pull(self, memory: dict[str, Pairs], delta: Float[Array, " N"]) -> Grads:
        """`Σ_i u_i ⊗ (δ A_i)`."""
        return {name: Outer(p.U, jnp.tensordot(delta, p.A, axes=1)) for name, p in memory.items()}

    def variance(self, memory: dict[str, Pairs], lin: Lin) -> Float[Array, ""]:
        """`S²/(k − 1) − Σ_mixed d²`, summed over the weights."""
        assert isinstance(lin, Kronecker)
        total = jnp.zeros(())
        for name, g in lin.groups.items():
            U = jnp.concatenate([memory[name].U, g.feats[None]])
            Gb = _inner(memory[name].A, lin.H, g.M)
            signs = jnp.ones(self.pairs, U.dtype)
            total = total + balanced(U @ U.T, Gb, signs, self.pairs).variance
        return total


def _inner(A: Float[Array, "N p r n"], H: StateJac, M: Sensitivity) -> Float[Array, "p+1 p+1"]:
    """Inner products of all `H A_i` and D."""
    HA = H.mm(A)
    inner = jnp.tensordot(HA, HA, axes=((0, 2, 3), (0, 2, 3)))
    cross = jnp.stack([M.inner(HA[:, i]) for i in range(A.shape[1])])
    return jnp.block([[inner, cross[:, None]], [cross[None], M.norm2()[None, None]]])

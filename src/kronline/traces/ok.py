"""OK (optimal Kronecker sum): G as r Kronecker products per weight, with the least variance."""

from dataclasses import dataclass
from typing import Literal, final

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.errors import whole_numbers
from kronline.linearised import Grads, Kronecker, Lin, Outer, Sensitivity, StateJac, Structure
from kronline.linearised import gradients as gr
from kronline.noise import Draw, Draws
from kronline.show import called
from kronline.traces import segment_merge
from kronline.traces.base import Stepwise, one_step
from kronline.traces.kf import needs_linear_maps
from kronline.traces.mixing import balanced
from kronline.traces.segment_merge import Pairs


@final
@dataclass(frozen=True)
class OK(Stepwise[dict[str, Pairs]]):
    """`G' = Σ_i u_i ⊗ A_i`, r pairs per weight, `E[G'] = G`. For linear cells.

    A step turns the r + 1 terms `Σ u_i ⊗ H A_i + ĥ ⊗ D` into r, with the least variance that an
    unbiased choice can have (`mixing.py`): `2‖u‖‖ĥ‖‖HA‖‖D‖ sin α sin β` for r = 1, never above
    KF-RTRL's. O(r n²) memory, O(r n³) time.

    Args:
        pairs: r.

    Example:
        >>> import kronline as kl
        >>> kl.OK(4).init(kl.RHN(3, 2).structure())["W"].U.shape  # (r, m)
        (4, 6)

    Reference: Benzing, Gauy, Mujika, Martinsson & Steger, Optimal Kronecker-Sum Approximation of
    Real Time Recurrent Learning, ICML 2019.
    """

    pairs: int = 1

    def __post_init__(self) -> None:
        whole_numbers(self, "pairs")

    def spec(self, window: int | Literal["all"] | None) -> str:
        """The optimal Kronecker sum."""
        return called("ok", self.pairs, window=window)

    def check(self, structure: Structure) -> None:
        """Weights must be visible as linear maps."""
        needs_linear_maps(structure)

    def init(self, structure: Structure) -> dict[str, Pairs]:
        """G = 0."""
        size, params = structure.size, structure.params
        return {
            name: Pairs(
                jnp.zeros((self.pairs, W.shape[0]), W.dtype),
                jnp.zeros((size, self.pairs, *W.shape[1:]), W.dtype),
            )
            for name, W in params.items()
        }

    def step_draws(self, structure: Structure) -> Draws:
        """r signs per weight matrix, for r + 1 terms."""
        return {name: Draw((self.pairs,)) for name in structure.params}

    def step(self, memory: dict[str, Pairs], lin: Lin, noise: dict[str, Array]) -> dict[str, Pairs]:
        """`Σ u_i ⊗ H A_i + ĥ ⊗ D`, merged into r pairs, for each weight."""
        nowhere, never = jnp.zeros_like(lin.state), jnp.zeros((), bool)
        return self.step_pull(memory, lin, never, noise, nowhere, past=False)[1]

    def step_pull(
        self,
        memory: dict[str, Pairs],
        lin: Lin,
        reset: Bool[Array, ""],
        noise: dict[str, Array],
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, dict[str, Pairs]]:
        """One step: the merge of a segment of one."""
        steps = one_step(lin, reset)
        lins = segment_merge.linearised(steps)
        if past:  # (δH)·A of the old A, or nothing after a reset
            delta = jnp.where(reset, 0, lin.vjp(delta)[0])
        new, grads = {}, {}
        for name, old in memory.items():
            new[name], _, dA = segment_merge.merge_segment(
                old,
                lins.groups[name],
                lins.H,
                steps.resets,
                noise[name],
                delta,
                rows=delta.size,
                start=past,
            )
            grads[name] = Outer((old if past else new[name]).U, dA)
        return (gr.unless_zero(delta, grads) if past else grads), new

    def pull(self, memory: dict[str, Pairs], delta: Float[Array, " N"]) -> Grads:
        """`Σ_i u_i ⊗ (δ A_i)`."""
        return {name: Outer(p.U, jnp.tensordot(delta, p.A, axes=1)) for name, p in memory.items()}

    @property
    def closed_form(self) -> bool:
        """It is."""
        return True

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

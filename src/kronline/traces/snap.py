"""SnAp-n (Menick et al., 2020): of G, the entries that a weight reaches within n steps."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kronline.errors import whole_numbers
from kronline.lanes import lane_by_lane
from kronline.linearised import Grads, Kronecker, Lin, StateJac, Structure, WeightJac
from kronline.noise import Noise
from kronline.show import called
from kronline.traces import own_unit
from kronline.traces.base import Stepwise
from kronline.traces.reach import reached


class Slots(NamedTuple):
    """SnAp-1 of a unit-wise cell: the slots of a weight's own unit."""

    e: Float[Array, "q m r n"]
    keep: Bool[Array, "q r"]  # the slots that a gate's weights reach


class Kept(NamedTuple):
    """Some entries of G: for column j of a weight matrix, p entries of the state."""

    G: Float[Array, "n p r m"]
    at: Int[Array, "n p"]  # which entries of the state
    keep: Bool[Array, "n p r"]  # which of them a gate's weights reach


Some = Slots | Kept | Float[Array, "N m r n"]  # the last: all of G


@final
@dataclass(frozen=True)
class SnAp(Stepwise[dict[str, Some]]):
    """`G ← mask ∘ (H G + F)`: biased, without states that a weight does not reach within n steps.

    The mask is structural: an entry of G stays if the weight can move that entry of the state
    within n steps of the cell, for any values. The others are not stored.

    - Unit-wise cells, n = 1: the slots of the weight's own unit, one number per weight and slot,
      `e_j ← H_jj e_j + D_j ĥ`: O(q |θ|) memory and time; G is never formed. An LSTM keeps dc/dw and
      dh/dw for the weights of f, i and g; for those of o dh/dw alone (they move c one step later).
    - n = 2 where all recurrent weights exist: everything is reached, and SnAp-2 is RTRL, in its
      gradient and in its cost. With masked recurrent weights of which each unit has d, a weight
      keeps d entries: O(d |W|) memory and O(d² |W|) time, |W| as if no weight were missing.
    - Cells whose weights reach other units within a step: a stack's lower layers keep the layers
      above, all but the last layer of a deep RHN keep everything (RTRL, for these weights).

    Args:
        order: n.

    Example:
        >>> import kronline as kl
        >>> kl.SnAp(1).init(kl.Tanh(3, 2).structure())["W"].e.shape  # one slot
        (1, 6, 1, 3)

    Reference: Menick et al., A Practical Sparse Approximation for Real Time Recurrent Learning,
    2020.
    """

    order: int = 1

    def __post_init__(self) -> None:
        whole_numbers(self, "order")

    def spec(self, window: int | Literal["all"] | None) -> str:
        """SnAp-n."""
        return called("snap", self.order, window=window)

    def check(self, structure: Structure) -> None:
        """Weights must be visible as linear maps."""
        structure.needs_linear_maps(
            "snap keeps what a weight reaches, and needs",
            "uoro, rtrl or tbptt, which take any cell",
        )

    def ignores(self, structure: Structure) -> str:
        """What needs more than n steps to get there, if anything does."""
        now, later = (reached(structure, order) for order in (self.order, self.order + 1))
        if all(np.array_equal(now[name], later[name]) for name in now):
            return ""
        steps = "one step" if self.order == 1 else f"{self.order} steps"
        return f"states that a weight does not reach within {steps}"

    def init(self, structure: Structure) -> dict[str, Some]:
        """G = 0, for the entries that are kept."""
        kept, params = reached(structure, self.order), structure.params
        if (q := structure.slots) is not None and self.order == 1:

            def slots(name: str, W: Any) -> Slots:
                n = W.shape[-1]
                keep = np.einsum("ajkj->ak", kept[name].reshape(q, n, -1, n))  # for booleans: any
                return Slots(jnp.zeros((q, *W.shape), W.dtype), jnp.asarray(keep))

            return {name: slots(name, W) for name, W in params.items()}
        return {name: _start(kept[name], W) for name, W in params.items()}

    def step(self, memory: dict[str, Some], lin: Lin, noise: Noise) -> dict[str, Some]:
        """`G ← mask ∘ (H G + F)`, for the entries that are kept."""
        assert isinstance(lin, Kronecker)
        out: dict[str, Some] = {}
        for name, group in lin.groups.items():
            match memory[name]:
                case Slots(e, _) as slots:
                    out[name] = slots._replace(e=own_unit.step(e, _own_unit(slots, lin, name)))
                case Kept(G, at, keep):
                    G, _ = lane_by_lane(_kept_step)(G, at, keep, group, lin.H)
                    out[name] = Kept(G, at, keep)
                case G:
                    out[name], _ = lane_by_lane(_full_step)(G, group, lin.H)
        return out

    def step_pull(
        self,
        memory: dict[str, Some],
        lin: Lin,
        reset: Bool[Array, ""],
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, dict[str, Some]]:
        """One step; for SnAp-1 of a unit-wise cell, `δ·e` in the same pass as e."""
        if not all(isinstance(m, Slots) for m in memory.values()):
            return super().step_pull(memory, lin, reset, noise, delta, past=past)
        delta = lin.vjp(delta)[0] if past else delta
        new: dict[str, Some] = {}
        read = {}
        for name, m in memory.items():
            assert isinstance(m, Slots)
            move = _own_unit(m, lin, name)
            e, read[name] = own_unit.step_pull(m.e, move, reset, delta, before=past)
            new[name] = m._replace(e=e)
        return read, new

    def pull(self, memory: dict[str, Some], delta: Float[Array, " N"]) -> Grads:
        """`δ·G`."""

        def read(m: Some) -> Grads:
            match m:
                case Slots(e, _):
                    return own_unit.pull(e, delta)
                case Kept(G, at, _):
                    return jnp.einsum("jp,jpkm->mkj", delta[at], G)
            return jnp.tensordot(delta, m, axes=1)

        return {name: read(m) for name, m in memory.items()}

    def reset(self, memory: dict[str, Some], flag: Bool[Array, ""]) -> dict[str, Some]:
        """G = 0 where flag is set; what is kept stays."""

        def zero(m: Some) -> Some:
            match m:
                case Slots(e, _):
                    return m._replace(e=jnp.where(flag, 0, e))
                case Kept(G, _, _):
                    return m._replace(G=jnp.where(flag, 0, G))
            return jnp.where(flag, 0, m)

        return {name: zero(m) for name, m in memory.items()}


def _start(kept: np.ndarray, W: Array) -> Some:
    """G = 0 for one weight matrix, of which some entries are kept."""
    if kept.all():
        return jnp.zeros((len(kept), *W.shape), W.dtype)
    m, r, n = W.shape
    columns = kept.any(1).T  # (n, N): what any gate's z of a column moves
    p = max(1, columns.sum(1).max())
    at = np.argsort(~columns, axis=1, kind="stable")[:, :p]  # those first; the rest is masked
    keep = np.take_along_axis(kept.transpose(2, 0, 1), at[:, :, None], axis=1)
    return Kept(jnp.zeros((n, p, r, m), W.dtype), jnp.asarray(at, jnp.int32), jnp.asarray(keep))


def _own_unit(slots: Slots, lin: Lin, name: str) -> own_unit.Move:
    """`H_jj`: how a unit's slots move its own, by E and by the unit's weights from itself."""
    keep = slots.keep if len(slots.e) > 1 else None
    return own_unit.move(lin, name, own_unit.block(lin, direct=False), keep)


def _kept_step(
    G: Float[Array, "n p r m"],
    at: Int[Array, "n p"],
    keep: Bool[Array, "n p r"],
    group: WeightJac,
    H: StateJac,
) -> tuple[Float[Array, "n p r m"], tuple[()]]:
    """`G ← mask ∘ (H G + F)`, for the kept entries of each column."""
    n, p, r, m = G.shape
    block = H.entries(at[:, :, None], at[:, None, :])  # (n, p, p)
    HG = jnp.matmul(block, G.reshape(n, p, r * m)).reshape(G.shape)
    M = group.M.dense()[at, :, jnp.arange(n)[:, None]]  # (n, p, r)
    new = HG + M[..., None] * group.feats[None, None, None]
    return jnp.where(keep[..., None], new, 0), ()


def _full_step(
    G: Float[Array, "N m r n"], group: WeightJac, H: StateJac
) -> tuple[Float[Array, "N m r n"], tuple[()]]:
    """`G ← H G + F`."""
    return H.mm(G) + group.times(group.M.dense()), ()

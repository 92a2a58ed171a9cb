"""SnAp-n (Menick et al., 2020): of G, the entries that a weight reaches within n steps."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kronline.cells.base import Cell, LinearCell, UnitCell
from kronline.errors import whole_numbers
from kronline.lanes import looped
from kronline.linearised.grads import Grads
from kronline.linearised.jacobians import Group, Kronecker, Lin, StateJac, UnitH
from kronline.noise import Noise
from kronline.traces import own
from kronline.traces.base import Steps, Trace
from kronline.traces.reached import reached


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


@dataclass(frozen=True)
class SnAp(Trace):
    """`G ← mask ∘ (H G + F)`: biased, without states that a weight does not reach within n steps.

    The mask is structural: an entry of G stays if the weight can move that entry of the state
    within n steps of the cell, whatever the values are just now. The others are not stored.

    - Unit-wise cells, n = 1: the slots of the weight's own unit, one number a weight and slot,
      `e_j ← H_jj e_j + D_j ĥ`: O(q |θ|) memory and time; G is never formed. An LSTM keeps dc/dw and
      dh/dw for the weights of f, i and g; for those of o dh/dw alone (c is moved a step later).
    - n = 2 where all recurrent weights exist: everything is reached, and SnAp-2 is RTRL, in what it
      gives and in what it costs. With masked recurrent weights of which each unit has d, a weight
      keeps d entries: O(d |W|) memory and O(d² |W|) time, |W| as if no weight were missing.
    - Cells whose weights reach other units within a step: a stack's lower layers keep the layers
      above, all but the last layer of a deep RHN keep everything (RTRL, for these weights).

    Reference: Menick et al., A Practical Sparse Approximation for Real Time Recurrent Learning,
    2020.

    Args:
        order: n.
    """

    order: int = 1

    def __post_init__(self) -> None:
        whole_numbers(self, "order")

    def check(self, cell: Cell) -> None:
        """Weights must be visible as linear maps."""
        if not isinstance(cell, LinearCell):
            raise TypeError(
                "snap keeps what a weight reaches, and needs a cell whose weights enter as "
                f"z = feats @ W (a UnitCell or another LinearCell), got {type(cell).__name__}, "
                "whose step is opaque; use uoro, rtrl or tbptt, which take any cell"
            )

    def ignores(self, cell: Cell) -> str:
        """What needs more than n steps to get there, if anything does."""
        assert isinstance(cell, LinearCell)
        now, later = (reached(cell, order) for order in (self.order, self.order + 1))
        if all(np.array_equal(now[name], later[name]) for name in now):
            return ""
        steps = "one step" if self.order == 1 else f"{self.order} steps"
        return f"states that a weight does not reach within {steps}"

    def init(self, size: int, params: Any) -> dict[str, Some]:
        """What is kept depends on more than sizes."""
        raise TypeError("SnAp starts from a cell: use begin(cell, params)")

    def begin(self, cell: Cell, params: Any) -> dict[str, Some]:
        """G = 0, for the entries that are kept."""
        assert isinstance(cell, LinearCell)
        kept = reached(cell, self.order)
        if isinstance(cell, UnitCell) and self.order == 1:
            W, q, n = params["W"], len(cell.slots), cell.hidden
            keep = np.einsum("ajkj->ak", kept["W"].reshape(q, n, -1, n))  # for booleans: any
            return {"W": Slots(jnp.zeros((q, *W.shape), W.dtype), jnp.asarray(keep))}
        return {name: _start(kept[name], W) for name, W in params.items()}

    def step(self, memory: dict[str, Some], lin: Lin, noise: Noise) -> dict[str, Some]:
        """`G ← mask ∘ (H G + F)`, for the entries that are kept."""
        assert isinstance(lin, Kronecker)
        out: dict[str, Some] = {}
        for name, group in lin.groups.items():
            match memory[name]:
                case Slots(e, _) as slots:
                    out[name] = slots._replace(e=own.step(e, _own_unit(slots, lin)))
                case Kept(G, at, keep):
                    G, _ = looped(_kept_step)(G, at, keep, group, lin.H)
                    out[name] = Kept(G, at, keep)
                case G:
                    out[name], _ = looped(_full_step)(G, group, lin.H)
        return out

    def push_pull(
        self,
        memory: dict[str, Some],
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[dict[str, Some], Grads]:
        """One step; where one pass is enough, δ is multiplied with e where e is made."""
        slots, usual = memory.get("W"), (SnAp.step, SnAp.pull)
        if not isinstance(slots, Slots) or (type(self).step, type(self).pull) != usual:
            return super().push_pull(memory, steps, noise, delta, before=before)
        lin = steps.at(0)
        delta = lin.vjp(delta)[0] if before else delta
        move = _own_unit(slots, lin)
        e, read = own.step_pull(slots.e, move, steps.resets[0], delta, before=before)
        return {"W": slots._replace(e=e)}, {"W": read}

    def pull(self, memory: dict[str, Some], delta: Float[Array, " N"]) -> Grads:
        """`δ·G`."""

        def read(m: Some) -> Grads:
            match m:
                case Slots(e, _):
                    return own.pull(e, delta)
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


def _own_unit(slots: Slots, lin: Lin) -> own.Move:
    """`H_jj`: how a unit's slots move its own, by E and by the unit's weights from itself."""
    feats, H = own.unit_wise(lin)
    return own.Move(feats, H.D, H.own(), slots.keep if len(H.D) > 1 else None)


def _kept_step(
    G: Float[Array, "n p r m"],
    at: Int[Array, "n p"],
    keep: Bool[Array, "n p r"],
    group: Group,
    H: StateJac,
) -> tuple[Float[Array, "n p r m"], tuple[()]]:
    """`G ← mask ∘ (H G + F)`, for the kept entries of each column."""
    n, p, r, m = G.shape
    block = entries(H, at[:, :, None], at[:, None, :])  # (n, p, p)
    HG = jnp.matmul(block, G.reshape(n, p, r * m)).reshape(G.shape)
    M = group.M.dense()[at, :, jnp.arange(n)[:, None]]  # (n, p, r)
    new = HG + M[..., None] * group.feats[None, None, None]
    return jnp.where(keep[..., None], new, 0), ()


def _full_step(
    G: Float[Array, "N m r n"], group: Group, H: StateJac
) -> tuple[Float[Array, "N m r n"], tuple[()]]:
    """`G ← H G + F`."""
    return H.mm(G) + group.times(group.M.dense()), ()


def entries(H: StateJac, to: Int[Array, "n p 1"], of: Int[Array, "n 1 p"]) -> Float[Array, "n p p"]:
    """Some entries `H[to, of]`, without writing all of a unit-wise H out."""
    if not isinstance(H, UnitH):
        return H.dense()[to, of]
    n = H.D.shape[-1]
    (a, i), (b, j) = divmod(to, n), divmod(of, n)
    place = np.array([H.reads.index(s) if s in H.reads else -1 for s in range(H.D.shape[0])])
    read = jnp.asarray(place)[b]  # of the slot among those that are read
    direct = jnp.where(i == j, H.E[a, b, i], 0)
    return jnp.where(read < 0, direct, H._read()[read, j, a, i])

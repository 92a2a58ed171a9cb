"""Truncated back-propagation over a rolling window: every few steps, through more steps than that.

`tbptt(k)` cuts time into blocks, so that the first loss of a block reaches back over one step only.
Here the last steps before the block are kept, and reverse mode passes through them again. With
random cuts, and weights that make these unbiased, this is ARTBP.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kronline.cells.base import Cell, LinearCell
from kronline.errors import whole_numbers
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment
from kronline.estimators.own_loss import OwnLoss
from kronline.lanes import largest
from kronline.linearised import Vector
from kronline.linearised import gradients as gr
from kronline.linearised.gradients import Grads, Outer
from kronline.noise import Draw, Draws, Noise
from kronline.show import called
from kronline.traces.base import since_reset

SYMBOLS, VECTORS = 1, 2  # kinds of inputs; 0: no input yet


class PastSteps(NamedTuple):
    """Some steps of one lane, the oldest first."""

    s: Float[Array, "k N"]  # the state before the step, after a reset
    x: Any
    link: Float[Array, " k"]  # δ is multiplied by it between this step and the one before; 0: cut


class Past(NamedTuple):
    """One lane's last h − 1 steps. They are linearised again whenever they are needed."""

    s: Float[Array, "h-1 N"]
    symbol: Int[Array, " h-1"]  # inputs are in one of these two, by their kind
    vector: Float[Array, "h-1 inputs"]
    link: Float[Array, " h-1"]
    kind: Int[Array, ""]  # of the inputs; where it changes, the past is cut


@dataclass(frozen=True)
class Rolling(Estimator):
    """The gradient of `every` losses through their own steps and the h − 1 steps before these.

    `Σ_t δ_t F_t` with `δ_{t−1} = dL_{t−1}/ds + link_t δ_t H_t`. Ignores all that is older. The
    earlier steps are linearised at the states of that time, with the current parameters. For any
    cell.

    Costs `(h − 1 + every)/every` times as much as TBPTT: h times for `every=1`. Older steps to
    which no lane is connected any more (after resets or cuts) are skipped; only the product that
    sums the gradient has its full length. Memory: h − 1 states and inputs per lane.

    Args:
        horizon: h, how many steps the first of the losses is differentiated through.
        every: steps between gradients.
        cut: ARTBP's c. A δ is dropped with this probability at each step back, and multiplied by
            1/(1−c) otherwise: noise, for less work. The mean is the gradient without cuts. There is
            one draw per step and lane, which all later losses share.

    Example:
        >>> import kronline as kl
        >>> kl.Rolling(10, every=2) == kl.rolling_tbptt(10, every=2)
        True

    References: Williams & Peng, An Efficient Gradient-Based Algorithm for On-Line Training of
    Recurrent Network Trajectories, 1990; Tallec & Ollivier, Unbiasing Truncated Backpropagation
    Through Time, 2017.
    """

    horizon: int
    every: int = 1
    cut: float = 0.0

    def __post_init__(self) -> None:
        whole_numbers(self, "horizon", "every")
        if not 0 <= self.cut < 1:
            raise ValueError(f"Rolling needs 0 <= cut < 1, a probability, got {self.cut!r}")
        object.__setattr__(self, "cut", float(self.cut))

    @property
    def name(self) -> str:
        """`rolling_tbptt(h)`, or `artbp(c, h, every)`."""
        if self.cut:
            return called("artbp", self.cut, self.horizon, every=self.every)
        return called("rolling_tbptt", self.horizon, every=self.every if self.every > 1 else None)

    @property
    def span(self) -> int:
        """Steps between gradients."""
        return self.every

    def ignores(self, cell: Cell) -> str:
        """What is older than the window."""
        return f"all that lies more than {self.horizon - 1} steps before the losses"

    def init(self, model: Model, params: Params) -> Past:
        """No step yet."""
        cell, old = model.cell, self.horizon - 1
        dtype = jax.tree.leaves(params.cell)[0].dtype
        return Past(
            s=jnp.zeros((old, cell.size), dtype),
            symbol=jnp.zeros(old, jnp.int32),
            vector=jnp.zeros((old, cell.inputs), dtype),
            link=jnp.zeros(old, dtype),
            kind=jnp.zeros((), jnp.int32),
        )

    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """For each step, whether δ passes on to the one before: 1, or 0 for a cut."""
        return Draw((k,), (0.0, 1.0), (self.cut, 1 - self.cut)) if self.cut else ()

    def segment(
        self, model: Model, params: Params, s: Vector, memory: Past, seg: Segment, noise: Noise
    ) -> tuple[Vector, Past, Params, Seen]:
        """Forward over the new steps, and back over these and the remembered ones."""
        cell, readout = model
        assert readout is not None

        def forward(s: Vector, now: Any) -> tuple[Vector, tuple[Vector, Vector]]:
            x, reset = now
            s = jnp.where(reset, jnp.zeros_like(s), s)
            new = cell.step(params.cell, s, x)
            return new, (s, new)

        def read(new: Vector, y: Any, weight: Array) -> tuple[Seen, Vector, Grads]:
            h, back = jax.vjp(cell.output, new)
            loss, prediction, dh, g = readout.differentiate(params.readout, h, y, weight)
            return Seen(loss, prediction), back(dh)[0], g

        end, (before, after) = jax.lax.scan(forward, s, (seg.x, seg.reset))
        seen, deltas, g_readout = jax.vmap(read)(after, seg.y, seg.weight)

        symbols = jnp.issubdtype(seg.x.dtype, jnp.integer)
        kind = jnp.full((), SYMBOLS if symbols else VECTORS, jnp.int32)
        inputs = "symbol" if symbols else "vector"
        link = noise / (1 - self.cut) if self.cut else jnp.ones(seg.reset.shape, s.dtype)
        link = jnp.where(seg.reset, jnp.zeros_like(link), link)
        link = link.at[0].multiply((memory.kind == kind).astype(link.dtype))

        old = PastSteps(memory.s, getattr(memory, inputs), memory.link)
        new = PastSteps(before, seg.x, link)
        known = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, new)
        g_cell = self.back(model, params, known, deltas)
        past = self._kept(memory, known, seg.reset, kind, inputs)
        return end, past, Params(g_cell, gr.side_by_side(g_readout), ()), seen

    def _kept(
        self, memory: Past, known: PastSteps, reset: Bool[Array, " k"], kind: Array, inputs: str
    ) -> Past:
        """The last h − 1 steps; nothing of what lies before a reset."""
        old = known.link.size - reset.size
        kept = since_reset(jnp.concatenate([jnp.zeros(old, bool), reset]))

        def last(a: Array) -> Array:
            here = kept.reshape(-1, *(1,) * (a.ndim - 1))
            return jnp.where(here, a, jnp.zeros_like(a))[reset.size :]

        # inputs of the other kind belong to steps that are cut off already
        other = "vector" if inputs == "symbol" else "symbol"
        stale = jnp.where(jnp.any(reset), 0, getattr(memory, other))
        s, x, link = jax.tree.map(last, known)
        return memory._replace(s=s, link=link, kind=kind, **{inputs: x, other: stale})

    def with_own_loss(self, cell: Cell) -> OwnLoss:
        """Every δ through its last h steps."""
        if self.every > 1 or self.cut:
            return super().with_own_loss(cell)
        return RollingOwnLoss(self)

    def back(
        self, model: Model, params: Params, known: PastSteps, deltas: Float[Array, "k N"]
    ) -> Grads:
        """`Σ_t δ_t F_t` with `δ_{t−1} = dL_{t−1}/ds + link_t δ_t H_t`."""
        cell, old = model.cell, self.horizon - 1
        visible = isinstance(cell, LinearCell)

        def vjp(delta: Vector, s: Vector, x: Any) -> tuple[Vector, Grads]:
            """`(δ H, δ F)` at one step."""
            if not isinstance(cell, LinearCell):
                grads, older = jax.vjp(lambda p, s: cell.step(p, s, x), params.cell, s)[1](delta)
                return older, grads
            zero = {n: jnp.zeros(w.shape[1:], s.dtype) for n, w in cell.weights().items()}
            _, back, feats = jax.vjp(
                lambda dz, s: cell.traced(params.cell, dz, s, x), zero, s, has_aux=True
            )
            dz, older = back(delta)
            return older, {name: Outer(feats[name], dz[name]) for name in dz}

        def skipped(delta: Vector, s: Vector, x: Any) -> tuple[Vector, Grads]:
            shapes = jax.eval_shape(vjp, delta, s, x)
            return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

        def step(carry: Any, now: Any) -> tuple[Any, Any]:
            delta, total = carry
            (s, x, link), loss, wanted = now
            delta = delta + loss
            older, grads = jax.lax.cond(wanted, vjp, skipped, delta, s, x)
            # steps beyond a cut may not be finite: their gradient is set to zero
            grads = gr.unless_zero(delta, grads)
            delta = jnp.where((link != 0) & jnp.any(delta != 0), link * older, 0)
            if visible:  # factors, for one product at the end
                return (delta, total), grads
            return (delta, jax.tree.map(jnp.add, total, grads)), ()

        # older steps to which some lane is connected, by links that are not zero
        connected = jnp.cumprod((known.link[1 : old + 1] != 0)[::-1].astype(jnp.int32))
        wanted = jnp.arange(known.link.size) >= old - largest(jnp.sum(connected))
        losses = jnp.concatenate([jnp.zeros((old, deltas.shape[1]), deltas.dtype), deltas])
        total = () if visible else jax.tree.map(jnp.zeros_like, params.cell)
        start = (jnp.zeros_like(deltas[0]), total)
        (_, total), factors = jax.lax.scan(step, start, (known, losses, wanted), reverse=True)
        return factors if visible else total


class Recent(NamedTuple):
    """One lane's last h steps, for a loss of one's own."""

    steps: PastSteps
    begun: Bool[Array, ""]  # whether there was a step


@dataclass(frozen=True)
class RollingOwnLoss(OwnLoss):
    """The last h steps are kept, and each δ is sent back through them."""

    rolling: Rolling

    @property
    def keeps_input(self) -> bool:
        """Yes, those of the last steps."""
        return True

    def init(self, model: Model, params: Params, x: Any) -> Recent:
        """No step yet."""
        h, dtype = self.rolling.horizon, jax.tree.leaves(params.cell)[0].dtype
        steps = PastSteps(
            s=jnp.zeros((h, model.cell.size), dtype),
            x=jnp.zeros((h, *jnp.shape(x)), jnp.asarray(x).dtype),
            link=jnp.zeros(h, dtype),
        )
        return Recent(steps, jnp.zeros((), bool))

    def draws(self, model: Model, params: Params) -> Draws:
        """No noise."""
        return ()

    def advance(
        self,
        model: Model,
        params: Params,
        s: Vector,
        memory: Recent,
        x: Any,
        reset: Bool[Array, ""],
        noise: Noise,
    ) -> tuple[Vector, Recent]:
        """The step, kept in place of the oldest one."""
        s = jnp.where(reset, jnp.zeros_like(s), s)
        now = PastSteps(s, x, (memory.begun & ~reset).astype(s.dtype))
        kept = jax.tree.map(
            # nothing is kept of what lies before a reset
            lambda old, new: jnp.concatenate([jnp.where(reset, 0, old[1:]), new[None]]),
            memory.steps,
            now,
        )
        return model.cell.step(params.cell, s, x), Recent(kept, jnp.ones((), bool))

    def pull(self, model: Model, params: Params, memory: Recent, delta: Vector) -> Grads:
        """δ through the last h steps."""
        return self.rolling.back(model, params, memory.steps, delta[None])

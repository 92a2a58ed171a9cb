"""An estimator is a trace (what is remembered) and a window (how many recent steps are exact).

The gradient of a segment of k steps has two parts. What flows inside the segment is exact, by
reverse mode. What flows further back is `δ0·G0`, with δ0 = ∂L/∂s0 from the same pass and G0 from
the trace, which is then moved over the k steps. `window=None` is "as published" for UORO and
KF-RTRL: the new step is merged into the trace first, and the gradient is read from that.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import Cell, LinearCell
from kronline.errors import whole_number
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment, no_gradient
from kronline.estimators.own_loss import NewestExact, OwnLoss, ReadAfterMerge
from kronline.estimators.window import exact_segment
from kronline.linearised import Vector
from kronline.linearised import gradients as gr
from kronline.noise import Draws, Noise
from kronline.show import is_own
from kronline.traces import Memory, Read, Steps, Trace, one_step
from kronline.traces.base import Moments


@dataclass(frozen=True)
class Online(Estimator):
    """A trace and a window: `dθ = (exact, inside the window) + δ0·G0`.

    Args:
        trace: what is remembered of the past.
        window: None: the gradient is read from the merged trace (as published). k >= 1: the last k
            steps are exact, updates come every k steps. "all": a whole `run` is one segment.

    Example:
        >>> import kronline as kl
        >>> kl.Online(kl.KF(), window=3).name
        'kf_rtrl(window=3)'
        >>> kl.Online(kl.Nothing(), window=3) == kl.tbptt(3)
        True
    """

    trace: Trace
    window: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.trace, Trace):
            raise TypeError(f"Online needs a trace such as KF(), got {self.trace!r}")
        if self.window is not None and self.window != "all":
            window = whole_number(
                type(self).__name__, "window=None, window='all' or window", self.window
            )
            object.__setattr__(self, "window", window)
        if self.window is None and not self.trace.remembers:
            raise ValueError("with nothing remembered a window is needed; use tbptt(k) or bptt()")

    @property
    def name(self) -> str:
        """As it is written: `kf_rtrl(window=1)`; with a trace of a user's own, by its parts."""
        own = is_own(type(self.trace))
        return self.trace.spec(self.window) if own else Trace.spec(self.trace, self.window)

    @property
    def span(self) -> int | None:
        """The window; one step where there is none."""
        if self.window == "all":
            return None
        return self.window or 1

    def check(self, cell: Cell) -> None:
        """As the trace says."""
        self.trace.check(cell.structure())

    def ignores(self, cell: Cell) -> str:
        """As the trace says; nothing, where the window is the whole run."""
        return "" if self.window == "all" else self.trace.ignores(cell.structure())

    def init(self, model: Model, params: Params) -> Memory:
        """An empty trace."""
        return self.trace.init(model.cell.structure(params.cell))

    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """What the trace draws over k steps."""
        return self.trace.draws(model.cell.structure(params.cell), k)

    def segment(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """Over one segment."""
        if self.window is None or self.window == 1:
            return self._step(model, params, s, memory, seg, noise)
        return self._window(model, params, s, memory, seg, noise)

    def with_own_loss(self, cell: Cell) -> OwnLoss:
        """A trace without a window, or with a window of 1."""
        if self.window not in (None, 1):
            return super().with_own_loss(cell)
        newest = self.window == 1 or self.trace.needs_newest(cell.structure())
        return NewestExact(self.trace) if newest else ReadAfterMerge(self.trace)

    @property
    def closed_form(self) -> bool:
        """As the trace says."""
        return self.trace.closed_form

    def moments(
        self, model: Model, params: Params, s: Vector, memory: Memory, x: Any, reset: Any
    ) -> Moments | None:
        """By the trace's formula."""
        if not self.closed_form:
            return None
        s = jnp.where(reset, jnp.zeros_like(s), s)
        memory = self.trace.reset(memory, reset)
        variance = self.trace.variance(memory, model.cell.linearise(params.cell, s, x))
        held = model.cell.linearise(jax.lax.stop_gradient(params.cell), s, x)
        return Moments(variance, self.trace.mean2(memory, held))

    def noise_share(
        self, model: Model, params: Params, s: Vector, memory: Memory, x: Any, reset: Any
    ) -> Float[Array, ""] | None:
        """As the trace says."""
        s = jnp.where(reset, jnp.zeros_like(s), s)
        lin = model.cell.linearise(params.cell, s, x)
        return self.trace.noise_share(self.trace.reset(memory, reset), lin)

    def _step(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """One step, linearised once for the forward pass, the gradient and the trace."""
        cell, readout = model
        assert readout is not None
        x, y, reset, weight = jax.tree.map(lambda a: a[0], seg)
        s = jnp.where(reset, jnp.zeros_like(s), s)
        lin = cell.linearise(params.cell, s, x)
        h, back = jax.vjp(cell.output, lin.state)
        loss, prediction, dh, g_readout = readout.differentiate(params.readout, h, y, weight)
        (delta,) = back(dh)

        # window None: δ·G', read after the merge. 1: δ·(H G' + F), the last step exact
        exact = self.window is not None
        steps = one_step(lin, reset)
        read: Read = "past" if exact else "end"
        g_cell, pushed = self.trace.segment(memory, steps, noise, delta, read)
        if exact:
            g_cell = gr.joined(lin.vjp(delta)[1], g_cell)
        seen = Seen(loss[None], prediction[None])
        return lin.state, pushed, Params(g_cell, g_readout, no_gradient(params)), seen

    def _window(
        self, model: Model, params: Params, s: Vector, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[Vector, Memory, Params, Seen]:
        """k steps: exact inside by reverse mode, the trace for what lies before."""
        end, exact, d0, seen, before = exact_segment(model, params, s, seg)
        k = seg.reset.shape[0]

        cell, given = model.cell, (params.cell, before, seg.x)
        steps = Steps(k, lambda t: cell.linearise(*_at(given, t)), seg.reset)
        if isinstance(cell, LinearCell):
            rows, met = cell.rows, cell.met
            steps = steps._replace(
                given=given,
                rows_at=lambda given, t, *of_layer: rows(*_at(given, t), *of_layer),
                met_at=lambda given, t: met(*_at(given, t)),
            )
        past, memory = self.trace.segment(memory, steps, noise, d0, "start")
        return end, memory, exact._replace(cell=gr.joined(exact.cell, past)), seen


def _at(given: tuple[Any, Float[Array, "k N"], Any], t: Any) -> tuple[Any, Vector, Any]:
    """Parameters, state and input of step t, of those of all steps."""
    theta, before, x = given
    return theta, before[t], jax.tree.map(lambda a: a[t], x)

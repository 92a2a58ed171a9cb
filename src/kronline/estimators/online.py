"""An estimator is a trace (what is remembered) and a window (how many recent steps are exact).

The gradient of a segment of k steps is split: what flows inside it is exact, by reverse mode; what
flows further back is `δ0·G0`, with δ0 = ∂L/∂s0 from the same pass, and the trace holds G0. After
that the trace is pushed over the k steps. `window=None` is "as published" for UORO and KF-RTRL: the
new step is merged into the trace first, and the gradient is read from the merged trace.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import Cell, State
from kronline.errors import whole_number
from kronline.estimators.base import Estimator, Model, Params, Seen, Segment, no_gradient
from kronline.estimators.window import exact_segment
from kronline.linearised import grads as gr
from kronline.linearised.grads import Grads
from kronline.noise import Draws, Noise
from kronline.traces import Nothing, Steps, Tail, Trace
from kronline.traces.base import Memory, Moments


@dataclass(frozen=True)
class Online(Estimator):
    """trace + window.

    Args:
        trace: what is remembered of the past.
        window: None: gradient from the merged trace (as published). k >= 1: the last k steps are
            exact, updates come every k steps. "all": whatever `run` is given is one segment.
    """

    trace: Trace
    window: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window != "all":
            window = whole_number(
                type(self).__name__, "window=None, window='all' or window", self.window
            )
            object.__setattr__(self, "window", window)
        if self.window is None and isinstance(self.trace, Nothing):
            raise ValueError("with nothing remembered a window is needed; use tbptt(k) or bptt()")

    @property
    def name(self) -> str:
        """trace+window, as in `KF+none`."""
        return f"{self.trace!r}+{'none' if self.window is None else self.window}"

    @property
    def span(self) -> int | None:
        """The window; one step where there is none."""
        if self.window == "all":
            return None
        return self.window or 1

    def check(self, cell: Cell) -> None:
        """As the trace says."""
        self.trace.check(cell)

    def ignores(self, cell: Cell) -> str:
        """As the trace says; nothing lies before a window that has no end."""
        return "" if self.window == "all" else self.trace.ignores(cell)

    def init(self, model: Model, params: Params) -> Memory:
        """An empty trace."""
        return self.trace.begin(model.cell, params.cell)

    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """What the trace draws over k steps."""
        return self.trace.segment_draws(model.cell.size, params.cell, k)

    def segment(
        self, model: Model, params: Params, s: State, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[State, Memory, Params, Seen]:
        """Over one segment."""
        if self.window is None or self.window == 1:
            return self._step(model, params, s, memory, seg, noise)
        return self._window(model, params, s, memory, seg, noise)

    def advance(
        self,
        model: Model,
        params: Params,
        s: State,
        memory: Memory,
        x: Any,
        reset: Any,
        noise: Noise,
    ) -> tuple[State, Memory]:
        """One step without a loss; the trace is merged at once, so there can be no window."""
        if isinstance(self.trace, Nothing) or self.window is not None:
            return super().advance(model, params, s, memory, x, reset, noise)
        s = jnp.where(reset, jnp.zeros_like(s), s)
        lin = model.cell.linearise(params.cell, s, x)
        return lin.state, self.trace.push(memory, Steps(1, lambda _: lin, reset[None]), noise)

    def pull(self, memory: Memory, delta: State) -> Grads:
        """`δ·G`."""
        if isinstance(self.trace, Nothing) or self.window is not None:
            return super().pull(memory, delta)
        return self.trace.pull(memory, delta)

    @property
    def closed_form(self) -> bool:
        """As the trace says."""
        return self.trace.closed_form

    def moments(
        self, model: Model, params: Params, s: State, memory: Memory, x: Any, reset: Any
    ) -> Moments | None:
        """By the trace's formula."""
        if not self.closed_form:
            return None
        s = jnp.where(reset, jnp.zeros_like(s), s)
        memory = self.trace.reset(memory, reset)
        variance = self.trace.variance(memory, model.cell.linearise(params.cell, s, x))
        assert variance is not None
        held = model.cell.linearise(jax.lax.stop_gradient(params.cell), s, x)
        return Moments(variance, self.trace.mean2(memory, held))

    def noise_share(
        self, model: Model, params: Params, s: State, memory: Memory, x: Any, reset: Any
    ) -> Float[Array, ""] | None:
        """That of the next step alone; KF-TBPTT's trace knows that of all steps so far."""
        if isinstance(self.trace, Tail):
            v, energy = (sum(part.values()) for part in (memory.noise, memory.energy))
            return jnp.where(energy > 0, v / jnp.where(energy > 0, energy, 1), 0)
        return super().noise_share(model, params, s, memory, x, reset)

    def _step(
        self, model: Model, params: Params, s: State, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[State, Memory, Params, Seen]:
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
        steps = Steps(1, lambda _: lin, seg.reset)
        pushed, g_cell = self.trace.push_pull(memory, steps, noise, delta, before=exact)
        if exact:
            g_cell = _added(lin.vjp(delta)[1], g_cell)
        seen = Seen(loss[None], prediction[None])
        return lin.state, pushed, Params(g_cell, g_readout, no_gradient(params)), seen

    def _window(
        self, model: Model, params: Params, s: State, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[State, Memory, Params, Seen]:
        """k steps: exact inside by reverse mode, the trace for what lies before."""
        end, exact, d0, seen, before = exact_segment(model, params, s, seg)
        k = seg.reset.shape[0]

        def at(t: Any) -> Any:
            x = jax.tree.map(lambda a: a[t], seg.x)
            return model.cell.linearise(params.cell, before[t], x)

        past, memory = self.trace.pull_push(memory, Steps(k, at, seg.reset), noise, d0)
        return end, memory, exact._replace(cell=_added(exact.cell, past)), seen


def _added(exact: Grads, past: Grads | None) -> Grads:
    return exact if past is None else gr.add(exact, past)

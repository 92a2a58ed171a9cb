"""An estimator is a trace (what is remembered) and a window (how many recent steps are exact).

The gradient of a segment of k steps is split: what flows inside it is exact, by reverse mode; what
flows further back is `δ0·G0`, with δ0 = ∂L/∂s0 from the same pass, and the trace holds G0. After
that the trace is pushed over the k steps. `window=None` is "as published" for UORO and KF-RTRL: the
new step is merged into the trace first, and the gradient is read from the merged trace.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from kronline import grads as gr
from kronline.cells.base import Cell, LinearCell, State
from kronline.errors import whole_number
from kronline.grads import Grads
from kronline.noise import Draws, Noise, repeat, sample
from kronline.readout import Readout
from kronline.traces import Nothing, Steps, Tail, Trace
from kronline.traces.base import Memory, Moments


class Model(NamedTuple):
    """What is differentiated: a cell and what reads it."""

    cell: Cell
    readout: Readout | None  # None: users with a loss of their own


class Params(NamedTuple):
    """All that is learnt."""

    cell: Any
    readout: Any
    estimator: Any = ()  # for estimators that learn something themselves


class Segment(NamedTuple):
    """k time steps of one lane."""

    x: Any  # (k, ...) inputs
    y: Any  # (k, ...) targets
    reset: Bool[Array, " k"]  # before its step: the state starts anew, the past is cut
    weight: Float[Array, " k"]  # of each step's loss


class Seen(NamedTuple):
    """What came out of a segment besides its gradient."""

    loss: Float[Array, " k"]  # without the weights
    prediction: Float[Array, "k o"]


_OWN_LOSS = (
    "cannot be used with a loss of one's own: that needs a trace and no window; use kf_rtrl(), "
    "uoro() or rtrl()"
)


class Estimator(ABC):
    """A gradient estimator: pure functions of one lane. `Online` is the general one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As it is called."""

    @property
    @abstractmethod
    def span(self) -> int | None:
        """How many steps a segment has; None: as many as there are."""

    def check(self, cell: Cell) -> None:
        """Raise TypeError, with what to use instead, for a cell that cannot be followed."""
        return None

    def ignores(self, cell: Cell) -> str:
        """What is left out on purpose, in words, for an estimator that is biased; else nothing."""
        return ""

    def init_cell(self, key: Array, cell: Cell, dtype: Any) -> Any:
        """The cell's parameters at the start: as the cell says, unless replaced."""
        return cell.init(key, dtype)

    def allowed(self, updates: Params) -> Params:
        """Of the optimiser's updates, those that are made: all, unless something is to be fixed."""
        return updates

    def init_params(self, key: Array, model: Model, dtype: Any) -> Any:
        """Parameters of the estimator's own, learnt with the others; none by default."""
        return ()

    @abstractmethod
    def init(self, model: Model, params: Params) -> Memory:
        """One lane's memory at the start."""

    @abstractmethod
    def draws(self, model: Model, params: Params, k: int) -> Draws:
        """The noise of one segment of one lane."""

    def noise(
        self, key: Key[Array, ""], model: Model, params: Params, k: int, lanes: int, dtype: Any
    ) -> Noise:
        """The noise of one segment, for every lane its own."""
        return sample(key, repeat(self.draws(model, params, k), lanes), dtype)

    @abstractmethod
    def segment(
        self, model: Model, params: Params, s: State, memory: Memory, seg: Segment, noise: Noise
    ) -> tuple[State, Memory, Params, Seen]:
        """Over one segment: new state, new memory, gradients of `Σ weight·loss`, what was seen."""

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
        """One step without a loss: new state, new memory. For users with a loss of their own."""
        raise TypeError(f"{self.name} {_OWN_LOSS}")

    def pull(self, memory: Memory, delta: State) -> Grads:
        """`δ·G`, read from the memory after `advance`."""
        raise TypeError(f"{self.name} {_OWN_LOSS}")

    @property
    def closed_form(self) -> bool:
        """Whether the variance of one step of the trace is known as a formula."""
        return False

    def moments(
        self, model: Model, params: Params, s: State, memory: Memory, x: Any, reset: Any
    ) -> Moments | None:
        """Variance and mean of the trace after one more step; None where no formula is known.

        Its variance can be differentiated with respect to the cell's parameters; the mean's square
        is held fixed.
        """
        return None

    def noise_share(
        self, model: Model, params: Params, s: State, memory: Memory, x: Any, reset: Any
    ) -> Float[Array, ""] | None:
        """How much of E‖G'‖² is noise, after one more step; None where no formula is known."""
        now = self.moments(model, params, s, memory, x, reset)
        return None if now is None else now.share


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
            memory = self.trace.reset(memory, reset)
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
        return lin.state, pushed, Params(g_cell, g_readout, _nothing(params)), seen

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


def exact_segment(
    model: Model,
    params: Params,
    s: State,
    seg: Segment,
    future: Callable[[State], State] | None = None,
) -> tuple[State, Params, State, Seen, Float[Array, "k N"]]:
    """A segment's own gradient, by reverse mode.

    Where weights enter as linear maps, only the sensitivities of their z are propagated; with the
    feature vectors they give the gradient as one product over steps (and lanes).

    Args:
        model, params, s, seg: the segment, and where it starts.
        future: a guess of what later losses would send back to the state at the end.

    Returns:
        the state at the end; gradients; δ0 = ∂L/∂s; what was seen; the states before each step.
    """
    cell, readout = model
    assert readout is not None
    k = seg.reset.shape[0]
    visible = isinstance(cell, LinearCell)
    waits = jnp.any(seg.reset) & (jnp.cumsum(seg.reset) == 0)  # steps before the first reset
    idle = _idle(readout, waits, seg.weight)

    def loss(moved: Any, do: Float[Array, "k o"], s: State) -> Any:
        def step(s: State, inputs: Any) -> Any:
            (x, y, reset, weight), dz, do, still = inputs
            s = jnp.where(reset, jnp.zeros_like(s), s)
            feats: dict[str, Array] = {}
            if isinstance(cell, LinearCell):
                new, feats = cell.traced(params.cell, dz, s, x)
            else:
                held = jax.lax.stop_gradient(moved)
                now = jax.tree.map(lambda h, p: jnp.where(still, h, p), held, moved)
                new = cell.step(now, s, x)
            h = cell.output(new)
            prediction = readout.predict(params.readout, h) + do
            value = readout.loss(prediction, y)
            weighted = value * weight.astype(value.dtype)
            if readout.penalty:  # c‖h‖², whatever the loss weighs
                weighted = weighted + readout.penalty * jnp.sum(h**2)
            return new, (weighted, Seen(value, prediction), feats, h, s)

        end, out = jax.lax.scan(step, s, (seg, moved if visible else (), do, idle))
        weighted, seen, feats, h, before = out
        total = weighted.sum()
        if future is not None:
            total = total + jax.lax.stop_gradient(future(end)) @ end
        return total, (end, seen, feats, h, before)

    moved = params.cell
    if isinstance(cell, LinearCell):
        moved = {n: jnp.zeros((k, *w.shape[1:]), s.dtype) for n, w in cell.weights().items()}
    do = jnp.zeros((k, readout.outputs), s.dtype)
    (g, do, d0), (end, seen, feats, h, before) = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(
        moved, do, s
    )
    # factors that do not depend on the losses are cleared by what they are, not by weights: so they
    # stay one for all where segments differ in their weights only
    h, feats = jax.tree.map(lambda a: _cleared(_along(waits, a) & ~jnp.isfinite(a), a), (h, feats))
    do, d0 = _cleared(idle[:, None], do), _cleared(idle[0], d0)
    if visible:
        g = jax.tree.map(lambda a: _cleared(_along(idle, a), a), g)
    g_cell = {name: gr.Outer(feats[name], g[name]) for name in g} if visible else g
    return end, Params(g_cell, readout.gradients(h, do), _nothing(params)), d0, seen, before


def _idle(
    readout: Readout, waits: Bool[Array, " k"], weight: Float[Array, " k"]
) -> Bool[Array, " k"]:
    """The steps before a segment's first reset, if none of their losses weighs anything.

    They have no gradient; but 0 times a derivative is none only where the derivative is finite,
    and a state that waits for its reset may hold anything.
    """
    if readout.penalty:
        return jnp.zeros_like(waits)
    return waits & ~jnp.any(waits & (weight != 0))


def _along(steps: Bool[Array, " k"], a: Float[Array, "k ..."]) -> Bool[Array, "k ..."]:
    """A flag a step, for what has further axes."""
    return steps.reshape(-1, *(1,) * (a.ndim - 1))


def _cleared(where: Bool[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    """0 where so flagged."""
    return jnp.where(where, jnp.zeros_like(a), a)


def _nothing(params: Params) -> Any:
    """No gradient for what an estimator without parameters of its own is given."""
    return jax.tree.map(jnp.zeros_like, params.estimator)

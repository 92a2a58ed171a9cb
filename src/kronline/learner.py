"""Cell + readout + estimator + optimiser: a network that learns while it runs."""

import functools
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, UInt32

from kronline import checks
from kronline import grads as gr
from kronline.cells.base import Cell, LinearCell
from kronline.lanes import Layout, Vmap, over_lanes
from kronline.monitor import Spread, spread
from kronline.noise import Draws, Noise, keys, repeat, size, tick
from kronline.online import Estimator, Model, Params, Seen, Segment
from kronline.readout import Readout
from kronline.regularise import Regulariser
from kronline.traces.base import Memory

DRAWN_AHEAD = 1 << 18  # at most so many numbers of noise are drawn before they are used


class Buffer(NamedTuple):
    """Steps that wait for their segment to be full, for `step` with a window of k > 1."""

    filled: Int[Array, ""]
    start: Float[Array, "lanes N"]  # the states at the segment's start
    steps: Segment  # (lanes, k, ...)


class State(NamedTuple):
    """All that the next step needs: a pytree, so that it can be jitted, vmapped and saved."""

    params: Params
    opt: Any
    s: Float[Array, "lanes N"]
    memory: Memory  # (lanes, ...)
    key: Key[Array, ""]  # of the noise
    clock: UInt32[Array, "2"]  # segments that noise was drawn for
    buffer: Buffer | None = None


class Out(NamedTuple):
    """What came out, a step and lane."""

    loss: Float[Array, "*steps lanes"]  # without the loss weights
    prediction: Float[Array, "*steps lanes o"] | None = None
    norm: Float[Array, " segments"] | None = None  # of each segment's gradient
    spread: Spread | None = None  # of the lanes' gradients, a segment; of several lanes


@dataclass(frozen=True)
class Learner:
    """Pure functions around `State`; nothing is kept here but the settings.

    Args:
        cell: a recurrent cell, `RHN(hidden, inputs)` for instance.
        readout: `softmax(symbols)`, `linear(outputs)`, `Readout(outputs, loss)`; None for those who
            bring their own loss and use `advance`, `pull` and `update`.
        estimator: `kf_rtrl()`, `uoro()`, `rtrl()`, `tbptt(k)`, `bptt()`, `Online(trace, window)`.
        optimiser: any optax optimiser.
        layout: how lanes are laid out (`lanes.py`).
        update_every: steps between updates, a multiple of the estimator's window; None: as often as
            the estimator gives a gradient. Gradients are averaged in between.
        dtype: "float32" or "float64" (which needs `jax.config.update("jax_enable_x64", True)`).
        donate: let `run` and `step` work in the memory of the state that they are given. Saves a
            copy of all traces a call; the old state, its parameters included, cannot be used again.
        regularisers: `(regularise.row_norm(1.0), ...)`: constraints and penalties beside the loss.

    Example:
        learner = Learner(RHN(64, 4), softmax(4), kf_rtrl(), optax.adam(1e-3))
        state = learner.init(jax.random.key(0), lanes=16)
        state, out = learner.run(state, x, y)  # x, y: (steps, lanes) symbols
    """

    cell: Cell
    readout: Readout | None
    estimator: Estimator
    optimiser: optax.GradientTransformation
    layout: Layout = field(default_factory=Vmap)
    update_every: int | None = None
    dtype: str = "float32"
    donate: bool = False
    regularisers: tuple[Regulariser, ...] = ()

    def __post_init__(self) -> None:
        wanted = {
            "cell": (Cell, "a cell such as RHN(64, 4)"),
            "readout": (Readout | None, "a Readout such as softmax(4), or None"),
            "estimator": (Estimator, "an Estimator such as kf_rtrl()"),
            "optimiser": (optax.GradientTransformation, "an optax optimiser: optax.adam(1e-3)"),
            "layout": (Layout, "Vmap(), Loop() or Shard()"),
        }
        for name, (kind, what) in wanted.items():
            if not isinstance(value := getattr(self, name), kind):
                raise TypeError(f"{name} must be {what}, got {value!r}")
        try:
            hash(self)
        except TypeError as e:
            raise TypeError(
                f"cells, estimators and traces must be hashable, such as frozen dataclasses: {e}"
            ) from e
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        self.estimator.check(self.cell)
        for r in self.regularisers:
            if not isinstance(r, Regulariser):
                raise TypeError(f"regularisers must be such as (row_norm(1.0),), got {r!r} in it")
            r.check(self.cell, self.readout, self.estimator)
        span, every = self.estimator.span, self.update_every
        if every is not None and (every < 1 or span is None or every % span):
            raise ValueError(
                f"update_every must be a multiple of the estimator's window ({span or 'all'}), "
                f"got {every}"
            )

    # -- start ------------------------------------------------------------------------------------

    def init(self, key: Key[Array, ""], lanes: int = 1, example: Any = None) -> State:
        """A fresh state: parameters from the key, lanes at zero, empty traces.

        Args:
            key: from `jax.random.key(seed)`.
            lanes: how many streams are learnt from at once.
            example: `(x, y)` of one step, for `step` with a window of k > 1: the steps of a segment
                are then kept in a buffer until it is full.
        """
        checks.start(key, lanes, self.dtype)
        state = self._init(key, lanes)
        return state if example is None else state._replace(buffer=self._buffer(state, example))

    @partial(jax.jit, static_argnums=(0, 2))
    def _init(self, key: Key[Array, ""], lanes: int) -> State:
        k_params, key = jax.random.split(key)
        return self.start(self._params(k_params), key, lanes)

    def _params(self, key: Key[Array, ""]) -> Params:
        k_cell, k_readout, k_estimator = jax.random.split(key, 3)
        dtype = jnp.dtype(self.dtype)
        readout: Any = ()
        if self.readout is not None:
            readout = self.readout.init(k_readout, self.cell.outputs, dtype)
        own = self.estimator.init_params(k_estimator, self._model, dtype)
        return Params(self.estimator.init_cell(k_cell, self.cell, dtype), readout, own)

    def start(self, params: Params, key: Key[Array, ""], lanes: int = 1) -> State:
        """A fresh state around given parameters: lanes at zero, empty traces, a new optimiser."""
        checks.alive("these parameters", params)
        if self.donate:  # what was given stays the caller's
            params, key = jax.tree.map(jnp.copy, params), jax.random.clone(key)
        memory = self.estimator.init(self._model, params)
        every = jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape)), memory)
        s = jnp.zeros((lanes, self.cell.size), jnp.dtype(self.dtype))
        return State(params, self._optimiser.init(params), s, every, key, jnp.zeros(2, jnp.uint32))

    def _buffer(self, state: State, example: Any) -> Buffer | None:
        if (k := self.estimator.span) == 1:
            return None
        if k is None:
            raise ValueError("bptt has no window to buffer; use run, or tbptt(k)")
        lead = (state.s.shape[0],)
        x, y = example
        now = checks.segment(self.cell, self.readout, lead, x, y, None, None, self.dtype)

        def empty(a: Array) -> Array:
            return jnp.zeros((a.shape[0], k, *a.shape[1:]), a.dtype)

        steps = jax.tree.map(empty, self._typed(now))
        return Buffer(jnp.zeros((), jnp.int32), jnp.array(state.s), steps)

    @property
    def _model(self) -> Model:
        readout = self.readout
        for r in self.regularisers:
            readout = readout and r.read(readout)
        return Model(self.cell, readout)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        """The optimiser, behind an average over several segments where that is asked for."""
        every = (self.update_every or 0) // (self.estimator.span or 1)
        if every <= 1:
            return self.optimiser
        return optax.MultiSteps(self.optimiser, every).gradient_transformation()

    # -- learn ------------------------------------------------------------------------------------

    def run(
        self,
        state: State,
        x: Any,
        y: Any,
        *,
        reset: Any = None,
        weight: Any = None,
        noise: Noise = None,
        predictions: bool = False,
        norms: bool = False,
        monitor: bool = False,
    ) -> tuple[State, Out]:
        """Learn from many steps, as one compiled scan.

        Args:
            state: from `init` or an earlier `run`.
            x: symbols (steps, lanes) or vectors (steps, lanes, inputs).
            y: targets, as the readout needs them.
            reset: booleans (steps, lanes): the lane's state and trace start anew before this step.
            weight: loss weights (steps, lanes).
            noise: replaces the draws from the state's key: `draws(lanes)` with a leading axis of
                segments.
            predictions: whether to return what was predicted, too,
            norms: and the 2-norm of each segment's gradient,
            monitor: and the signal and noise in it, told apart by the lanes (`out.spread.snr`);
                None for one lane.

        Returns:
            the new state, and losses (steps, lanes). Lanes' gradients are averaged, and a segment's
            are divided by its length, never by the sum of the weights.
        """
        x, lead = checks.steps(x, state.s.shape[0])
        seg = self._checked(state, lead, x, y, reset, weight, noise)
        run = type(self)._run_in_place if self.donate else type(self)._run
        if (norms or monitor) and state.buffer is not None:
            name = "norms need" if norms else "monitor needs"
            raise ValueError(f"{name} a state without a buffer; init without example")
        return run(self, state, seg, noise, predictions, norms, monitor)

    def step(
        self,
        state: State,
        x: Any,
        y: Any,
        *,
        reset: Any = None,
        weight: Any = None,
        noise: Noise = None,
    ) -> tuple[State, Out]:
        """Learn from one time step of every lane: `run` without the leading axis.

        With a window of k > 1 the step waits in a buffer, which `init(..., example=(x, y))` makes;
        predictions come at once, an update every k steps.
        """
        if self.estimator.span is None:
            raise ValueError(f"{self.estimator.name} learns from a whole run; use run, or tbptt(k)")
        seg = self._checked(state, (state.s.shape[0],), x, y, reset, weight, noise)
        step = type(self)._step_in_place if self.donate else type(self)._step
        return step(self, state, seg, noise)

    def gradients(
        self,
        state: State,
        x: Any,
        y: Any,
        *,
        reset: Any = None,
        weight: Any = None,
        noise: Noise = None,
        average: bool = True,
    ) -> tuple[State, Params]:
        """The gradient of every segment, with the parameters left as they are.

        Args:
            state, x, y, reset, weight, noise: as for `run`.
            average: False: every lane's own gradient, with an axis of lanes after that of segments.

        Returns:
            the new state (same parameters), and gradients with a leading axis of segments.
        """
        if state.buffer is not None:
            raise ValueError("gradients needs a state without a buffer; init without example")
        x, lead = checks.steps(x, state.s.shape[0])
        seg = self._checked(state, lead, x, y, reset, weight, noise)
        return self._gradients(state, seg, noise, average)

    def _run_plain(
        self,
        state: State,
        seg: Segment,
        noise: Noise,
        predictions: bool,
        norms: bool,
        monitor: bool,
    ) -> tuple[State, Out]:
        seg = self._typed(seg)
        if state.buffer is not None:
            return jax.lax.scan(partial(self._buffered, predictions=predictions), state, seg)

        def one(state: State, inputs: Any) -> tuple[State, tuple[Out, Any]]:
            state, grads, seen, apart = self._segment(state, *inputs, monitor=monitor)
            norm = jnp.sqrt(gr.norm2(grads)) if norms else None
            return self._updated(state, grads), (_out(seen, predictions), (norm, apart))

        state, (out, (norm, apart)) = self._scan(one, state, self._cut(seg), noise)
        return state, jax.tree.map(_time_first, out)._replace(norm=norm, spread=apart)

    _run = jax.jit(_run_plain, static_argnums=(0, 4, 5, 6))
    _run_in_place = jax.jit(_run_plain, static_argnums=(0, 4, 5, 6), donate_argnums=1)

    def _step_plain(self, state: State, seg: Segment, noise: Noise) -> tuple[State, Out]:
        seg, noise = jax.tree.map(lambda a: jnp.asarray(a)[None], (seg, noise))
        state, out = self._run_plain(state, seg, noise, True, False, False)
        return state, jax.tree.map(lambda a: a[0], out)

    _step = jax.jit(_step_plain, static_argnums=0)
    _step_in_place = jax.jit(_step_plain, static_argnums=0, donate_argnums=1)

    @partial(jax.jit, static_argnums=(0, 4))
    def _gradients(
        self, state: State, seg: Segment, noise: Noise, average: bool
    ) -> tuple[State, Params]:
        def one(state: State, inputs: Any) -> tuple[State, Params]:
            state, grads, _, _ = self._segment(state, *inputs, average=average)
            return state, grads

        return self._scan(one, state, self._cut(self._typed(seg)), noise)

    def _scan(self, one: Any, state: State, seg: Segment, noise: Noise) -> tuple[State, Any]:
        """`one(state, (segment, noise))` over segments; noise is drawn for many of them at once."""
        if noise is not None:
            noise = jax.tree.map(lambda a: jnp.asarray(a, jnp.dtype(self.dtype)), noise)
            return jax.lax.scan(one, state, (seg, noise))
        count, lanes, k = seg.reset.shape
        numbers = lanes * size(self.estimator.draws(self._model, state.params, k))
        ahead = min(count, max(1, DRAWN_AHEAD // max(numbers, 1)))

        def several(state: State, seg: Segment) -> tuple[State, Any]:
            state, noise = self._drawn(state, k, seg.reset.shape[0])
            return jax.lax.scan(one, state, (seg, noise))

        whole = count // ahead * ahead
        blocks = jax.tree.map(lambda a: a[:whole].reshape(-1, ahead, *a.shape[1:]), seg)
        if whole == ahead:  # no loop around the loop
            state, out = several(state, jax.tree.map(lambda a: a[0], blocks))
        else:
            state, out = jax.lax.scan(several, state, blocks)
            out = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)
        if whole < count:
            state, rest = several(state, jax.tree.map(lambda a: a[whole:], seg))
            out = jax.tree.map(lambda *parts: jnp.concatenate(parts), out, rest)
        return state, out

    def _drawn(self, state: State, k: int, segments: int) -> tuple[State, Noise]:
        """Noise for segments of k steps, on a leading axis."""
        lanes, dtype = state.s.shape[0], jnp.dtype(self.dtype)

        def draw(key: Array) -> Noise:
            return self.estimator.noise(key, self._model, state.params, k, lanes, dtype)

        noise = jax.vmap(draw)(keys(state.key, state.clock, segments))
        return state._replace(clock=tick(state.clock, segments)), noise

    def _segment(
        self,
        state: State,
        seg: Segment,
        noise: Noise,
        *,
        average: bool = True,
        monitor: bool = False,
    ) -> tuple[State, Params, Seen, Spread | None]:
        """One segment of all lanes: the mean gradient a step, what was seen, and how lanes differ.

        How they differ is of the estimator's gradient: without what regularisers add to it.
        """
        k = seg.reset.shape[1]

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            s, memory, grads, seen = self.estimator.segment(self._model, params, *lane)
            norm2 = self._norm2(grads.cell) / k**2 if monitor else None
            return (s, memory, seen, norm2), (grads, self._penalties(params, lane))

        lanes = (state.s, state.memory, seg, noise)
        run = over_lanes(lane, self.layout, average=average)
        (s, memory, seen, norm2), (grads, more) = run(state.params, lanes)
        grads = jax.tree.map(lambda g: g / k, grads)
        project = self.cell.project if average else jax.vmap(self.cell.project)
        grads = grads._replace(cell=project(grads.cell))
        apart = spread(norm2.mean(), grads.cell, norm2.size) if monitor else None
        for g in more:
            grads = grads._replace(cell=jax.tree.map(jnp.add, grads.cell, project(g)))
        return state._replace(s=s, memory=memory), grads, seen, apart

    def _penalties(self, params: Params, lane: Any) -> list[Any]:
        """What regularisers add to the cell's gradient a step, of one lane's segment."""
        s, memory, seg, _ = lane
        x = jax.tree.map(lambda a: a[0], seg.x)
        now = (self._model, params, s, memory, x, seg.reset[0])
        found = [r.gradient(self.estimator, *now) for r in self.regularisers]
        return [g for g in found if g is not None]

    def _norm2(self, grads: Any) -> Float[Array, ""]:
        """`‖g‖²` of the cell's gradient of one lane, for the weights that exist."""
        cell = self.cell
        if isinstance(cell, LinearCell) and any(
            w.mask is not None for w in cell.weights().values()
        ):
            grads = cell.project(gr.written_out(grads))
        return gr.norm2(grads)

    def _updated(self, state: State, grads: Params) -> State:
        updates, opt = self._optimiser.update(grads, state.opt, state.params)
        updates = self.estimator.allowed(updates)
        params = optax.apply_updates(state.params, updates)
        for r in self.regularisers:
            params = params._replace(cell=r.constrained(self.cell, params.cell))
        return state._replace(params=params, opt=opt)

    def _buffered(self, state: State, now: Segment, *, predictions: bool) -> tuple[State, Out]:
        """One step: predict at once, and learn when the segment is full."""
        buffer, k = state.buffer, self.estimator.span
        assert buffer is not None and k is not None
        at = buffer.filled
        ahead, seen = self._forward(state.params, state.s, jax.tree.map(lambda a: a[:, None], now))
        start = jnp.where(at == 0, state.s, buffer.start)
        steps = jax.tree.map(lambda full, a: full.at[:, at].set(a), buffer.steps, now)
        state = state._replace(buffer=Buffer((at + 1) % k, start, steps))

        def learn(state: State) -> State:
            state, noise = self._drawn(state._replace(s=start), k, 1)
            noise = jax.tree.map(lambda a: a[0], noise)
            state, grads, _, _ = self._segment(state, steps, noise)
            return self._updated(state, grads)

        state = jax.lax.cond(at + 1 == k, learn, lambda st: st._replace(s=ahead), state)
        return state, _out(jax.tree.map(lambda a: a[:, 0], seen), predictions)

    # -- look -------------------------------------------------------------------------------------

    def evaluate(
        self, params: Params, x: Any, y: Any, *, reset: Any = None, predictions: bool = False
    ) -> Out:
        """Losses (steps, lanes) from the zero state, without learning."""
        checks.alive("these parameters", params)
        x, lead = checks.steps(x)
        seg = checks.segment(self.cell, self.readout, lead, x, y, reset, None, self.dtype)
        return self._evaluate(params, seg, predictions)

    @partial(jax.jit, static_argnums=(0, 3))
    def _evaluate(self, params: Params, seg: Segment, predictions: bool) -> Out:
        seg = self._typed(seg)
        s = jnp.zeros((seg.reset.shape[1], self.cell.size), jnp.dtype(self.dtype))
        _, seen = self._forward(params, s, jax.tree.map(lambda a: a.swapaxes(0, 1), seg))
        return jax.tree.map(lambda a: a.swapaxes(0, 1), _out(seen, predictions))

    def _forward(self, params: Params, s: Array, seg: Segment) -> tuple[Array, Seen]:
        """The forward pass of all lanes: final states, and what was seen (lanes, k)."""
        cell, readout = self.cell, self.readout
        assert readout is not None

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            def step(s: Array, now: Segment) -> tuple[Array, Seen]:
                s = cell.step(params.cell, jnp.where(now.reset, jnp.zeros_like(s), s), now.x)
                prediction = readout.predict(params.readout, cell.output(s))
                return s, Seen(readout.loss(prediction, now.y), prediction)

            return jax.lax.scan(step, *lane), ()

        return over_lanes(lane, self.layout)(params, (s, seg))[0]

    def noise_share(
        self, state: State, x: Any, *, reset: Any = None
    ) -> Float[Array, " lanes"] | None:
        """How much of each lane's trace is noise, by the closed form: `v/(‖HG' + F‖² + v)`.

        v is the variance that a step with this input would add to the trace G', and HG' + F what
        the trace would be without it: 0 is exact, 1 is noise alone. For KF-TBPTT v is of all steps
        so far, and the sum is ‖G'‖². None for estimators without a formula.
        """
        checks.alive("this state", state.s, state.params)
        lead = (state.s.shape[0],)
        x = checks.stream(self.cell, x, lead, self.dtype)
        reset = checks.flags("reset", reset, lead)
        return self._noise_share(state, x, reset)

    @partial(jax.jit, static_argnums=0)
    def _noise_share(self, state: State, x: Any, reset: Any) -> Array | None:
        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            return self.estimator.noise_share(self._model, params, *lane), ()

        lanes = (state.s, state.memory, self._floats(x), reset)
        return over_lanes(lane, self.layout)(state.params, lanes)[0]

    def draws(self, lanes: int, steps: int | None = None) -> Draws:
        """What noise one segment of all lanes takes (for `noise=`, with an axis of segments)."""
        k = self.estimator.span or steps
        if k is None:
            raise ValueError("this estimator's segment is the whole run: say how many steps")
        return repeat(self.estimator.draws(self._model, self._shapes(), k), lanes)

    @functools.lru_cache(maxsize=64)  # noqa: B019  a learner is a value, and small
    def _shapes(self) -> Params:
        """The parameters' shapes."""
        return jax.eval_shape(lambda: self._params(jax.random.key(0)))

    # -- with a loss of one's own -----------------------------------------------------------------

    def advance(
        self, state: State, x: Any, *, reset: Any = None, noise: Noise = None
    ) -> tuple[State, Float[Array, "lanes h"]]:
        """One step of every lane: states and traces move on; the cell's outputs are returned."""
        checks.alive("this state", state.s, state.params)
        lead = (state.s.shape[0],)
        x = checks.stream(self.cell, x, lead, self.dtype)
        reset = checks.flags("reset", reset, lead)
        if noise is not None:
            checks.given_noise(noise, self.draws(*lead))
        return self._advance(state, x, reset, noise)

    @partial(jax.jit, static_argnums=0)
    def _advance(self, state: State, x: Any, reset: Any, noise: Noise) -> tuple[State, Array]:
        if noise is None:
            state, noise = self._drawn(state, 1, 1)
            noise = jax.tree.map(lambda a: a[0], noise)
        noise = jax.tree.map(lambda a: jnp.asarray(a, jnp.dtype(self.dtype)), noise)
        x = self._floats(x)

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            return self.estimator.advance(self._model, params, *lane), ()

        lanes = (state.s, state.memory, x, reset, noise)
        (s, memory), _ = over_lanes(lane, self.layout)(state.params, lanes)
        return state._replace(s=s, memory=memory), jax.vmap(self.cell.output)(s)

    def pull(self, state: State, delta: Float[Array, "lanes h"]) -> Any:
        """The cell's gradient for a δ = dL/d(output) of one's own: `δ·G`, averaged over lanes."""
        checks.alive("this state", state.s, state.params)
        delta = checks.array("delta", delta)
        checks.vectors("delta", delta, (state.s.shape[0], self.cell.outputs), self.dtype)
        return self._pull(state, jnp.asarray(delta, jnp.dtype(self.dtype)))

    @partial(jax.jit, static_argnums=0)
    def _pull(self, state: State, delta: Array) -> Any:
        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            s, memory, delta = lane
            (d,) = jax.vjp(self.cell.output, s)[1](delta)
            return (), self.estimator.pull(memory, d)

        lanes = (state.s, state.memory, delta)
        return self.cell.project(over_lanes(lane, self.layout)(state.params, lanes)[1])

    def update(self, state: State, grads: Any) -> State:
        """Hand gradients to the optimiser: the cell's alone (as `pull` gives), or `Params`."""
        checks.alive("this state", state.s, state.params)
        return self._update(state, grads)

    @partial(jax.jit, static_argnums=0)
    def _update(self, state: State, grads: Any) -> State:
        if not isinstance(grads, Params):
            grads = jax.tree.map(jnp.zeros_like, state.params)._replace(cell=grads)
        return self._updated(state, grads)

    # -- shapes -----------------------------------------------------------------------------------

    def _checked(
        self,
        state: State,
        lead: tuple[int, ...],
        x: Any,
        y: Any,
        reset: Any,
        weight: Any,
        noise: Noise,
    ) -> Segment:
        """The data, all parts of it and the noise checked; leading axes ((steps,) lanes)."""
        checks.alive("this state", state.s, state.params)
        seg = checks.segment(self.cell, self.readout, lead, x, y, reset, weight, self.dtype)
        steps = lead[0] if len(lead) > 1 else 1
        lanes, k = state.s.shape[0], self.estimator.span
        if state.buffer is not None:
            checks.same_kind(
                (seg.x, seg.y), (state.buffer.steps.x, state.buffer.steps.y), len(lead)
            )
            if noise is not None:
                raise ValueError("noise cannot be given to a buffered state; init without example")
        elif steps % (k or 1):
            raise ValueError(
                f"{self.estimator.name} learns from segments of {k} steps: needed a multiple of "
                f"{k} steps, got {steps}; cut the data, or use init(key, lanes, example=(x, y)) "
                "to carry unfinished segments over"
            )
        if noise is not None:
            draws = self.draws(lanes, steps)
            checks.given_noise(noise, repeat(draws, steps // (k or steps)) if lead[1:] else draws)
        return seg

    def _floats(self, a: Any) -> Array:
        """Real numbers in the learner's precision, anything else as it is."""
        a = jnp.asarray(a)
        return a.astype(self.dtype) if checks.floating(a) else a

    def _typed(self, seg: Segment) -> Segment:
        """The data in the types that are computed with."""
        dtype = jnp.dtype(self.dtype)
        assert self.readout is not None
        wanted = {"symbols": jnp.int32, "vectors": dtype}.get(self.readout.targets)
        x = self._floats(seg.x)
        return Segment(
            x=x if checks.floating(x) else x.astype(jnp.int32),
            y=jax.tree.map(lambda a: jnp.asarray(a, wanted) if wanted else self._floats(a), seg.y),
            reset=jnp.asarray(seg.reset),
            weight=jnp.asarray(seg.weight, dtype),
        )

    def _cut(self, seg: Segment) -> Segment:
        """(steps, lanes, ...) -> (segments, lanes, k, ...)."""
        k = self.estimator.span or seg.reset.shape[0]
        return jax.tree.map(lambda a: a.reshape(-1, k, *a.shape[1:]).swapaxes(1, 2), seg)


def _out(seen: Seen, predictions: bool) -> Out:
    return Out(seen.loss, seen.prediction if predictions else None)


def _time_first(a: Array) -> Array:
    """(segments, lanes, k, ...) -> (steps, lanes, ...)."""
    a = a.swapaxes(1, 2)
    return a.reshape(-1, *a.shape[2:])

"""Cell + readout + estimator + optimiser: a network that learns while it runs."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from kronline import checks
from kronline.cells.base import Cell
from kronline.lanes import Layout, Vmap, over_lanes
from kronline.noise import Draws, Noise, repeat, sample
from kronline.online import Estimator, Model, Params, Seen, Segment
from kronline.readout import Readout
from kronline.traces.base import Memory


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
    key: Key[Array, ""]
    buffer: Buffer | None = None


class Out(NamedTuple):
    """What came out, a step and lane."""

    loss: Float[Array, "*steps lanes"]  # without the loss weights
    prediction: Float[Array, "*steps lanes o"] | None = None


@dataclass(frozen=True)
class Learner:
    """Pure functions around `State`; nothing is kept here but the settings.

    Args:
        cell: a recurrent cell, `RHN(hidden, inputs)` for instance.
        readout: `softmax(symbols)`, `linear(outputs)`, `Readout(outputs, loss)`; None for those who
            bring their own loss and use `advance`, `pull` and `update`.
        estimator: `kf_rtrl()`, `uoro()`, `rtrl()`, `tbptt(k)`, `bptt()`, or `Online(trace, window)`.
        optimiser: any optax optimiser.
        layout: how lanes are laid out (`lanes.py`).
        update_every: steps between updates, a multiple of the estimator's window; None: as often as
            the estimator gives a gradient. Gradients are averaged in between.
        dtype: "float32" or "float64" (which needs `jax.config.update("jax_enable_x64", True)`).

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

    def __post_init__(self) -> None:
        if not isinstance(self.cell, Cell):
            raise TypeError(f"cell must be a kronline Cell, got {self.cell!r}")
        if not isinstance(self.readout, Readout | None):
            raise TypeError(f"readout must be a Readout or None, got {self.readout!r}")
        if not isinstance(self.estimator, Estimator):
            raise TypeError(
                f"estimator must be an Estimator such as kf_rtrl(), got {self.estimator!r}"
            )
        if not isinstance(self.optimiser, optax.GradientTransformation):
            raise TypeError(
                f"optimiser must come from optax, such as optax.adam(1e-3), got {self.optimiser!r}"
            )
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        self.estimator.check(self.cell)
        span, every = self.estimator.span, self.update_every
        if every is not None and (every < 1 or span is None or every % span):
            raise ValueError(
                f"update_every must be a multiple of the estimator's window ({span or 'all'}), "
                f"got {every}"
            )

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        """The optimiser, behind an average over several segments where that is asked for."""
        every = (self.update_every or 0) // (self.estimator.span or 1)
        if every <= 1:
            return self.optimiser
        return optax.MultiSteps(self.optimiser, every).gradient_transformation()

    @property
    def _model(self) -> Model:
        if self.readout is None:
            raise TypeError(
                "this needs a readout, got readout=None; give the learner one, or use advance, "
                "pull and update with your own loss"
            )
        return Model(self.cell, self.readout)

    # -- start ------------------------------------------------------------------------------------

    def init(self, key: Key[Array, ""], lanes: int = 1, example: Any = None) -> State:
        """A fresh state: parameters from the key, lanes at zero, empty traces.

        Args:
            key: from `jax.random.key(seed)`.
            lanes: how many streams are learnt from at once.
            example: `(x, y)` of one step, for `step` with a window of k > 1: the steps of a segment
                are then kept in a buffer until it is full.
        """
        if not isinstance(lanes, int) or lanes < 1:
            raise ValueError(f"lanes must be an integer >= 1, got {lanes!r}")
        if self.dtype == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                "dtype='float64' needs 64-bit numbers switched on, they are off; call "
                'jax.config.update("jax_enable_x64", True) first'
            )
        if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise TypeError(f"key must come from jax.random.key(seed), got {key!r}")
        state = self._init(key, lanes)
        return state if example is None else state._replace(buffer=self._buffer(state, example))

    @partial(jax.jit, static_argnums=(0, 2))
    def _init(self, key: Key[Array, ""], lanes: int) -> State:
        k_cell, k_readout, k_estimator, key = jax.random.split(key, 4)
        cell, dtype = self.cell, jnp.dtype(self.dtype)
        readout: Any = ()
        if self.readout is not None:
            readout = self.readout.init(k_readout, cell.outputs, dtype)
        model = Model(cell, self.readout)  # type: ignore[arg-type]
        own = self.estimator.init_params(k_estimator, model, dtype)
        params = Params(cell.init(k_cell, dtype), readout, own)
        memory = self.estimator.init(model, params)
        every = jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape)), memory)
        s = jnp.zeros((lanes, cell.size), dtype)
        return State(params, self._optimiser.init(params), s, every, key)

    def _buffer(self, state: State, example: Any) -> Buffer | None:
        if (k := self.estimator.span) == 1:
            return None
        if k is None:
            raise ValueError("bptt has no window to buffer; use run, or tbptt(k)")
        lanes = state.s.shape[0]
        x = checks.stream(self.cell, example[0], (lanes,))
        y = checks.targets(self._model.readout, example[1], (lanes,))

        def empty(a: Any) -> Array:
            a = self._cast(a)
            return jnp.zeros((lanes, k, *a.shape[1:]), a.dtype)

        flags = jnp.zeros((lanes, k), bool), jnp.zeros((lanes, k), jnp.dtype(self.dtype))
        steps = Segment(jax.tree.map(empty, x), jax.tree.map(empty, y), *flags)
        return Buffer(jnp.zeros((), jnp.int32), state.s, steps)

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
            predictions: whether to return what was predicted, too.

        Returns:
            the new state, and losses (steps, lanes). Lanes' gradients are averaged, and a segment's
            are divided by its length, never by the sum of the weights.
        """
        seg = self._checked(state, x, y, reset, weight)
        noise = self._checked_noise(state, seg, noise)
        return self._run(state, seg, noise, predictions)

    def step(
        self, state: State, x: Any, y: Any, *, reset: Any = None, weight: Any = None
    ) -> tuple[State, Out]:
        """Learn from one time step of every lane: `run` without the leading axis.

        With a window of k > 1 the step waits in a buffer, which `init(..., example=(x, y))` makes;
        predictions come at once, an update every k steps.
        """
        one = jax.tree.map(lambda a: checks.array("data", a)[None], (x, y))
        flag, w = (None if a is None else checks.array("data", a)[None] for a in (reset, weight))
        seg = self._checked(state, *one, flag, w, one_step=True)
        state, out = self._run(state, seg, None, True)
        return state, jax.tree.map(lambda a: a[0], out)

    def gradients(
        self,
        state: State,
        x: Any,
        y: Any,
        *,
        reset: Any = None,
        weight: Any = None,
        noise: Noise = None,
    ) -> tuple[State, Params]:
        """The gradient of every segment with the parameters left as they are.

        Returns:
            the new state (same parameters), and gradients with a leading axis of segments.
        """
        seg = self._checked(state, x, y, reset, weight)
        return self._gradients(state, seg, self._checked_noise(state, seg, noise))

    @partial(jax.jit, static_argnums=(0, 4))
    def _run(
        self, state: State, seg: Segment, noise: Noise, predictions: bool
    ) -> tuple[State, Out]:
        if state.buffer is not None:
            return jax.lax.scan(partial(self._buffered, predictions=predictions), state, seg)

        def one(state: State, inputs: Any) -> tuple[State, Out]:
            state, grads, seen = self._segment(state, *inputs)
            return self._updated(state, grads), _out(seen, predictions)

        state, out = jax.lax.scan(one, state, (self._cut(seg), noise))
        return state, jax.tree.map(_time_first, out)

    @partial(jax.jit, static_argnums=0)
    def _gradients(self, state: State, seg: Segment, noise: Noise) -> tuple[State, Params]:
        def one(state: State, inputs: Any) -> tuple[State, Params]:
            state, grads, _ = self._segment(state, *inputs)
            return state, grads

        return jax.lax.scan(one, state, (self._cut(seg), noise))

    def _segment(self, state: State, seg: Segment, noise: Noise) -> tuple[State, Params, Seen]:
        """One segment of all lanes: the mean gradient a step, and what was seen."""
        model, k, lanes = self._model, seg.reset.shape[1], state.s.shape[0]
        key = state.key
        if noise is None:
            key, now = jax.random.split(key)
            draws = repeat(self.estimator.draws(model, state.params, k), lanes)
            noise = sample(now, draws, jnp.dtype(self.dtype))

        def lane(params: Params, lane: Any) -> tuple[Any, Params]:
            s, memory, grads, seen = self.estimator.segment(model, params, *lane)
            return (s, memory, seen), grads

        run = over_lanes(lane, self.layout)
        (s, memory, seen), grads = run(state.params, (state.s, state.memory, seg, noise))
        grads = jax.tree.map(lambda g: g / k, grads)
        grads = grads._replace(cell=self.cell.project(grads.cell))
        return state._replace(s=s, memory=memory, key=key), grads, seen

    def _updated(self, state: State, grads: Params) -> State:
        updates, opt = self._optimiser.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, opt=opt)

    def _buffered(self, state: State, now: Segment, *, predictions: bool) -> tuple[State, Out]:
        """One step: predict at once, and learn when the segment is full."""
        buffer = state.buffer
        assert buffer is not None
        k, at = self.estimator.span, buffer.filled
        one = jax.tree.map(lambda a: a[:, None], now)
        ahead, seen = self._forward(state.params, state.s, one)
        start = jax.tree.map(lambda full, s: jnp.where(at == 0, s, full), buffer.start, state.s)
        steps = jax.tree.map(lambda full, a: full.at[:, at].set(a), buffer.steps, now)
        out = _out(jax.tree.map(lambda a: a[:, 0], seen), predictions)
        state = state._replace(buffer=Buffer((at + 1) % k, start, steps))

        def learn(state: State) -> State:
            state, grads, _ = self._segment(state._replace(s=start), steps, None)
            return self._updated(state, grads)

        return jax.lax.cond(at + 1 == k, learn, lambda st: st._replace(s=ahead), state), out

    # -- look -------------------------------------------------------------------------------------

    def evaluate(
        self, params: Params, x: Any, y: Any, *, reset: Any = None, predictions: bool = False
    ) -> Out:
        """Losses (steps, lanes) from the zero state, without learning."""
        seg = self._checked(None, x, y, reset, None)
        s = jnp.zeros((seg.reset.shape[1], self.cell.size), jnp.dtype(self.dtype))
        return self._evaluate(params, s, seg, predictions)

    @partial(jax.jit, static_argnums=(0, 4))
    def _evaluate(self, params: Params, s: Array, seg: Segment, predictions: bool) -> Out:
        lanes_first = jax.tree.map(lambda a: a.swapaxes(0, 1), seg)
        out = _out(self._forward(params, s, lanes_first)[1], predictions)
        return jax.tree.map(lambda a: a.swapaxes(0, 1), out)

    def _forward(self, params: Params, s: Array, seg: Segment) -> tuple[Array, Seen]:
        """The forward pass of all lanes: final states, and what was seen (lanes, k)."""
        model = self._model

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            def step(s: Array, now: Any) -> tuple[Array, Seen]:
                s = model.cell.step(params.cell, jnp.where(now.reset, jnp.zeros_like(s), s), now.x)
                prediction = model.readout.predict(params.readout, model.cell.output(s))
                return s, Seen(model.readout.loss(prediction, now.y), prediction)

            return jax.lax.scan(step, *lane), ()

        return over_lanes(lane, self.layout)(params, (s, seg))[0]

    def draws(self, lanes: int, steps: int | None = None) -> Draws:
        """What noise one segment of all lanes takes (for `noise=`, with an axis of segments)."""
        k = self.estimator.span or steps
        if k is None:
            raise ValueError("this estimator's segment is the whole run: say how many steps")
        model = Model(self.cell, self.readout)  # type: ignore[arg-type]
        params = jax.eval_shape(lambda: self._init(jax.random.key(0), 1)).params
        return repeat(self.estimator.draws(model, params, k), lanes)

    # -- with a loss of one's own -----------------------------------------------------------------

    def advance(
        self, state: State, x: Any, *, reset: Any = None, noise: Noise = None
    ) -> tuple[State, Float[Array, "lanes h"]]:
        """One step of every lane: states and traces move on; the cell's outputs are returned."""
        lanes = state.s.shape[0]
        x = jax.tree.map(self._cast, checks.stream(self.cell, x, (lanes,)))
        reset = checks.flags("reset", reset, (lanes,))
        return self._advance(state, x, reset, noise)

    @partial(jax.jit, static_argnums=0)
    def _advance(self, state: State, x: Any, reset: Any, noise: Noise) -> tuple[State, Array]:
        model = Model(self.cell, self.readout)  # type: ignore[arg-type]
        key = state.key
        if noise is None:
            key, now = jax.random.split(key)
            draws = repeat(self.estimator.draws(model, state.params, 1), state.s.shape[0])
            noise = sample(now, draws, jnp.dtype(self.dtype))

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            return self.estimator.advance(model, params, *lane), ()

        lanes = (state.s, state.memory, x, reset, noise)
        (s, memory), _ = over_lanes(lane, self.layout)(state.params, lanes)
        state = state._replace(s=s, memory=memory, key=key)
        return state, jax.vmap(self.cell.output)(s)

    def pull(self, state: State, delta: Float[Array, "lanes h"]) -> Any:
        """The cell's gradient for a δ = dL/d(output) of one's own: `δ·G`, averaged over lanes."""
        want = (state.s.shape[0], self.cell.outputs)
        if tuple(delta.shape) != want:
            raise ValueError(f"delta needs shape {want} (lanes, cell outputs), got {delta.shape}")
        checks.finite("delta", delta)
        return self._pull(state, self._cast(delta))

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
        if not isinstance(grads, Params):
            zeros = jax.tree.map(jnp.zeros_like, state.params)
            grads = zeros._replace(cell=grads)
        return self._update(state, grads)

    @partial(jax.jit, static_argnums=0)
    def _update(self, state: State, grads: Params) -> State:
        return self._updated(state, grads)

    # -- shapes -----------------------------------------------------------------------------------

    def _cast(self, a: Any) -> Array:
        a = jnp.asarray(a)
        return a.astype(self.dtype) if checks.floating(a) else a

    def _checked(
        self, state: State | None, x: Any, y: Any, reset: Any, weight: Any, one_step: bool = False
    ) -> Segment:
        """The data as a Segment (steps, lanes, ...)."""
        x = checks.array("x", x)
        if len(x.shape) < 2 or x.shape[0] < 1:
            raise ValueError(f"x needs shape (steps >= 1, lanes, ...), got {x.shape}")
        lanes = x.shape[1] if state is None else state.s.shape[0]
        lead = (x.shape[0], lanes)
        span = self.estimator.span
        if state is not None and state.buffer is None:
            if one_step and span != 1:
                raise ValueError(
                    f"{self.estimator.name} learns from segments of {span or 'all'} steps, got one "
                    "step and no buffer; use run, or init(key, lanes, example=(x, y))"
                )
            if lead[0] % (span or 1):
                raise ValueError(
                    f"{self.estimator.name} learns from segments of {span} steps: needed a "
                    f"multiple of {span} steps, got {lead[0]}; cut the data, or use "
                    "init(key, lanes, example=(x, y)) to carry unfinished segments over"
                )
        x = checks.stream(self.cell, x, lead)
        y = checks.targets(self._model.readout, y, lead)
        reset = checks.flags("reset", reset, lead)
        weight = checks.weights(weight, lead, self.dtype)
        return jax.tree.map(self._cast, Segment(x, y, reset, weight))

    def _checked_noise(self, state: State, seg: Segment, noise: Noise) -> Noise:
        if noise is None:
            return None
        if state.buffer is not None:
            raise ValueError("noise cannot be given to a buffered state; init without example")
        steps, lanes = seg.reset.shape
        k = self.estimator.span or steps
        checks.given_noise(noise, repeat_shapes(self.draws(lanes, steps), steps // k))
        return jax.tree.map(self._cast, noise)

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


def repeat_shapes(draws: Draws, segments: int) -> Any:
    """Draws as shapes, with a leading axis of segments."""
    wide = repeat(draws, segments)
    return jax.tree.map(
        lambda d: jax.ShapeDtypeStruct(d.shape, jnp.float32),
        wide,
        is_leaf=lambda d: hasattr(d, "probs"),
    )

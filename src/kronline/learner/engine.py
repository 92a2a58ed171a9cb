"""The compiled programs of a learner: segments of all lanes, one after another, in one scan."""

import functools
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from kronline import checks
from kronline.cells import Cell, LinearCell
from kronline.estimators import Estimator, Model, Params, Seen, Segment
from kronline.lanes import Layout, many_processes, over_lanes, placed
from kronline.learner.monitor import Spread, spread
from kronline.learner.state import Out, State, out
from kronline.linearised import gradients as gr
from kronline.noise import Noise, for_lanes, keys, size, tick, words
from kronline.readout import Readout
from kronline.regularise import Regulariser

DRAWN_AHEAD = 1 << 18  # at most so many random numbers are drawn in advance


@dataclass(frozen=True, eq=False)
class Engine:
    """A learner's settings, and the programs compiled for them. Data is checked before.

    There is one for equal settings, `engine_of`, so that engines are compared by identity: programs
    are looked up by their engine at every call.
    """

    cell: Cell
    readout: Readout | None
    estimator: Estimator
    optimiser: optax.GradientTransformation  # behind its average over several segments, if any
    layout: Layout
    dtype: str
    regularisers: tuple[Regulariser, ...]

    @property
    def model(self) -> Model:
        """What is differentiated, including the regularisers' terms of the loss."""
        readout = self.readout
        for r in self.regularisers:
            readout = readout and r.read(readout)
        return Model(self.cell, readout)

    # -- start ------------------------------------------------------------------------------------

    def params(self, key: Key[Array, ""]) -> Params:
        """All that is learnt, from a key."""
        k_cell, k_readout, k_estimator = jax.random.split(key, 3)
        dtype = jnp.dtype(self.dtype)
        readout: Any = ()
        if self.readout is not None:
            readout = self.readout.init(k_readout, self.cell.outputs, dtype)
        own = self.estimator.init_params(k_estimator, self.model, dtype)
        return Params(self.estimator.init_cell(k_cell, self.cell, dtype), readout, own)

    @functools.lru_cache(maxsize=64)  # noqa: B019  an engine is a value, and small
    def shapes(self) -> Params:
        """The parameters' shapes."""
        return jax.eval_shape(lambda: self.params(jax.random.key(0)))

    @partial(jax.jit, static_argnums=(0, 2))
    def fresh(self, key: Key[Array, ""], lanes: int) -> State:
        """Parameters from the key, lanes at zero, empty traces."""
        k_params, key = jax.random.split(key)
        params = self.params(k_params)
        state = self.start(params, self.estimator.init(self.model, params), key, lanes)
        return self.placed(state)

    def placed(self, state: State) -> State:
        """The state, each part on the devices that it belongs to (`lanes.placed`)."""
        return jax.tree.map(
            lambda a, axis: placed(self.layout, a, None if axis < 0 else axis), state, state.axes()
        )

    def start(self, params: Params, memory: Any, key: Key[Array, ""], lanes: int) -> State:
        """Lanes at zero, one lane's memory repeated for all, a new optimiser state."""
        every = jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape)), memory)
        s = jnp.zeros((lanes, self.cell.size), jnp.dtype(self.dtype))
        return State(
            params,
            self.optimiser.init(params),
            s,
            every,
            words(key),
            clock=jnp.zeros(2, jnp.uint32),
            anew=jnp.zeros(lanes, bool),
            skipped=jnp.zeros((), jnp.int32),
        )

    # -- learn ------------------------------------------------------------------------------------

    def run(
        self,
        state: State,
        seg: Segment,
        noise: Noise,
        predictions: bool,
        norms: bool,
        monitor: bool,
    ) -> tuple[State, Out]:
        """Learn from steps (steps, lanes), segment by segment."""

        def one(state: State, inputs: Any, learns: Any) -> tuple[State, tuple[Out, Any]]:
            state, grads, seen, apart = self.segment(state, *inputs, monitor=monitor)
            norm = jnp.sqrt(gr.norm2(grads)) if norms else None
            state = self.placed(self.updated(state, grads, learns))
            return state, (out(seen, predictions), (norm, apart))

        cut = self._cut(self.typed(seg))
        # for all segments at once: over processes each look at all lanes is a round of messages
        learns = placed(self.layout, jax.vmap(has_target)(cut), None)
        state, (seen, (norm, apart)) = self._scan(one, state, cut, noise, learns)
        seen = placed(self.layout, jax.tree.map(_time_first, seen), 1)
        norm, apart = placed(self.layout, (norm, apart), None)
        return state, seen._replace(norm=norm, spread=apart)

    run_kept = jax.jit(run, static_argnums=(0, 4, 5, 6))
    run_in_place = jax.jit(run, static_argnums=(0, 4, 5, 6), donate_argnums=1)

    @partial(jax.jit, static_argnums=(0, 4))
    def gradients(
        self, state: State, seg: Segment, noise: Noise, average: bool
    ) -> tuple[State, Params]:
        """The gradient of every segment, with the parameters left as they are."""

        def one(state: State, inputs: Any, _: Any) -> tuple[State, Params]:
            state, grads, _, _ = self.segment(state, *inputs, average=average)
            # nothing is updated, so that nothing is left out, and no lane starts anew for it
            return state._replace(anew=jnp.zeros_like(state.anew)), grads

        return self._scan(one, state, self._cut(self.typed(seg)), noise)

    def _scan(
        self, one: Any, state: State, seg: Segment, noise: Noise, more: Any = None
    ) -> tuple[State, Any]:
        """`one(state, (segment, noise), more)` over segments; noise is drawn for many at once."""

        def scanned(state: State, seg: Segment, noise: Noise, more: Any) -> tuple[State, Any]:
            return jax.lax.scan(lambda s, a: one(s, a[:2], a[2]), state, (seg, noise, more))

        if noise is not None:
            noise = jax.tree.map(lambda a: jnp.asarray(a, jnp.dtype(self.dtype)), noise)
            return scanned(state, seg, noise, more)
        count, lanes, k = seg.reset.shape
        numbers = lanes * size(self.estimator.draws(self.model, state.params, k))
        ahead = min(count, max(1, DRAWN_AHEAD // max(numbers, 1)))
        parts = (seg, more)

        def several(state: State, parts: Any) -> tuple[State, Any]:
            seg, more = parts
            state, noise = self.drawn(state, k, seg.reset.shape[0])
            return scanned(state, seg, noise, more)

        whole = count // ahead * ahead
        blocks = jax.tree.map(lambda a: a[:whole].reshape(-1, ahead, *a.shape[1:]), parts)
        if whole == ahead:  # one block: no outer loop
            state, out = several(state, jax.tree.map(lambda a: a[0], blocks))
        else:
            state, out = jax.lax.scan(several, state, blocks)
            out = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)
        if whole < count:
            state, rest = several(state, jax.tree.map(lambda a: a[whole:], parts))
            out = jax.tree.map(lambda *both: jnp.concatenate(both), out, rest)
        return state, out

    def drawn(self, state: State, k: int, segments: int) -> tuple[State, Noise]:
        """Noise for segments of k steps, on a leading axis."""
        lanes, dtype = state.s.shape[0], jnp.dtype(self.dtype)

        def draw(key: Array) -> Noise:
            draws = self.estimator.draws(self.model, state.params, k)
            return for_lanes(key, draws, lanes, dtype)

        noise = jax.vmap(draw)(keys(state.key, state.clock, segments))
        noise = placed(self.layout, noise, 1)
        return state._replace(clock=tick(state.clock, segments)), noise

    def segment(
        self,
        state: State,
        seg: Segment,
        noise: Noise,
        *,
        active: Bool[Array, " lanes"] | None = None,
        average: bool = True,
        monitor: bool = False,
    ) -> tuple[State, Params, Seen, Spread | None]:
        """One segment of all lanes: the mean gradient per step, losses, and the lanes' spread.

        The spread is that of the estimator's gradient, without the regularisers' terms. Where
        lanes are not active, they stay as they are, and the mean is that of the others.
        """
        k = seg.reset.shape[1]
        first = jnp.arange(k)[None] == 0
        seg = seg._replace(reset=seg.reset | (first & state.anew[:, None]))
        if active is not None:
            seg = seg._replace(weight=jnp.where(active[:, None], seg.weight, 0))

        def lane(params: Params, lane: Any) -> tuple[Any, Any]:
            s, memory, grads, seen = self.estimator.segment(self.model, params, *lane)
            norm2 = self._norm2(grads.cell) / k**2 if monitor else None
            return (s, memory, seen, norm2), (grads, self._penalties(params, lane))

        lanes = (state.s, state.memory, seg, noise)
        run = over_lanes(lane, self.layout, average=average, blame=True, apart=monitor)
        ((s, memory, seen, norm2), bad), (grads, more) = run(state.params, lanes)
        # a lane's gradient, state or loss is not finite: it starts anew at its next step
        lost = ~jnp.isfinite(jnp.where(seg.weight != 0, seen.loss, 0)).all(1)
        anew = bad | lost | ~jnp.isfinite(s).all(1)
        if active is not None:
            s, memory, anew = jax.tree.map(
                lambda new, old: jnp.where(along(active, new), new, old),
                (s, memory, anew),
                (state.s, state.memory, state.anew),
            )
            grads, more = jax.tree.map(
                lambda g: g * (active.size / jnp.maximum(active.sum(), 1)), (grads, more)
            )
        grads = jax.tree.map(lambda g: g / k, grads)
        project = self.cell.project if average else jax.vmap(self.cell.project)
        grads = grads._replace(cell=project(grads.cell))
        apart = spread(norm2.mean(), grads.cell, norm2.size) if monitor else None
        for g in more:
            grads = grads._replace(cell=jax.tree.map(jnp.add, grads.cell, project(g)))
        return state._replace(s=s, memory=memory, anew=anew), grads, seen, apart

    def _penalties(self, params: Params, lane: Any) -> list[Any]:
        """The regularisers' terms of the cell's gradient per step, for one lane's segment."""
        s, memory, seg, _ = lane
        x = jax.tree.map(lambda a: a[0], seg.x)
        now = (self.model, params, s, memory, x, seg.reset[0])
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

    def updated(self, state: State, grads: Params, learns: Bool[Array, ""] | None = None) -> State:
        """The state after an update: optimiser, fixed parameters, constraints.

        Parameters and optimiser stay as they are where nothing is to be learnt, and where the
        update is not finite; the latter is counted. If no single lane is to blame for it, as where
        only the sum over lanes overflows, all lanes start anew.

        Args:
            state: with the lanes after the segment.
            grads: the mean gradient.
            learns: whether there was a target; None: yes.
        """
        updates, opt = self.optimiser.update(grads, state.opt, state.params)
        updates = self.estimator.allowed(updates)
        params = optax.apply_updates(state.params, updates)
        for r in self.regularisers:
            params = params._replace(cell=r.constrained(self.cell, params.cell))
        # ‖g‖² and ‖Δθ‖²: of squares, since most optimisers keep these
        fine = gr.finite_norm(grads) & gr.finite_norm(updates)
        yes = jnp.ones((), bool) if learns is None else learns
        params, opt = jax.tree.map(
            lambda new, old: jnp.where(yes & fine, new, old),
            (params, opt),
            (state.params, state.opt),
        )
        skip = yes & ~fine
        return state._replace(
            params=params,
            opt=opt,
            anew=self._blamed(state.anew, skip),
            skipped=state.skipped + skip,
        )

    def _blamed(self, anew: Bool[Array, " lanes"], skip: Bool[Array, ""]) -> Bool[Array, " lanes"]:
        """All lanes start anew, if an update was left out for which no single lane is to blame."""
        if not many_processes(self.layout):
            return anew | (skip & ~jnp.any(anew))
        # a look at all lanes is a round of messages between processes, so only where it is needed
        return jax.lax.cond(skip, lambda a: a | ~jnp.any(a), lambda a: a, anew)

    # -- data -------------------------------------------------------------------------------------

    def floats(self, a: Any) -> Array:
        """Real numbers in the learner's precision, anything else as it is."""
        a = jnp.asarray(a)
        return a.astype(self.dtype) if checks.floating(a) else a

    def typed(self, seg: Segment) -> Segment:
        """The data in the learner's types; without resets and weights, none and ones."""
        dtype = jnp.dtype(self.dtype)
        assert self.readout is not None
        wanted = {"symbols": jnp.int32, "vectors": dtype}.get(self.readout.targets)
        x = self.inputs(seg.x)
        lead = x.shape[:-1] if checks.floating(x) else x.shape
        return Segment(
            x=x,
            y=jax.tree.map(lambda a: jnp.asarray(a, wanted) if wanted else self.floats(a), seg.y),
            reset=jnp.zeros(lead, bool) if seg.reset is None else jnp.asarray(seg.reset),
            weight=jnp.ones(lead, dtype) if seg.weight is None else jnp.asarray(seg.weight, dtype),
        )

    def inputs(self, x: Any) -> Array:
        """Inputs in the learner's types: symbols as int32."""
        x = self.floats(x)
        return x if checks.floating(x) else x.astype(jnp.int32)

    def _cut(self, seg: Segment) -> Segment:
        """(steps, lanes, ...) -> (segments, lanes, k, ...)."""
        k = self.estimator.span or seg.reset.shape[0]
        cut = jax.tree.map(lambda a: a.reshape(-1, k, *a.shape[1:]).swapaxes(1, 2), seg)
        return placed(self.layout, cut, 1)


@functools.lru_cache(maxsize=256)
def engine_of(*settings: Any) -> Engine:
    """The engine of these settings."""
    return Engine(*settings)


def has_target(seg: Segment) -> Bool[Array, ""]:
    """Whether any step of any lane has a target: a loss weight that is not zero."""
    return jnp.any(seg.weight != 0)


def along(lanes: Bool[Array, " lanes"], a: Array) -> Bool[Array, "lanes ..."]:
    """Flags per lane, with as many axes as `a`."""
    return lanes.reshape(-1, *(1,) * (a.ndim - 1))


def _time_first(a: Array) -> Array:
    """(segments, lanes, k, ...) -> (steps, lanes, ...)."""
    a = a.swapaxes(1, 2)
    return a.reshape(-1, *a.shape[2:])

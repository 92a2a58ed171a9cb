"""Cell + readout + estimator + optimiser: a network that learns while it runs."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from kronline import checks
from kronline.cells import Cell
from kronline.estimators import Estimator, Params, Segment
from kronline.lanes import Layout, Vmap, many_processes
from kronline.learner import given, look, own_loss, settings, single
from kronline.learner.engine import Engine, engine_of
from kronline.learner.live import Live
from kronline.learner.state import Out, State
from kronline.noise import Draws, Noise, repeat, words
from kronline.readout import Readout
from kronline.regularise import Regulariser


@dataclass(frozen=True)
class Learner:
    """A network that learns while it runs: pure functions of a `State`, and their settings.

    Args:
        cell: a recurrent cell, `RHN(hidden, inputs)` for instance.
        readout: `softmax(symbols)`, `linear(outputs)`, `Readout(outputs, loss)`; None for a loss of
            one's own, with `advance`, `pull` and `update`.
        estimator: `kf_rtrl()`, `uoro()`, `rtrl()`, `tbptt(k)`, `bptt()`, `Online(trace, window)`.
        optimiser: any optax optimiser.
        layout: how lanes are laid out (`kronline.lanes`).
        update_every: steps between updates, a multiple of the estimator's window; None: one update
            per gradient. Gradients are averaged in between.
        dtype: "float32" or "float64" (which needs `jax.config.update("jax_enable_x64", True)`).
        donate: let `run` and `step` work in the memory of the state that they are given. Saves a
            copy of all traces per call; the old state, its parameters included, cannot be used
            again.
        regularisers: `(regularise.row_norm(1.0), ...)`: constraints and penalties beside the loss.
        delay: how many steps after its input a target comes. `step(state, x, y)` then predicts for
            x, and learns from y as the target of the input `delay` steps before. State and trace
            follow that many steps behind, so that the gradient is what it would be without a delay;
            predictions are made from a second state that is up to date. Needs `init(...,
            example=(x, y))`.

    An update that is not finite is left out and counted, `state.skipped`; the lanes whose state,
    loss or gradient it came from start anew at their next step. A step in which no lane has a
    target, or in which all loss weights are 0, changes neither parameters nor optimiser.

    Example:
        >>> import jax, numpy as np, optax, kronline as kl
        >>> learner = kl.Learner(kl.RHN(8, 4), kl.softmax(4), kl.kf_rtrl(), optax.adam(1e-3))
        >>> state = learner.init(jax.random.key(0), lanes=2)
        >>> x = np.zeros((10, 2), int)  # symbols, (steps, lanes)
        >>> state, out = learner.run(state, x, x)
        >>> out.loss.shape
        (10, 2)
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
    delay: int = 0

    def __post_init__(self) -> None:
        settings.check(self)

    @cached_property
    def engine(self) -> Engine:
        """The settings, and the programs that are compiled for them."""
        every, optimiser = (self.update_every or 0) // (self.estimator.span or 1), self.optimiser
        if every > 1:
            optimiser = optax.MultiSteps(optimiser, every).gradient_transformation()
        return engine_of(
            self.cell,
            self.readout,
            self.estimator,
            optimiser,
            self.layout,
            self.dtype,
            self.regularisers,
        )

    # -- start ------------------------------------------------------------------------------------

    def init(
        self, key: Key[Array, ""], lanes: int = 1, example: Any = None, *, readout: Any = ()
    ) -> State:
        """A fresh state: parameters from the key, lanes at zero, empty traces.

        Args:
            key: from `jax.random.key(seed)`.
            lanes: how many streams there are.
            example: `(x, y)` of one step, for `step` with a window of k > 1: the steps of a segment
                are then kept in a buffer until it is full. With a loss of one's own: the input x of
                one step, for estimators that keep it (`window=1`, `rolling_tbptt`).
            readout: with a loss of one's own, the parameters of one's own readout, if they are to
                be in `state.params.readout` and learnt by the same optimiser.

        Returns:
            the state, all of it arrays.
        """
        checks.start(key, lanes, self.dtype)
        if self.readout is not None and jax.tree.leaves(readout):
            raise ValueError("this learner has a readout; parameters of your own need readout=None")
        if self.readout is not None:
            return single.with_room(self.engine, self.engine.fresh(key, lanes), example, self.delay)
        k_params, key = jax.random.split(key)
        params = self.engine.params(k_params)._replace(readout=readout)
        return self.start(params, key, lanes, example)

    def start(
        self, params: Params, key: Key[Array, ""], lanes: int = 1, example: Any = None
    ) -> State:
        """A fresh state around given parameters: lanes at zero, empty traces, a new optimiser.

        Args:
            params: all that is learnt.
            key: of the noise.
            lanes, example: as for `init`.

        Returns:
            the state.
        """
        checks.alive("these parameters", params)
        if self.donate:  # the caller's arrays are copied, so that they are not overwritten
            params, key = jax.tree.map(jnp.copy, params), jnp.copy(words(key))
        engine = self.engine
        if self.readout is None:
            kept = own_loss.kept_input(engine, example, lanes)
            memory = own_loss.of(engine).init(engine.model, params, kept)
            return engine.start(params, memory, key, lanes)
        state = engine.start(params, self.estimator.init(engine.model, params), key, lanes)
        if many_processes(self.layout):
            state = jax.jit(engine.placed)(state)
        return single.with_room(engine, state, example, self.delay)

    # -- learn ------------------------------------------------------------------------------------

    def run(
        self,
        state: State,
        x: Any,
        y: Any = None,
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
            x: symbols (steps, lanes) or vectors (steps, lanes, inputs); or a `Segment` that holds
                x, y, reset and weight, all of them (steps, lanes, ...).
            y: targets, as the readout needs them; None: there are none, nothing is learnt, and
                losses are 0.
            reset: booleans (steps, lanes): the lane's state and trace start anew before this step.
            weight: loss weights (steps, lanes).
            noise: replaces the draws from the state's key: `draws(lanes)` with a leading axis of
                segments.
            predictions: also return the predictions.
            norms: also return the 2-norm of each segment's gradient.
            monitor: also return signal and noise of the gradient, estimated from how lanes differ
                (`out.spread.snr`); None for one lane.

        Returns:
            the new state, and losses (steps, lanes). Gradients are averaged over lanes, and those
            of a segment are divided by its length, never by the sum of the weights.
        """
        seg = given.segment(self.engine, state, x, y, reset, weight, noise)
        if state.buffer is not None or state.pending is not None:
            if norms or monitor:
                name = "norms need" if norms else "monitor needs"
                raise ValueError(f"{name} a state without a buffer; init without example")
            waiting = single.run_in_place if self.donate else single.run
            state, out = waiting(self.engine, state, seg, predictions)
            return state, _unscored(out, x, y)
        run = Engine.run_in_place if self.donate else Engine.run_kept
        state, out = run(self.engine, state, seg, noise, predictions, norms, monitor)
        return state, _unscored(out, x, y)

    def step(
        self,
        state: State,
        x: Any,
        y: Any = None,
        *,
        reset: Any = None,
        weight: Any = None,
        active: Any = None,
        lanes: Any = None,
        noise: Noise = None,
    ) -> tuple[State, Out]:
        """Learn from one time step of every lane: `run` without the leading axis.

        Without targets the lanes move on, and nothing is learnt. With a window of k > 1 the step
        waits in a buffer, which `init(..., example=(x, y))` makes; predictions come at once, an
        update when a lane has k steps.

        Args:
            state, x, y, reset, weight, noise: as for `run`, without the axis of steps; `y=None`:
                there is no target.
            active: booleans (lanes,): which lanes have an event. The others keep state and trace,
                bit for bit, and what x, y, reset and weight hold for them is not looked at. The
                gradient is the mean over the active lanes.
            lanes: instead, the numbers of the lanes that have an event, each once: x, y, reset,
                weight and noise, and what is returned, then hold these lanes only, in this order.
                The cost is that of these lanes.

        Returns:
            the new state, and losses and predictions (lanes, ...). Without targets, losses are 0.
            With a delay, losses are those of what is learnt now, 0 before the first target counts.
        """
        if self.estimator.span is None:
            raise ValueError(f"{self.estimator.name} learns from a whole run; use run, or tbptt(k)")
        if active is not None or lanes is not None:
            return self._some(state, x, y, reset, weight, active, lanes, noise)
        seg = given.segment(self.engine, state, x, y, reset, weight, noise, (state.s.shape[0],))
        step = single.step_in_place if self.donate else single.step
        state, seen = step(self.engine, state, seg, noise)
        return state, _unscored(seen, x, y)

    def peek(
        self, state: State, x: Any, *, reset: Any = None, lanes: Any = None
    ) -> Float[Array, "lanes o"]:
        """The predictions for one step that is not taken: the state does not move on.

        Args:
            state, x, reset, lanes: as for `step`.

        Returns:
            predictions, as `step` would return them.

        Example:
            >>> import jax, numpy as np, optax, kronline as kl
            >>> learner = kl.Learner(kl.GRU(8, 3), kl.linear(1), kl.rtrl(), optax.sgd(0.1))
            >>> state, x = learner.init(jax.random.key(0)), np.ones((1, 3))
            >>> seen = learner.peek(state, x)
            >>> bool((seen == learner.step(state, x)[1].prediction).all())
            True
        """
        if self.readout is None:
            raise TypeError("peek needs a readout; with a loss of your own, use advance")
        at = None if lanes is None else checks.some_lanes(lanes, state.s.shape[0])
        x, reset = given.inputs(self.engine, state, x, reset, None if at is None else len(at))
        return single.peek(self.engine, state, at, x, reset)

    def live(self, state: State) -> Live:
        """For a stream: the learner with its state, to be fed event by event.

        A `step` of it takes a third of the time of this learner's own, for small networks.

        Args:
            state: from `init`, `load` or a run; it is copied.

        Returns:
            what learns, with `step`, and `state` whenever it is wanted.
        """
        if self.readout is None or self.estimator.span is None:
            raise TypeError("live needs a readout, and an estimator that learns step by step")
        checks.alive("this state", state.s, state.params)
        return Live(self, state)

    def _some(
        self,
        state: State,
        x: Any,
        y: Any,
        reset: Any,
        weight: Any,
        active: Any,
        lanes: Any,
        noise: Noise,
    ) -> tuple[State, Out]:
        """A step of some lanes only, their number rounded up to a power of two."""
        count = state.s.shape[0]
        every = active is not None
        if every and lanes is not None:
            raise ValueError("a step takes active= or lanes=, not both")
        if every:
            at = np.flatnonzero(checks.flags("active", active, (count,)))
            x, y, reset, weight = jax.tree.map(
                lambda a: checks.rows(a, at, count), (x, y, reset, weight)
            )
        else:
            at = checks.some_lanes(lanes, count)
        if not at.size:
            return state, single.nothing(self.engine, count if every else 0)
        seg = given.segment(self.engine, state, x, y, reset, weight, noise, (at.size,))
        (seg, noise), places, more = single.places((seg, noise), at, count)
        some = single.some_in_place if self.donate else single.some
        state, seen = some(self.engine, more, state, places, seg, noise)
        seen = _unscored(seen, x, y)
        if every:
            return state, jax.tree.map(lambda a: _spread(a, at, count), seen)
        return state, jax.tree.map(lambda a: a[: at.size], seen) if more else seen

    def gradients(
        self,
        state: State,
        x: Any,
        y: Any = None,
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
        seg = given.segment(self.engine, state, x, y, reset, weight, noise)
        return self.engine.gradients(state, seg, noise, average)

    # -- look -------------------------------------------------------------------------------------

    def evaluate(
        self, params: Params, x: Any, y: Any, *, reset: Any = None, predictions: bool = False
    ) -> Out:
        """Losses from the zero state, without learning.

        Args:
            params: as in a state.
            x, y, reset: as for `run`.
            predictions: also return the predictions.

        Returns:
            losses (steps, lanes).
        """
        checks.alive("these parameters", params)
        x, lead = checks.steps(x)
        seg = checks.segment(self.cell, self.readout, lead, x, y, reset, None, self.dtype)
        return look.evaluate(self.engine, params, seg, predictions)

    def noise_share(
        self, state: State, x: Any, *, reset: Any = None
    ) -> Float[Array, " lanes"] | None:
        """The share of noise in each lane's trace, by the closed form: `v/(‖HG' + F‖² + v)`.

        v is the variance that a step with this input would add to the trace G', and HG' + F the
        mean of the new trace: 0 is exact, 1 is noise alone. For KF-TBPTT, v is that of all steps so
        far, and the sum is ‖G'‖².

        Args:
            state, x, reset: as for `step`.

        Returns:
            the share of each lane; None for estimators without a formula.
        """
        x, reset = given.inputs(self.engine, state, x, reset)
        return look.noise_share(self.engine, state, x, reset)

    def draws(self, lanes: int, steps: int | None = None) -> Draws:
        """The noise of one segment of all lanes, as `noise=` takes it, without its first axis.

        Args:
            lanes: how many.
            steps: of the segment, for `bptt()`, whose segment is a whole run.

        Returns:
            a tree of `Draw`.
        """
        return given.draws(self.engine, lanes, steps)

    # -- with a loss of one's own -----------------------------------------------------------------

    def advance(
        self, state: State, x: Any, *, reset: Any = None, noise: Noise = None
    ) -> tuple[State, Float[Array, "lanes h"]]:
        """One step of every lane, for a loss of one's own: new states and traces.

        Args:
            state: of a learner with `readout=None`.
            x, reset: of one step, as for `step`.
            noise: replaces the draws from the state's key.

        Returns:
            the new state, and the cell's outputs h, of which the loss is a function.

        Example:
            >>> import jax, jax.numpy as jnp, optax, kronline as kl
            >>> learner = kl.Learner(kl.GRU(8, 3), None, kl.kf_rtrl(), optax.sgd(0.1))
            >>> state = learner.init(jax.random.key(0), lanes=2)
            >>> state, h = learner.advance(state, jnp.ones((2, 3)))
            >>> delta = jax.grad(lambda h: jnp.sum(h**2))(h)  # dL/dh of each lane
            >>> state = learner.update(state, learner.pull(state, delta))
        """
        own = own_loss.of(self.engine)
        x, reset = given.inputs(self.engine, state, x, reset)
        if noise is not None:
            draws = own.draws(self.engine.model, self.engine.shapes())
            checks.given_noise(noise, repeat(draws, state.s.shape[0]))
        return own_loss.advance(self.engine, own, state, x, reset, noise)

    def pull(self, state: State, delta: Float[Array, "lanes h"], *, average: bool = True) -> Any:
        """The cell's gradient for a δ = dL/d(output) of one's own.

        Args:
            state: after `advance`, and before `update` or the next `advance`.
            delta: dL/d(output) of each lane, (lanes, outputs).
            average: False: every lane's own gradient, on a leading axis: for eligibility traces.

        Returns:
            the gradient `δ·ds/dθ` in the shape of the cell's parameters, averaged over lanes.
        """
        own = own_loss.of(self.engine)
        checks.alive("this state", state.s, state.params)
        delta = checks.array("delta", delta)
        checks.vectors("delta", delta, (state.s.shape[0], self.cell.outputs), self.dtype)
        delta = jnp.asarray(delta, jnp.dtype(self.dtype))
        return own_loss.pull(self.engine, own, state, delta, average)

    def update(self, state: State, grads: Any, *, readout: Any = None) -> State:
        """Hand gradients to the optimiser.

        Args:
            state: whose parameters are updated.
            grads: the cell's alone, as `pull` gives them, or `Params`.
            readout: the gradient of the parameters of one's own readout; None: zero.

        Returns:
            the state with new parameters.
        """
        checks.alive("this state", state.s, state.params)
        if not isinstance(grads, Params):
            zero = jax.tree.map(jnp.zeros_like, state.params)
            grads = zero._replace(cell=grads)
        if readout is not None:
            grads = grads._replace(readout=readout)
        return own_loss.update(self.engine, state, grads)


def _unscored(out: Out, x: Any, y: Any) -> Out:
    """Losses of 0 where there were no targets."""
    if y is not None or isinstance(x, Segment):
        return out
    return out._replace(loss=jnp.zeros_like(out.loss))


def _spread(a: Array, at: np.ndarray, lanes: int) -> Array:
    """What was seen of some lanes, in its place among all of them; 0 for the others."""
    return jnp.zeros((lanes, *a.shape[1:]), a.dtype).at[at].set(a[: at.size])

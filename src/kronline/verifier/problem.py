"""A small problem in float64, and its exact gradients by plain reverse mode over the whole past."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kronline.cells.base import Cell
from kronline.estimators.base import Estimator, Model, Params
from kronline.learner import Learner, State
from kronline.linearised.gradients import written_out
from kronline.readout import softmax
from kronline.traces import Trace

READOUT = softmax(3)
STILL = optax.sgd(0.0)  # one object, so that equal learners share their compiled programs


@dataclass(frozen=True)
class Problem:
    """Random data and parameters; one lane, a reset inside, loss weights that differ."""

    cell: Cell
    steps: int
    symbols: bool = False  # inputs are symbols, not vectors
    seed: int = 0
    reset: int = 1  # the step before which there is a reset

    @cached_property
    def data(self) -> dict[str, Any]:
        """x, y, reset, weight, as `learner.gradients` takes them."""
        rng = np.random.default_rng(self.seed)
        reset = np.zeros((self.steps, 1), bool)
        # at least two connected steps follow the reset, or there is none
        if self.steps > 2:
            reset[self.reset] = True
        symbols = rng.integers(0, self.cell.inputs, (self.steps, 1))
        vectors = rng.normal(size=(self.steps, 1, self.cell.inputs))
        return {
            "x": symbols if self.symbols else vectors,
            "y": rng.integers(0, READOUT.outputs, (self.steps, 1)),
            "reset": reset,
            "weight": rng.uniform(0.5, 1.5, (self.steps, 1)),
        }

    @cached_property
    def params(self) -> Params:
        """Parameters so large that every nonlinearity matters."""
        rng = np.random.default_rng(self.seed)

        def start() -> Params:
            key, dtype = jax.random.key(0), jnp.float64
            readout = READOUT.init(key, self.cell.outputs, dtype)
            return Params(self.cell.init(key, dtype), readout)

        shapes = jax.eval_shape(start)
        params = jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.7, a.shape)), shapes)
        return params._replace(cell=self.cell.project(params.cell))

    def learner(self, estimator: Estimator) -> Learner:
        """The library's own path for this problem."""
        return Learner(self.cell, READOUT, estimator, STILL, dtype="float64")

    def start(self, learner: Learner, lanes: int = 1) -> State:
        """A fresh state with the problem's parameters."""
        key = jax.random.key(self.seed)
        own = learner.estimator.init_params(key, Model(self.cell, READOUT), jnp.float64)
        return learner.start(self.params._replace(estimator=own), key, lanes)

    @cache  # noqa: B019
    def gradients(self) -> Params:
        """`weight_t dL_t/dθ` for every t, (steps, ...): reverse mode over the whole past."""
        y, weight = self.data["y"][:, 0], self.data["weight"][:, 0]

        def losses(params: Params) -> Any:
            def loss(s: Any, y: Any, weight: Any) -> Any:
                return weight * READOUT.loss(
                    READOUT.predict(params.readout, self.cell.output(s)), y
                )

            return jax.vmap(loss)(self._states(params.cell), y, weight)

        grads = jax.jit(jax.jacrev(losses))(self.params)
        return grads._replace(cell=jax.vmap(self.cell.project)(grads.cell))

    def truncated(self, horizon: int, every: int) -> Params:
        """The mean gradient of `every` losses at a time, (steps/every, ...), through a window.

        It holds the losses' own steps, and the `horizon − 1` before the first of them.
        """
        y, weight, t = self.data["y"][:, 0], self.data["weight"][:, 0], jnp.arange(self.steps)

        def block(first: Any) -> Params:
            def total(params: Params) -> Any:
                def loss(s: Any, y: Any) -> Any:
                    return READOUT.loss(READOUT.predict(params.readout, self.cell.output(s)), y)

                states = self._states(params.cell, constant=first - horizon + 1)
                of_block = (t >= first) & (t < first + every)
                return jnp.sum(of_block * weight * jax.vmap(loss)(states, y)) / every

            return jax.grad(total)(self.params)

        grads = jax.jit(jax.vmap(block))(jnp.arange(0, self.steps, every))
        return grads._replace(cell=jax.vmap(self.cell.project)(grads.cell))

    @cache  # noqa: B019
    def jacobians(self) -> Any:
        """`G_t = ds_t/dθ` for every t, (steps, N, ...)."""
        return jax.jit(jax.jacrev(self._states))(self.params.cell)

    def _states(self, cell_params: Any, constant: Any = 0) -> Any:
        """The states after each step, (steps, N); before step `constant` they are constants."""

        def step(s: Any, now: Any) -> Any:
            x, reset, t = now
            s = jnp.where(t == constant, jax.lax.stop_gradient(s), s)
            s = self.cell.step(cell_params, jnp.where(reset, jnp.zeros_like(s), s), x)
            return s, s

        now = (self.data["x"][:, 0], self.data["reset"][:, 0], jnp.arange(self.steps))
        return jax.lax.scan(step, jnp.zeros(self.cell.size), now)[1]


def dense(trace: Trace, memory: Any, size: int) -> Any:
    """The trace as a matrix (N, |θ|), row by row: `e_i·Ĝ`."""
    rows = jax.vmap(lambda e: written_out(trace.pull(memory, e)))(jnp.eye(size))
    return jnp.concatenate([a.reshape(size, -1) for a in jax.tree.leaves(rows)], axis=1)


def flat(tree: Any, axes: int) -> np.ndarray:
    """All leaves side by side, keeping the first `axes` axes."""
    leaves = [np.asarray(a) for a in jax.tree.leaves(tree)]
    return np.concatenate([a.reshape(*a.shape[:axes], -1) for a in leaves], axis=-1)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """The largest relative error over rows: `max_t ‖got_t − want_t‖ / ‖want_t‖`."""
    size = np.linalg.norm(want, axis=-1)
    error = np.linalg.norm(got - want, axis=-1)
    return float(np.max(error / np.where(size > 0, size, 1)))

"""The network of a stream model: a learner whose inputs, outputs and lanes can grow."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.cells import Cell
from kronline.learner import Learner, State
from kronline.readout import Readout

Make = Callable[[int, int], Learner]  # of so many inputs and outputs
Targets = Callable[[int, int], Any]  # of so many lanes and outputs


class Network:
    """A learner and its state, one lane per key.

    Args:
        make: the learner of so many inputs and outputs.
        targets: targets that stand for none, of so many lanes and outputs.
        inputs, outputs: at the start.
        seed: of the parameters and the noise.
    """

    def __init__(self, make: Make, targets: Targets, inputs: int, outputs: int, seed: int) -> None:
        self.make, self.targets, self.seed = make, targets, seed
        self.learner = make(inputs, outputs)
        self.state = self._fresh(self.learner, 1)

    @property
    def state(self) -> State:
        """The learner's state, as a copy; setting it goes on from there."""
        return self._live.state

    @state.setter
    def state(self, state: State) -> None:
        self._live = self.learner.live(state)

    @property
    def lanes(self) -> int:
        """How many there are."""
        return self._live.lanes

    def _fresh(self, learner: Learner, lanes: int) -> State:
        example = None
        if learner.estimator.span != 1:
            assert learner.readout is not None
            x = np.zeros((lanes, learner.cell.inputs), np.float32)
            example = (x, self.targets(lanes, learner.readout.outputs))
        return learner.init(jax.random.key(self.seed), lanes, example)

    def predict(
        self, x: np.ndarray, lanes: np.ndarray, anew: np.ndarray
    ) -> Float[np.ndarray, "events o"]:
        """Predictions for events (events, inputs) of these lanes, which do not move on."""
        m = len(x)
        if m > 1:  # a power of two, so that few programs are compiled
            size = 1 << (m - 1).bit_length()
            x, lanes, anew = (_padded(a, size) for a in (x, lanes, anew))
        some = None if m == self.lanes == 1 else lanes  # of one lane nothing need be picked out
        return self._live.peek(x, reset=anew, lanes=some)[:m]

    def copy_of(self, lane: int, anew: bool) -> "Copy":
        """One lane by itself, which moves on without learning."""
        state = self._live.state
        s = state.s if state.pending is None else state.pending.ahead
        return Copy(self.learner, state, jnp.zeros_like(s[:1]) if anew else s[lane : lane + 1])

    def learn(
        self,
        x: np.ndarray,
        y: Any,
        weight: np.ndarray | None,
        lanes: np.ndarray,
        reset: np.ndarray | None,
    ) -> None:
        """One event of each of these lanes; the others stay as they are."""
        some = None if self.lanes == 1 else lanes
        self._live.step(x, y, weight=weight, reset=reset, lanes=some)

    def grow(
        self, inputs: int | None = None, outputs: int | None = None, lanes: int | None = None
    ) -> None:
        """More inputs, outputs or lanes; what was learnt stays."""
        old = self.learner
        assert old.readout is not None
        inputs = old.cell.inputs if inputs is None else inputs
        outputs = old.readout.outputs if outputs is None else outputs
        lanes = self.lanes if lanes is None else lanes
        state, self.learner = self.state, self.make(inputs, outputs)
        fresh = self._fresh(self.learner, lanes)
        self.state = grown(state, fresh, old.cell, self.learner.cell)


def grown(old: State, fresh: State, before: Cell, after: Cell) -> State:
    """A state of a larger network, with all that a smaller one has learnt.

    Weights of new inputs and outputs start as in `fresh`, their optimiser's numbers and traces too.
    Where an axis holds [.., x, 1], new inputs go in front of the last place; a state that ends with
    the input, an axis of lanes and one of outputs grow at their end.
    """

    def leaf(a: Any, b: Any) -> Any:
        if a.shape == b.shape:
            return a
        a, b = np.asarray(a), np.array(b)
        places = []
        for i, (n, more) in enumerate(zip(a.shape, b.shape, strict=True)):
            last = n != more and more - n == after.inputs - before.inputs and _ends_with_one(i, n)
            places.append(np.r_[0 : n - 1, more - 1] if last else np.arange(n))
        b[np.ix_(*places)] = a
        return jnp.asarray(b)

    def _ends_with_one(axis: int, n: int) -> bool:
        return n != before.size and after.inputs != before.inputs

    return jax.tree.map(leaf, old, fresh)


class Copy:
    """One lane, which moves on without learning: for forecasts.

    Args:
        learner, state: whose parameters are used.
        s: the state of the lane (1, N).
    """

    def __init__(self, learner: Learner, state: State, s: Array) -> None:
        self._forward = forward_of(learner.cell, learner.readout)
        self._params, self._s = state.params, s

    def move(self, x: np.ndarray) -> Float[np.ndarray, " o"]:
        """One step on; the prediction there."""
        params = self._params
        self._s, seen = self._forward(params.cell, params.readout, self._s, x[None])
        return np.asarray(seen)[0]


@lru_cache(maxsize=256)
def forward_of(cell: Cell, readout: Readout) -> Callable[..., Any]:
    """The compiled step of given states: new states, and predictions."""

    @jax.jit
    def forward(cell_params: Any, readout_params: Any, s: Array, x: Array) -> tuple[Array, Array]:
        def one(s: Array, x: Array) -> tuple[Array, Array]:
            s = cell.step(cell_params, s, x)
            return s, readout.predict(readout_params, cell.output(s))

        # a state that has overflowed starts anew
        s = jnp.where(jnp.isfinite(s).all(1, keepdims=True), s, 0)
        return jax.vmap(one)(s, x.astype(s.dtype))

    return forward


def _padded(a: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([a, np.zeros((size - len(a), *a.shape[1:]), a.dtype)])

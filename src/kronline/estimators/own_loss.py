"""Gradients for a loss of one's own: the step is taken first, and δ = ∂L/∂s is known afterwards.

Reinforcement learning is the common case. What an estimator remembers for it may differ from what
it remembers for a loss of a readout: with a window of 1 the newest step is kept apart from the
trace until its δ is known.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from kronline.estimators.base import Model, Params
from kronline.linearised import Grads, Vector
from kronline.linearised import gradients as gr
from kronline.noise import Draws, Noise
from kronline.traces import Memory, Trace, one_step


class OwnLoss(ABC):
    """An estimator for a loss of one's own: pure functions of one lane."""

    @property
    @abstractmethod
    def keeps_input(self) -> bool:
        """Whether the newest input is kept, so that its shape must be known at the start."""

    @abstractmethod
    def init(self, model: Model, params: Params, x: Any) -> Memory:
        """One lane's memory at the start; x: an example of an input, where it is kept."""

    @abstractmethod
    def draws(self, model: Model, params: Params) -> Draws:
        """The noise of one step."""

    @abstractmethod
    def advance(
        self,
        model: Model,
        params: Params,
        s: Vector,
        memory: Memory,
        x: Any,
        reset: Bool[Array, ""],
        noise: Noise,
    ) -> tuple[Vector, Memory]:
        """One step, after a reset if there is one: new state, new memory."""

    @abstractmethod
    def pull(self, model: Model, params: Params, memory: Memory, delta: Vector) -> Grads:
        """`δ·ds/dθ` for a δ at the newest state, with the parameters that `advance` had."""


@dataclass(frozen=True)
class ReadAfterMerge(OwnLoss):
    """A trace without a window: the newest step is merged, and the gradient is read from that."""

    trace: Trace[Memory]

    @property
    def keeps_input(self) -> bool:
        """No."""
        return False

    def init(self, model: Model, params: Params, x: Any) -> Memory:
        """An empty trace."""
        return self.trace.init(model.cell.structure(params.cell))

    def draws(self, model: Model, params: Params) -> Draws:
        """What the trace draws for one step."""
        return self.trace.draws(model.cell.structure(params.cell), 1)

    def advance(
        self,
        model: Model,
        params: Params,
        s: Vector,
        memory: Memory,
        x: Any,
        reset: Bool[Array, ""],
        noise: Noise,
    ) -> tuple[Vector, Memory]:
        """The step, and the trace pushed over it."""
        s = jnp.where(reset, jnp.zeros_like(s), s)
        lin = model.cell.linearise(params.cell, s, x)
        nowhere = jnp.zeros_like(s)
        _, memory = self.trace.segment(memory, one_step(lin, reset), noise, nowhere, "end")
        return lin.state, memory

    def pull(self, model: Model, params: Params, memory: Memory, delta: Vector) -> Grads:
        """`δ·G`."""
        return self.trace.pull(memory, delta)


class Newest(NamedTuple):
    """The newest step, apart from the trace of all older ones."""

    s: Vector  # the state before it, after a reset
    x: Any
    past: Memory  # the trace before it
    trace: Memory  # the trace after it


@dataclass(frozen=True)
class NewestExact(OwnLoss):
    """A trace with a window of 1: `δ F + (δH)·G`, the newest step exact. Keeps the trace twice."""

    trace: Trace[Memory]

    @property
    def keeps_input(self) -> bool:
        """Yes, as part of the newest step."""
        return True

    def init(self, model: Model, params: Params, x: Any) -> Newest:
        """No step yet."""
        empty = self.trace.init(model.cell.structure(params.cell))
        dtype = jax.tree.leaves(params.cell)[0].dtype
        return Newest(jnp.zeros(model.cell.size, dtype), jnp.zeros_like(x), empty, empty)

    def draws(self, model: Model, params: Params) -> Draws:
        """What the trace draws for one step."""
        return self.trace.draws(model.cell.structure(params.cell), 1)

    def advance(
        self,
        model: Model,
        params: Params,
        s: Vector,
        memory: Newest,
        x: Any,
        reset: Bool[Array, ""],
        noise: Noise,
    ) -> tuple[Vector, Newest]:
        """The step, and the trace pushed over it; the trace before is kept, too."""
        s = jnp.where(reset, jnp.zeros_like(s), s)
        lin = model.cell.linearise(params.cell, s, x)
        nowhere, empty = jnp.zeros_like(s), self.trace.init(model.cell.structure(params.cell))
        past = jax.tree.map(lambda new, old: jnp.where(reset, new, old), empty, memory.trace)
        _, trace = self.trace.segment(past, one_step(lin, reset), noise, nowhere, "end")
        return lin.state, Newest(s, x, past, trace)

    def pull(self, model: Model, params: Params, memory: Newest, delta: Vector) -> Grads:
        """`δ F + (δH)·G`."""
        older, newest = model.cell.linearise(params.cell, memory.s, memory.x).vjp(delta)
        past = self.trace.pull(memory.past, older)
        return gr.joined(newest, past)

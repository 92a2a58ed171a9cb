"""A trace: what is remembered of the past, as some representation of `G = ds/dθ`, for one lane.

A trace needs four things: where it starts, what noise one step draws, how one step moves it
(`G ← H G + F`), and how it is read (`δ ↦ δ·G`). It never sees a cell, only linearised steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline import grads as gr
from kronline.cells.base import Cell
from kronline.grads import Grads
from kronline.jacobians import Lin
from kronline.noise import Draws, Noise, repeat

Memory = Any  # a trace's state: a pytree of arrays
ROWS = 16  # of a trace that are written out at once


class Steps(NamedTuple):
    """k steps of one lane, linearised when asked for, so that nothing large is ever stacked."""

    length: int
    at: Callable[[Any], Lin]  # step t of the segment, t an integer or a traced one
    resets: Bool[Array, " k"]  # a reset applies before its step, and cuts everything older


class Moments(NamedTuple):
    """Of the trace G' after a step, over the noise of that step alone."""

    variance: Float[Array, ""]  # E‖G' − E G'‖²
    mean2: Float[Array, ""]  # ‖E G'‖²

    @property
    def share(self) -> Float[Array, ""]:
        """How much of E‖G'‖² is noise of this step: 0 for an exact one, below 1."""
        both = self.variance + self.mean2
        return jnp.where(both > 0, self.variance / jnp.where(both > 0, both, 1), 0)


class Trace(ABC):
    """A representation of G. Subclasses are frozen dataclasses; their settings are fields."""

    # how many steps are best pushed over at once where no gradient is asked for on the way; only
    # for traces whose `push` over k steps is that of its single steps
    block: ClassVar[int] = 1

    def check(self, cell: Cell) -> None:
        """Raise TypeError, with what to use instead, for a cell that this trace cannot follow."""
        return None

    @abstractmethod
    def init(self, size: int, params: Any) -> Memory:
        """G = 0, for a state of `size` numbers and the given parameters."""

    def begin(self, cell: Cell, params: Any) -> Memory:
        """`init` for a cell: for a trace that keeps only what the cell's structure tells it to."""
        return self.init(cell.size, params)

    def ignores(self, cell: Cell) -> str:
        """What is left out of G on purpose, in words, for a trace that is biased; else nothing."""
        return ""

    def draws(self, size: int, params: Any) -> Draws:
        """The noise that one step needs; none by default."""
        return ()

    @abstractmethod
    def step(self, memory: Memory, lin: Lin, noise: Noise) -> Memory:
        """`G ← H G + F`, in expectation over the noise."""

    @abstractmethod
    def pull(self, memory: Memory, delta: Float[Array, " N"]) -> Grads:
        """`δ·G`, in the shape of the parameters."""

    def push_pull(
        self,
        memory: Memory,
        steps: Steps,
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        before: bool,
    ) -> tuple[Memory, Grads]:
        """Push over a segment of one step, and read the gradient of a δ at its end.

        For traces that do both in one pass; the others need not replace it.

        Args:
            before: read `(δH)·G` before the push, not `δ·G` after it.
        """
        new = self.push(memory, steps, noise)
        if not before:
            return new, self.pull(new, delta)
        d0, _ = steps.at(0).vjp(delta)
        return new, self.pull(self.reset(memory, steps.resets[0]), d0)

    def reset(self, memory: Memory, flag: Bool[Array, ""]) -> Memory:
        """G = 0 where flag is set."""
        return jax.tree.map(lambda a: jnp.where(flag, jnp.zeros_like(a), a), memory)

    def variance(self, memory: Memory, lin: Lin) -> Float[Array, ""] | None:
        """The variance that one step adds, `Var[step(memory, lin, ·)]`, where a formula is known.

        The verifier compares it with the enumerated variance; None: no formula.
        """
        return None

    @property
    def closed_form(self) -> bool:
        """Whether `variance` is known."""
        return type(self).variance is not Trace.variance

    def mean2(self, memory: Memory, lin: Lin) -> Float[Array, ""]:
        """`‖H G' + F‖²`: of the next trace's mean, for an unbiased trace. Row by row."""

        def row(e: Float[Array, " N"]) -> Float[Array, ""]:
            d, F = lin.vjp(e)
            past = self.pull(memory, d)
            leaves = jax.tree.leaves(past, is_leaf=gr.is_leaf)
            if not all(isinstance(g, gr.Outer) for g in leaves):
                F = lin.times_F(e)  # written out, and without weights that do not exist
            return gr.norm2(gr.add(F, past))

        eye = jnp.eye(lin.state.size, dtype=lin.state.dtype)
        return jnp.sum(jax.lax.map(row, eye, batch_size=ROWS))

    # A trace that merges a whole segment at once (KF-TBPTT) replaces these three.

    def segment_draws(self, size: int, params: Any, k: int) -> Draws:
        """The noise that a push over k steps needs."""
        return repeat(self.draws(size, params), k)

    def push(self, memory: Memory, steps: Steps, noise: Noise) -> Memory:
        """Over the k steps of a segment, one by one."""

        def one(memory: Memory, inputs: Any) -> tuple[Memory, None]:
            t, now = inputs
            memory = self.reset(memory, steps.resets[t])
            return self.step(memory, steps.at(t), now), None

        if steps.length == 1:
            return one(memory, (0, jax.tree.map(lambda a: a[0], noise)))[0]
        return jax.lax.scan(one, memory, (jnp.arange(steps.length), noise))[0]

    def pull_push(
        self, memory: Memory, steps: Steps, noise: Noise, d0: Float[Array, " N"]
    ) -> tuple[Grads, Memory]:
        """`δ0·G` at a segment's start, and the push over it."""
        return gr.unless_zero(d0, self.pull(memory, d0)), self.push(memory, steps, noise)


def since_reset(resets: Bool[Array, " k"]) -> Bool[Array, " k"]:
    """The steps that no later reset cuts off."""
    later = jnp.cumsum(resets[::-1])[::-1] - resets
    return later == 0


def safe_sqrt(a: Float[Array, ""]) -> Float[Array, ""]:
    """`√a`, with a derivative of 0 at 0."""
    return jnp.where(a > 0, jnp.sqrt(jnp.where(a > 0, a, 1)), 0)


def safe_sqrt_ratio(a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """`√(a/b)` where both are positive, else 1; never NaN."""
    ok = (a > 0) & (b > 0)
    return jnp.sqrt(jnp.where(ok, a, 1) / jnp.where(ok, b, 1))

"""A trace: what is remembered of the past, as some representation of `G = ds/dθ`, for one lane.

A trace says where it starts, what noise a segment draws, what a segment does to it
(`G ← H G + F`, step after step) and how it is read (`δ ↦ δ·G`). It is told a `Structure` and sees
linearised steps, never a cell. Most traces go step by step: they derive from `Stepwise`, give
`step` and `pull`, and have `segment` made from these.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kronline.linearised import Grads, Kronecker, Lin, Met, Structure
from kronline.linearised import gradients as gr
from kronline.noise import Draws, Noise, repeat
from kronline.show import called

Memory = Any  # the memory of any trace: a pytree of arrays
M = TypeVar("M")  # the memory of one kind of trace
ROWS = 16  # how many rows of a trace are written out at once

# Where a segment's gradient is read, and with which δ:
#   "start": δ = ∂L/∂s before the first step;  δ·G of the memory as it was
#   "past":  δ = ∂L/∂s after the step, of a segment of one;  (δH)·G of the memory as it was
#   "end":   δ = ∂L/∂s after the last step;  δ·G of the new memory
Read = Literal["start", "past", "end"]


class Steps(NamedTuple):
    """k steps of one lane, linearised when asked for, so that nothing large is stacked."""

    length: int
    at: Callable[[Any], Lin]  # step t of the segment; t may be a traced integer
    resets: Bool[Array, " k"]  # a reset applies before its step, and cuts everything older
    given: Any = None  # what the steps depend on, for functions below that take it
    # of given and t: rows of H and M of one layer's states, without H or M (`LinearCell.rows`)
    rows_at: Callable[..., Any] | None = None
    met_at: Callable[[Any, Any], Met] | None = None  # of given and t: layers and ĥ; None: by `at`

    def met(self) -> Met:
        """The layers and ĥ of all steps, stacked on a leading axis."""

        def at(t: Any) -> Met:
            if self.met_at is not None:
                return self.met_at(self.given, t)
            lin = self.at(t)
            assert isinstance(lin, Kronecker)
            return lin.met

        return jax.vmap(at)(jnp.arange(self.length))

    def rows(self, t: Any, *of_layer: Any) -> tuple[Any, dict[str, Array]]:
        """`P H` and `P M` of step t, for rows P of one layer's states, as `LinearCell.rows`."""
        assert self.rows_at is not None
        return self.rows_at(self.given, t, *of_layer)


def one_step(lin: Lin, reset: Bool[Array, ""]) -> Steps:
    """A segment of one step."""

    def rows(lin: Lin, t: Any, *of_layer: Any) -> tuple[Any, dict[str, Array]]:
        assert isinstance(lin, Kronecker)
        return lin.rows_of(*of_layer)

    return Steps(1, lambda _: lin, reset[None], given=lin, rows_at=rows)


class Moments(NamedTuple):
    """Mean and variance of the trace G' after a step, over the noise of that step alone."""

    variance: Float[Array, ""]  # E‖G' − E G'‖²
    mean2: Float[Array, ""]  # ‖E G'‖²

    @property
    def share(self) -> Float[Array, ""]:
        """How much of E‖G'‖² is noise of this step: from 0, an exact step, to below 1."""
        return ratio(self.variance, self.variance + self.mean2)


class Trace(ABC, Generic[M]):
    """A representation of `G = ds/dθ`, for one lane.

    Each step moves it, `G ← H G + F`; a loss reads it, `δ·G`. Subclasses are frozen dataclasses;
    their settings are fields. Most derive from `Stepwise`.

    Example:
        >>> import kronline as kl
        >>> trace, cell = kl.KF(), kl.RHN(3, 2)
        >>> memory = trace.init(cell.structure())  # G = 0
        >>> memory["W"].A.shape
        (3, 2, 3)
    """

    def spec(self, window: int | Literal["all"] | None) -> str:
        """What the estimator of this trace and a window is written as: `kf_rtrl(window=1)`.

        By its parts, `Online(KF(), window=3)`, for a trace that no method is named after.
        """
        return called("Online", self, window=window)

    def check(self, structure: Structure) -> None:
        """Raise TypeError, with what to use instead, for a cell that this trace cannot follow."""
        return None

    def ignores(self, structure: Structure) -> str:
        """What is left out of G on purpose, in words, for a trace that is biased; else nothing."""
        return ""

    @property
    def remembers(self) -> bool:
        """Whether anything is remembered; if not, a window is needed."""
        return True

    def needs_newest(self, structure: Structure) -> bool:
        """Whether `δ·G` can be read together with the newest step only, and not by `pull` alone.

        So for a trace that leaves out rows of G that the next step does not depend on.
        """
        return False

    @abstractmethod
    def init(self, structure: Structure) -> M:
        """G = 0."""

    def draws(self, structure: Structure, k: int) -> Draws:
        """The noise of a segment of k steps; none by default."""
        return ()

    @abstractmethod
    def segment(
        self, memory: M, steps: Steps, noise: Noise, delta: Float[Array, " N"], read: Read
    ) -> tuple[Grads | None, M]:
        """The gradient `δ·G`, in the shape of the parameters, and the memory after the steps.

        Args:
            memory: before the first step.
            steps: k of them; each moves `G ← H G + F`, in expectation over the noise.
            noise: as `draws(structure, k)` says.
            delta: δ; zeros where only the new memory is wanted.
            read: which δ that is, and which G it is multiplied with; see `Read`.

        Returns:
            the gradient (None: nothing is remembered), and the new memory.
        """

    @abstractmethod
    def pull(self, memory: M, delta: Float[Array, " N"]) -> Grads | None:
        """`δ·G` of the memory as it is, in the shape of the parameters."""

    def reset(self, memory: M, flag: Bool[Array, ""]) -> M:
        """G = 0 where flag is set."""
        return jax.tree.map(lambda a: jnp.where(flag, jnp.zeros_like(a), a), memory)

    # -- noise, where a formula is known ----------------------------------------------------------

    @property
    def closed_form(self) -> bool:
        """Whether `variance` is known."""
        return False

    def variance(self, memory: M, lin: Lin) -> Float[Array, ""]:
        """The variance that one step adds; the verifier compares it with the enumerated one."""
        raise TypeError(f"no formula is known for the variance of {self!r}")

    def mean2(self, memory: M, lin: Lin) -> Float[Array, ""]:
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

    def noise_share(self, memory: M, lin: Lin) -> Float[Array, ""] | None:
        """The share of noise in E‖G'‖² after one more step; None where no formula is known."""
        if not self.closed_form:
            return None
        return Moments(self.variance(memory, lin), self.mean2(memory, lin)).share


class Stepwise(Trace[M]):
    """A trace that goes step by step: subclasses give `step` and `pull`; `segment` follows.

    One that can read the gradient in the same pass as the step replaces `step_pull`, too.

    Example: the newest step alone, `G = F`.
        >>> from dataclasses import dataclass
        >>> import jax, jax.numpy as jnp, kronline as kl
        >>> @dataclass(frozen=True)
        ... class Newest(kl.Stepwise):
        ...     def init(self, structure):
        ...         return jax.tree.map(
        ...             lambda p: jnp.zeros((structure.size, *p.shape), p.dtype), structure.params
        ...         )
        ...
        ...     def step(self, memory, lin, noise):
        ...         return lin.dense()[1]  # F
        ...
        ...     def pull(self, memory, delta):
        ...         return jax.tree.map(lambda G: jnp.tensordot(delta, G, 1), memory)
        >>> kl.Online(Newest(), window=1).span  # steps per segment
        1
    """

    def step_draws(self, structure: Structure) -> Draws:
        """The noise that one step needs; none by default."""
        return ()

    @abstractmethod
    def step(self, memory: M, lin: Lin, noise: Noise) -> M:
        """`G ← H G + F`, in expectation over the noise."""

    @abstractmethod
    def pull(self, memory: M, delta: Float[Array, " N"]) -> Grads:
        """`δ·G`, in the shape of the parameters."""

    def step_pull(
        self,
        memory: M,
        lin: Lin,
        reset: Bool[Array, ""],
        noise: Noise,
        delta: Float[Array, " N"],
        *,
        past: bool,
    ) -> tuple[Grads, M]:
        """One step, after a reset if there is one, and the gradient of a δ after the step.

        Args:
            memory, lin, reset, noise, delta: of the step.
            past: read `(δH)·G` of the memory before the step, not `δ·G` of the new one.
        """
        memory = self.reset(memory, reset)
        new = self.step(memory, lin, noise)
        if past:
            return self.pull(memory, lin.vjp(delta)[0]), new
        return self.pull(new, delta), new

    def draws(self, structure: Structure, k: int) -> Draws:
        """The noise of k steps."""
        return repeat(self.step_draws(structure), k)

    def segment(
        self, memory: M, steps: Steps, noise: Noise, delta: Float[Array, " N"], read: Read
    ) -> tuple[Grads, M]:
        """Step after step."""
        if steps.length == 1 and read != "start":
            now = jax.tree.map(lambda a: a[0], noise)
            lin, reset = steps.at(0), steps.resets[0]
            return self.step_pull(memory, lin, reset, now, delta, past=read == "past")
        new = self.pushed(memory, steps, noise)
        if read == "start":  # zero where δ is zero, as after a reset, even where G is not finite
            return gr.unless_zero(delta, self.pull(memory, delta)), new
        return self.pull(new, delta), new

    def pushed(self, memory: M, steps: Steps, noise: Noise) -> M:
        """The memory after the steps of a segment."""

        def one(memory: M, inputs: Any) -> tuple[M, None]:
            t, now = inputs
            return self.step(self.reset(memory, steps.resets[t]), steps.at(t), now), None

        if steps.length == 1:
            return one(memory, (0, jax.tree.map(lambda a: a[0], noise)))[0]
        return jax.lax.scan(one, memory, (jnp.arange(steps.length), noise))[0]


def ratio(a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """`a/b`, and 0 where b is not positive."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


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

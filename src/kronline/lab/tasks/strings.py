"""The copy task's strings, and the curriculum that says how long they are.

    input   #01101------
    target  ------#01101        (T = 5, lag T + 1)

Sequences are packed into lanes one after another; the first step of each carries a reset flag, so
that a growing T changes no shape and recompiles nothing. T starts at 1 and grows by one whenever
the error falls below a threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from kronline import Learner
from kronline.estimators import Params, Segment
from kronline.lab.wording import rounded

SYMBOLS = 4  # the bits 0 and 1,
MARK, BLANK = 2, 3  # '#' and '-'
SOLVED = 0.99  # the share of bits right that every length drawn with a solved one has


class CopyState(NamedTuple):
    """Where the curriculum and every lane's sequence stand."""

    key: Key[Array, ""]
    T: Int[Array, ""]  # the curriculum's length
    error: Float[Array, ""]  # bits/char, a running mean
    at: Int[Array, " lanes"]  # position in the sequence
    length: Int[Array, " lanes"]
    bits: UInt32[Array, "lanes words"]


@dataclass(frozen=True)
class Copy:
    """The stream of strings and its curriculum.

    Args:
        delay: "short": lag T + 1, sequences of 2T + 2 symbols, as in the same group's later code,
            which the paper's "dependencies of up to 36 steps" fits. "paper": lag 2(T + 1), as in
            the paper's figure.
        threshold: T grows when the error is below this, in bits/char over all output characters.
        spread: lengths are drawn uniformly from T − spread .. T, at least 1. Shorter ones are no
            longer drawn, and are forgotten.
        smoothing: the error is an exponential mean, with this weight on the past per step,
        restart: which is set to this value after each growth (and at the start).
        max_length: T stops growing here.
    """

    delay: Literal["short", "paper"] = "short"
    threshold: float = 0.15
    spread: int = 5
    smoothing: float = 0.999
    restart: float = 0.3
    max_length: int = 64

    def __post_init__(self) -> None:
        if self.delay not in ("short", "paper"):
            raise ValueError(f"delay must be 'short' or 'paper', got {self.delay!r}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be >= 1, got {self.max_length}")
        if self.spread < 0:
            raise ValueError(f"spread must be >= 0, got {self.spread}")

    def lag(self, length: Any) -> Any:
        """Steps between a symbol and the moment it must be written."""
        return (length + 1) * (1 if self.delay == "short" else 2)

    def total(self, length: Any) -> Any:
        """Symbols in a sequence."""
        return self.lag(length) + length + 1

    def drawn(self, T: int) -> range:
        """The lengths that are drawn while the curriculum is at T."""
        return range(max(1, T - self.spread), T + 1)

    def init(self, key: Key[Array, ""], lanes: int) -> CopyState:
        """T = 1, every lane at the start of a sequence."""
        key, now = jax.random.split(key)
        T = jnp.ones((), jnp.int32)
        length, bits = self._sequences(now, T, 1, lanes)
        at = jnp.zeros(lanes, jnp.int32)
        return CopyState(key, T, jnp.float32(self.restart), at, length[0], bits[0])

    def _sequences(
        self, key: Key[Array, ""], T: Array, steps: int, lanes: int
    ) -> tuple[Int[Array, "steps lanes"], UInt32[Array, "steps lanes words"]]:
        """Lengths and bits of sequences, one for each step at which one may be needed."""
        k_length, k_bits = jax.random.split(key)
        low = jnp.maximum(1, T - self.spread)
        length = jax.random.randint(k_length, (steps, lanes), low, T + 1, jnp.int32)
        words = -(-self.max_length // 32)
        return length, jax.random.bits(k_bits, (steps, lanes, words), jnp.uint32)

    def batch(self, state: CopyState, data: Any, steps: int) -> tuple[CopyState, Segment]:
        """The next steps of every lane, (steps, lanes)."""

        def one(state: CopyState, new: Any) -> tuple[CopyState, tuple[Array, Array, Array]]:
            x, y, _is_bit = self.symbols(state.at, state.length, state.bits)
            first = state.at == 0
            at = state.at + 1
            done = at == self.total(state.length)
            length, bits = new
            state = state._replace(
                at=jnp.where(done, 0, at),
                length=jnp.where(done, length, state.length),
                bits=jnp.where(done[:, None], bits, state.bits),
            )
            return state, (x, y, first)

        key, now = jax.random.split(state.key)
        ahead = self._sequences(now, state.T, steps, state.at.shape[0])
        state, (x, y, first) = jax.lax.scan(one, state._replace(key=key), ahead)
        return state, Segment(x, y, first, jnp.ones(x.shape, jnp.float32))

    def symbols(
        self, at: Int[Array, " lanes"], length: Array, bits: Array
    ) -> tuple[Int[Array, " lanes"], Int[Array, " lanes"], Bool[Array, " lanes"]]:
        """Input, target, and whether the target is a bit, at the given positions."""

        def written(i: Array) -> Array:  # '#', the bits, then blanks; blanks before the start
            bit = jnp.clip(i - 1, 0, self.max_length - 1)
            word = jnp.take_along_axis(bits, (bit // 32)[:, None], axis=1)[:, 0]
            value = (word >> (bit % 32).astype(jnp.uint32)) & 1
            inside = (i >= 1) & (i <= length)
            return jnp.where(inside, value.astype(jnp.int32), jnp.where(i == 0, MARK, BLANK))

        out = at - self.lag(length)
        return written(at), written(out), (out >= 1) & (out <= length)

    def measured(self, loss: Float[Array, "steps lanes"]) -> Float[Array, "steps lanes"]:
        """In bits."""
        return loss / jnp.log(2.0)

    def feedback(self, state: CopyState, bits: Float[Array, "steps lanes"]) -> CopyState:
        """The curriculum, told the error of the last steps."""
        steps = bits.shape[0]
        decay = self.smoothing ** jnp.arange(steps - 1, -1, -1, dtype=jnp.float32)
        recent = (1 - self.smoothing) * jnp.sum(decay * bits.mean(1))
        error = self.smoothing**steps * state.error + recent
        grow = (error < self.threshold) & (self.max_length > state.T)
        return state._replace(
            T=state.T + grow.astype(jnp.int32),
            error=jnp.where(grow, self.restart, error).astype(jnp.float32),
        )

    def closing(self, right: Sequence[float], T: int) -> dict[str, Any]:
        """What a run comes to, from the share of bits right at length 1, 2, ...

        Args:
            right: as `accuracies` gives it, at least up to T.
            T: the curriculum's.

        Returns:
            right_trained: the share of bits right over the lengths that are drawn at T,
                Σ n right(n) / Σ n, where every length is drawn as often.
            solved: the largest length L such that all lengths that are drawn at T = L have 99 % of
                bits right; 0 if there is none.
        """
        share = sum(n * right[n - 1] for n in self.drawn(T)) / sum(self.drawn(T))
        lengths = range(1, len(right) + 1)
        solved = (n for n in lengths if all(right[m - 1] >= SOLVED for m in self.drawn(n)))
        return {"right_trained": rounded(share), "solved": max(solved, default=0)}


def accuracies(
    learner: Learner, params: Params, task: Copy, up_to: int, *, samples: int = 128, seed: int = 0
) -> list[float]:
    """The share of bits that are written right, on fresh strings of length 1, 2, ... up_to."""
    out = []
    for length in range(1, min(up_to, task.max_length) + 1):
        x, y, is_bit = _strings(task, jax.random.key(seed), jnp.int32(length), samples)
        prediction = learner.evaluate(params, x, y, predictions=True).prediction
        assert prediction is not None
        right = (prediction.argmax(-1) == y) & is_bit
        out.append(float(right.sum() / is_bit.sum()))
    return out


@jax.jit(static_argnums=(0, 3))
def _strings(
    task: Copy, key: Key[Array, ""], length: Int[Array, ""], samples: int
) -> tuple[Array, Array, Array]:
    """Fresh strings of one length, padded to the longest, so that one program serves all."""
    words = -(-task.max_length // 32)
    bits = jax.random.bits(key, (samples, words), jnp.uint32)
    lengths = jnp.full(samples, length)
    steps = jnp.arange(task.total(task.max_length))
    return jax.vmap(lambda t: task.symbols(jnp.full(samples, t), lengths, bits))(steps)

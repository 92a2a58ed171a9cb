"""What a network reads and should write while it is measured: one lane, from the zero state."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Stream(NamedTuple):
    """Symbols or vectors, step by step."""

    x: Array  # (steps,) or (steps, inputs)
    y: Array  # (steps,) or (steps, outputs)
    reset: Bool[Array, " steps"]  # before its step
    weight: Float[Array, " steps"]  # of each loss

    def cut(self, first: int, steps: int) -> "Stream":
        """So many steps of it."""
        return Stream(*(a[first : first + steps] for a in self))


def stream(given: Stream | Int[np.ndarray, " characters"]) -> Stream:
    """A text as a stream, which has each next character predicted; a stream as it is."""
    if isinstance(given, Stream):
        return given
    text = jnp.asarray(given, jnp.int32)
    steps = text.shape[0] - 1
    return Stream(text[:-1], text[1:], jnp.zeros(steps, bool), jnp.ones(steps))

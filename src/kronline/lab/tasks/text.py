"""Character-level language modelling (section 5.2 of the paper): predict the next character.

Lanes read the training text from evenly spaced places, for ever round. Validation and test start
from the zero state and count every character.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline.estimators.base import Params, Segment
from kronline.learner import Learner

PIECES = 64  # into which a text is cut to be evaluated side by side,
SHORTEST = 1000  # none shorter than this;
WARM_UP = 100  # characters that each but the first reads ahead, uncounted, to be in context


class TextState(NamedTuple):
    """Where every lane stands in the text."""

    key: Key[Array, ""]
    at: Int[Array, " lanes"]


@dataclass(frozen=True)
class Text:
    """The task; the text itself is handed to `batch`.

    Args:
        characters: the length of the training text.
        reset: the probability, a step and lane, that state and trace start anew.
    """

    characters: int
    reset: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.reset <= 1:
            raise ValueError(f"reset is a probability, between 0 and 1, got {self.reset}")

    def init(self, key: Key[Array, ""], lanes: int) -> TextState:
        """Lanes at evenly spaced places."""
        if self.characters < 2 * lanes:
            raise ValueError(
                f"{lanes} lanes need a training text of at least {2 * lanes} characters, got "
                f"{self.characters}; use fewer lanes"
            )
        starts = np.arange(lanes, dtype=np.int64) * self.characters // lanes
        return TextState(key, jnp.asarray(starts, jnp.int32))

    def batch(
        self, state: TextState, data: Int[Array, " characters"], steps: int
    ) -> tuple[TextState, Segment]:
        """The next steps of every lane, (steps, lanes)."""
        key, now = jax.random.split(state.key)
        at = (state.at[None] + jnp.arange(steps + 1, dtype=jnp.int32)[:, None]) % self.characters
        x = data[at]
        anew = jax.random.bernoulli(now, self.reset, (steps, state.at.shape[0]))
        first = at[:-1] == 0  # the text begins again: nothing before it, and nothing leads to it
        weight = (at[1:] != 0).astype(jnp.float32)
        return TextState(key, at[-1]), Segment(x[:-1], x[1:], anew | first, weight)

    def feedback(self, state: TextState, bits: Float[Array, "steps lanes"]) -> TextState:
        """The text does not care."""
        return state


def pieces(text: Int[np.ndarray, " characters"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A text cut into pieces, side by side: x, y and which predictions count, (steps, pieces).

    Every character but the first is predicted once. Each piece begins from the zero state, some
    characters ahead of those that count; the first begins where the text does.
    """
    targets = len(text) - 1
    count = min(PIECES, max(1, targets // SHORTEST))
    edges = np.arange(count + 1) * targets // count  # of what counts
    begin = np.maximum(edges[:-1] - WARM_UP, 0)
    at = begin + np.arange((edges[1:] - begin).max())[:, None]
    counts = (at >= edges[:-1]) & (at < edges[1:])
    at = np.minimum(at, targets - 1)
    return text[at], text[at + 1], counts


def bits_per_character(
    learner: Learner, params: Params, cut: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> float:
    """Of a text in `pieces`, without learning."""
    x, y, counts = cut
    loss: Any = np.asarray(learner.evaluate(params, x, y).loss, np.float64)
    return float(loss[counts].mean() / np.log(2))

"""Feature vectors in pieces: what a step multiplies its weights with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Input = Float[Array, " d"] | Int[Array, ""]  # a vector, or one symbol


class OneHot(NamedTuple):
    """A symbol as a one-hot vector that is never written out: products with it look up a row."""

    symbol: Int[Array, ""]
    size: int


Piece = Float[Array, " p"] | OneHot  # a part of a feature vector
Linear = Callable[..., Float[Array, "r n"]]  # linear(name, *pieces) -> z


def encode(x: Any, size: int) -> Piece:
    """An input as a piece of a feature vector."""
    x = jnp.asarray(x)
    # narrow integers (uint8) would wrap around where the symbols are counted
    return OneHot(x.astype(jnp.int32), size) if jnp.issubdtype(x.dtype, jnp.integer) else x


def features(pieces: tuple[Piece, ...], dtype: Any) -> Float[Array, " m"]:
    """The feature vector ĥ, written out."""
    parts = [jax.nn.one_hot(*p, dtype=dtype) if isinstance(p, OneHot) else p for p in pieces]
    return jnp.concatenate(parts)


def apply(W: Float[Array, "m r n"], pieces: tuple[Piece, ...]) -> Float[Array, "r n"]:
    """`z = ĥ W`, piece by piece."""
    z, at = jnp.zeros(W.shape[1:], W.dtype), 0
    for p in pieces:
        size = p.size
        rows = W[at : at + size]
        z = z + (rows[p.symbol] if isinstance(p, OneHot) else jnp.tensordot(p, rows, axes=1))
        at += size
    return z


def within(prefix: str, linear: Linear) -> Linear:
    """`linear` for a cell inside another: its weights' names get a prefix."""
    return lambda name, *pieces: linear(f"{prefix}.{name}", *pieces)

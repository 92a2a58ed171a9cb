"""Noise as data: what an estimator draws, so that it can be sampled, enumerated or replayed."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt32

Draws = Any  # a pytree of Draw
Noise = Any  # the same pytree, of arrays


class Draw(NamedTuple):
    """Independent draws of one discrete variable: by default, random signs.

    Args:
        shape: of the array that is drawn.
        values: that each number may have.
        probs: of the values; None: all equally likely.

    Example:
        >>> import kronline as kl
        >>> kl.Draw((2, 3)).values
        (-1.0, 1.0)
    """

    shape: tuple[int, ...] = ()
    values: tuple[float, ...] = (-1.0, 1.0)
    probs: tuple[float, ...] | None = None


def is_draw(d: Any) -> bool:
    """Whether `d` is a leaf, for tree functions."""
    return isinstance(d, Draw)


def repeat(draws: Draws, *times: int) -> Draws:
    """The same draws, independently, over further leading axes (steps, lanes)."""
    return jax.tree.map(lambda d: d._replace(shape=(*times, *d.shape)), draws, is_leaf=is_draw)


def sample(key: Key[Array, ""], draws: Draws, dtype: Any = jnp.float32) -> Noise:
    """Noise from a key."""
    leaves, tree = jax.tree.flatten(draws, is_leaf=is_draw)

    def one(k: Array, d: Draw) -> Array:
        if d.values == (-1.0, 1.0) and d.probs is None:
            return jax.random.rademacher(k, d.shape, dtype)
        probs = None if d.probs is None else jnp.asarray(d.probs)
        return jax.random.choice(k, jnp.asarray(d.values, dtype), d.shape, p=probs)

    keys = [key] if len(leaves) == 1 else jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(tree, [one(k, d) for k, d in zip(keys, leaves, strict=False)])


def for_lanes(key: Key[Array, ""], draws: Draws, lanes: int, dtype: Any = jnp.float32) -> Noise:
    """Noise from a key, independent for every lane, lanes first."""
    return sample(key, repeat(draws, lanes), dtype)


_KINDS = {2: "threefry2x32", 4: "rbg"}  # of keys, by how many words they have


def words(key: Any) -> UInt32[Array, " words"]:
    """A key as plain numbers: JAX calls a program faster without arrays of keys among its data."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def keys(key: UInt32[Array, " words"], clock: UInt32[Array, "2"], n: int) -> Key[Array, " n"]:
    """The keys of the next n segments, after `clock` earlier ones.

    They depend on how many segments came before, not on how these were grouped.
    """
    key = jax.random.wrap_key_data(words(key), impl=_KINDS[words(key).shape[-1]])
    low = clock[0] + jnp.arange(n, dtype=jnp.uint32)
    high = clock[1] + (low < clock[0]).astype(jnp.uint32)
    return jax.vmap(lambda a, b: jax.random.fold_in(jax.random.fold_in(key, a), b))(high, low)


def tick(clock: UInt32[Array, "2"], n: int) -> UInt32[Array, "2"]:
    """The clock n segments later: 64 bits in two words, low first, so that it never overflows."""
    low = clock[0] + jnp.uint32(n)
    return jnp.stack([low, clock[1] + (low < clock[0]).astype(jnp.uint32)])


def size(draws: Draws) -> int:
    """How many numbers are drawn."""
    return sum(math.prod(d.shape) for d in jax.tree.leaves(draws, is_leaf=is_draw))


def count(draws: Draws) -> int:
    """How many noise patterns there are."""
    leaves = jax.tree.leaves(draws, is_leaf=is_draw)
    total = 1
    for d in leaves:
        total *= len(d.values) ** int(np.prod(d.shape, dtype=int))
    return total


def patterns(draws: Draws, limit: int = 1 << 18) -> tuple[Noise, np.ndarray]:
    """ALL noise patterns, stacked on a leading axis, and their probabilities.

    Raises:
        ValueError: if there are more than `limit` of them.
    """
    leaves, tree = jax.tree.flatten(draws, is_leaf=is_draw)
    if (n := count(draws)) > limit:
        raise ValueError(
            f"needed at most {limit} noise patterns to enumerate, got {n:.3g}; "
            "use fewer steps, fewer units or fewer copies"
        )
    sizes = [int(np.prod(d.shape, dtype=int)) for d in leaves]
    choices = [range(len(d.values)) for d, k in zip(leaves, sizes, strict=True) for _ in range(k)]
    index = np.array(list(itertools.product(*choices)), dtype=int).reshape(n, sum(sizes))
    weights = np.ones(n)
    out, at = [], 0
    for d, k in zip(leaves, sizes, strict=True):
        part = index[:, at : at + k]
        at += k
        out.append(np.asarray(d.values)[part].reshape(n, *d.shape))
        probs = np.full(len(d.values), 1 / len(d.values)) if d.probs is None else np.array(d.probs)
        weights *= np.prod(probs[part], axis=1)
    return jax.tree.unflatten(tree, out), weights

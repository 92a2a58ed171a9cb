"""Layers of units of which none reads another unit's state: where exact RTRL is cheap.

In such a layer H is block-diagonal, q × q per unit, and a weight of the layer moves its own unit
only. So one number per weight and slot holds the layer's rows of G exactly. In a stack of layers, H
is block lower triangular, and only the rows of the layers above a weight are missing.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def some(a: Array, which: tuple[int, ...], axis: int) -> Array:
    """Some places along an axis; the array itself, if these are all."""
    if which == tuple(range(a.shape[axis])):
        return a
    # by slices: XLA's gather and scatter, which is its derivative, are slow on CPUs
    parts = [jax.lax.slice_in_dim(a, i, j, axis=axis) for i, j in _runs(which)]
    return jnp.concatenate(parts or [jax.lax.slice_in_dim(a, 0, 0, axis=axis)], axis)


def _runs(which: tuple[int, ...]) -> list[tuple[int, int]]:
    """Places as stretches from i to before j: 3, 4, 5, 9 are (3, 6) and (9, 10)."""
    out: list[tuple[int, int]] = []
    for i in which:
        if out and out[-1][1] == i:
            out[-1] = (out[-1][0], i + 1)
        else:
            out.append((i, i + 1))
    return out


def spread(a: Array, which: tuple[int, ...], of: int, axis: int) -> Array:
    """The reverse: at these of so many places along an axis, with zeros elsewhere."""
    if which == tuple(range(of)):
        return a
    shape = list(a.shape)
    shape[axis] = 1
    zero, at = jnp.zeros(shape, a.dtype), {place: i for i, place in enumerate(which)}
    parts = [
        jax.lax.slice_in_dim(a, at[i], at[i] + 1, axis=axis) if i in at else zero for i in range(of)
    ]
    return jnp.concatenate(parts, axis)


def times(S: Float[Array, "*k c b n"], D: Float[Array, "*k b g n"]) -> Float[Array, "*k c g n"]:
    """`S D`, unit by unit."""
    parts = [S[..., :, b, None, :] * D[..., None, b, :, :] for b in range(S.shape[-2])]
    return sum(parts[1:], parts[0])


class LayerWeight(NamedTuple):
    """One weight of a layer."""

    name: str
    gates: tuple[int, ...]  # those that can move a slot that is kept
    of: int  # r, all of them


@dataclass(frozen=True)
class Layer:
    """One layer, as traces are told of it: sizes, and what of its state and weights counts.

    Args:
        at: where its state begins; slots (q, n), one after another.
        slots: q.
        units: n.
        kept: the slots that the next step reads; no later loss depends on the others.
        weights: its own weights.
    """

    at: int
    slots: int
    units: int
    kept: tuple[int, ...]
    weights: tuple[LayerWeight, ...]

    @property
    def places(self) -> np.ndarray:
        """Where, in the state, the slots are that are kept: (c, n)."""
        return self.at + np.arange(self.slots * self.units).reshape(-1, self.units)[[*self.kept]]

    def state(self, v: Float[Array, "... N"]) -> Float[Array, "... c n"]:
        """Of vectors of the state's size, this layer's slots that are kept."""
        mine = v[..., self.at : self.at + self.slots * self.units]
        mine = mine.reshape(*v.shape[:-1], self.slots, self.units)
        return some(mine, self.kept, -2)


class Met(NamedTuple):
    """What traces inside and between layers need of one step: less than H and F."""

    layers: tuple["LayerJac", ...]
    feats: dict[str, Float[Array, " m"]]  # ĥ of every weight


@partial(jax.tree_util.register_dataclass, data_fields=("E", "D"), meta_fields=())
@dataclass(frozen=True)
class LayerJac:
    """One step of one layer to first order: `e ← E e + D ĥ`; slots and gates that count."""

    E: Float[Array, "c c n"]
    D: dict[str, Float[Array, "c g n"]]  # ∂s'/∂z of each weight

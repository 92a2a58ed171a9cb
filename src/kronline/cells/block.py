"""A block of a deep network: a recurrent layer between feed-forward maps, as in S5 and LRU."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import LinearCell
from kronline.cells.init import FanIn, Init, Normal, Weight, needs_initialiser
from kronline.cells.layers import Layers
from kronline.cells.pieces import Input, Linear, encode, features, within
from kronline.errors import whole_numbers
from kronline.linearised import Vector

EPSILON = 1e-6  # added to the variance that a norm divides by


@dataclass(frozen=True)
class Block(LinearCell):
    """norm -> recurrent layer -> map of its output, plus a skip of the input -> GELU -> GLU, + x.

        u = norm(x),  s' = cell(s, u),  y = GELU(out(s') + d ⊙ u),  v = x + a(y) σ(b(y))

    Each part can be left out. All but the recurrent layer is feed-forward: its weights have a
    gradient of the step itself, and no trace. The norm has no weights of its own, since those would
    be redundant with the map behind it: so all weights that move the layer's state are the layer's,
    and a network of one block has exact online gradients.

    A block whose inputs are not as many as its width, so one that reads symbols, has no norm; its
    input enters skip and residual through a map of its own, as an embedding would.

    Args:
        cell: the recurrent layer, any cell with visible linear maps.
        width: how many numbers the block gives; None: as many as it reads.
        norm: whether the layer's input is normalised to mean 0 and variance 1.
        skip: whether the input is added to the map of the layer's output.
        gelu: whether a GELU follows.
        glu: whether a gated linear unit follows.
        residual: whether the input is added to the output.
        init_weights: how the maps start.

    Example:
        >>> import kronline as kl
        >>> block = kl.Block(kl.LRU(64, 64))
        >>> list(block.weights())
        ['cell.W', 'cell.own', 'out', 'skip', 'glu']

    References: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences, ICML
    2023; Smith, Warrington & Linderman, Simplified State Space Layers, ICLR 2023; Dauphin et al.,
    Language Modeling with Gated Convolutional Networks, ICML 2017, for the gated linear unit.
    """

    cell: LinearCell
    width: int | None = None
    norm: bool = field(default=True, kw_only=True)
    skip: bool = field(default=True, kw_only=True)
    gelu: bool = field(default=True, kw_only=True)
    glu: bool = field(default=True, kw_only=True)
    residual: bool = field(default=True, kw_only=True)
    init_weights: Init = field(default=FanIn(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.cell, LinearCell):
            raise TypeError(
                "Block needs a cell whose linear maps are visible (LinearCell) such as LRU(64, 64),"
                f" got {self.cell!r}"
            )
        if self.width is not None:
            whole_numbers(self, "width")
        needs_initialiser("Block", self.init_weights)

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """As the recurrent layer."""
        return self.cell.inputs

    @property
    def outputs(self) -> int:
        """The width."""
        return self.width or self.cell.inputs

    @property
    def size(self) -> int:
        """The layer's state, and the block's output, which the next step does not read."""
        return self.cell.size + self.outputs

    @property
    def enters(self) -> bool:
        """Whether the input has another size than the block, so that it enters through a map."""
        return self.outputs != self.inputs

    @property
    def _maps_input(self) -> bool:
        return self.enters and (self.skip or self.residual)

    def weights(self) -> dict[str, Weight]:
        """The layer's own, and those of the maps."""
        d, inner = self.outputs, self.cell.weights()
        found = {f"cell.{name}": w for name, w in inner.items()}
        if self._maps_input:
            found["enter"] = Weight(0, self.inputs, False, ("e",), d)
        found["out"] = Weight(0, self.cell.outputs, False, ("y",), d)
        if self.skip:
            found["skip"] = Weight(0, 0, True, ("d",), d)
        if self.glu:
            found["glu"] = Weight(0, d, True, ("a", "b"), d)
        return found

    def initialiser(self, name: str) -> Init:
        """As the layer says, or the maps' own; the skip starts from N(0, 1)."""
        if name.startswith("cell."):
            return self.cell.initialiser(name.removeprefix("cell."))
        if name == "skip":
            return Normal(1.0)
        # one of many symbols is on at a time, whatever their number
        return Normal(1.0) if name == "enter" else self.init_weights

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The block's output."""
        return s[self.cell.size :]

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """The equations above."""
        one, mine = jnp.ones(1, s.dtype), s[: self.cell.size]
        u: Any = x
        passed = jnp.zeros(self.outputs, s.dtype)
        if self._maps_input:
            passed = linear("enter", encode(x, self.inputs))[0]
        if not self.enters:
            passed = features((encode(x, self.inputs),), s.dtype)
            u = normalised(passed) if self.norm else passed
        new = self.cell.forward(within("cell", linear), mine, u)
        y = linear("out", self.cell.output(new))[0]
        if self.skip:
            y = y + linear("skip", one)[0] * (passed if self.enters else u)
        if self.gelu:
            y = jax.nn.gelu(y)
        if self.glu:
            a, b = linear("glu", y, one)
            y = a * jax.nn.sigmoid(b)
        return jnp.concatenate([new, y + passed if self.residual else y])

    def diagonal(self) -> Layers | None:
        """The recurrent layer's; the block's maps move only what lies above."""
        inner = self.cell.diagonal()
        if inner is None:
            return None
        above = dict.fromkeys(self.weights(), len(inner.layers))
        inner = inner.within("cell.", 0)
        return inner._replace(first=above | inner.first)


def normalised(x: Float[Array, " d"]) -> Float[Array, " d"]:
    """Mean 0 and variance 1 over the numbers of a vector."""
    x = x - jnp.mean(x)
    return x * jax.lax.rsqrt(jnp.mean(x**2) + EPSILON)

"""Cells made of cells: a stack of layers, a trained input embedding."""

from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Array, Float

from kronline.cells.base import LinearCell
from kronline.cells.init import Init, Normal, Weight, needs_initialiser
from kronline.cells.layers import Layers, UnitLayer
from kronline.cells.pieces import Input, Linear, Piece, encode, features, within
from kronline.errors import whole_numbers
from kronline.linearised import Vector


@dataclass(frozen=True)
class Stack(LinearCell):
    """Layers, each fed by the new output of the one below; the readout sees the top.

    Args:
        layers: cells with visible linear maps, lowest first; each has as many inputs as the one
            below has outputs.
        see_input: whether the readout sees the stack's input, too, beside the top layer's output.

    Example: layers of one's own sizes.
        >>> import kronline as kl
        >>> kl.Stack((kl.RHN(64, 50), kl.RHN(32, 64))).outputs
        32

    Example: a deep network of linear recurrent units.
        >>> cell = kl.Stack((kl.Block(kl.LRU(64, 50), 64), kl.Block(kl.LRU(64, 64), 64)))
        >>> len(cell.structure().layers)
        2
    """

    layers: tuple[LinearCell, ...]
    see_input: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("Stack needs at least one layer, got none")
        for layer in self.layers:
            if not isinstance(layer, LinearCell):
                raise TypeError(
                    f"Stack needs cells whose linear maps are visible (LinearCell), got "
                    f"{type(layer).__name__}"
                )
        for below, above in zip(self.layers, self.layers[1:], strict=False):
            if above.inputs != below.outputs:
                raise ValueError(
                    f"each layer's inputs must equal the outputs of the one below: needed "
                    f"inputs={below.outputs}, got inputs={above.inputs}"
                )

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """As the lowest layer."""
        return self.layers[0].inputs

    @property
    def size(self) -> int:
        """The states of all layers, one after another; then the input, if it is seen."""
        return sum(layer.size for layer in self.layers) + self._seen

    @property
    def outputs(self) -> int:
        """As the top layer, and the input, if it is seen."""
        return self.layers[-1].outputs + self._seen

    @property
    def _seen(self) -> int:
        return self.inputs if self.see_input else 0

    def weights(self) -> dict[str, Weight]:
        """Every layer's."""
        return {
            f"layer{i}.{name}": w
            for i, layer in enumerate(self.layers)
            for name, w in layer.weights().items()
        }

    def initialiser(self, name: str) -> Init:
        """As the layer says."""
        prefix, inner = name.split(".", 1)
        return self.layers[int(prefix.removeprefix("layer"))].initialiser(inner)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The top layer's output, and the input, if it is seen."""
        end = self.size - self._seen
        top = self.layers[-1].output(s[end - self.layers[-1].size : end])
        return jnp.concatenate([top, s[end:]]) if self.see_input else top

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """From the bottom up, within one step."""
        new, at = [], 0
        seen = [features((encode(x, self.inputs),), s.dtype)] if self.see_input else []
        for i, layer in enumerate(self.layers):
            mine = layer.forward(within(f"layer{i}", linear), s[at : at + layer.size], x)
            at += layer.size
            new.append(mine)
            x = layer.output(mine)
        return jnp.concatenate([*new, *seen])

    def diagonal(self) -> Layers | None:
        """Those of its layers, if all are made of such."""
        found: list[UnitLayer] = []
        first: dict[str, int] = {}
        at = 0
        for i, layer in enumerate(self.layers):
            inner = layer.diagonal()
            if inner is None:
                return None
            inner = inner.within(f"layer{i}.", at, below=len(found))
            first |= inner.first
            found += inner.layers
            at += layer.size
        return Layers(tuple(found), first)


@dataclass(frozen=True)
class Embedded(LinearCell):
    """A cell behind a trained embedding of its input: `e = x E`, then the cell's step on e.

    Args:
        cell: a cell with visible linear maps, whose inputs are embedded vectors.
        inputs: number of symbols, or length of an input vector.
        init_weights: how the embedding starts.

    Example: ten thousand symbols as 16 numbers each.
        >>> import kronline as kl
        >>> kl.Embedded(kl.LSTM(64, 16), inputs=10_000).weights()["embedding"].shape
        (10000, 1, 16)
    """

    cell: LinearCell
    inputs: int
    init_weights: Init = field(default=Normal(0.1), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.cell, LinearCell):
            raise TypeError(
                f"Embedded needs a cell whose linear maps are visible (LinearCell), got "
                f"{type(self.cell).__name__}"
            )
        whole_numbers(self, "inputs")
        needs_initialiser("Embedded", self.init_weights)

    @property
    def size(self) -> int:
        """As the cell inside."""
        return self.cell.size

    @property
    def outputs(self) -> int:
        """As the cell inside."""
        return self.cell.outputs

    def weights(self) -> dict[str, Weight]:
        """The embedding and the cell's."""
        inner = {f"cell.{name}": w for name, w in self.cell.weights().items()}
        return {"embedding": Weight(0, self.inputs, False, ("e",), self.cell.inputs), **inner}

    def initialiser(self, name: str) -> Init:
        """The embedding's own, or as the cell says."""
        prefix, _, inner = name.partition(".")
        return self.cell.initialiser(inner) if prefix == "cell" else self.init_weights

    def output(self, s: Vector) -> Float[Array, " h"]:
        """As the cell inside."""
        return self.cell.output(s)

    def diagonal(self) -> Layers | None:
        """As the cell inside; the embedding moves its lowest layer, and belongs to none."""
        inner = self.cell.diagonal()
        if inner is None:
            return None
        inner = inner.within("cell.", 0)
        return inner._replace(first={"embedding": 0, **inner.first})

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """Embed, then step."""
        piece: Piece = encode(x, self.inputs)
        return self.cell.forward(within("cell", linear), s, linear("embedding", piece)[0])

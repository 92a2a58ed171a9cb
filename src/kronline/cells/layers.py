"""Which layers a cell is made of, where no unit of a layer reads another unit's state."""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Array, Float

if TYPE_CHECKING:
    from kronline.cells.unit import UnitCell


class UnitLayer(NamedTuple):
    """A layer whose units read no other unit's state, and where it is in the whole cell."""

    cell: "UnitCell"
    prefix: str  # of its weights' names
    at: int  # where its state begins

    def within(self, prefix: str, at: int) -> "UnitLayer":
        """The same layer inside of another cell."""
        return UnitLayer(self.cell, prefix + self.prefix, at + self.at)

    def slots(self, v: Float[Array, "... N"]) -> Float[Array, "... q n"]:
        """Of vectors of the whole state's size, this layer's part."""
        mine = v[..., self.at : self.at + self.cell.size]
        return mine.reshape(*v.shape[:-1], -1, self.cell.hidden)

    def met(
        self, s: Float[Array, " N"], z: dict[str, Float[Array, "r n"]]
    ) -> tuple[Float[Array, "x n"], ...]:
        """What its units are given in a step: z, old slots and, where they have any, own numbers.

        Args:
            s: the whole state.
            z: of every weight.
        """
        own = [z[self.prefix + name] for name in self.cell.weights() if name == "own"]
        return z[self.prefix + "W"], self.slots(s), *own


class Layers(NamedTuple):
    """A cell made of such layers, lowest first."""

    layers: tuple[UnitLayer, ...]
    first: dict[str, int]  # for each weight, the lowest layer whose state it moves within a step

    def within(self, prefix: str, at: int, below: int = 0) -> "Layers":
        """The same layers inside of another cell, with so many other layers below."""
        first = {prefix + name: below + layer for name, layer in self.first.items()}
        return Layers(tuple(layer.within(prefix, at) for layer in self.layers), first)

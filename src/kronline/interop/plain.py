"""LSTM, GRU and tanh RNN as all frameworks have them, and as kronline's cells.

    tanh:  h' = tanh(x X + h H + b)
    GRU:   r, z = σ(x X + h H + b),  n = tanh(x X + b + r·(h H + b'))
           h' = (1−z)·n + z·h
    LSTM:  i, f, o = σ(x X + h H + b),  g = tanh(x X + h H + b)
           c' = f·c + i·g,  h' = o·tanh(c')

Gates are in the order of `ORDER`, which is PyTorch's, Flax's and Equinox's. The forget gate has no
constant beside its bias. All states start at zero.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.cells import GRU, LSTM, Cell, Embedded, LinearCell, Stack, Tanh, UnitCell
from kronline.estimators import Params
from kronline.show import show

ORDER: dict[type[UnitCell], tuple[str, ...]] = {
    Tanh: ("z",),
    GRU: ("r", "u", "n"),
    LSTM: tuple("ifgo"),
}
BY_COUNT = {len(gates): kind for kind, gates in ORDER.items()}


class Plain(NamedTuple):
    """One layer, in numpy."""

    kind: type[UnitCell]  # Tanh, GRU or LSTM
    x: Float[np.ndarray, "d r n"]  # X of each gate
    h: Float[np.ndarray, "n r n"]  # H of each gate
    bias: Float[np.ndarray, "r n"] | None  # b of each gate
    inner: Float[np.ndarray, " n"] | None = None  # b' of a GRU


class Dense(NamedTuple):
    """`y = h W + b`."""

    W: Float[np.ndarray, "n o"]
    b: Float[np.ndarray, " o"] | None


class Parts(NamedTuple):
    """A network, from the input up."""

    layers: tuple[Plain, ...]
    readout: Dense | None = None
    embedding: Float[np.ndarray, "symbols d"] | None = None


class Network(NamedTuple):
    """A cell and what it and its readout have learnt: `learner.start(network.params, key)`.

    Example:
        >>> import jax.numpy as jnp, kronline as kl
        >>> from kronline import interop
        >>> weights = {"weight_ih": jnp.ones((3, 2)), "weight_hh": jnp.ones((3, 3))}
        >>> network = interop.from_torch(weights)
        >>> network.params.cell["W"].shape  # [h, x], one gate, three units
        (5, 1, 3)
    """

    cell: Cell
    params: Params


# -- in --------------------------------------------------------------------------------------------


def network(parts: Parts, dtype: str) -> Network:
    """As a cell with its parameters; several layers as a `Stack`."""
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    if dtype == "float64" and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise ValueError('float64 needs jax.config.update("jax_enable_x64", True) first')
    cells, params = [_cell(p) for p in parts.layers], [_weights(p) for p in parts.layers]
    cell: LinearCell = cells[0]
    named = {"W": params[0]}
    if len(cells) > 1:
        cell = Stack(tuple(cells))
        named = {f"layer{i}.W": W for i, W in enumerate(params)}
    if parts.embedding is not None:
        symbols, width = parts.embedding.shape
        if width != cell.inputs:
            raise ValueError(
                f"the embedding must have as many columns as the cell has inputs: needed "
                f"{cell.inputs}, got {width}"
            )
        cell = Embedded(cell, symbols)
        named = {"embedding": parts.embedding[:, None]} | {f"cell.{n}": W for n, W in named.items()}
    readout = () if parts.readout is None else {"V": _V(parts.readout, cell.outputs)}
    return Network(
        cell, jax.tree.map(lambda a: jnp.asarray(a, jnp.dtype(dtype)), Params(named, readout))
    )


def _cell(p: Plain) -> UnitCell:
    return p.kind(p.h.shape[0], p.x.shape[0], bias=p.bias is not None)


def _weights(p: Plain) -> Float[np.ndarray, "m r n"]:
    """`W (m, r, n)` with rows [h, x, 1], its gates in the cell's own order."""
    n, at = p.h.shape[0], ORDER[p.kind].index
    bias = np.zeros((0, *p.x.shape[1:])) if p.bias is None else p.bias[None]
    if p.kind is not GRU:
        W = np.concatenate([p.h, p.x, bias])
        return W if p.kind is Tanh else W[:, [at(gate) for gate in LSTM.gates]]
    # the candidate's two maps: of [x, 1] and of [h, 1]
    inner = np.zeros((len(bias), n)) if p.inner is None else np.reshape(p.inner, (-1, n))
    of_x = np.concatenate([np.zeros((n, n)), p.x[:, 2], bias[:, 2]])
    of_h = np.concatenate([p.h[:, 2], np.zeros((len(p.x), n)), inner])
    gates = np.concatenate([p.h[:, :2], p.x[:, :2], bias[:, :2]])
    return np.concatenate([gates, of_x[:, None], of_h[:, None]], axis=1)


def _V(dense: Dense, outputs: int) -> Float[np.ndarray, "n1 o"]:
    """`[W; b]`."""
    if dense.W.shape[0] != outputs:
        raise ValueError(
            f"the readout must read the cell's {outputs} outputs, got one of {dense.W.shape[0]}"
        )
    b = np.zeros(dense.W.shape[1]) if dense.b is None else dense.b
    return np.concatenate([dense.W, b[None]])


# -- out -------------------------------------------------------------------------------------------


def parts(cell: Cell, params: Any) -> Parts:
    """Of a cell and its parameters: the cell's alone, or `Params`.

    Raises:
        TypeError: for a cell that other frameworks do not have.
    """
    both = params if isinstance(params, Params) else Params(params, ())
    named = {name: np.asarray(W) for name, W in both.cell.items()}
    readout = None
    if isinstance(both.readout, dict) and "V" in both.readout:
        V = np.asarray(both.readout["V"])
        readout = Dense(V[:-1], V[-1])
    embedding = None
    if isinstance(cell, Embedded):
        embedding = named.pop("embedding")[:, 0]
        cell, named = cell.cell, {n.removeprefix("cell."): W for n, W in named.items()}
    layers: Sequence[Cell] = (cell,)
    if type(cell) is Stack and not cell.see_input:
        layers = cell.layers
        named = {n.removesuffix(".W"): W for n, W in named.items()}
        weights = [named[f"layer{i}"] for i in range(len(layers))]
    else:
        weights = [named.get("W", np.zeros(0))]
    return Parts(tuple(map(_plain, layers, weights)), readout, embedding)


def _plain(cell: Cell, W: np.ndarray) -> Plain:
    if type(cell) not in ORDER:
        raise TypeError(
            "other frameworks have LSTM, GRU and tanh RNN: needed such a cell, a Stack of them, "
            f"or one of these in Embedded, got {show(cell)}; kronline.deploy takes any cell"
        )
    assert isinstance(cell, UnitCell)
    n, d = cell.hidden, cell.inputs
    W = np.asarray(cell.project({"W": jnp.asarray(W)})["W"])
    if isinstance(cell, GRU):
        x = np.stack([W[n : n + d, k] for k in (0, 1, 2)], axis=1)
        h = np.stack([W[:n, k] for k in (0, 1, 3)], axis=1)
        if not cell.bias:
            return Plain(GRU, x, h, None)
        return Plain(GRU, x, h, W[-1, :3], W[-1, 3])
    if isinstance(cell, LSTM):
        W = W[:, [cell.gates.index(gate) for gate in ORDER[LSTM]]]
    return Plain(type(cell), W[n : n + d], W[:n], W[-1] if cell.bias else None)


def one_layer(parts: Parts, what: str) -> Plain:
    """The only layer, for frameworks whose cells are single layers."""
    if len(parts.layers) > 1:
        raise ValueError(
            f"{what} gives one cell, got a Stack of {len(parts.layers)} layers; convert "
            "stack.layers one by one, with the weights layer0.W, layer1.W, ... as W"
        )
    return parts.layers[0]


# -- states ----------------------------------------------------------------------------------------


def carry(cell: Cell, s: Float[Array, "... N"]) -> tuple[dict[str, Array], ...]:
    """A state as other frameworks have it: h, and c of an LSTM, of each layer.

    Args:
        cell: whose state.
        s: a state, with any leading axes: `state.s` (lanes, N).

    Returns:
        for each layer, lowest first, its slots by name.

    Example:
        >>> import jax.numpy as jnp, kronline as kl
        >>> from kronline import interop
        >>> (layer,) = interop.carry(kl.LSTM(3, 2), jnp.zeros((4, 6)))
        >>> {name: a.shape for name, a in layer.items()}
        {'c': (4, 3), 'h': (4, 3)}
    """
    found, at = [], 0
    for layer in _layers(cell):
        mine = s[..., at : at + layer.size]
        split = jnp.split(mine, len(layer.slots), axis=-1)
        found.append(dict(zip(layer.slots, split, strict=True)))
        at += layer.size
    return tuple(found)


def state(cell: Cell, *layers: dict[str, Any]) -> Float[Array, "... N"]:
    """What `carry` gives, as a state again: `state._replace(s=interop.state(cell, {"h": h}))`.

    Args:
        cell: whose state.
        layers: for each layer, lowest first, its slots by name.

    Returns:
        the state, with the leading axes of the slots.

    Example:
        >>> import jax.numpy as jnp, kronline as kl
        >>> from kronline import interop
        >>> interop.state(kl.LSTM(3, 2), {"h": jnp.zeros((4, 3)), "c": jnp.ones((4, 3))}).shape
        (4, 6)
    """
    wanted = _layers(cell)
    if len(layers) != len(wanted) or any(
        set(got) != set(layer.slots) for got, layer in zip(layers, wanted, strict=True)
    ):
        raise ValueError(
            f"needed for each layer its slots, {[layer.slots for layer in wanted]}, got "
            f"{[tuple(got) for got in layers]}"
        )
    slots = [got[name] for got, layer in zip(layers, wanted, strict=True) for name in layer.slots]
    return jnp.concatenate([jnp.asarray(a) for a in slots], axis=-1)


def _layers(cell: Cell) -> list[UnitCell]:
    inner = cell.cell if isinstance(cell, Embedded) else cell
    layers = inner.layers if isinstance(inner, Stack) else (inner,)
    if not all(isinstance(layer, UnitCell) for layer in layers):
        raise TypeError(f"needed a unit-wise cell or a Stack of such, got {show(cell)}")
    return [layer for layer in layers if isinstance(layer, UnitCell)]

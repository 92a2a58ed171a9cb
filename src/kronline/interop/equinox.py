"""Equinox: `eqx.nn.GRUCell`, `eqx.nn.LSTMCell`, and a tanh RNN as an `eqx.nn.Linear` of [h, x].

A cell has `weight_ih (r n, d)`, `weight_hh (r n, n)`, `bias (r n)`, and a GRU `bias_n (n)`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kronline.cells import GRU, LSTM, Cell, Tanh
from kronline.interop.needed import needed
from kronline.interop.plain import Dense, Network, Parts, Plain, network, one_layer, parts


class Equinox(NamedTuple):
    """What `to_equinox` gives."""

    cell: Any  # eqx.nn.GRUCell, LSTMCell or Linear
    readout: Any = None  # eqx.nn.Linear
    embedding: Any = None  # eqx.nn.Embedding


def from_equinox(
    cell: Any, *, readout: Any = None, embedding: Any = None, dtype: str = "float32"
) -> Network:
    """An Equinox cell as a kronline cell and its parameters.

    Args:
        cell: an `eqx.nn.GRUCell` or `eqx.nn.LSTMCell`. Equinox has no tanh RNN: an `eqx.nn.Linear`
            from hidden + inputs numbers to hidden ones is taken for
            `h = jnp.tanh(linear(jnp.concatenate([h, x])))`.
        readout: an `eqx.nn.Linear`.
        embedding: an `eqx.nn.Embedding`.
        dtype: as of the learner, "float32" or "float64".

    Returns:
        cell and parameters: `learner.start(network.params, key, lanes)`.

    Example:
        >>> import equinox as eqx, jax
        >>> from kronline import interop
        >>> interop.from_equinox(eqx.nn.LSTMCell(2, 3, key=jax.random.key(0))).cell.gates
        ('f', 'i', 'o', 'g')
    """
    nn = needed("equinox", "from_equinox").nn
    kinds = {nn.GRUCell: GRU, nn.LSTMCell: LSTM}
    if isinstance(cell, nn.Linear):
        layer = _tanh(_dense(cell))
    elif type(cell) in kinds:
        layer = _layer(kinds[type(cell)], cell)
    else:
        raise TypeError(
            "from_equinox needs an eqx.nn.GRUCell or LSTMCell, or an eqx.nn.Linear of [h, x], got "
            f"{type(cell).__name__}; any other step can be wrapped: interop.wrap"
        )
    found = Parts(
        (layer,),
        None if readout is None else _dense(readout),
        None if embedding is None else np.asarray(embedding.weight),
    )
    return network(found, dtype)


def _tanh(dense: Dense) -> Plain:
    n = dense.W.shape[1]
    if dense.W.shape[0] <= n:
        raise ValueError(
            "a tanh RNN needs an eqx.nn.Linear from hidden + inputs numbers to hidden ones, got "
            f"one from {dense.W.shape[0]} to {n}"
        )
    bias = None if dense.b is None else dense.b[None]
    return Plain(Tanh, dense.W[n:, None], dense.W[:n, None], bias)


def _layer(kind: Any, cell: Any) -> Plain:
    wx, wh = np.asarray(cell.weight_ih), np.asarray(cell.weight_hh)
    n = wh.shape[1]
    x, h = (w.T.reshape(w.shape[1], -1, n) for w in (wx, wh))
    if not cell.use_bias:
        return Plain(kind, x, h, None)
    inner = np.asarray(cell.bias_n) if kind is GRU else None
    return Plain(kind, x, h, np.asarray(cell.bias).reshape(-1, n), inner)


def _dense(linear: Any) -> Dense:
    b = None if linear.bias is None else np.asarray(linear.bias)
    return Dense(np.asarray(linear.weight).T, b)


def to_equinox(cell: Cell, params: Any) -> Equinox:
    """A kronline cell as an Equinox module, in the parameters' precision.

    Args:
        cell: an `LSTM`, `GRU` or `Tanh`, or one in `Embedded`.
        params: its parameters, or `state.params`, with those of the readout.

    Returns:
        `cell`, and `readout` and `embedding` where there are such, else None.

    Example:
        >>> import equinox, jax, kronline as kl
        >>> from kronline import interop
        >>> gru = kl.GRU(3, 2)
        >>> interop.to_equinox(gru, gru.init(jax.random.key(0))).cell.hidden_size
        3
    """
    eqx = needed("equinox", "to_equinox")
    found = parts(cell, params)
    p, key = one_layer(found, "to_equinox"), jax.random.key(0)
    n, d, biased, like = len(p.h), len(p.x), p.bias is not None, {"dtype": p.h.dtype, "key": key}

    def linear(dense: Dense) -> Any:
        start = eqx.nn.Linear(*dense.W.shape, use_bias=dense.b is not None, **like)
        return put(start, weight=dense.W.T, bias=dense.b)

    def put(module: Any, **arrays: np.ndarray | None) -> Any:
        given = {name: jnp.asarray(a) for name, a in arrays.items() if a is not None}
        where = lambda m: [getattr(m, name) for name in given]  # noqa: E731
        return eqx.tree_at(where, module, list(given.values()))

    if p.kind is Tanh:
        W = np.concatenate([p.h[:, 0], p.x[:, 0]])
        made = linear(Dense(W, None if p.bias is None else p.bias[0]))
    else:
        make = eqx.nn.GRUCell if p.kind is GRU else eqx.nn.LSTMCell
        weights = {"weight_ih": p.x.reshape(d, -1).T, "weight_hh": p.h.reshape(n, -1).T}
        biases = {"bias": None if p.bias is None else p.bias.reshape(-1)}
        biases |= {"bias_n": p.inner} if p.kind is GRU else {}
        made = put(make(d, n, use_bias=biased, **like), **weights, **biases)
    embedding = None
    if found.embedding is not None:
        embedding = eqx.nn.Embedding(weight=jnp.asarray(found.embedding))
    return Equinox(made, None if found.readout is None else linear(found.readout), embedding)

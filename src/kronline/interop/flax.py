"""Flax: `SimpleCell`, `GRUCell`, `LSTMCell` and `OptimizedLSTMCell`, of nnx and of linen.

Linen keeps a kernel for each gate, by name: `ir`, `iz`, `in`, `hr`, ... Those of nnx lie side by
side, but for `LSTMCell`. Biases are where one is enough: at the input or at the state, and for the
candidate of linen's GRU at both. That of nnx has none inside of the reset; its `dense_h` gets one
where a network needs it.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from kronline.cells import GRU, LSTM, Cell, Tanh
from kronline.interop.needed import needed
from kronline.interop.plain import Dense, Network, Parts, Plain, network, one_layer, parts

GATES: dict[Any, tuple[str, ...]] = {Tanh: ("",), GRU: ("r", "z", "n"), LSTM: tuple("ifgo")}


class Nnx(NamedTuple):
    """What `to_nnx` gives."""

    cell: Any  # nnx.SimpleCell, GRUCell or OptimizedLSTMCell
    readout: Any = None  # nnx.Linear
    embedding: Any = None  # nnx.Embed


class Linen(NamedTuple):
    """What `to_linen` gives: modules, each with its variables."""

    cell: Any  # linen.SimpleCell, GRUCell or OptimizedLSTMCell
    variables: dict[str, Any]
    readout: tuple[Any, dict[str, Any]] | None = None  # linen.Dense
    embedding: tuple[Any, dict[str, Any]] | None = None  # linen.Embed


def _kind(cell: Any, library: Any, who: str) -> Any:
    """Which cell it is; ValueError where it computes something else."""
    kinds = {
        library.SimpleCell: Tanh,
        library.GRUCell: GRU,
        library.LSTMCell: LSTM,
        library.OptimizedLSTMCell: LSTM,
    }
    if type(cell) not in kinds:
        raise TypeError(
            f"{who} needs a SimpleCell, GRUCell, LSTMCell or OptimizedLSTMCell, got "
            f"{type(cell).__name__}; any other step can be wrapped: interop.wrap"
        )
    at = jnp.linspace(-2.0, 2.0, 9)
    for name, usual in (("activation_fn", jnp.tanh), ("gate_fn", sigmoid)):
        if not np.allclose(getattr(cell, name, usual)(at), usual(at), atol=1e-5):
            raise ValueError(
                f"{who} needs the usual {name}, got {getattr(cell, name)!r}; use interop.wrap"
            )
    if getattr(cell, "residual", False):
        raise ValueError(f"{who} needs residual=False, got True; use interop.wrap")
    return kinds[type(cell)]


def _plain(
    kind: Any,
    x: np.ndarray,
    h: np.ndarray,
    bx: np.ndarray | None,
    bh: np.ndarray | None,
) -> Plain:
    """From kernels (d, r n) and the biases (r n) of both sides, where there are such."""
    n = h.shape[0]
    X, H = (a.reshape(len(a), -1, n) for a in (x, h))
    bx, bh = (np.zeros(h.shape[1]) if b is None else b for b in (bx, bh))
    bx, bh = bx.reshape(-1, n), bh.reshape(-1, n)
    if kind is not GRU:
        return Plain(kind, X, H, bx + bh)
    return Plain(kind, X, H, np.concatenate([bx[:2] + bh[:2], bx[2:]]), bh[2])


# -- nnx -------------------------------------------------------------------------------------------


def from_nnx(
    cell: Any, *, readout: Any = None, embedding: Any = None, dtype: str = "float32"
) -> Network:
    """A cell of `flax.nnx` as a kronline cell and its parameters.

    Args:
        cell: an `nnx.SimpleCell`, `GRUCell`, `LSTMCell` or `OptimizedLSTMCell`.
        readout: an `nnx.Linear`.
        embedding: an `nnx.Embed`.
        dtype: as of the learner, "float32" or "float64".

    Returns:
        cell and parameters: `learner.start(network.params, key, lanes)`.

    Example:
        >>> from flax import nnx
        >>> from kronline import interop
        >>> interop.from_nnx(nnx.GRUCell(2, 3, rngs=nnx.Rngs(0))).cell.gates
        ('r', 'u', 'x', 'h')
    """
    nnx = needed("flax.nnx", "from_nnx")
    kind = _kind(cell, nnx, "from_nnx")
    if isinstance(cell, nnx.LSTMCell):
        i = [_dense(getattr(cell, name)) for name in ("ii", "if_", "ig", "io")]
        h = [_dense(getattr(cell, name)) for name in ("hi", "hf", "hg", "ho")]
        bias = None if h[0].b is None else np.concatenate([d.b for d in h if d.b is not None])
        x_, s_ = (np.concatenate([d.W for d in side], axis=1) for side in (i, h))
        layer = _plain(kind, x_, s_, None, bias)
    else:
        i_, h_ = _dense(cell.dense_i), _dense(cell.dense_h)
        layer = _plain(kind, i_.W, h_.W, i_.b, h_.b)
    found = Parts(
        (layer,),
        None if readout is None else _dense(readout),
        None if embedding is None else np.asarray(embedding.embedding[...]),
    )
    return network(found, dtype)


def _dense(linear: Any) -> Dense:
    b = None if linear.bias is None else np.asarray(linear.bias[...])
    return Dense(np.asarray(linear.kernel[...]), b)


def to_nnx(cell: Cell, params: Any) -> Nnx:
    """A kronline cell as a module of `flax.nnx`, in the parameters' precision.

    Args:
        cell: an `LSTM`, `GRU` or `Tanh`, or one in `Embedded`.
        params: its parameters, or `state.params`, with those of the readout.

    Returns:
        `cell`, and `readout` and `embedding` where there are such, else None. The `dense_h` of a
        `GRUCell` has a bias if the network's is not zero, which `nnx.GRUCell` itself does not make.

    Example:
        >>> import flax, jax, kronline as kl
        >>> from kronline import interop
        >>> gru = kl.GRU(3, 2)
        >>> interop.to_nnx(gru, gru.init(jax.random.key(0))).cell.hidden_features
        3
    """
    nnx = needed("flax.nnx", "to_nnx")
    found = parts(cell, params)
    p = one_layer(found, "to_nnx")
    n, d, like = len(p.h), len(p.x), {"param_dtype": p.h.dtype, "rngs": nnx.Rngs(0)}

    def linear(dense: Dense) -> Any:
        made = nnx.Linear(*dense.W.shape, use_bias=dense.b is not None, **like)
        made.kernel = nnx.Param(jnp.asarray(dense.W))
        if dense.b is not None:
            made.bias = nnx.Param(jnp.asarray(dense.b))
        return made

    made = {Tanh: nnx.SimpleCell, GRU: nnx.GRUCell, LSTM: nnx.OptimizedLSTMCell}[p.kind](
        d, n, **like
    )
    bias = np.zeros(p.h[0].size, p.h.dtype) if p.bias is None else p.bias.reshape(-1)
    inner = None
    if p.inner is not None and p.inner.any():  # of r, z and n; those of r and z are in bias
        inner = np.concatenate([np.zeros(2 * n, p.h.dtype), p.inner])
    sides = (bias, inner) if p.kind is not LSTM else (None, bias)
    made.dense_i = linear(Dense(p.x.reshape(d, -1), sides[0]))
    made.dense_h = linear(Dense(p.h.reshape(n, -1), sides[1]))
    embedding = None
    if found.embedding is not None:
        embedding = nnx.Embed(*found.embedding.shape, **like)
        embedding.embedding = nnx.Param(jnp.asarray(found.embedding))
    return Nnx(made, None if found.readout is None else linear(found.readout), embedding)


# -- linen -----------------------------------------------------------------------------------------


def from_linen(
    cell: Any,
    variables: Any,
    *,
    readout: Any = None,
    embedding: Any = None,
    dtype: str = "float32",
) -> Network:
    """A cell of `flax.linen` as a kronline cell and its parameters.

    Args:
        cell: a `linen.SimpleCell`, `GRUCell`, `LSTMCell` or `OptimizedLSTMCell`.
        variables: of this cell: what `cell.init` gives, or what is in it at "params".
        readout: the variables of a `linen.Dense`.
        embedding: the variables of a `linen.Embed`.
        dtype: as of the learner, "float32" or "float64".

    Returns:
        cell and parameters: `learner.start(network.params, key, lanes)`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import linen
        >>> from kronline import interop
        >>> cell = linen.GRUCell(3)
        >>> variables = cell.init(jax.random.key(0), jnp.zeros(3), jnp.zeros(2))
        >>> interop.from_linen(cell, variables).cell.gates
        ('r', 'u', 'x', 'h')
    """
    kind = _kind(cell, needed("flax.linen", "from_linen"), "from_linen")
    given = _params(variables)
    wanted = [f"{side}{gate}" for side in "ih" for gate in GATES[kind]]
    if set(given) != set(wanted):
        raise ValueError(
            f"the variables of a {type(cell).__name__} are {', '.join(wanted)}, got "
            f"{', '.join(given)}"
        )

    def side(name: str) -> tuple[np.ndarray, np.ndarray]:
        mine = [given[f"{name}{gate}"] for gate in GATES[kind]]
        kernels = [np.asarray(m["kernel"]) for m in mine]
        zeros = np.zeros(kernels[0].shape[1])
        return np.concatenate(kernels, axis=1), np.concatenate([m.get("bias", zeros) for m in mine])

    (x, bx), (h, bh) = side("i"), side("h")
    found = Parts(
        (_plain(kind, x, h, bx, bh),),
        None if readout is None else _linen_dense(_params(readout)),
        None if embedding is None else np.asarray(_params(embedding)["embedding"]),
    )
    return network(found, dtype)


def _params(variables: Any) -> Any:
    return variables.get("params", variables)


def _linen_dense(given: Any) -> Dense:
    return Dense(
        np.asarray(given["kernel"]), np.asarray(given["bias"]) if "bias" in given else None
    )


def to_linen(cell: Cell, params: Any) -> Linen:
    """A kronline cell as a module of `flax.linen` and its variables, in the parameters' precision.

    Args:
        cell: an `LSTM`, `GRU` or `Tanh`, or one in `Embedded`.
        params: its parameters, or `state.params`, with those of the readout.

    Returns:
        `cell` and `variables`; `readout` and `embedding` as such pairs where there are such, else
        None.

    Example:
        >>> import flax, jax, kronline as kl
        >>> from kronline import interop
        >>> gru = kl.GRU(3, 2)
        >>> made = interop.to_linen(gru, gru.init(jax.random.key(0)))
        >>> made.cell.apply(made.variables, jax.numpy.zeros(3), jax.numpy.zeros(2))[1].shape
        (3,)
    """
    linen = needed("flax.linen", "to_linen")
    found = parts(cell, params)
    p = one_layer(found, "to_linen")
    like = {"param_dtype": p.h.dtype}
    bias = np.zeros_like(p.h[0]) if p.bias is None else p.bias
    biased = "h" if p.kind is LSTM else "i"  # the side that has the biases
    variables: dict[str, Any] = {}
    for side, kernels in (("i", p.x), ("h", p.h)):
        for k, gate in enumerate(GATES[p.kind]):
            mine = {"kernel": kernels[:, k]}
            if side == biased:
                mine["bias"] = bias[k]
            elif p.kind is GRU and gate == "n":
                mine["bias"] = np.zeros_like(bias[k]) if p.inner is None else p.inner
            variables[f"{side}{gate}"] = {name: jnp.asarray(a) for name, a in mine.items()}
    make = {Tanh: linen.SimpleCell, GRU: linen.GRUCell, LSTM: linen.OptimizedLSTMCell}[p.kind]
    readout = embedding = None
    if found.readout is not None:
        W, b = found.readout
        given = {"kernel": jnp.asarray(W)} | ({} if b is None else {"bias": jnp.asarray(b)})
        readout = (linen.Dense(W.shape[1], use_bias=b is not None, **like), {"params": given})
    if found.embedding is not None:
        given = {"embedding": jnp.asarray(found.embedding)}
        embedding = (linen.Embed(*found.embedding.shape, **like), {"params": given})
    return Linen(make(p.h.shape[0], **like), {"params": variables}, readout, embedding)

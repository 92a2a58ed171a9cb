"""PyTorch: `nn.RNN`, `nn.GRU`, `nn.LSTM`, their cells, and state dicts of these, also as files.

A layer has `weight_ih (r n, d)`, `weight_hh (r n, n)`, `bias_ih` and `bias_hh (r n)`. Only a GRU's
candidate tells its two biases apart; of the others the sum counts.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from kronline.cells import GRU, LSTM, Cell, Tanh, UnitCell
from kronline.interop.needed import needed
from kronline.interop.plain import BY_COUNT, Dense, Network, Parts, Plain, network, one_layer, parts

Arrays = dict[str, np.ndarray]
NAMES: dict[type[UnitCell], str] = {Tanh: "RNN", GRU: "GRU", LSTM: "LSTM"}


class Torch(NamedTuple):
    """What `to_torch` gives."""

    rnn: Any  # nn.RNN, nn.GRU or nn.LSTM, or a cell
    readout: Any = None  # nn.Linear
    embedding: Any = None  # nn.Embedding


# -- in --------------------------------------------------------------------------------------------


def from_torch(
    source: Any,
    *,
    readout: Any = None,
    embedding: Any = None,
    prefix: str | None = None,
    dtype: str = "float32",
) -> Network:
    """A PyTorch network as a kronline cell and its parameters; several layers become a `Stack`.

    Dropout between layers is left out.

    Args:
        source: an `nn.RNN`, `nn.GRU`, `nn.LSTM`, or one of their cells; a module that has one of
            these inside; a state dict; or the path of a state dict in safetensors, for which
            PyTorch is not needed. A state dict does not tell tanh from ReLU: tanh is meant.
        readout: an `nn.Linear`, or its name in the module or state dict: "head".
        embedding: an `nn.Embedding`, or its name there.
        prefix: where the recurrent layer is, if there are several: "decoder.rnn".
        dtype: as of the learner, "float32" or "float64".

    Returns:
        cell and parameters: `learner.start(network.params, key, lanes)`.

    Raises:
        ValueError: for what a cell cannot be: two directions, projections, ReLU.

    Example:
        >>> import numpy as np
        >>> from kronline import interop
        >>> sizes = {"weight_ih_l0": (12, 2), "weight_hh_l0": (12, 3), "head.weight": (5, 3)}
        >>> state_dict = {name: np.zeros(shape) for name, shape in sizes.items()}
        >>> interop.from_torch(state_dict, readout="head").cell.gates
        ('f', 'i', 'o', 'g')
    """
    arrays, module = _arrays(source)
    prefix = _prefix(arrays, prefix)
    if module is not None:
        _check(module.get_submodule(prefix.rstrip(".")) if prefix else module)
    found = Parts(
        _layers({n[len(prefix) :]: a for n, a in arrays.items() if n.startswith(prefix)}),
        None if readout is None else _dense(readout, arrays),
        None if embedding is None else _own(embedding, arrays, "embedding")["weight"],
    )
    return network(found, dtype)


def _arrays(source: Any) -> tuple[Arrays, Any]:
    """The weights by their names, and the module that they are of, if there is one."""
    if isinstance(source, str | Path):
        return load_file(source), None
    if isinstance(source, Mapping):
        return {name: _numpy(a) for name, a in source.items()}, None
    if hasattr(source, "state_dict"):
        return {name: _numpy(a) for name, a in source.state_dict().items()}, source
    raise TypeError(
        "from_torch needs a module such as nn.LSTM, a state dict, or the path of one in "
        f"safetensors, got {source!r}"
    )


def _numpy(a: Any) -> np.ndarray:
    """A tensor or an array; bfloat16 is unknown to numpy."""
    if hasattr(a, "detach"):
        a = a.detach().cpu()
        return (a.double() if a.is_floating_point() else a).numpy()
    return np.asarray(a)


def _prefix(arrays: Arrays, prefix: str | None) -> str:
    """Up to and with its dot, where the recurrent layer's names begin."""
    found = {m[1] for name in arrays if (m := re.fullmatch(r"(.*?)weight_ih(_l0)?", name))}
    if prefix is not None:
        found &= {prefix, f"{prefix}."} if prefix else {""}
    if len(found) == 1:
        return found.pop()
    where = "" if prefix is None else f" at prefix={prefix!r}"
    got = ", ".join(sorted(repr(p.rstrip(".")) for p in found)) or f"none, of {', '.join(arrays)}"
    raise ValueError(
        f"needed one recurrent layer{where}, with weight_ih_l0 or weight_ih, got {got}; "
        "prefix= says which"
    )


def _check(module: Any) -> None:
    """Raise ValueError for what the state dict does not tell, or tells worse."""
    for name, allowed, why in (
        ("bidirectional", (False,), "an online network cannot read the future"),
        ("proj_size", (0,), "kronline's LSTM has no projection; wrap it with interop.wrap_torch"),
        ("nonlinearity", ("tanh",), "wrap it with interop.wrap_torch"),
    ):
        value = getattr(module, name, allowed[0])
        if value not in allowed:
            raise ValueError(f"needed {name}={allowed[0]!r}, got {value!r}: {why}")


def _layers(arrays: Arrays) -> tuple[Plain, ...]:
    for name in arrays:
        if name.endswith("_reverse"):
            raise ValueError(
                f"needed one direction, got two ({name}): an online network cannot read the future"
            )
        if name.startswith("weight_hr"):
            raise ValueError(f"needed an LSTM without a projection, got {name}")
    if "weight_ih" in arrays:
        return (_layer(arrays, ""),)
    count = 0
    while f"weight_ih_l{count}" in arrays:
        count += 1
    return tuple(_layer(arrays, f"_l{i}") for i in range(count))


def _layer(arrays: Arrays, end: str) -> Plain:
    """`(r n, d)` of each gate's rows, as `(d, r, n)`."""
    wx, wh = arrays[f"weight_ih{end}"], arrays[f"weight_hh{end}"]
    n = wh.shape[1]
    r, rest = divmod(wh.shape[0], n)
    if rest or r not in BY_COUNT or wx.shape[0] != r * n:
        raise ValueError(
            "needed weight_ih (r n, d) and weight_hh (r n, n) with r = 1 (tanh), 3 (GRU) or 4 "
            f"(LSTM), got {wx.shape} and {wh.shape}"
        )
    kind = BY_COUNT[r]
    x, h = (w.T.reshape(-1, r, n) for w in (wx, wh))
    if f"bias_ih{end}" not in arrays:
        return Plain(kind, x, h, None)
    bx, bh = (arrays[f"bias_{which}{end}"].reshape(r, n) for which in ("ih", "hh"))
    if kind is not GRU:
        return Plain(kind, x, h, bx + bh)
    # the candidate has b_in outside of the reset and b_hn inside
    return Plain(kind, x, h, np.concatenate([bx[:2] + bh[:2], bx[2:]]), bh[2])


def _own(thing: Any, arrays: Arrays, what: str) -> Arrays:
    """The weights of a module by itself, or of a name in the state dict."""
    if not isinstance(thing, str):
        return _arrays(thing)[0]
    prefix = f"{thing}."
    found = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    if "weight" not in found:
        raise ValueError(f"needed {thing}.weight for the {what}, got only {', '.join(arrays)}")
    return found


def _dense(readout: Any, arrays: Arrays) -> Dense:
    own = _own(readout, arrays, "readout")
    return Dense(own["weight"].T, own.get("bias"))


# -- out -------------------------------------------------------------------------------------------


def torch_state_dict(
    cell: Cell, params: Any, *, form: Literal["layers", "cell"] = "layers", prefix: str = ""
) -> Arrays:
    """The weights of a cell by PyTorch's names, without PyTorch.

    `safetensors.numpy.save_file(torch_state_dict(cell, params), path)` writes what
    `safetensors.torch.load_file(path)` and `from_torch(path)` read.

    Args:
        cell: an `LSTM`, `GRU` or `Tanh`, a `Stack` of one kind of these, or one in `Embedded`.
        params: its parameters, or `state.params`, with those of the readout.
        form: "layers" for the names of `nn.LSTM`, "cell" for those of `nn.LSTMCell`.
        prefix: of the recurrent layer's names: "rnn." for instance. Readout and embedding are
            called `readout` and `embedding`.

    Returns:
        arrays by their names.

    Example:
        >>> import jax, kronline as kl
        >>> from kronline import interop
        >>> cell = kl.GRU(3, 2)
        >>> sorted(interop.torch_state_dict(cell, cell.init(jax.random.key(0))))
        ['bias_hh_l0', 'bias_ih_l0', 'weight_hh_l0', 'weight_ih_l0']
    """
    found = parts(cell, params)
    named: Arrays = {}
    if form == "cell":
        named |= _names(one_layer(found, "a cell's state dict"), prefix, "")
    else:
        for i, layer in enumerate(found.layers):
            named |= _names(layer, prefix, f"_l{i}")
    if found.readout is not None:
        V, b = found.readout
        named |= {"readout.weight": V.T, "readout.bias": b if b is not None else np.zeros(len(V))}
    if found.embedding is not None:
        named["embedding.weight"] = found.embedding
    return {name: np.ascontiguousarray(a) for name, a in named.items()}


def _names(p: Plain, prefix: str, end: str) -> Arrays:
    """`(d, r, n)` as `(r n, d)`; a single bias as bias_ih, and zeros."""
    named: Arrays = {
        f"{prefix}weight_ih{end}": p.x.reshape(len(p.x), -1).T,
        f"{prefix}weight_hh{end}": p.h.reshape(len(p.h), -1).T,
    }
    if p.bias is not None:
        second = np.zeros_like(p.bias)
        if p.inner is not None:
            second[2] = p.inner
        named[f"{prefix}bias_ih{end}"] = p.bias.reshape(-1)
        named[f"{prefix}bias_hh{end}"] = second.reshape(-1)
    return named


def to_torch(
    cell: Cell,
    params: Any,
    *,
    form: Literal["layers", "cell"] = "layers",
    batch_first: bool = False,
) -> Torch:
    """A kronline cell as a PyTorch module, in the parameters' precision.

    Args:
        cell, params, form: as for `torch_state_dict`; a `Stack` has layers of one size.
        batch_first: as for `nn.LSTM`.

    Returns:
        `rnn`, and `readout` and `embedding` where there are such, else None.

    Example:
        >>> import jax, torch, kronline as kl
        >>> from kronline import interop
        >>> cell = kl.LSTM(3, 2)
        >>> interop.to_torch(cell, cell.init(jax.random.key(0))).rnn
        LSTM(2, 3)
    """
    torch = needed("torch", "to_torch")
    found = parts(cell, params)
    first, depth = found.layers[0], len(found.layers)
    sizes = {(p.kind, p.h.shape[0], p.bias is None) for p in found.layers}
    if len(sizes) > 1:
        raise ValueError(
            "PyTorch's layers are of one kind and size, with biases or without, got "
            f"{', '.join(f'{p.kind.__name__} of {p.h.shape[0]}' for p in found.layers)}; convert "
            "stack.layers one by one"
        )
    more: dict[str, Any] = {} if form == "cell" else dict(num_layers=depth, batch_first=batch_first)
    make = getattr(torch.nn, NAMES[first.kind] + ("Cell" if form == "cell" else ""))
    tensors = {n: torch.tensor(a) for n, a in torch_state_dict(cell, params, form=form).items()}
    like = {"dtype": tensors["weight_ih" if form == "cell" else "weight_ih_l0"].dtype}
    rnn = make(len(first.x), len(first.h), bias=first.bias is not None, **more, **like)
    readout = embedding = None
    if found.readout is not None:
        readout = torch.nn.Linear(*found.readout.W.shape, **like)
    if found.embedding is not None:
        embedding = torch.nn.Embedding(*found.embedding.shape, **like)
    for module, name in ((readout, "readout"), (embedding, "embedding")):
        if module is not None:
            mine = [n for n in tensors if n.startswith(f"{name}.")]
            module.load_state_dict({n.removeprefix(f"{name}."): tensors.pop(n) for n in mine})
    rnn.load_state_dict(tensors)
    return Torch(rnn, readout, embedding)

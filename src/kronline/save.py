"""A learner on disk: one safetensors file, whose header holds its description as JSON. No pickle.

The file is written beside its final place and then moved there, so that a reader never sees half of
it, and it carries a checksum of the numbers in it.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from kronline import cells, lanes, online, readout, traces
from kronline._version import __version__
from kronline.learner import Learner, State

FORMAT = "kronline-learner-1"


def save(path: str | Path, learner: Learner, state: State) -> None:
    """Write all of a learner but its optimiser's settings, which optax cannot name.

    Args:
        path: a file; `.safetensors` is the usual ending.
        learner: whose settings go into the header, as JSON.
        state: parameters, optimiser state, lanes, traces and key.
    """
    arrays = {name: _plain(leaf) for name, leaf in _named(state).items()}
    header = {
        "format": FORMAT,
        "version": __version__,
        "learner": describe(learner),
        "keys": {
            name: str(jax.random.key_impl(k)) for name, k in _named(state).items() if _is_key(k)
        },
        "buffered": state.buffer is not None,
        "sha256": _checksum(arrays),
    }
    data = to_bytes(arrays, {"kronline": json.dumps(header)})
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(
    path: str | Path,
    *,
    optimiser: optax.GradientTransformation | None = None,
    learner: Learner | None = None,
    example: Any = None,
) -> tuple[Learner, State]:
    """Read what `save` wrote.

    Args:
        path: the file.
        optimiser: the optimiser that was in use; the rest of the learner is rebuilt from the file.
        learner: instead, the learner itself: needed where parts of it are not the library's (a cell
            or loss of one's own).
        example: `(x, y)` of one step, where the state was made with one (see `Learner.init`).

    Raises:
        ValueError: if the file is damaged, or does not fit the learner.
    """
    header, arrays = _read(Path(path))
    if learner is None:
        if optimiser is None:
            raise ValueError(
                "load needs optimiser=... (optax's are not in the file) or learner=..."
            )
        fields = {name: build(part) for name, part in header["learner"].items()}
        learner = Learner(**fields, optimiser=optimiser)
    elif describe(learner) != header["learner"]:
        raise ValueError(
            f"{path} was saved from another learner: needed\n  {json.dumps(describe(learner))}\n"
            f"got\n  {json.dumps(header['learner'])}"
        )
    if header["buffered"] and example is None:
        raise ValueError(f"{path} holds a buffer; load needs example=(x, y), as init did")
    lanes_ = arrays["s"].shape[0]
    like = jax.eval_shape(lambda: learner.init(jax.random.key(0), lanes_, example))
    return learner, _filled(path, like, arrays, header["keys"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with safe_open(path, framework="numpy") as f:
            header = json.loads((f.metadata() or {}).get("kronline", "{}"))
            arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as e:
        raise ValueError(f"{path} is damaged or is not a safetensors file: {e}") from e
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} needs the format {FORMAT!r}, got {header.get('format')!r}")
    if header["sha256"] != _checksum(arrays):
        raise ValueError(f"{path} is damaged: its numbers do not match their checksum")
    return header, arrays


def _filled(
    path: str | Path, like: State, arrays: dict[str, np.ndarray], keys: dict[str, str]
) -> State:
    wanted = _named(like)
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))
        raise ValueError(f"{path} does not fit this learner and optimiser: they differ in {odd}")

    def leaf(name: str, want: Any) -> Any:
        got = arrays[name]
        if _is_key(want):
            return jax.random.wrap_key_data(jnp.asarray(got), impl=keys[name])
        if got.shape != want.shape or got.dtype != want.dtype:
            raise ValueError(
                f"{path}: {name} needs {want.dtype}{want.shape}, got {got.dtype}{got.shape}"
            )
        return jnp.asarray(got)

    leaves = [leaf(name, want) for name, want in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(state: State) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(p, simple=True, separator="."): leaf for p, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Any) -> np.ndarray:
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(arrays[name].tobytes())
    return sha.hexdigest()


# -- settings as JSON ------------------------------------------------------------------------------

_CLASSES: dict[str, type] = {
    c.__name__: c
    for module in (cells, traces, lanes, online, readout)
    for c in vars(module).values()
    if isinstance(c, type) and dataclasses.is_dataclass(c)
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (readout.cross_entropy, readout.squared_error)
}


def describe(thing: Any) -> Any:
    """Settings as JSON: dataclasses by name and fields, functions by name."""
    if isinstance(thing, Learner):
        fields = [f.name for f in dataclasses.fields(thing) if f.name != "optimiser"]
        return {name: describe(getattr(thing, name)) for name in fields}
    if dataclasses.is_dataclass(thing):
        fields = [f.name for f in dataclasses.fields(thing)]
        kind = _name(type(thing), _CLASSES)
        return {"type": kind, **{n: describe(getattr(thing, n)) for n in fields}}
    if isinstance(thing, tuple | list):
        return [describe(t) for t in thing]
    if callable(thing):
        return {"function": _name(thing, _FUNCTIONS)}
    return thing.item() if isinstance(thing, np.generic) else thing


def _name(thing: Any, known: dict[str, Any]) -> str:
    """Short for the library's own, with its module for anything else."""
    name = getattr(thing, "__qualname__", type(thing).__name__)
    return name if known.get(name) is thing else f"{getattr(thing, '__module__', '')}.{name}"


def build(spec: Any) -> Any:
    """The reverse of `describe`, for what the library itself has; never imports anything."""
    if isinstance(spec, list):
        return tuple(build(s) for s in spec)
    if not isinstance(spec, dict):
        return spec
    name = str(spec.get("type", spec.get("function")))
    known = _CLASSES if "type" in spec else _FUNCTIONS
    if name not in known:
        raise ValueError(
            f"the file holds {name!r}, which is not the library's own; build the learner yourself "
            "and use load(path, learner=learner)"
        )
    if "function" in spec:
        return _FUNCTIONS[name]
    return _CLASSES[name](**{k: build(v) for k, v in spec.items() if k != "type"})

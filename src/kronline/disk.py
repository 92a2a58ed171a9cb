"""Files that are whole or absent, and trees of arrays in them: safetensors with a JSON header.

A file is written beside its final place, flushed to the disk and then moved there, so that a reader
never sees half of it. Trees carry a checksum of their numbers and of their header. No pickle.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

Arrays = dict[str, np.ndarray]


def write(path: Path, data: str | bytes) -> None:
    """The whole file or nothing."""
    data = data.encode() if isinstance(data, str) else data
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_tree(path: Path, tree: Any, header: dict[str, Any]) -> str:
    """Arrays and keys under their names in the tree; the checksum of all."""
    named_ = named(tree)
    arrays = {name: _plain(leaf) for name, leaf in named_.items()}
    keys = {name: str(jax.random.key_impl(k)) for name, k in named_.items() if _is_key(k)}
    header = header | {"keys": keys}
    header["sha256"] = _checksum(header, arrays)
    write(path, to_bytes(arrays, {"kronline": json.dumps(header)}))
    return str(header["sha256"])


def read_tree(
    path: Path,
    *formats: str,
    keep: Callable[[str, np.ndarray], np.ndarray] = lambda _, a: a,
    sha256: str | None = None,
) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of a file whose header says that it is of one of these formats.

    Args:
        path: the file.
        *formats: those that are needed.
        keep: what is kept of an array, by its name; all are read, one at a time, and checked.
        sha256: the checksum that the file must have, if that is known from elsewhere.

    Raises:
        ValueError: if the file is damaged, or of another format.
    """
    try:
        with safe_open(path, framework="numpy") as f:
            header = json.loads((f.metadata() or {}).get("kronline", "{}"))
            if header.get("format") not in formats:
                needed = " or ".join(map(repr, formats))
                raise ValueError(f"{path} needs the format {needed}, got {header.get('format')!r}")
            said, arrays = header.pop("sha256", None), {}
            sha = hashlib.sha256(json.dumps(header).encode())
            for name in sorted(f.keys()):
                a = f.get_tensor(name)
                _add(sha, name, a)
                arrays[name] = keep(name, a)
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as e:
        raise ValueError(f"{path} is damaged or is not a safetensors file: {e}") from e
    if said != sha.hexdigest():
        raise ValueError(f"{path} is damaged: its numbers do not match their checksum")
    if sha256 not in (None, said):
        raise ValueError(f"{path} is not the part that belongs to this checkpoint")
    return header, arrays


def header(path: Path) -> dict[str, Any]:
    """The header of a file alone, not checked; ValueError if there is none."""
    try:
        with safe_open(path, framework="numpy") as f:
            return dict(json.loads((f.metadata() or {}).get("kronline", "{}")))
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as e:
        raise ValueError(f"{path} is damaged or is not a safetensors file: {e}") from e


def filled(path: Path | str, like: Any, arrays: Arrays, keys: dict[str, str]) -> Any:
    """A tree of the shape of `like`, with what was read."""
    wanted = named(like)
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


def named(tree: Any) -> dict[str, Any]:
    """Leaves by their place: `params.cell.W`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="."): leaf for p, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Any) -> np.ndarray:
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")


def _checksum(header: dict[str, Any], arrays: Arrays) -> str:
    sha = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(arrays):
        _add(sha, name, arrays[name])
    return sha.hexdigest()


def _add(sha: Any, name: str, a: np.ndarray) -> None:
    sha.update(f"{name} {a.dtype} {a.shape}".encode())
    sha.update(a.tobytes())

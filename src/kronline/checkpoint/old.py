"""Files of before there were specs: classes with all of their fields, as JSON."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from kronline import cells, estimators, lanes, readout, regularise, traces

# by their formats, and what their headers do not say
FORMATS: dict[str, dict[str, Any]] = {
    "kronline-learner-1": {"at": ""},
    "kronline-run-1": {"at": "training.learner", "learner": None},
}

_CLASSES: dict[str, type] = {
    c.__name__: c
    for module in (cells, traces, lanes, estimators, readout, regularise)
    for c in vars(module).values()
    if isinstance(c, type) and dataclasses.is_dataclass(c)
}
_RENAMED: dict[str, type] = {"_Named": estimators.Online, "Tail": traces.KFTBPTT}
_NOT_A_SETTING = ("type", "label")  # a label was what a method was called
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (readout.cross_entropy, readout.squared_error)
}


def completed(arrays: dict[str, np.ndarray], at: str) -> dict[str, np.ndarray]:
    """With what states of earlier versions did not have: no lane overflowed, no update left out."""
    prefix = f"{at}." if at else ""
    s = arrays.get(f"{prefix}s")
    if s is None or f"{prefix}anew" in arrays:
        return arrays
    more: dict[str, np.ndarray] = {
        f"{prefix}anew": np.zeros(s.shape[0], bool),
        f"{prefix}skipped": np.array(0, np.int32),
    }
    filled = f"{prefix}buffer.filled"
    if filled in arrays:  # was one number for all lanes
        more[filled] = np.broadcast_to(arrays[filled], s.shape[:1])
    return arrays | more


def made(name: str, tree: Any) -> Any:
    """What a tree says, of what the library itself has; never imports anything."""
    if isinstance(tree, list):
        return tuple(made(name, t) for t in tree)
    if not isinstance(tree, dict):
        return tree
    known = _known(tree)
    if known is None:
        raise ValueError(f"{tree.get('type', tree.get('function'))!r} is not the library's own")
    if "function" in tree:
        return known
    return known(**{field: made(field, value) for field, value in _settings(tree).items()})


def same(tree: Any, thing: Any) -> bool:
    """Whether a tree was written of a thing, which may be a user's own."""
    if isinstance(tree, list):
        alike = isinstance(thing, tuple | list) and len(tree) == len(thing)
        return alike and all(map(same, tree, thing))
    if not isinstance(tree, dict):
        return bool(tree == thing)
    what = thing if "function" in tree else type(thing)
    known, name = _known(tree), f"{what.__module__}.{what.__qualname__}"
    if not (known is what if known else tree.get("type", tree.get("function")) == name):
        return False
    return all(same(value, getattr(thing, field, None)) for field, value in _settings(tree).items())


def _known(tree: dict[str, Any]) -> Callable[..., Any] | None:
    """The library's class or function of that name."""
    if "function" in tree:
        return _FUNCTIONS.get(tree["function"])
    return (_CLASSES | _RENAMED).get(str(tree.get("type")))


def _settings(tree: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in tree.items() if k not in (*_NOT_A_SETTING, "function")}

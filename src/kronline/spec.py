"""Cells and estimators by what they are called on a command line: `RHN(2, 3)`, `uoro(copies=4)`.

What a cell is made of is named in the same way: `RHN(sparse=Blocks(0.25))`, `LowRank(RHN, 16)`.
Also `path/to/file.py:NAME(arguments)` or `package.module:NAME`, for a user's own.
"""

import ast
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optax

from kronline import cells, regularise
from kronline.errors import UsageError
from kronline.estimators import methods

ESTIMATORS: dict[str, Callable[..., Any]] = {
    name: getattr(methods, name) for name in methods.__all__
}
CELLS: dict[str, Callable[..., Any]] = {
    c.__name__: c
    for c in (
        cells.Tanh,
        cells.LeakyTanh,
        cells.RHN,
        cells.LSTM,
        cells.GRU,
        cells.DeepRHN,
        cells.ResetBeforeGRU,
        cells.LIF,
        cells.LowRank,
    )
}
PARTS: dict[str, Callable[..., Any]] = {"Blocks": cells.Blocks}  # of cells; they have no sizes
OPTIMISERS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (optax.adam, optax.adamw, optax.sgd, optax.rmsprop, optax.radam)
}
REGULARISERS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        regularise.row_norm,
        regularise.spectral,
        regularise.activation,
        regularise.noise,
    )
}


def split(text: str, mark: str) -> list[str]:
    """The parts of a text between marks that stand outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def parse(text: str, known: dict[str, Callable[..., Any]], what: str, *first: Any) -> Any:
    """`NAME`, `NAME(arguments)` or `place:NAME` as the object it means.

    Args:
        text: what was written.
        known: what the library has of that kind.
        what: the kind, for errors.
        *first: arguments that come before those in the text: a cell's sizes, for instance.
    """
    place, _, text = text.rpartition(":")
    try:
        node = ast.parse(text, mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name):
            raise ValueError
        name = call.func.id
        args = [_argument(a, known, what, first) for a in call.args]
        kwargs = {str(k.arg): _argument(k.value, known, what, first) for k in call.keywords}
    except UsageError:
        raise
    except (SyntaxError, ValueError) as e:
        raise UsageError(
            f"{what} must be NAME, NAME(arguments) or file.py:NAME(arguments), got {text!r}"
        ) from e
    make = _imported(place, name, what) if place else _known(name, known, what)
    if not callable(make):
        return make
    return _made(make, text, what, (*_sizes(make, first), *args), kwargs)


def _argument(
    node: ast.expr, known: dict[str, Callable[..., Any]], what: str, first: tuple[Any, ...]
) -> Any:
    """A number, a text, ...; or, inside a cell, a cell or one of its `PARTS`."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if known is not CELLS or not isinstance(call.func, ast.Name):
        return ast.literal_eval(node)
    name, inside = call.func.id, f"{what}'s argument"
    make = _known(name, CELLS | PARTS, inside)
    args = [_argument(a, known, what, first) for a in call.args]
    kwargs = {str(k.arg): _argument(k.value, known, what, first) for k in call.keywords}
    return _made(make, ast.unparse(node), inside, (*_sizes(make, first), *args), kwargs)


def _sizes(make: Any, first: tuple[Any, ...]) -> tuple[Any, ...]:
    """What comes before the arguments; a cell around another has the sizes of the one inside."""
    return () if make is cells.LowRank or make in PARTS.values() else first


def _made(
    make: Callable[..., Any], text: str, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        return make(*args, **kwargs)
    except (TypeError, ValueError) as e:
        raise UsageError(f"{what} {text!r}: {e}") from e


def _known(name: str, known: dict[str, Callable[..., Any]], what: str) -> Callable[..., Any]:
    if name not in known:
        close = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"{what} must be one of {', '.join(known)}, got {name!r}{hint}")
    return known[name]


def _imported(place: str, name: str, what: str) -> Any:
    """A user's own, from a file or a module."""
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look themselves up there
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        return getattr(module, name)
    except (ImportError, OSError, AttributeError) as e:
        raise UsageError(f"{what} {place}:{name} could not be read: {e}") from e

"""From the text of a thing to the thing. A text is only taken apart, never run."""

import ast
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kronline import cells
from kronline.errors import UsageError
from kronline.show import show
from kronline.spec.known import KINDS, Known


def parse(text: str, kind: str, *sizes: Any) -> Any:
    """The thing that a text means; the reverse of `show`.

    Args:
        text: `NAME` or `NAME(arguments)`.
        kind: what is needed: one of `KINDS`.
        *sizes: what is not in the text: a cell's units and inputs, an optimiser's rate.

    Returns:
        the cell, estimator, ...

    Raises:
        UsageError: if the library has no such thing.

    Example:
        >>> parse("LowRank(RHN(64, 4), 16)", "cell").rank
        16
    """
    call = _call(text, kind)
    return _Maker(kind, text).made(_known(_name(call), KINDS[kind].known, kind), call, sizes)


def given(text: str, kind: str, *sizes: Any) -> Any:
    """The same for what a user has typed: also `file.py:NAME(arguments)` and `module:NAME`."""
    own = re.fullmatch(r"(.+\.py|[\w.]+):(\w.*)", text.strip())
    if not own:
        return parse(text, kind, *sizes)
    place, inner = own.groups()
    call = _call(inner, kind)
    found = _imported(place, _name(call), kind)
    return _Maker(kind, text).made(found, call, sizes) if callable(found) else found


@cache
def canonical(text: str, kind: str) -> str:
    """The text as `show` writes it; as it is, if it is a user's own or is not known."""
    try:
        return show(parse(text, kind))
    except UsageError:
        return text


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


# -- from text to calls ----------------------------------------------------------------------------


def _call(text: str, kind: str) -> ast.Call:
    """`NAME(arguments)`, or `NAME`, which is short for `NAME()`."""
    try:
        call = _as_call(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise _unreadable(kind, text) from e
    if call is None:
        raise _unreadable(kind, text)
    return call


def _as_call(node: ast.expr) -> ast.Call | None:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    return call if isinstance(call.func, ast.Name) else None


def _name(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Name)
    return call.func.id


def _unreadable(kind: str, text: str) -> UsageError:
    return UsageError(
        f"{kind} must be NAME, NAME(arguments) or file.py:NAME(arguments), got {text!r}"
    )


# -- from calls to things --------------------------------------------------------------------------


class _Maker(NamedTuple):
    """Makes things of the calls in a text."""

    kind: str
    text: str

    def made(self, make: Callable[..., Any], call: ast.Call, sizes: tuple[Any, ...]) -> Any:
        """What a call gives, with the sizes that it leaves out."""
        args = self._arguments(make, call, sizes)
        kwargs = {str(k.arg): self._value(k.value, sizes) for k in call.keywords}
        what = f"{self.kind} {ast.unparse(call)!r}"
        try:
            inspect.signature(make).bind(*args, **kwargs)
        except TypeError as e:
            needed = f"needed {_signature(make)}{_filled_in(make, sizes)}"
            raise UsageError(f"{what}: {e}; {needed}") from e
        try:
            return make(*args, **kwargs)
        except (TypeError, ValueError) as e:
            raise UsageError(f"{what}: {e}") from e

    def _arguments(self, make: Any, call: ast.Call, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those without names. A cell around others has no sizes but theirs."""
        if make is cells.Stack:
            return (self._layers(call, sizes),)
        if make is cells.Embedded and sizes:
            return self._embedded(call, *sizes)
        args = tuple(self._value(a, sizes) for a in call.args)
        return args if _is_around(make) else (*sizes, *args)

    def _layers(self, call: ast.Call, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """`Stack(RHN, LSTM)`: each layer reads the one below; also `Stack((RHN, LSTM))`."""
        nodes = call.args
        if len(nodes) == 1 and isinstance(nodes[0], ast.Tuple | ast.List):
            nodes = nodes[0].elts
        layers: list[Any] = []
        for node in nodes:
            layers.append(self._value(node, sizes))
            if sizes and isinstance(layers[-1], cells.Cell):
                sizes = (sizes[0], layers[-1].outputs)
        return tuple(layers)

    def _embedded(self, call: ast.Call, hidden: Any, inputs: Any) -> tuple[Any, Any]:
        """`Embedded(LSTM, 16)`: the cell reads 16 numbers in place of the inputs."""
        if len(call.args) != 2:
            raise UsageError(
                f"{self.kind} {ast.unparse(call)!r}: needed Embedded(CELL, NUMBERS), such as "
                "Embedded(LSTM, 16) for an LSTM that reads an embedding of 16 numbers"
            )
        cell, numbers = call.args
        return self._value(cell, (hidden, self._value(numbers, ()))), inputs

    def _value(self, node: ast.expr, sizes: tuple[Any, ...]) -> Any:
        """An argument: a number, a text, ...; or a thing that can be one here."""
        kind = KINDS[self.kind]
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._value(n, sizes) for n in node.elts)
        if isinstance(node, ast.Name) and node.id in kind.functions:
            return kind.functions[node.id]
        call = _as_call(node)
        if call is None or not kind.inside:
            try:
                return ast.literal_eval(node)
            except ValueError as e:
                raise _unreadable(self.kind, self.text) from e
        make = _known(_name(call), kind.inside, f"{self.kind}'s argument")
        return self.made(make, call, sizes if make in kind.known.values() else ())


def _is_around(make: Any) -> bool:
    """Whether it is a cell around others, which it is given first."""
    return next(iter(inspect.signature(make).parameters), "") in ("cell", "layers")


def _filled_in(make: Any, sizes: tuple[Any, ...]) -> str:
    if not sizes or _is_around(make):
        return ""
    names = inspect.signature(make).parameters
    return (
        ", with "
        + ", ".join(f"{n} = {s}" for n, s in zip(names, sizes, strict=False))
        + (" filled in: leave that out")
    )


def _signature(make: Any) -> str:
    """`RHN(hidden, inputs, *, bias=True)`."""
    signature = inspect.signature(make)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return f"{make.__name__}{inspect.Signature(bare)}"


def _known(name: str, known: Known, what: str) -> Callable[..., Any]:
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

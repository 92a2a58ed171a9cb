"""What a thing is written as: `RHN(64, 4)`, `kf_tbptt(25, pairs=8)`. `spec.parse` reads it again.

Settings are written where they differ from their defaults, so that equal things have equal texts.
The library's own things have short names; anything else is written with its module.
"""

import dataclasses
from typing import Any

import numpy as np


def show(thing: Any) -> str:
    """The text that a cell, method, readout, layout, regulariser or initialiser is written as.

    Args:
        thing: one of these, or a setting of one: a number, a text, a function, a tuple.

    Returns:
        what `spec.parse` makes an equal thing of, if all of it is the library's own. A cell or loss
        of a user's own has its module in front: `mine.Cell(2, 3)`.

    Example:
        >>> from kronline import RHN, LowRank
        >>> show(LowRank(RHN(256, 50), rank=16))
        'LowRank(RHN(256, 50), 16)'
    """
    if isinstance(thing, tuple | list):
        inside = ", ".join(map(show, thing))
        return f"({inside},)" if len(thing) == 1 else f"({inside})"
    if isinstance(thing, np.generic):
        return repr(thing.item())
    if thing is None or isinstance(thing, bool | int | float | str):
        return repr(thing)
    if hasattr(thing, "__qualname__"):  # a function or a class
        return _name(thing)
    if is_own(type(thing)) and isinstance(name := getattr(thing, "name", None), str):
        return name  # by the function that makes it
    return parts(thing)


def called(name: str, *values: Any, **settings: Any) -> str:
    """`name(value, setting=value)`, without the settings that are None."""
    return _call(name, values, {key: v for key, v in settings.items() if v is not None})


def is_own(thing: Any) -> bool:
    """Whether a class or function is the library's own."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "kronline"


def _name(thing: Any) -> str:
    """Of a class or function."""
    return thing.__name__ if is_own(thing) else f"{thing.__module__}.{thing.__qualname__}"


def parts(thing: Any) -> str:
    """By its class and settings; what is no dataclass does not say its settings."""
    values, settings = [], {}
    for field in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
        value = getattr(thing, field.name, None)
        if isinstance(value, int) and field.type in (float, float | None):
            value = float(value)  # 1 is 1.0 there
        if not field.init or "derived" in field.metadata:
            continue
        if _required(field):
            values.append(value)
        elif value != _default(field):
            settings[field.name] = value
    return _call(_name(type(thing)), values, settings)


def _required(field: "dataclasses.Field[Any]") -> bool:
    return _default(field) is dataclasses.MISSING and not field.kw_only


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _call(name: str, values: Any, settings: dict[str, Any]) -> str:
    given = [f"{key}={show(value)}" for key, value in settings.items()]
    return f"{name}({', '.join([*map(show, values), *given])})"

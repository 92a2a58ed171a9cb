"""Errors that say what was needed, what came and how to fix it."""

import operator
from typing import Any


class UsageError(ValueError):
    """What was asked for cannot be done; the message says why, and needs no traceback."""


def whole_number(owner: str, name: str, value: Any) -> int:
    """`value`, of any integer type, as an int >= 1; else ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{owner} needs {name} >= 1, an integer, got {value!r}")
    return number


def whole_numbers(thing: Any, *names: str) -> None:
    """The same for fields of a frozen dataclass, which become ints."""
    for name in names:
        value = whole_number(type(thing).__name__, name, getattr(thing, name))
        object.__setattr__(thing, name, value)

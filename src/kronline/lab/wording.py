"""Words and numbers in sentences, for every part of the laboratory."""

from collections.abc import Sequence
from typing import Any


def listed(parts: Sequence[str]) -> str:
    """One, two and three."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def plural(n: int, thing: str) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def short(name: str) -> str:
    """A file's or a text's name, without its folder, and cut if it is long."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name
    return last if len(last) <= 40 else f"{last[:24]}…{last[-12:]}"


def rounded(x: Any) -> float:
    """A float32 as its shortest decimal."""
    return float(f"{float(x):.7g}")

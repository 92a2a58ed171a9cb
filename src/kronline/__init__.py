"""kronline: train recurrent networks online, with unbiased gradients and bounded memory.

>>> import jax, optax, kronline as kl
>>> learner = kl.Learner(kl.RHN(64, 4), kl.softmax(4), kl.kf_rtrl(), optax.adam(1e-3))
>>> state = learner.init(jax.random.key(0), lanes=16)

Names are imported when they are first used, so that commands which need no JAX start at once. What
there is, and where it comes from, is listed in `__init__.pyi`, for readers and type checkers too.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOME = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}

__all__ = sorted(_HOME)  # noqa: PLE0605  a list of strings


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kronline' has no attribute {name!r}")
    home = _HOME[name]
    if home == __name__:  # a module of its own, such as kronline.regularise
        return importlib.import_module(f"{home}.{name}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

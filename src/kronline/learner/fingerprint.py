"""What an optimiser computes, as a hash: optax's optimisers have no names to be compared by."""

import hashlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from kronline.learner.learner import Learner
from kronline.learner.state import State


def fingerprint(learner: Learner, state: State) -> dict[str, Any]:
    """What the optimiser computes: a hash of its traced program, all numbers in it included.

    Args:
        learner: which has the optimiser.
        state: its shapes are enough.
    """
    params, opt = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (state.params, state.opt)
    )
    program = jax.make_jaxpr(learner.engine.optimiser.update)(params, opt, params)
    text = re.sub(r"0x[0-9a-f]+", "", str(program))  # where a function lies in memory
    sha = hashlib.sha256(text.encode())
    for constant in _constants(program):  # arrays, which the text has by their shapes only
        sha.update(np.asarray(constant).tobytes())
    made = {
        "jax": jax.__version__,
        "optax": optax.__version__,
        "x64": jax.config.read("jax_enable_x64"),
    }
    return made | {"sha256": sha.hexdigest()}


def _constants(program: Any) -> Iterator[Any]:
    """Of a traced program, and of those within it."""
    yield from program.consts
    for equation in program.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "consts")):
            if hasattr(value, "consts"):
                yield from _constants(value)


def check_same(path: str | Path, was: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ValueError where both differ; warn where that cannot be told."""
    if was["sha256"] == now["sha256"]:
        return
    fix = "or other_optimiser=True, to go on with this one"
    differ = [
        f"{k} {was[k]} instead of {now[k]}" for k in now if k != "sha256" and was[k] != now[k]
    ]
    if differ:
        warnings.warn(
            f"{path} was saved by {', '.join(differ)}, so that nobody can tell whether its "
            f"optimiser was the same; make sure that it was, {fix} and without this warning",
            stacklevel=3,
        )
        return
    raise ValueError(
        f"{path} was saved with another optimiser, or other settings of it (rate, schedule, "
        f"momentum, clipping, ...), than it is loaded with: give the one that was in use, {fix}"
    )

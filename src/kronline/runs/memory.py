"""Whether a run fits into this machine's memory: asked before anything is allocated or written."""

import math
from collections.abc import Callable
from typing import Any

import jax

from kronline import machine
from kronline.errors import UsageError
from kronline.learner import State

FIX = "use fewer --hidden units or --lanes, or an estimator with a smaller trace, tbptt(25) say"


class OutOfMemory(UsageError):
    """There was not enough of it."""


def check(begin: Callable[[], State], what: str) -> None:
    """Refuse what cannot fit.

    Args:
        begin: makes the state; it is not run, only its shapes are asked for.
        what: how it is called in the message.

    Raises:
        OutOfMemory: if the state alone takes more than the machine has. Gradients and what a step
            works in come on top of it, so that what passes may still not fit; see `ran_out`.
    """
    try:
        like = jax.eval_shape(begin)
    except MemoryError as e:  # some cells and traces lay out their structure beforehand
        raise OutOfMemory(f"{what} does not fit into memory: {message(e)}") from e
    network = _bytes((like.params, like.opt))
    streams = _bytes((like.s, like.memory))
    there = machine.memory() if jax.default_backend() == "cpu" else None
    if there is not None and network + streams > there:
        raise OutOfMemory(
            f"{what} needs at least {_said(network + streams)} of memory ({_said(network)} for "
            f"parameters and optimiser, {_said(streams)} for states and traces), and this machine "
            f"has {_said(there)}: {FIX}"
        )


def ran_out(error: BaseException) -> bool:
    """Whether this is how Python, numpy or XLA say that there is no memory left."""
    said = ("RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, jax.errors.JaxRuntimeError) and any(s in str(error) for s in said)
    )


def message(error: BaseException) -> str:
    """One line, with what to do."""
    lines = str(error).splitlines() or ["out of memory"]
    return f"{lines[0].removesuffix('.')}: {FIX}"


def _bytes(tree: Any) -> int:
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))


def _said(count: float) -> str:
    """A number of bytes, as people say it."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(math.log10(max(count, 1)) / 3))
    return f"{count / 1000**power:,.3g} {units[power]}"

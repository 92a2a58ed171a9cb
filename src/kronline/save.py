"""A learner on disk: one safetensors file, its description as JSON in the header. No pickle."""

import dataclasses
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from kronline import cells, checks, disk, lanes, methods, online, readout, regularise, traces
from kronline._version import __version__
from kronline.learner import Learner, State

FORMAT = "kronline-learner-1"


def save(path: str | Path, learner: Learner, state: State) -> None:
    """Write all of a learner; of its optimiser, which optax cannot name, a fingerprint.

    Args:
        path: a file; `.safetensors` is the usual ending.
        learner: whose settings go into the header, as JSON.
        state: parameters, optimiser state, lanes, traces and key.
    """
    checks.alive("this state", state.s, state.params)
    header = {
        "format": FORMAT,
        "version": __version__,
        "learner": describe(learner),
        "optimiser": fingerprint(learner, state),
        "buffered": state.buffer is not None,
    }
    disk.write_tree(Path(path), state, header)


def load(
    path: str | Path,
    *,
    optimiser: optax.GradientTransformation | None = None,
    learner: Learner | None = None,
    example: Any = None,
    other_optimiser: bool = False,
) -> tuple[Learner, State]:
    """Read what `save` wrote.

    Args:
        path: the file.
        optimiser: the optimiser that was in use; the rest of the learner is rebuilt from the file.
        learner: instead, the learner itself: needed where parts of it are not the library's (a cell
            or loss of one's own).
        example: `(x, y)` of one step, where the state was made with one (see `Learner.init`).
        other_optimiser: go on with another optimiser, or another rate, than was in use. What it
            remembers must be of the same shapes.

    Raises:
        ValueError: if the file is damaged, does not fit the learner, or was saved with another
            optimiser. By another version of JAX or optax that cannot be told: a warning.
    """
    header, arrays = disk.read_tree(Path(path), FORMAT)
    if learner is None:
        if optimiser is None:
            raise ValueError(
                "load needs optimiser=... (optax's are not in the file) or learner=..."
            )
        fields = {name: build(part) for name, part in header["learner"].items()}
        learner = Learner(**fields, optimiser=optimiser)
    elif describe(learner) != header["learner"]:
        raise ValueError(
            f"{path} was saved from another learner: needed\n  {json.dumps(describe(learner))}\n"
            f"got\n  {json.dumps(header['learner'])}"
        )
    if header["buffered"] and example is None:
        raise ValueError(f"{path} holds a buffer; load needs example=(x, y), as init did")
    lanes_ = arrays["s"].shape[0]
    like = jax.eval_shape(lambda: learner.init(jax.random.key(0), lanes_, example))
    state = disk.filled(path, like, arrays, header["keys"])
    if "optimiser" in header and not other_optimiser:
        _same_optimiser(path, header["optimiser"], fingerprint(learner, like))
    return learner, state


# -- the optimiser ---------------------------------------------------------------------------------


def fingerprint(learner: Learner, state: State) -> dict[str, Any]:
    """What the optimiser computes: a hash of its traced program, all numbers in it included.

    Args:
        learner: which has the optimiser.
        state: its shapes are enough.
    """
    params, opt = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (state.params, state.opt)
    )
    program = jax.make_jaxpr(learner._optimiser.update)(params, opt, params)
    text = re.sub(r"0x[0-9a-f]+", "", str(program))  # where a function lies in memory
    sha = hashlib.sha256(text.encode())
    for constant in _constants(program):  # arrays, which the text has by their shapes only
        sha.update(np.asarray(constant).tobytes())
    told: Any = jax.config
    made = {"jax": jax.__version__, "optax": optax.__version__, "x64": told.jax_enable_x64}
    return made | {"sha256": sha.hexdigest()}


def _constants(program: Any) -> Iterator[Any]:
    """Of a traced program, and of those within it."""
    yield from program.consts
    for equation in program.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "consts")):
            if hasattr(value, "consts"):
                yield from _constants(value)


def _same_optimiser(path: str | Path, was: dict[str, Any], now: dict[str, Any]) -> None:
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


# -- settings as JSON ------------------------------------------------------------------------------

_CLASSES: dict[str, type] = {
    c.__name__: c
    for module in (cells, traces, lanes, methods, online, readout, regularise)
    for c in vars(module).values()
    if isinstance(c, type) and dataclasses.is_dataclass(c)
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (readout.cross_entropy, readout.squared_error)
}


def describe(thing: Any) -> Any:
    """Settings as JSON: dataclasses by name and fields, functions by name."""
    if isinstance(thing, Learner):
        # as files had it before there were regularisers
        left_out = ("optimiser",) if thing.regularisers else ("optimiser", "regularisers")
        fields = [f.name for f in dataclasses.fields(thing) if f.name not in left_out]
        return {name: describe(getattr(thing, name)) for name in fields}
    if dataclasses.is_dataclass(thing):
        fields = [f.name for f in dataclasses.fields(thing) if "derived" not in f.metadata]
        kind = _name(type(thing), _CLASSES)
        return {"type": kind, **{n: describe(getattr(thing, n)) for n in fields}}
    if isinstance(thing, tuple | list):
        return [describe(t) for t in thing]
    if callable(thing):
        return {"function": _name(thing, _FUNCTIONS)}
    return thing.item() if isinstance(thing, np.generic) else thing


def _name(thing: Any, known: dict[str, Any]) -> str:
    """Short for the library's own, with its module for anything else."""
    name = getattr(thing, "__qualname__", type(thing).__name__)
    return name if known.get(name) is thing else f"{getattr(thing, '__module__', '')}.{name}"


def build(spec: Any) -> Any:
    """The reverse of `describe`, for what the library itself has; never imports anything."""
    if isinstance(spec, list):
        return tuple(build(s) for s in spec)
    if not isinstance(spec, dict):
        return spec
    name = str(spec.get("type", spec.get("function")))
    known = _CLASSES if "type" in spec else _FUNCTIONS
    if name not in known:
        raise ValueError(
            f"the file holds {name!r}, which is not the library's own; build the learner yourself "
            "and use load(path, learner=learner)"
        )
    if "function" in spec:
        return _FUNCTIONS[name]
    return _CLASSES[name](**{k: build(v) for k, v in spec.items() if k != "type"})

"""What users hand in, checked before anything is compiled: what was needed, what came, the fix.

Shapes and types are always checked; values only where they are known, that is outside of a
caller's own `jit`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kronline.cells.base import Cell
from kronline.errors import whole_number
from kronline.estimators.base import Segment
from kronline.noise import Draws, Noise, is_draw
from kronline.readout import Readout


def values(a: Any) -> np.ndarray | None:
    """The numbers in `a`, or None where it is being traced.

    Of an array over many processes: of this process's part, in a row.
    """
    if isinstance(a, jax.core.Tracer):
        return None
    if isinstance(a, jax.Array) and not a.is_fully_addressable:
        return np.concatenate([np.asarray(s.data).reshape(-1) for s in a.addressable_shards])
    return np.asarray(a)


def alive(what: str, *trees: Any) -> None:
    """Raise ValueError if a learner with donate=True has overwritten these; one array is tested."""
    for tree in trees:
        a = next(iter(jax.tree.leaves(tree)), None)
        if isinstance(a, jax.Array) and not isinstance(a, jax.core.Tracer) and a.is_deleted():
            raise ValueError(
                f"{what} cannot be used again: a learner with donate=True was given it, and has "
                "worked in its memory. Go on with the state that came back, as in `state, out = "
                "learner.run(state, x, y)`; where the old one is needed, too, give a copy, "
                "`jax.tree.map(jnp.copy, state)`, or make the learner with donate=False"
            )


def integer(a: Any) -> bool:
    """Whether `a` holds integers."""
    return bool(jnp.issubdtype(a.dtype, jnp.integer))


def floating(a: Any) -> bool:
    """Whether `a` holds real numbers."""
    return bool(jnp.issubdtype(a.dtype, jnp.floating))


def array(name: str, a: Any) -> Any:
    """`a` with a shape and a dtype, or a clear error."""
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return a
    try:
        out = np.asarray(a)
    except ValueError as e:
        raise ValueError(f"{name} must be an array, got a ragged {type(a).__name__}") from e
    if out.dtype == object:
        raise TypeError(f"{name} must be an array of numbers, got {type(a).__name__}")
    return out


def symbols(name: str, a: Any, shape: tuple[int, ...], below: int) -> None:
    """Integers of the given shape in 0..below-1."""
    _shape(name, a, shape, "one symbol per step and lane")
    if (v := values(a)) is not None and v.size and (v.min() < 0 or v.max() >= below):
        bad = v[(v < 0) | (v >= below)][0]
        raise ValueError(
            f"{name} must hold symbols 0..{below - 1}, got {bad}; map your symbols to that range, "
            "or build the cell and readout for more of them"
        )


def vectors(name: str, a: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Real numbers of the given shape, finite in the learner's precision."""
    _shape(name, a, shape, "one vector per step and lane")
    finite(name, a, dtype)


def finite(name: str, a: Any, dtype: str) -> None:
    """No NaN and no infinity, also after the cast to the learner's precision."""
    v = values(a)
    if v is None or not floating(v):
        return
    with np.errstate(over="ignore"):
        cast = v.astype(dtype, copy=False)
    good = np.isfinite(cast)
    if good.all():
        return
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    got = f"got {v[where]} at index {where}"
    if np.isfinite(v[where]):
        most = np.finfo(dtype).max
        raise ValueError(
            f"{name} must be finite in {dtype}, of which the largest number is {most:.3g}, {got}; "
            "scale the data, or use a learner with dtype='float64'"
        )
    raise ValueError(
        f"{name} must be finite, {got}; clean the data, or give such steps a loss weight of 0 and "
        "a finite value"
    )


def _shape(name: str, a: Any, shape: tuple[int, ...], meaning: str) -> None:
    if tuple(a.shape) != shape:
        raise ValueError(f"{name} needs shape {shape} ({meaning}), got {tuple(a.shape)}")


def stream(cell: Cell, x: Any, lead: tuple[int, ...], dtype: str) -> Any:
    """Inputs: symbols of shape `lead`, or vectors of shape `(*lead, inputs)`."""
    x = array("x", x)
    if integer(x):
        if tuple(x.shape) == (*lead, cell.inputs):
            raise ValueError(
                f"x of integers needs shape {lead} (one symbol per step and lane), got {x.shape}; "
                "if these are vectors, use x.astype(float)"
            )
        symbols("x", x, lead, cell.inputs)
    elif floating(x):
        vectors("x", x, (*lead, cell.inputs), dtype)
    else:
        raise TypeError(
            f"x must hold symbols (integers) or vectors (floats), got dtype {x.dtype}; convert it"
        )
    return x


def targets(readout: Readout, y: Any, lead: tuple[int, ...], dtype: str) -> Any:
    """Targets, as the readout needs them."""
    if readout.targets == "any":
        y = jax.tree.map(lambda a: array("y", a), y)
        for a in jax.tree.leaves(y):
            if tuple(a.shape[: len(lead)]) != lead:
                raise ValueError(f"y needs leading axes {lead} (steps, lanes), got {a.shape}")
            finite("y", a, dtype)
        return y
    y = array("y", y)
    if readout.targets == "symbols":
        if not integer(y):
            raise TypeError(f"y must hold symbols (integers) for this readout, got {y.dtype}")
        symbols("y", y, lead, readout.outputs)
    else:
        if not (integer(y) or floating(y)):
            raise TypeError(f"y must hold real numbers for this readout, got {y.dtype}")
        vectors("y", y, (*lead, readout.outputs), dtype)
    return y


def flags(name: str, a: Any, lead: tuple[int, ...]) -> Any:
    """Resets: booleans per step and lane; None: nowhere."""
    if a is None:
        return np.zeros(lead, bool)
    a = array(name, a)
    if a.dtype != bool:
        raise TypeError(f"{name} must hold booleans, got dtype {a.dtype}; use {name}.astype(bool)")
    _shape(name, a, lead, "one flag per step and lane")
    return a


def weights(a: Any, lead: tuple[int, ...], dtype: str) -> Any:
    """Loss weights per step and lane."""
    a = array("weight", a)
    if not (floating(a) or integer(a)):
        raise TypeError(f"weight must hold real numbers, got dtype {a.dtype}")
    _shape("weight", a, lead, "one loss weight per step and lane")
    finite("weight", a, dtype)
    return a


def no_targets(readout: Readout | None, lead: tuple[int, ...]) -> Any:
    """Zeros of the kind that the readout takes, in place of targets."""
    if readout is None:
        return None  # the error about that comes first
    if readout.targets == "any":
        raise ValueError(
            "y may be left out where the readout knows what targets are, as softmax(o) and "
            "linear(o) do; give y of the right kind with weight=0, or peek at the prediction"
        )
    if readout.targets == "symbols":
        return np.zeros(lead, np.int32)
    return np.zeros((*lead, readout.outputs), np.float32)


def some_lanes(lanes: Any, count: int) -> np.ndarray:
    """Numbers of lanes, each once."""
    at = np.asarray(lanes)
    good = at.ndim == 1 and (integer(at) or not at.size)
    if not good or (at.size and (at.min() < 0 or at.max() >= count)):
        raise ValueError(f"lanes needs numbers of lanes, 0..{count - 1}, got {lanes!r}")
    if at.size > 1 and len(np.unique(at)) < at.size:
        raise ValueError(f"lanes must name each lane once per step, got {lanes!r}; take two steps")
    return at


def rows(a: Any, at: np.ndarray, lanes: int) -> Any:
    """The rows of some lanes."""
    a = array("data of a step with active=", a)
    if not a.shape or a.shape[0] != lanes:
        raise ValueError(f"needed one row per lane, ({lanes}, ...), got {tuple(a.shape)}")
    return a[at]


def padded(a: Any, more: int) -> Any:
    """With rows of zeros at the end."""
    a = array("data", a)
    return np.concatenate([np.asarray(a), np.zeros((more, *a.shape[1:]), a.dtype)])


def given_noise(noise: Noise, draws: Draws) -> None:
    """Given noise must have the shapes and values that the estimator draws."""
    want = jax.tree.structure(draws, is_leaf=is_draw)
    got = jax.tree.structure(noise)
    if str(want) != str(got):
        raise ValueError(f"noise needs the structure {want}, got {got}; see learner.draws(lanes)")
    wanted = jax.tree.leaves(draws, is_leaf=is_draw)
    for d, given in zip(wanted, jax.tree.leaves(noise), strict=True):
        a = array("noise", given)
        _shape("noise", a, d.shape, "as learner.draws(lanes) says, per segment")
        if (v := values(a)) is not None and not np.isin(v, d.values).all():
            raise ValueError(f"noise must hold the values {d.values}, got others")


def start(key: Any, lanes: Any, dtype: str) -> None:
    """What a fresh state needs."""
    whole_number("a learner", "lanes", lanes)
    if dtype == "float64" and jnp.zeros(0, float).dtype != jnp.float64:
        raise ValueError(
            "dtype='float64' needs 64-bit numbers switched on, they are off; call "
            'jax.config.update("jax_enable_x64", True) first'
        )
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must come from jax.random.key(seed), got {key!r}")
    if key.dtype.itemsize not in (8, 16):
        raise ValueError(f"key must be a threefry2x32 or rbg key, got {jax.random.key_impl(key)}")
    if key.shape:
        raise ValueError(f"key must be a single key, got {key.shape}; use jax.vmap for many seeds")


def steps(x: Any, lanes: int | None = None) -> tuple[Any, tuple[int, int]]:
    """Inputs with a time axis, and the leading axes (steps, lanes) that all data must have."""
    x = array("x", x)
    if len(x.shape) < 2 or x.shape[0] < 1:
        raise ValueError(f"x needs shape (steps, lanes, ...) with steps >= 1, got {x.shape}")
    return x, (x.shape[0], x.shape[1] if lanes is None else lanes)


def segment(
    cell: Cell,
    readout: Readout | None,
    lead: tuple[int, ...],
    x: Any,
    y: Any,
    reset: Any,
    weight: Any,
    dtype: str,
) -> Segment:
    """The data of a run or a step, all parts checked; `dtype`: the learner's precision.

    Resets and weights that are not given stay None: a call of a program has fewer arrays then.
    """
    more: Any = (
        None if reset is None else flags("reset", reset, lead),
        None if weight is None else weights(weight, lead, dtype),
    )
    if readout is None:
        raise TypeError(
            "this needs a readout, got readout=None; give the learner one, or use advance, pull "
            "and update with your own loss"
        )
    return Segment(
        stream(cell, x, lead, dtype),
        targets(readout, y, lead, dtype),
        *more,
    )


def same_kind(data: Any, buffer: Any, axes: int) -> None:
    """Inputs and targets must have the shapes and types of a buffer's example."""
    got, want = jax.tree.leaves(data), jax.tree.leaves(buffer)
    same = len(got) == len(want) and all(
        tuple(a.shape[axes:]) == tuple(b.shape[2:]) and not (floating(a) and integer(b))
        for a, b in zip(got, want, strict=True)
    )
    if not same:
        shapes = [f"{b.dtype}{tuple(b.shape[2:])}" for b in want]
        came = [f"{a.dtype}{tuple(a.shape[axes:])}" for a in got]
        raise ValueError(
            f"x and y need the kinds of init's example, {', '.join(shapes)} per step and lane, got "
            f"{', '.join(came)}"
        )

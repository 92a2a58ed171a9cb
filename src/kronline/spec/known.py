"""What the library has, by name: all that can be written where a thing of some kind is needed."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, get_args

import optax

from kronline import cells, lanes, readout, regularise, traces
from kronline.estimators import Online, methods

Known = dict[str, Callable[..., Any]]


@dataclass(frozen=True)
class Kind:
    """What can be written where a thing of some kind is needed."""

    known: Known  # the thing itself
    inside: Known = field(
        default_factory=dict
    )  # what is made for an argument of it, besides numbers and texts
    functions: Known = field(default_factory=dict)  # what is an argument as it is, without a call


def _concrete(module: ModuleType, base: type) -> Known:
    """The public classes of a module that are of some kind, and not abstract."""
    found = {name: getattr(module, name) for name in module.__all__}
    types = {name: c for name, c in found.items() if isinstance(c, type) and issubclass(c, base)}
    return {name: c for name, c in types.items() if not inspect.isabstract(c)}


def _named(*things: Callable[..., Any]) -> Known:
    return {thing.__name__: thing for thing in things}


_CELLS, _TRACES = _concrete(cells, cells.Cell), _concrete(traces, traces.Trace)
_LAYOUTS = _named(*get_args(lanes.Layout))
_WEIGHTS = _named(
    cells.Normal,
    cells.Uniform,
    cells.FanIn,
    cells.Ring,
    cells.Orthogonal,
    cells.Spectral,
    cells.gate_bias,
    cells.GateBias,
)
KINDS = {
    "cell": Kind(_CELLS, _CELLS | _WEIGHTS | _named(cells.Blocks)),
    "estimator": Kind({n: getattr(methods, n) for n in methods.__all__} | _named(Online), _TRACES),
    "readout": Kind(
        _named(readout.softmax, readout.linear, readout.Readout),
        functions=_named(readout.cross_entropy, readout.squared_error),
    ),
    "layout": Kind(_LAYOUTS, _LAYOUTS),
    "regulariser": Kind(
        _named(regularise.row_norm, regularise.spectral, regularise.activation, regularise.noise)
    ),
    "initialiser": Kind(_WEIGHTS, _WEIGHTS),
    "optimiser": Kind(_named(optax.adam, optax.adamw, optax.sgd, optax.rmsprop, optax.radam)),
}

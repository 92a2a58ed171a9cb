"""What is deployed: the learnt step `(x, state) -> (y, state)`, without what learns."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kronline._version import __version__
from kronline.checkpoint.file import described
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.learner import Learner, State

Inputs = Literal["vectors", "symbols"]


class Model(NamedTuple):
    """A step of a batch, and what there is to say of it."""

    step: Callable[[Array, Array], tuple[Array, Array]]
    inputs: dict[str, Any]  # of one lane: shape and type
    about: dict[str, str]  # texts, for the file

    @property
    def size(self) -> int:
        """How many numbers the state has."""
        return int(self.inputs["state"][0][0])


def model(
    learner: Learner, params: State | Params, inputs: Inputs, names: Sequence[str] | None
) -> Model:
    """The step of a learner with its parameters in it, as constants.

    Raises:
        UsageError: if inputs or names do not fit the learner.
    """
    cell, readout = learner.cell, learner.readout
    if inputs not in ("vectors", "symbols"):
        raise UsageError(f"inputs must be 'vectors' or 'symbols', got {inputs!r}")
    if names is not None and (inputs == "vectors" or len(names) != cell.inputs):
        raise UsageError(
            f"names are those of the {cell.inputs} symbols of inputs='symbols', got {len(names)} "
            f"names and inputs={inputs!r}"
        )
    if isinstance(params, State):
        params = params.params
    own = jax.tree.map(jnp.asarray, params)

    def one(x: Array, s: Array) -> tuple[Array, Array]:
        s = cell.step(own.cell, s, x)
        h = cell.output(s)
        return h if readout is None else readout.predict(own.readout, h), s

    about = {
        "made by": f"kronline {__version__}",
        "learner": json.dumps(described(learner)),
        "x": "symbols, int32 (batch,)"
        if inputs == "symbols"
        else f"vectors, {learner.dtype} (batch, {cell.inputs})",
        "state": f"{learner.dtype} (batch, {cell.size}), zeros at the start of a stream",
        "y": _meaning(learner),
    }
    if names is not None:
        about["symbols"] = json.dumps(list(names))
    vector = ((cell.inputs,), learner.dtype)
    x = ((), "int32") if inputs == "symbols" else vector
    return Model(jax.vmap(one), {"x": x, "state": ((cell.size,), learner.dtype)}, about)


def _meaning(learner: Learner) -> str:
    readout, cell = learner.readout, learner.cell
    if readout is None:
        return f"the cell's outputs (batch, {cell.outputs})"
    kind = "log-probabilities up to a constant" if readout.targets == "symbols" else "predictions"
    return f"{kind} (batch, {readout.outputs})"

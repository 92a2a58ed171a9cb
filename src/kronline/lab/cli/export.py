"""`kronline export`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

from kronline import Learner, deploy
from kronline.checkpoint import load_params
from kronline.errors import UsageError
from kronline.estimators import Params
from kronline.lab.runs import folder
from kronline.lab.runs.train import load
from kronline.lab.tasks.text import TextTask

WRITE = {"onnx": deploy.onnx, "jax": deploy.jax_export, "numpy": deploy.numpy_step}


@dataclass(frozen=True)
class Export:
    """Write what was learnt for use elsewhere: as ONNX, for JAX without kronline, or plain numpy.

    The file holds one step, (x, state) -> (y, new state), for a batch of any size; it does not
    learn. Of a run, the parameters are those best in validation, or else the newest.

    Try:
        kronline export RUN --to numpy --out net.py
        kronline export RUN --to jax --out net.jax
        kronline export RUN --to onnx --out net.onnx
    """

    source: tyro.conf.Positional[Path]  # a run's folder, or a file that `kronline.save` wrote
    to: Literal["onnx", "jax", "numpy"]  # what to write
    out: Path  # the file; with numpy it ends in .py, and its weights lie beside it, in .npz
    # what x is; a run knows it, a file does not
    inputs: Literal["vectors", "symbols"] | None = None
    data: str | None = None  # where the data of a run lies now, if it was moved


def main(args: Export) -> int:
    """Read the run or the file, and write."""
    learner, params, inputs, names = _read(args)
    try:
        path = WRITE[args.to](learner, params, args.out, inputs=inputs, names=names)
    except (ImportError, TypeError, ValueError) as e:
        raise UsageError(str(e)) from e
    kilobytes = path.stat().st_size / 1024
    beside = {"numpy": " and its .npz", "jax": " and its .json"}.get(args.to, "")
    print(f"kronline: {path}{beside}: {args.to}, {kilobytes:,.0f} kB", file=sys.stderr)
    return 0


def _read(args: Export) -> tuple[Learner, Params, Any, Any]:
    """The learner, its parameters, what its inputs are, and their names."""
    if (args.source / folder.CONFIG).is_file():
        task, exp, params, _ = load(args.source, args.data)

        def batch() -> Any:
            start = exp.stream.init(jax.random.key(0), task.lanes)
            return exp.stream.batch(start, exp.data, 1)[1].x

        floats = jax.numpy.issubdtype(jax.eval_shape(batch).dtype, jax.numpy.floating)
        inputs = "vectors" if floats else "symbols"
        if args.inputs not in (None, inputs):
            raise UsageError(f"{args.source} learnt from {inputs}, got --inputs {args.inputs}")
        names = exp.source.symbols if isinstance(task, TextTask) else None
        return exp.learner, params, inputs, names
    if not args.source.is_file():
        raise UsageError(
            f"needed a run's folder (`kronline list`) or a file of kronline.save, got {args.source}"
        )
    if args.inputs is None:
        raise UsageError(
            f"{args.source} does not say what its inputs are: add --inputs vectors or "
            "--inputs symbols"
        )
    try:
        return *load_params(args.source), args.inputs, None
    except ValueError as e:
        raise UsageError(str(e)) from e

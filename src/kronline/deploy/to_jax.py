"""The step as a compiled-in-advance JAX program, which loads without kronline."""

import json
from collections.abc import Sequence
from pathlib import Path

import jax
from jax import export

from kronline.deploy.graph import BATCH
from kronline.deploy.model import Inputs, model
from kronline.disk import write
from kronline.estimators import Params
from kronline.interop.needed import needed
from kronline.learner import Learner, State

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def jax_export(
    learner: Learner,
    params: State | Params,
    path: str | Path,
    *,
    inputs: Inputs = "vectors",
    names: Sequence[str] | None = None,
) -> Path:
    """Write the learnt step with `jax.export`; the batch may be of any size, the cell any cell.

    `jax.export.deserialize(bytearray(open(path, "rb").read())).call(x, state)` gives y and the new
    state, on CPU, CUDA, ROCm and TPU, without kronline.

    Args:
        learner, params, inputs, names: as for `deploy.onnx`.
        path: where to; what x, state and y are is written beside it, at `path + ".json"`.

    Returns:
        the path.

    Raises:
        ImportError: if `flatbuffers`, which JAX writes such files with, is not installed.

    Example:
        >>> import jax, jax.export, numpy as np, optax, tempfile, kronline as kl
        >>> from pathlib import Path
        >>> from kronline import deploy
        >>> learner = kl.Learner(kl.RHN(8, 3), kl.linear(2), kl.kf_rtrl(), optax.adam(1e-3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = deploy.jax_export(learner, learner.init(jax.random.key(0)), f"{folder}/net")
        ...     step = jax.export.deserialize(bytearray(Path(path).read_bytes())).call
        >>> y, state = step(np.ones((5, 3), np.float32), np.zeros((5, 8), np.float32))
        >>> y.shape
        (5, 2)
    """
    needed("flatbuffers", "deploy.jax_export")  # jax.export writes with it
    made = model(learner, params, inputs, names)
    (batch,) = export.symbolic_shape(BATCH)
    given = [jax.ShapeDtypeStruct((batch, *shape), dtype) for shape, dtype in made.inputs.values()]
    exported = export.export(jax.jit(made.step), platforms=PLATFORMS)(*given)
    path = Path(path)
    write(path.with_name(path.name + ".json"), json.dumps(made.about, indent=1))
    write(path, bytes(exported.serialize()))
    return path

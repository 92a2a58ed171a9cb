"""What was learnt, for use elsewhere: the step `(x, state) -> (y, state)` as a file.

`onnx` for ONNX runtimes, `jax_export` for JAX without kronline, `numpy_step` for machines that have
numpy only. What learns stays here.
"""

from kronline.deploy.to_jax import jax_export
from kronline.deploy.to_numpy import numpy_step
from kronline.deploy.to_onnx import onnx

__all__ = ["jax_export", "numpy_step", "onnx"]

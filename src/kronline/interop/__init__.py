"""Networks from and to PyTorch, Flax and Equinox, and any torch or JAX step as a cell.

No framework is imported before a function that needs it is called.
"""

from kronline.interop.equinox import from_equinox, to_equinox
from kronline.interop.flax import from_linen, from_nnx, to_linen, to_nnx
from kronline.interop.plain import Network, carry, state
from kronline.interop.pytorch import from_torch, to_torch, torch_state_dict
from kronline.interop.wrap import estimators_for, wrap, wrap_torch

__all__ = [
    "Network",
    "carry",
    "estimators_for",
    "from_equinox",
    "from_linen",
    "from_nnx",
    "from_torch",
    "state",
    "to_equinox",
    "to_linen",
    "to_nnx",
    "to_torch",
    "torch_state_dict",
    "wrap",
    "wrap_torch",
]

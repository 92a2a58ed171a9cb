"""Whether the native kernel is used, and why."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from kronline.native.build import OFF, KernelError, asked, library

# `with native.use(False): ...` takes the pure-JAX path; programs are compiled anew for it
use = jax.make_user_context(default_value=True)

_told: set[str] = set()


@dataclass(frozen=True)
class Status:
    """Which path is in use."""

    active: bool
    reason: str


def status() -> Status:
    """Which path KF-RTRL takes on this machine's CPU, and why; builds the kernel if need be."""
    if asked() in OFF:
        return Status(False, f"KRONLINE_NATIVE={asked()}")
    if not use.value:
        return Status(False, "kronline.native.use(False)")
    if jax.default_backend() != "cpu":
        return Status(False, f"the device is a {jax.default_backend()}, the kernel is for CPUs")
    built = library()
    if isinstance(built, KernelError):
        return Status(False, str(built))
    return Status(True, f"{built.vector}, {built.origin}")


def active() -> bool:
    """Whether the kernel is called; where it is not available, prints the reason once."""
    now = status()
    if not now.active and use.value and now.reason not in _told:
        _told.add(now.reason)
        print(f"kronline: pure JAX, without the native kernel: {now.reason}", file=sys.stderr)
    return now.active


def usable(reads: tuple[int, ...], *arrays: Any) -> bool:
    """Whether the kernel takes these arrays: one precision, float32 or float64, nothing empty."""
    leaves = jax.tree.leaves(arrays)
    kinds = {a.dtype for a in leaves}
    plain = kinds in ({jnp.dtype("float32")}, {jnp.dtype("float64")})
    return plain and all(a.size for a in leaves) and len(set(reads)) == len(reads)


def choose(kernel: Callable[..., Any], plain: Callable[..., Any], *arrays: Any) -> Any:
    """`kernel(*arrays)` where the native kernel can be used, `plain(*arrays)` elsewhere.

    The kernel has no derivatives: nothing differentiates through the work on a trace.
    """
    if not active():
        return plain(*arrays)
    return jax.lax.platform_dependent(*arrays, cpu=kernel, default=plain)

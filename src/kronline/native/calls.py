"""The kernel's products as JAX functions of one lane; `vmap` hands all lanes to one call."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float


def merge(
    W: Float[Array, "b n r n"],
    D: Float[Array, "q r n"],
    E: Float[Array, "q q n"],
    reads: tuple[int, ...],
    feats: Float[Array, " m"],
    delta: Float[Array, " N"],
    c: Float[Array, ""],
    u: Float[Array, " m"],
    A: Float[Array, "N r n"],
    norm: Float[Array, ""],
    *,
    before: bool,
) -> tuple[Array, Array, Array, Array]:
    """KF-RTRL's `merge` (kf.py) in one pass over A, in place: the new u, A, ‖A‖; and δ·A.

    `before`: δ·HA for the old u and A, not δ·A for the new ones.
    """
    r, n = D.shape[-2:]

    def call(W: Array, *lanes: Array) -> Any:
        u, A, norm = lanes[-3:]
        dA = jax.ShapeDtypeStruct((*norm.shape, r, n), A.dtype)
        out = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (u, A, norm)]
        aliases = {6: 0, 7: 1, 8: 2}
        f = jax.ffi.ffi_call("kronline_merge", [*out, dA], input_output_aliases=aliases)
        return tuple(f(W, *lanes, reads=np.array(reads, np.int64), before=before))

    return _over_lanes(call)(W.reshape(-1, r, n), D, E, feats, delta, c, u, A, norm)


def rmm(
    W: Float[Array, "b n r n"],
    D: Float[Array, "q r n"],
    E: Float[Array, "q q n"],
    reads: tuple[int, ...],
    P: Float[Array, "p N"],
) -> Float[Array, "p N"]:
    """`P H`, in place."""
    _, r, n = D.shape

    def call(WT: Array, *lanes: Array) -> Any:
        out = jax.ShapeDtypeStruct(lanes[-1].shape, WT.dtype)
        f = jax.ffi.ffi_call("kronline_rmm", out, input_output_aliases={3: 0})
        return f(WT, *lanes, reads=np.array(reads, np.int64))

    WT = jnp.moveaxis(W.reshape(-1, r, n), 0, -1)
    return _over_lanes(call)(WT, D, E, P)


def walk(
    W: Float[Array, "b n r n"],
    D: Float[Array, "k q r n"],
    E: Float[Array, "k q q n"],
    reads: tuple[int, ...],
    resets: Float[Array, " k"],
    right: Float[Array, "k+p p"],
    A: Float[Array, "N p r n"],
) -> Float[Array, "N p r n"]:
    """The new A of KF-TBPTT after k steps (tail.py), in place; `resets` is not 0 at a reset."""
    r, n = D.shape[-2:]

    def call(WT: Array, *lanes: Array) -> Any:
        out = jax.ShapeDtypeStruct(lanes[-1].shape, WT.dtype)
        f = jax.ffi.ffi_call("kronline_walk", out, input_output_aliases={5: 0})
        return f(WT, *lanes, reads=np.array(reads, np.int64))

    WT = jnp.moveaxis(W.reshape(-1, r, n), 0, -1)
    return _over_lanes(call)(WT, D, E, resets, right, A)


def _over_lanes(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call(W, *lanes)` with a rule for `vmap`: W is handed over once where all lanes share it."""

    @custom_vmap
    def run(W: Array, *lanes: Array) -> Any:
        return call(W, *lanes)

    @run.def_vmap
    def rule(size: int, batched: Any, W: Array, *lanes: Array) -> Any:
        def spread(a: Array, yes: bool) -> Array:
            return a if yes else jnp.broadcast_to(a, (size, *a.shape))

        shared = all(d == 1 for d in W.shape[:-3])
        W = W[None] if shared and not batched[0] else spread(W, batched[0])
        out = run(W, *map(spread, lanes, batched[1:]))
        return out, jax.tree.map(lambda _: True, out)

    return run

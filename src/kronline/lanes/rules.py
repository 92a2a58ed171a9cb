"""Functions of one lane with a rule of their own for what `vmap` makes of many."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def lane_by_lane(
    fn: Callable[..., tuple[Any, Any]], together: int = 0
) -> Callable[..., tuple[Any, Any]]:
    """`fn(own, *rest) -> (own, out)` of one lane, which `vmap` runs lane by lane.

    For work on a memory so large that only one lane's fits the cache. `own` is overwritten in
    place; what all lanes share is not copied.

    Args:
        fn: the work on one lane.
        together: lanes are batched up to so many bytes of `own`; 0: one by one.
    """

    @custom_vmap
    def run(own: Any, *rest: Any) -> tuple[Any, Any]:
        return fn(own, *rest)

    @run.def_vmap
    def rule(size: int, batched: Any, own: Any, *rest: Any) -> Any:
        own = jax.tree.map(lambda a, yes: a if yes else _spread(a, size), own, batched[0])
        flags = tuple(batched[1:])
        lane_bytes = sum(a.nbytes for a in jax.tree.leaves(own)) // size
        most = max(1, together // max(lane_bytes, 1))
        width = max(d for d in range(1, min(size, most) + 1) if size % d == 0)

        def take(a: Any, at: Any) -> Any:  # `width` lanes
            return jax.lax.dynamic_slice_in_dim(a, at * width, width)

        def some(at: Any, own: Any) -> tuple[Any, Any]:
            others = jax.tree.map(lambda a, yes: take(a, at) if yes else a, rest, flags)
            own = jax.tree.map(lambda a: take(a, at), own)
            if width > 1:
                axes = jax.tree.map(lambda yes: 0 if yes else None, flags)
                return jax.vmap(fn, (0, *axes))(own, *others)
            first = jax.tree.map(lambda a: a[0], own)
            others = jax.tree.map(lambda a, yes: a[0] if yes else a, others, flags)
            return jax.tree.map(lambda a: a[None], fn(first, *others))

        def one(at: Any, both: Any) -> Any:
            def put(a: Any, new: Any) -> Any:
                return jax.lax.dynamic_update_slice_in_dim(a, new, at * width, 0)

            return jax.tree.map(put, both, some(at, both[0]))

        _, shapes = jax.eval_shape(lambda: some(0, own))
        out = jax.tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype), shapes)
        result = jax.lax.fori_loop(0, size // width, one, (own, out))
        return result, jax.tree.map(lambda _: True, result)

    return run


@custom_vmap
def largest(n: Any) -> Any:
    """The largest n of the lanes that `vmap` runs together: one number for all of them.

    For loops that end when the last lane is done. If each lane had its own bound, `vmap` would
    select, in every iteration, the old values of all lanes that are done.
    """
    return n


@largest.def_vmap
def _largest(size: int, batched: list[bool], n: Any) -> tuple[Any, bool]:
    return largest(jnp.max(n, axis=0) if batched[0] else n), False


@custom_vmap
def added(a: Any) -> Any:
    """The sum of an array over the lanes that `vmap` runs together: one array for all of them."""
    return a


@added.def_vmap
def _added(size: int, batched: list[bool], a: Any) -> tuple[Any, bool]:
    return jnp.tensordot(jnp.ones(size, a.dtype), a, 1) if batched[0] else size * a, False


def _spread(a: Any, size: int) -> Any:
    return jnp.broadcast_to(a, (size, *jnp.shape(a)))

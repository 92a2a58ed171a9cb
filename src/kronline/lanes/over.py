"""One lane's work, done for all lanes; their gradients summed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from kronline.lanes.layout import Layout, Loop, Shard, Vmap
from kronline.linearised.gradients import (
    Outer,
    dense,
    is_leaf,
    not_finite,
    own_parts,
    total,
    written_out,
)

LaneFn = Callable[[Any, Any], tuple[Any, Any]]  # (shared, lane) -> (out, grads)

# Whether what a trace reads is wanted as a sum over the lanes of the innermost `vmap` only, so that
# it may add it up while it reads it (`gradients.Added`). Programs are compiled anew for either.
adding = jax.make_user_context(default_value=False)


def over_lanes(
    fn: LaneFn,
    layout: Layout,
    *,
    average: bool = True,
    blame: bool = False,
    apart: bool = False,
) -> LaneFn:
    """`fn` of one lane -> the same of many: lanes on a leading axis, gradients averaged.

    Args:
        fn: (shared, lane) -> (out, gradients) of one lane.
        layout: how lanes are laid out.
        average: False keeps every lane's own gradient, written out, on a leading axis.
        blame: return `(out, bad)` in place of `out`: flags of lanes whose gradient is not finite.
            They are looked for only where the sum is not finite.
        apart: `fn` itself looks at a lane's own gradient, so that all of it must be there.

    Returns:
        the function of many lanes.
    """
    if not average:
        return _kept(fn, layout, blame)

    def run(shared: Any, lanes: Any) -> tuple[Any, Any]:
        count = jax.tree.leaves(lanes)[0].shape[0]
        with adding(not apart):
            out, grads = _summed(fn, layout, shared, lanes, count)
        return out if blame else out[0], jax.tree.map(lambda g: g / count, grads)

    return run


def _kept(fn: LaneFn, layout: Layout, blame: bool) -> LaneFn:
    """Each lane's gradient is returned on a leading axis, not summed."""

    def own(shared: Any, lane: Any) -> tuple[Any, Any]:
        out, grads = fn(shared, lane)
        return ((out, not_finite(grads)) if blame else out, written_out(grads)), ()

    return lambda shared, lanes: over_lanes(own, layout, apart=True)(shared, lanes)[0]


def _summed(
    fn: LaneFn,
    layout: Layout,
    shared: Any,
    lanes: Any,
    count: int,
    add: Callable[[Any], Any] = total,
) -> tuple[Any, Any]:
    """`((out, bad), sum of gradients)`, with bad as `over_lanes` says; `add` makes the sum."""
    if isinstance(layout, Vmap):
        out, grads = jax.vmap(fn, in_axes=(None, 0))(shared, lanes)
        summed = add(grads)
        return (out, _bad(summed, grads, count)), summed
    if isinstance(layout, Loop):
        with adding(False):
            return _loop(fn, shared, lanes, add)
    return _shard(fn, layout, shared, lanes, count)


def _bad(summed: Any, grads: Any, lanes: int) -> Any:
    """The lanes whose gradient is not finite; none where the sum is finite."""
    parts = own_parts(grads)
    if not parts:
        return jnp.zeros(lanes, bool)

    def look(parts: Any) -> Any:
        return jax.vmap(not_finite)(parts)

    def none(parts: Any) -> Any:
        return jnp.zeros(lanes, bool)

    return jax.lax.cond(not_finite(summed), look, none, parts)


def _loop(fn: LaneFn, shared: Any, lanes: Any, add: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Factors are kept for one product at the end; other gradients are added lane by lane."""

    def factored(g: Any) -> bool:
        return isinstance(g, Outer)

    def lane_fn(lane: Any) -> tuple[Any, Any]:
        out, grads = fn(shared, lane)
        return out, jax.tree.map(lambda g: g if factored(g) else dense(g), grads, is_leaf=is_leaf)

    shapes = jax.eval_shape(lambda: lane_fn(jax.tree.map(lambda a: a[0], lanes)))[1]
    leaves, tree = jax.tree.flatten(shapes, is_leaf=factored)
    start = [None if factored(g) else jnp.zeros(g.shape, g.dtype) for g in leaves]

    def one(sums: list[Any], lane: Any) -> tuple[list[Any], Any]:
        out, grads = lane_fn(lane)
        parts = jax.tree.leaves(grads, is_leaf=factored)
        sums = [s if s is None else s + g for s, g in zip(sums, parts, strict=True)]
        return sums, ((out, not_finite(grads)), [g if factored(g) else None for g in parts])

    sums, (out, factors) = jax.lax.scan(one, start, lanes)
    parts = [f if s is None else s[None] for s, f in zip(sums, factors, strict=True)]
    return out, add(jax.tree.unflatten(tree, parts))


def _shard(fn: LaneFn, layout: Shard, shared: Any, lanes: Any, count: int) -> tuple[Any, Any]:
    mesh, here = layout.mesh(), layout.share(count)

    def share(shared: Any, lanes: Any) -> tuple[Any, Any]:
        return _summed(fn, layout.inner, shared, lanes, here, lambda g: _over_devices(g, mesh.size))

    every, split = PartitionSpec(), PartitionSpec("lanes")
    run = jax.shard_map(
        share,
        mesh=mesh,
        in_specs=(every, split),
        out_specs=(split, every),
        check_vma=False,
    )
    return run(shared, lanes)


def _over_devices(grads: Any, devices: int) -> Any:
    """The sum over the lanes of all devices, by one message: each costs a round of its own.

    Either each device's sum is sent, and added up on the way, or all get the factors of all lanes,
    and multiply them out: what is less to send. In a ring of P devices, with gradients of S numbers
    and factors of F on each, these are 2 (P - 1)/P S and (P - 1) F.
    """
    leaves, tree = jax.tree.flatten(grads, is_leaf=is_leaf)
    shapes = [jax.eval_shape(total, g) for g in leaves]
    fewer = [
        _numbers(g) < s.size if isinstance(g, Outer) else False
        for g, s in zip(leaves, shapes, strict=True)
    ]
    sent = [g if few else total(g) for g, few in zip(leaves, fewer, strict=True)]
    size = sum(s.size for s in shapes)
    if devices * sum(map(_numbers, sent)) >= 2 * size:
        flat, back = ravel_pytree(total(grads))
        return back(jax.lax.psum(flat, "lanes"))
    flat, back = ravel_pytree(sent)
    every = jax.vmap(back)(jax.lax.all_gather(flat, "lanes"))
    parts = [
        total(jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), g)) if few else g.sum(0)
        for g, few in zip(every, fewer, strict=True)
    ]
    return jax.tree.unflatten(tree, parts)


def _numbers(tree: Any) -> int:
    return sum(a.size for a in jax.tree.leaves(tree))

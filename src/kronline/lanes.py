"""The only place that knows the batch axis: how lanes are laid out, and how gradients are summed.

A lane is one stream with its own state, trace and noise. Everything else in the library is written
for one lane; here it is run for many, as one of

- `Vmap()`: all lanes at once, batched products;
- `Loop()`: one lane after another;
- `Shard(devices, inner)`: lanes split over devices, each with an inner layout. The devices may be
  those of many processes (`processes.py`): each then holds and computes its own lanes only, and
  the sum of gradients is all that passes between them.

Work on a memory that is large goes `lane_by_lane`, in every layout, so that it stays in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kronline import native
from kronline.linearised.gradients import (
    Outer,
    dense,
    is_leaf,
    not_finite,
    total,
    written_out,
)

LaneFn = Callable[[Any, Any], tuple[Any, Any]]  # (shared, lane) -> (out, grads)


@dataclass(frozen=True)
class Vmap:
    """All lanes at once, as batched products; the default.

    Example:
        >>> import optax, kronline as kl
        >>> kl.Learner(kl.RHN(8, 4), kl.softmax(4), kl.uoro(), optax.sgd(0.1)).layout
        Vmap()
    """


@dataclass(frozen=True)
class Loop:
    """One lane after another: less memory, more time.

    Example:
        >>> import optax, kronline as kl
        >>> sgd = optax.sgd(0.1)
        >>> learner = kl.Learner(kl.RHN(8, 4), kl.softmax(4), kl.rtrl(), sgd, layout=kl.Loop())
    """


@dataclass(frozen=True)
class Shard:
    """Lanes split evenly over devices, of this process or of all processes.

    In a program of many processes all of them make the same calls. What has an axis of lanes is
    then one array over all processes, of which each has its own part: `join` makes such an array of
    the parts, `own` gives the part back.

    Args:
        devices: how many, the first ones; None: all, those of other processes included.
        inner: the layout on each device.

    Example:
        >>> import numpy as np, kronline as kl
        >>> kl.Shard(2, inner=kl.Loop())
        Shard(devices=2, inner=Loop())
        >>> layout = kl.Shard(1)
        >>> layout.mine(8)  # the lanes that this process has data for: all, in a single process
        slice(0, 8, None)
        >>> layout.own(layout.join(np.zeros((5, 8)), axis=1), axis=1).shape
        (5, 8)
    """

    devices: int | None = None
    inner: Vmap | Loop = field(default_factory=Vmap)

    def mesh(self) -> Mesh:
        """The devices, in the order in which lanes are given to them."""
        if self.devices is not None and self.devices < 1:
            raise ValueError(f"Shard needs devices >= 1 (or None for all), got {self.devices}")
        found = jax.devices()[: self.devices]
        if self.devices is not None and len(found) < self.devices:
            raise ValueError(
                f"Shard needs {self.devices} devices, got {len(found)}; on a CPU set "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={self.devices} before jax starts"
            )
        return Mesh(found, ("lanes",))

    def share(self, lanes: int) -> int:
        """How many lanes a device has."""
        count = self.mesh().size
        if lanes % count:
            raise ValueError(
                f"Shard needs a multiple of {count} lanes (one share per device), got {lanes}"
            )
        return lanes // count

    def mine(self, lanes: int) -> slice:
        """The lanes of this process, out of so many: what it has to have data for."""
        devices = list(self.mesh().devices)
        here = [i for i, d in enumerate(devices) if d.process_index == jax.process_index()]
        if not here:
            raise ValueError(
                f"Shard(devices={self.devices}) leaves process {jax.process_index()} without a "
                "device; use Shard(), which takes those of all processes"
            )
        share = self.share(lanes)
        return slice(here[0] * share, (here[-1] + 1) * share)

    def sharding(self, axis: int | None) -> NamedSharding:
        """Of an array with lanes on this axis; None: the same array on all devices."""
        split = () if axis is None else (*(None,) * axis, "lanes")
        return NamedSharding(self.mesh(), PartitionSpec(*split))

    def join(self, tree: Any, axis: int | None = 0) -> Any:
        """Arrays over all processes, from each process's own part.

        Args:
            tree: arrays with the lanes of `mine`, in order.
            axis: of lanes; 1 for data (steps, lanes, ...). None: arrays without an axis of lanes,
                equal in all processes.

        Returns:
            the same arrays with all lanes.
        """
        return jax.tree.map(lambda a: self._joined(a, axis), tree)

    def _joined(self, a: Any, axis: int | None) -> jax.Array:
        if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            kind = jax.random.key_impl(a)
            data = self._joined(jax.random.key_data(a), axis)
            return jax.jit(lambda words: jax.random.wrap_key_data(words, impl=kind))(data)
        local, sharding = np.asarray(a), self.sharding(axis)
        if axis is None:
            return jax.make_array_from_process_local_data(sharding, local, local.shape)
        return jax.make_array_from_process_local_data(sharding, local)

    def own(self, tree: Any, axis: int | None = 0) -> Any:
        """This process's part of arrays over all processes, as numpy arrays.

        Args:
            tree: arrays with all lanes.
            axis: of lanes; None: arrays without an axis of lanes.

        Returns:
            the same arrays with the lanes of `mine`.
        """
        return jax.tree.map(lambda a: _own(a, axis), tree)


def _own(a: jax.Array, axis: int | None) -> np.ndarray:
    if a.is_fully_addressable:
        return np.asarray(a)
    if axis is None:
        return np.asarray(a.addressable_data(0))
    shards = sorted(a.addressable_shards, key=lambda s: s.index[axis].start or 0)
    return np.concatenate([np.asarray(s.data) for s in shards], axis)


Layout = Vmap | Loop | Shard


def best(lanes: int) -> Layout:
    """The fastest layout for KF-RTRL here, for a program that has the machine to itself.

    With the native kernel `Vmap()`: it takes all cores. Without, lanes are split over the CPU
    devices, if there are several (`jax.config.update("jax_num_cpu_devices", ...)`). In a program of
    many processes they are always split.
    """
    if jax.process_count() > 1:
        return Shard()
    several = jax.local_device_count() > 1 and lanes % jax.local_device_count() == 0
    split = several and jax.default_backend() == "cpu"
    return Shard() if split and not native.status().active else Vmap()


def many_processes(layout: Layout) -> bool:
    """Whether lanes are split over several processes."""
    return isinstance(layout, Shard) and jax.process_count() > 1


def placed(layout: Layout, tree: Any, axis: int | None = 0) -> Any:
    """Inside a program of many processes: says where arrays lie. Elsewhere they stay as they are.

    The compiler then computes each part where it belongs, random numbers too: with JAX's
    partitionable generator a device draws those of its own lanes, and they are the same numbers
    however lanes are split.

    Args:
        layout: of the lanes.
        tree: arrays, all with lanes on the same axis.
        axis: which; None: all devices have the whole array.
    """
    if not many_processes(layout):
        return tree
    assert isinstance(layout, Shard)
    return jax.lax.with_sharding_constraint(tree, layout.sharding(axis))


def over_lanes(fn: LaneFn, layout: Layout, *, average: bool = True, blame: bool = False) -> LaneFn:
    """`fn` of one lane -> the same of many: lanes on a leading axis, gradients averaged.

    Args:
        fn: (shared, lane) -> (out, gradients) of one lane.
        layout: how lanes are laid out.
        average: False keeps every lane's own gradient, written out, on a leading axis.
        blame: return `(out, bad)` in place of `out`: flags of lanes whose gradient is not finite.
            They are looked for only where the sum is not finite.

    Returns:
        the function of many lanes.
    """
    if not average:
        return _kept(fn, layout, blame)

    def run(shared: Any, lanes: Any) -> tuple[Any, Any]:
        count = jax.tree.leaves(lanes)[0].shape[0]
        out, grads = _summed(fn, layout, shared, lanes, count)
        return out if blame else out[0], jax.tree.map(lambda g: g / count, grads)

    return run


def _kept(fn: LaneFn, layout: Layout, blame: bool) -> LaneFn:
    """Each lane's gradient is returned on a leading axis, not summed."""

    def own(shared: Any, lane: Any) -> tuple[Any, Any]:
        out, grads = fn(shared, lane)
        return ((out, not_finite(grads)) if blame else out, written_out(grads)), ()

    return lambda shared, lanes: over_lanes(own, layout)(shared, lanes)[0]


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
        return _loop(fn, shared, lanes, add)
    return _shard(fn, layout, shared, lanes, count)


def _bad(summed: Any, grads: Any, lanes: int) -> Any:
    """The lanes whose gradient is not finite; none where the sum is finite."""
    if not jax.tree.leaves(grads):
        return jnp.zeros(lanes, bool)

    def look(grads: Any) -> Any:
        return jax.vmap(not_finite)(grads)

    def none(grads: Any) -> Any:
        return jnp.zeros(lanes, bool)

    return jax.lax.cond(not_finite(summed), look, none, grads)


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


def _spread(a: Any, size: int) -> Any:
    return jnp.broadcast_to(a, (size, *jnp.shape(a)))

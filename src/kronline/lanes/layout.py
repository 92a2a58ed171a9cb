"""How lanes are laid out: at once, one after another, or over devices and processes."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kronline import native


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

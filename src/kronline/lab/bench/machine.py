"""What the machine can do: its float32 matmul rate, its copy rate, one bare product by numpy.

On a GPU or a TPU it is that device, by JAX, with the precision that the training step has, too.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from kronline.lab.machine import cores

SIZE = 2048  # of the large matrix product
REST = 0.05  # seconds in which the threads of the last timing go to sleep


def seconds(f: Callable[[], object], repeat: int = 1) -> float:
    """The mean time of one call, of `repeat` in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        f()
    return (time.perf_counter() - start) / repeat


class Machine:
    """Measures; made once, in a process with default flags.

    Args:
        host: whether it is the CPU, which numpy can use too; by default where JAX does.
    """

    def __init__(self, host: bool | None = None) -> None:
        self.host = jax.default_backend() == "cpu" if host is None else host
        rng = np.random.default_rng(0)
        a = rng.standard_normal((SIZE, SIZE), np.float32)
        on_device, product = jnp.asarray(a), jax.jit(jnp.dot)
        self._products: dict[str, Callable[[], object]] = {
            "jax": lambda: product(on_device, on_device).block_until_ready(),
        }
        self._from = np.ones(1 << 25, np.float32)  # 128 MB
        if self.host:
            out = np.empty_like(a)
            self._products = {"numpy": lambda: np.matmul(a, a, out=out)} | self._products
            self._to = np.empty_like(self._from)
            self._threads = ThreadPoolExecutor(cores())
        for f in self._products.values():
            f()

    def matmul(self) -> dict[str, float]:
        """GFLOP/s of a large product, by numpy and by JAX, all cores; of a device by JAX."""
        rates = {}
        for name, f in self._products.items():
            time.sleep(REST)
            f()  # wakes the threads up
            rates[name] = 2e-9 * SIZE**3 / seconds(f)
        return rates

    def copy(self) -> float:
        """GB/s, read and written, by one core; by a device as a whole."""
        if not self.host:
            return self._device_copy()
        return 2e-9 * self._from.nbytes / seconds(lambda: np.copyto(self._to, self._from))

    def copy_by_all(self) -> float:
        """GB/s, read and written, by all cores at once; by a device as a whole."""
        if not self.host:
            return self._device_copy()
        to, what = (np.array_split(a, cores()) for a in (self._to, self._from))
        time.sleep(REST)
        return 2e-9 * self._from.nbytes / seconds(lambda: [*self._threads.map(np.copyto, to, what)])

    def _device_copy(self) -> float:
        what, less = jnp.asarray(self._from), jax.jit(jnp.negative)  # reads and writes all once
        less(what).block_until_ready()
        return 2e-9 * self._from.nbytes / seconds(lambda: less(what).block_until_ready(), 3)

    def bare(self, n: int) -> float:
        """µs of `H A` for one lane of an RHN, n × n times n × 2n, by numpy; by JAX on a device."""
        H, A = np.ones((n, n), np.float32), np.ones((n, 2 * n), np.float32)
        if not self.host:
            there, product = (jnp.asarray(H), jnp.asarray(A)), jax.jit(jnp.dot)
            product(*there).block_until_ready()
            return 1e6 * seconds(lambda: product(*there).block_until_ready(), 200)
        out = np.empty_like(A)
        return 1e6 * seconds(lambda: np.matmul(H, A, out=out), 2000)

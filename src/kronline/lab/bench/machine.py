"""What the machine can do: its float32 matmul rate, its copy rate, one bare product by numpy."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

SIZE = 2048  # of the large matrix product
REST = 0.05  # seconds in which the threads of the last timing go to sleep


def seconds(f: Callable[[], object], repeat: int = 1) -> float:
    """The mean time of one call, of `repeat` in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        f()
    return (time.perf_counter() - start) / repeat


class Machine:
    """Measures; made once, in a process with default flags."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((SIZE, SIZE), np.float32)
        out = np.empty_like(a)
        on_device, product = jnp.asarray(a), jax.jit(jnp.dot)
        self._products: dict[str, Callable[[], object]] = {
            "numpy": lambda: np.matmul(a, a, out=out),
            "jax": lambda: product(on_device, on_device).block_until_ready(),
        }
        self._from = np.ones(1 << 25, np.float32)  # 128 MB
        self._to = np.empty_like(self._from)
        for f in self._products.values():
            f()

    def matmul(self) -> dict[str, float]:
        """GFLOP/s of a large product, by numpy and by JAX, all cores."""
        rates = {}
        for name, f in self._products.items():
            time.sleep(REST)
            f()  # wakes the threads up
            rates[name] = 2e-9 * SIZE**3 / seconds(f)
        return rates

    def copy(self) -> float:
        """GB/s, read and written, by one core."""
        return 2e-9 * self._from.nbytes / seconds(lambda: np.copyto(self._to, self._from))

    def bare(self, n: int) -> float:
        """µs of `H A` for one lane of an RHN, n × n times n × 2n, by numpy."""
        H, A = np.ones((n, n), np.float32), np.ones((n, 2 * n), np.float32)
        out = np.empty_like(A)
        return 1e6 * seconds(lambda: np.matmul(H, A, out=out), 2000)

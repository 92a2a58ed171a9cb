"""Block-sparse recurrent weights: which units read which."""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from kronline.errors import whole_numbers


@dataclass(frozen=True)
class Blocks:
    """Units in blocks of one size; each block reads the same share of the blocks.

    Block i of R reads blocks i + o (modulo R) for some offsets o, the same for all i. Offset 0 is
    always there, so that a block reads itself; so is 1, so that each block is reached from every
    other; the rest are drawn. Units have no order, so more random patterns would bring nothing; and
    these would have no fixed shapes, and rows would have to be gathered.

    Blocks get smaller than `size` where n is not a multiple of it, and where larger ones would miss
    the density by more than a quarter. At least two blocks of R are read, for any density.

    Args:
        density: the share of the recurrent weights that exist; `exact(n)` gives the exact share.
        size: units per block, at most.
        seed: of the offsets.

    Example:
        >>> import kronline as kl
        >>> kl.Blocks(0.25).exact(256)
        0.25
        >>> float(kl.RHN(256, 50, sparse=kl.Blocks(0.25)).weights()["W"].mask[:256].mean())
        0.25
    """

    density: float
    size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.density, bool) or not isinstance(self.density, int | float):
            raise ValueError(f"Blocks needs 0 < density <= 1, a number, got {self.density!r}")
        if not 0 < self.density <= 1:
            raise ValueError(f"Blocks needs 0 < density <= 1, got {self.density}; 0.25 is 25 %")
        whole_numbers(self, "size")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"Blocks needs seed >= 0, an integer, got {self.seed!r}")

    def units(self, n: int) -> int:
        """`B`: units per block, of n."""
        fits = [B for B in range(min(self.size, n), 0, -1) if n % B == 0]
        good = [B for B in fits if 0.8 <= self._share(n // B) / self.density <= 1.25]
        return good[0] if good else fits[-1]

    def exact(self, n: int) -> float:
        """The share of the recurrent weights that exist, of n units."""
        return self._share(n // self.units(n))

    def _share(self, R: int) -> float:
        return min(max(2, round(self.density * R)), R) / R

    def offsets(self, n: int) -> tuple[int, ...]:
        """Which blocks each block reads, counted from itself; 0 first."""
        R = n // self.units(n)
        first = tuple(range(min(2, R)))
        rng = np.random.default_rng(self.seed)
        more = round(self.exact(n) * R) - len(first)
        rest = rng.choice(np.arange(2, R), more, replace=False) if more else ()
        return first + tuple(sorted(int(o) for o in rest))

    def mask(self, n: int) -> np.ndarray:
        """(n, n), [of, to]: 1 where a weight exists."""
        return _mask(self, n)

    def taken(self, W: Float[Array, "b n r n"]) -> Float[Array, "R r B K"]:
        """Of the recurrent weights those that exist: for each block, from the K that it reads."""
        b, n, r, _ = W.shape
        B = self.units(n)
        R = n // B
        blocks = W.reshape(b, R, B, r, R, B)
        of = (np.arange(R)[:, None] + np.array(self.offsets(n))) % R
        own = blocks[:, of, :, :, np.arange(R)[:, None]]  # (R, o, b, B, r, B)
        return own.transpose(0, 4, 5, 2, 1, 3).reshape(R, r, B, -1)


@functools.lru_cache(maxsize=16)
def _mask(blocks: Blocks, n: int) -> np.ndarray:
    B = blocks.units(n)
    R = n // B
    some = np.zeros((R, R))
    for o in blocks.offsets(n):
        some[(np.arange(R) + o) % R, np.arange(R)] = 1
    mask = np.kron(some, np.ones((B, B)))
    mask.flags.writeable = False
    return mask

"""Mean and deviation over seeds."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Stat(NamedTuple):
    """Mean and standard deviation (of a sample, n − 1) over seeds; none for a single one."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Stat | None":
        """Of the numbers among the values; None if there is none."""
        x = [float(v) for v in values if v is not None and math.isfinite(v)]
        if not x:
            return None
        return cls(float(np.mean(x)), float(np.std(x, ddof=1)) if len(x) > 1 else None, len(x))

    def text(self, digits: int) -> str:
        """`12.3 ± 0.6`."""
        shown = f"{self.mean:.{digits}f}"
        return shown if self.std is None else f"{shown} ± {self.std:.{digits}f}"

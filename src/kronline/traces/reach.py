"""Which entries of the state a weight can move within so many steps, for any parameters."""

import numpy as np

from kronline.linearised import Structure


def reached(structure: Structure, order: int) -> dict[str, np.ndarray]:
    """Which entries of the state each z of each weight matrix moves within `order` steps.

    Returns:
        (N, r, n) booleans per weight matrix.
    """
    assert structure.pattern is not None
    H, M = structure.pattern()
    now = M
    for _ in range(order - 1):
        now = {n: M[n] | (np.tensordot(H.astype(float), now[n], axes=1) > 0) for n in M}
    return now

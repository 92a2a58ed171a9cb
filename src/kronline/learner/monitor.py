"""Signal and noise of the gradient, estimated from how lanes differ.

Lanes are independent, so their gradients g_l differ by noise alone: of the estimator, and of the
data. What they have in common is the signal.
"""

from typing import NamedTuple

from jaxtyping import Array, Float

from kronline.linearised import gradients as gr
from kronline.linearised.gradients import Grads


class Spread(NamedTuple):
    """Signal and noise of the cell's gradient, per segment. Sums over segments are unbiased."""

    signal: Float[Array, " *segments"]  # ‖E g‖²; as an estimate it may be below zero
    noise: Float[Array, " *segments"]  # E‖g_l − E g‖², for one lane

    @property
    def snr(self) -> Float[Array, ""]:
        """Signal over noise for one lane; for the mean over L lanes it is L times as large."""
        return self.signal.sum() / self.noise.sum()


def spread(norm2: Float[Array, ""], mean: Grads, lanes: int) -> Spread | None:
    """Signal and noise of one segment; None for a single lane, which cannot tell them apart.

    Args:
        norm2: the mean over lanes of ‖g_l‖².
        mean: ḡ, the mean gradient.
        lanes: L.
    """
    if lanes < 2:
        return None
    # noise = L/(L−1) (mean ‖g_l‖² − ‖ḡ‖²),   signal = ‖ḡ‖² − noise/L
    mean2 = gr.norm2(mean)
    noise = lanes / (lanes - 1) * (norm2 - mean2)
    return Spread(mean2 - noise / lanes, noise)

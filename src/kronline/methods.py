"""The named methods: each is a trace and a window, under the name that people know it by.

Every docstring says what the method ignores, what it costs, and where it comes from.
"""

from dataclasses import dataclass

from kronline.errors import whole_number
from kronline.online import Online
from kronline.traces import KF, UORO, Exact, Nothing

__all__ = ["bptt", "kf_rtrl", "rtrl", "tbptt", "uoro"]


@dataclass(frozen=True)
class _Named(Online):
    """An `Online` estimator that is known by a name."""

    label: str = ""

    @property
    def name(self) -> str:
        """As it is called."""
        return self.label


def _window_suffix(window: int | None) -> str:
    return "" if window is None else f"window={window}"


def bptt() -> Online:
    """Back-propagation through time over whatever `run` is given: exact, not online.

    Memory grows with the length of the stretch. Nothing is carried over from one `run` to the next
    but the state.
    """
    return _Named(Nothing(), "all", "bptt")


def tbptt(k: int) -> Online:
    """Truncated BPTT in blocks of k steps: biased, by everything older than its block.

    Dependencies of up to k−1 steps can be learnt. Updates come every k steps.

    Args:
        k: the truncation horizon.
    """
    k = whole_number("tbptt", "k", k)
    return _Named(Nothing(), k, f"tbptt({k})")


def rtrl(window: int | None = None) -> Online:
    """Exact real-time recurrent learning: no bias, no noise, O(n⁴) time and O(n³) memory.

    Exact for frozen parameters; with updates, G is a little stale, as in every online method.
    """
    return _Named(Exact(), window, f"rtrl({_window_suffix(window)})")


def uoro(copies: int = 1, window: int | None = None) -> Online:
    """Unbiased Online Recurrent Optimization, for any cell; UORO-AVG with copies > 1.

    Args:
        copies: independent copies, averaged; the paper's UORO-AVG takes as many as units.
        window: None as published: the newest step passes through the rank-one merge too. 1: the
            newest step's part of the gradient is exact, and only the older part is noisy, at no
            cost.

    Reference: Tallec & Ollivier, Unbiased Online Recurrent Optimization, 2017.
    """
    parts = [f"copies={copies}"] * (copies != 1) + [_window_suffix(window)] * (window is not None)
    return _Named(UORO(copies), window, f"uoro({', '.join(parts)})")


def kf_rtrl(window: int | None = None) -> Online:
    """Kronecker-factored RTRL, for every cell whose weights enter as linear maps.

    Ignores nothing: unbiased for frozen parameters. Costs one product `H A` a step, O(n³).

    Args:
        window: None as published (Algorithm 1): the newest step is merged into u ⊗ A, and the
            gradient is read from the merged pair. 1: the gradient is `u⊗(δ H A) + ĥ⊗(δ D)`, read
            before the merge. The newest step then adds no noise, at no cost. Still unbiased.

    Reference: Mujika, Meier & Steger, Approximating Real-Time Recurrent Learning with Random
    Kronecker Factors, NeurIPS 2018.
    """
    return _Named(KF(), window, f"kf_rtrl({_window_suffix(window)})")

"""The named methods: each is a trace and a window, under the name that people know it by.

Every docstring says what the method ignores, what it costs, and where it comes from.
"""

from dataclasses import dataclass

from kronline.errors import whole_number
from kronline.online import Online
from kronline.rolling import Rolling
from kronline.traces import KF, UORO, Average, Exact, Nothing, ReverseKF, Trace

__all__ = [
    "artbp",
    "bptt",
    "kf_rtrl",
    "reverse_kf",
    "rolling_tbptt",
    "rtrl",
    "tbptt",
    "uoro",
]


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


def rolling_tbptt(k: int, every: int = 1) -> Rolling:
    """Truncated BPTT over a window that rolls: every loss through its last k steps.

    Ignores all that is older than the window: biased, as `tbptt(k)` is, but every loss reaches back
    over k steps, and not on average over half as many; dependencies of up to k−1 steps can be
    learnt. The states of the window stay as they were met; the parameters are those of now. Any
    cell. Costs k times what `tbptt(k)` does, since every step is gone back over k times.

    Args:
        k: the truncation horizon.
        every: steps between updates. For more than 1 the first loss after an update reaches back
            over k steps and the later ones further; costs (k − 1 + every)/every times TBPTT.

    Reference: BPTT(h; h') of Williams & Peng, An Efficient Gradient-Based Algorithm for On-Line
    Training of Recurrent Network Trajectories, Neural Computation 1990.
    """
    return Rolling(
        whole_number("rolling_tbptt", "k", k), whole_number("rolling_tbptt", "every", every)
    )


def artbp(c: float, max_len: int, every: int | None = None) -> Rolling:
    """Truncated BPTT with random cuts, made unbiased by weights: unbiased up to max_len steps.

    At each step back the δ is dropped with probability c, and multiplied with 1/(1−c) otherwise.
    There is one draw a step and lane, and all later losses share it. So the mean of the gradient of
    `every` losses is exactly their gradient through their own steps and the max_len − 1 steps
    before: for a stretch of at most max_len steps since the start or a reset, the whole one; what
    lies further back than that is ignored. The noise of a dependency over d steps has variance
    (1−c)^−d − 1 times its square: it grows fast beyond 1/c steps, where this stops to be of use.

    Any cell. A step back is taken for as long as one lane is still connected to it, so that the
    work is that of TBPTT times `(every + L)/every`, L being about (log(lanes) + 0.6)/c, and at most
    max_len − 1. Memory: max_len states and inputs a lane.

    Args:
        c: the probability of a cut at a step; 1/c is the mean length of what hangs together.
        max_len: beyond so many steps, δ is always dropped.
        every: steps between updates; by default 1/c, as often as the published algorithm's cuts.

    Reference: Tallec & Ollivier, Unbiasing Truncated Backpropagation Through Time, 2017. There a
    gradient is taken at every cut, for the losses since the cut before; here every few steps, for
    the losses since then, back to the last cut. With frozen parameters the sum is the same.
    """
    if not isinstance(c, int | float) or not 0 < c < 1:
        raise ValueError(f"artbp needs 0 < c < 1, the probability of a cut, got {c!r}")
    every = max(1, round(1 / c)) if every is None else whole_number("artbp", "every", every)
    return Rolling(whole_number("artbp", "max_len", max_len), every, c)


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


def kf_rtrl(window: int | None = None, copies: int = 1) -> Online:
    """Kronecker-factored RTRL, for every cell whose weights enter as linear maps.

    Ignores nothing: unbiased for frozen parameters. Costs one product `H A` a step and copy, O(n³).

    Args:
        window: None as published (Algorithm 1): the newest step is merged into u ⊗ A, and the
            gradient is read from the merged pair. 1: the gradient is `u⊗(δ H A) + ĥ⊗(δ D)`, read
            before the merge. The newest step then adds no noise, at no cost. Still unbiased.
        copies: independent copies, averaged (KF-RTRL-AVG): 1/copies of the variance, at `copies`
            times the time and memory.

    Reference: Mujika, Meier & Steger, Approximating Real-Time Recurrent Learning with Random
    Kronecker Factors, NeurIPS 2018.
    """
    copies = whole_number("kf_rtrl", "copies", copies)
    trace: Trace = KF() if copies == 1 else Average(KF(), copies)
    parts = [_window_suffix(window)] * (window is not None) + [f"copies={copies}"] * (copies != 1)
    return _Named(trace, window, f"kf_rtrl({', '.join(parts)})")


def reverse_kf(window: int | None = None) -> Online:
    """R-KF: a Kronecker product between the unit that a weight belongs to, and all else.

    Ignores nothing: unbiased for frozen parameters, for every cell whose weights enter as linear
    maps. Costs one product `H B` a step, O(n³) as KF-RTRL, in pure JAX. Its noise has a term
    (n−1)‖F‖² as UORO's has, which KF-RTRL's has not.

    Args:
        window: as for `kf_rtrl`; 1 makes the newest step exact, at no cost.

    Reference: Marschall, Cho & Savin, A Unified Framework of Online Learning Algorithms for Training
    Recurrent Neural Networks, JMLR 2020 (R-KF-RTRL).
    """
    return _Named(ReverseKF(), window, f"reverse_kf({_window_suffix(window)})")

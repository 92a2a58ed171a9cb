"""The named methods: each is a trace and a window, under the name that people know it by.

Every docstring says what the method ignores, what it costs, and where it comes from.
"""

from typing import Literal

from kronline.errors import whole_number
from kronline.estimators.dni import DNI
from kronline.estimators.online import Online
from kronline.estimators.reservoir import Reservoir
from kronline.estimators.rolling import Rolling
from kronline.traces import (
    KF,
    KFTBPTT,
    OK,
    RFLO,
    UORO,
    Average,
    Exact,
    Nothing,
    ReverseKF,
    SnAp,
    Trace,
)

__all__ = [
    "artbp",
    "bptt",
    "dni",
    "immediate",
    "kf_rtrl",
    "kf_tbptt",
    "ok",
    "reservoir",
    "reverse_kf",
    "rflo",
    "rolling_tbptt",
    "rtrl",
    "snap",
    "tbptt",
    "uoro",
]


def bptt() -> Online:
    """Back-propagation through time over whatever `run` is given: exact, not online.

    Memory grows with the length of the stretch. Nothing is carried over from one `run` to the next
    but the state.
    """
    return Online(Nothing(), "all")


def tbptt(k: int) -> Online:
    """Truncated BPTT in blocks of k steps: biased, by everything older than its block.

    Dependencies of up to k−1 steps can be learnt. Updates come every k steps.

    Args:
        k: the truncation horizon.
    """
    k = whole_number("tbptt", "k", k)
    return Online(Nothing(), k)


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
    (1−c)^−d − 1 times its square: it grows fast beyond 1/c steps.

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
    return Online(Exact(), window)


def uoro(copies: int = 1, window: int | None = None) -> Online:
    """Unbiased Online Recurrent Optimization, for any cell; UORO-AVG with copies > 1.

    Args:
        copies: independent copies, averaged; the paper's UORO-AVG takes as many as units.
        window: None as published: the newest step passes through the rank-one merge too. 1: the
            newest step's part of the gradient is exact, and only the older part is noisy, at no
            cost.

    Reference: Tallec & Ollivier, Unbiased Online Recurrent Optimization, 2017.
    """
    return Online(UORO(copies), window)


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
    return Online(trace, window)


def kf_tbptt(k: int = 10, pairs: int = 8, tail: float | Literal["auto"] = 1.0) -> Online:
    """TBPTT-k made unbiased: a Kronecker-factored trace carries over what lies before the block.

    Exact inside a block, unbiased beyond; `pairs` Kronecker products a weight, merged once a block
    with the least variance (OK-TBPTT). Takes one product of N × N by N × n a step and `pairs`
    products a block: about two thirds of KF-RTRL's time for k = 25 and one pair, about the same for
    eight (`kronline bench`). Updates come every k steps. For linear cells. Ours; it combines blocks
    of TBPTT with the optimal Kronecker sum.

    Args:
        k: the exact window.
        pairs: how many Kronecker products; more: less noise.
        tail: the weight of what lies before the block. 1: unbiased; 0: TBPTT-k; "auto": the weight
            with the least squared error, which gives up unbiasedness for less noise.
    """
    k = whole_number("kf_tbptt", "k", k)
    return Online(KFTBPTT(pairs, tail), k)


def ok(pairs: int = 1, window: int | None = None) -> Online:
    """The optimal Kronecker sum: KF-RTRL with the least variance that `pairs` products can have.

    Ignores nothing: unbiased for frozen parameters. Costs `pairs` products `H A` a step, O(n³).
    For linear cells.

    Args:
        pairs: r; with r = 1 the variance is never above KF-RTRL's.
        window: as for `kf_rtrl`.

    Reference: Benzing, Gauy, Mujika, Martinsson & Steger, ICML 2019.
    """
    return Online(OK(pairs), window)


def reverse_kf(window: int | None = None) -> Online:
    """R-KF: a Kronecker product between the unit that a weight belongs to, and all else.

    Ignores nothing: unbiased for frozen parameters, for every cell whose weights enter as linear
    maps. Costs one product `H B` a step, O(n³) as KF-RTRL, in pure JAX. Its noise has a term
    (n−1)‖F‖² as UORO's has, which KF-RTRL's has not.

    Args:
        window: as for `kf_rtrl`; 1 makes the newest step exact, at no cost.

    Reference: Marschall, Cho & Savin, A Unified Framework of Online Learning Algorithms for
    Training Recurrent Neural Networks, JMLR 2020 (R-KF).
    """
    return Online(ReverseKF(), window)


def snap(order: int = 1, window: int | None = None) -> Online:
    """SnAp-n: RTRL for those entries of G that a weight reaches within n steps.

    Ignores what a weight does to all other states: biased, without noise. SnAp-1 on a unit-wise
    cell keeps the slots of the weight's own unit, for O(|θ|) time and memory a slot. Where all
    recurrent weights exist, SnAp-2 keeps everything and is RTRL, at RTRL's price; with masked
    weights it is cheaper. Every cell whose weights enter as linear maps (`traces/snap.py` says
    what is kept for each kind).

    Args:
        order: n.
        window: None as published: the gradient is read from the masked G. k >= 1: the last k steps
            are exact, and the masked G stands for what lies before.

    Reference: Menick et al., A Practical Sparse Approximation for Real Time Recurrent Learning,
    2020.
    """
    return Online(SnAp(order), window)


def rflo(window: int | None = None) -> Online:
    """RFLO: only what a unit remembers by itself, `e ← E e + D ĥ`; the traces of e-prop.

    Ignores all that flows through recurrent weights: biased, without noise. For unit-wise cells;
    O(|θ|) time and memory a slot. On a plain tanh network it equals `immediate()`.

    Args:
        window: None as published. k >= 1: the last k steps are exact.

    Reference: Murray, Local online learning in recurrent networks with random feedback, eLife 2019
    (whose random feedback weights are not used here: δ is the loss's own).
    """
    return Online(RFLO(), window)


def immediate() -> Online:
    """`G = F`: the newest step alone, the same as `tbptt(1)`.

    Ignores all of the past: the cheapest gradient that there is, O(|θ|) a step for all lanes in one
    product. What a method must beat to be worth its cost. Any cell.
    """
    return Online(Nothing(), 1)


def dni(k: int = 5) -> DNI:
    """Synthetic gradients: TBPTT-k, continued by a learnt affine map from state to future gradient.

    Ignores what such a map cannot tell: biased, without noise, and as good as the map is by then,
    which learns from its own guess k steps later (bootstrapping). Any cell. Costs what `tbptt(k)`
    does and O(N²) a segment for the map, whose N (N + 1) parameters all lanes share.

    Args:
        k: the steps of a segment; updates come every k steps.

    Reference: Jaderberg et al., Decoupled Neural Interfaces using Synthetic Gradients, 2017.
    """
    return DNI(k)


def reservoir(spectral_radius: float | None = 0.9, input_scale: float = 1.0) -> Reservoir:
    """Fixed recurrent weights: only the readout learns (echo state network, liquid state machine).

    Ignores the cell's whole gradient; costs a forward pass. Any cell; with `LIF` it is a liquid
    state machine.

    Args:
        spectral_radius: of each gate's recurrent weights, drawn at the start in place of the cell's
            own initialisation; None: as the cell's own.
        input_scale: the standard deviation of the weights of inputs, where they are drawn.

    References: Jaeger, The "echo state" approach to analysing and training recurrent neural
    networks, 2001; Maass, Natschläger & Markram, Real-time computing without stable states, 2002.
    """
    return Reservoir(spectral_radius, input_scale)

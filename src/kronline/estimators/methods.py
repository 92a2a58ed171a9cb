"""The named methods: each is a trace and a window, under its usual name.

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
    InLayer,
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
    "spatial",
    "tbptt",
    "uoro",
]


def bptt() -> Online:
    """Back-propagation through time over a whole run: exact, not online.

    Memory grows with the number of steps. Nothing is carried over from one `run` to the next but
    the state. For any cell.

    Returns:
        the estimator `Online(Nothing(), "all")`.

    Example:
        >>> import kronline as kl
        >>> kl.bptt().span is None  # one segment, however long the run is
        True
    """
    return Online(Nothing(), "all")


def tbptt(k: int) -> Online:
    """Truncated BPTT in blocks of k steps.

    Ignores everything older than the block: biased. Dependencies of up to k−1 steps can be learnt.
    Updates come every k steps. For any cell.

    Args:
        k: the truncation horizon.

    Returns:
        the estimator `Online(Nothing(), k)`.

    Example:
        >>> import kronline as kl
        >>> kl.tbptt(25).span  # steps per segment
        25
    """
    k = whole_number("tbptt", "k", k)
    return Online(Nothing(), k)


def rolling_tbptt(k: int, every: int = 1) -> Rolling:
    """Truncated BPTT over a rolling window: every loss through its last k steps.

    Ignores all that is older than the window: biased, as `tbptt(k)` is, but every loss reaches back
    over k steps, and not on average over half as many; dependencies of up to k−1 steps can be
    learnt. The states in the window are kept as they were; the parameters are the current ones.
    For any cell. Costs k times as much as `tbptt(k)`, since reverse mode passes each step k times.

    Args:
        k: the truncation horizon.
        every: steps between updates. For more than 1 the first loss after an update reaches back
            over k steps and the later ones further; costs (k − 1 + every)/every times TBPTT.

    Returns:
        the estimator `Rolling(k, every)`.

    Example:
        >>> import kronline as kl
        >>> kl.rolling_tbptt(5).name
        'rolling_tbptt(5)'

    Reference: BPTT(h; h') of Williams & Peng, An Efficient Gradient-Based Algorithm for On-Line
    Training of Recurrent Network Trajectories, Neural Computation 1990.
    """
    return Rolling(
        whole_number("rolling_tbptt", "k", k), whole_number("rolling_tbptt", "every", every)
    )


def artbp(c: float, max_len: int, every: int | None = None) -> Rolling:
    """Truncated BPTT with random cuts, and weights that make it unbiased up to max_len steps.

    At each step back the δ is dropped with probability c, and multiplied by 1/(1−c) otherwise.
    There is one draw per step and lane, which all later losses share. So the mean of the gradient
    of `every` losses is exactly their gradient through their own steps and the max_len − 1 steps
    before: the whole gradient, for at most max_len steps since the start or a reset. What lies
    further back is ignored. The noise of a dependency over d steps has variance (1−c)^−d − 1 times
    its square: it grows fast beyond 1/c steps.

    For any cell. Reverse mode goes back for as long as one lane is still connected, so the work is
    that of TBPTT times `(every + L)/every`, L being about (log(lanes) + 0.6)/c, and at most
    max_len − 1. Memory: max_len states and inputs per lane.

    Args:
        c: the probability of a cut at a step; 1/c is the mean number of steps between cuts.
        max_len: beyond so many steps, δ is always dropped.
        every: steps between updates; by default 1/c, as often as the published algorithm's cuts.

    Returns:
        the estimator `Rolling(max_len, every, c)`.

    Example:
        >>> import kronline as kl
        >>> kl.artbp(0.1, 100).span  # an update every 1/c steps
        10

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

    `G ← H G + F`, and the gradient is `δ·G`. Exact for frozen parameters; with updates, G is a
    little stale, as in every online method. For any cell.

    Args:
        window: None: the gradient is read from G. k >= 1: the last k steps are exact by reverse
            mode, and updates come every k steps.

    Returns:
        the estimator `Online(Exact(), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.rtrl().name
        'rtrl()'

    Reference: Williams & Zipser, A Learning Algorithm for Continually Running Fully Recurrent
    Neural Networks, Neural Computation 1989.
    """
    return Online(Exact(), window)


def uoro(copies: int = 1, window: int | None = None) -> Online:
    """Unbiased Online Recurrent Optimization, for any cell; UORO-AVG with copies > 1.

    Keeps `G' = s̃ θ̃ᵀ` with `E[G'] = G`. Ignores nothing: unbiased for frozen parameters. Costs
    O(|θ|) time and memory per step and copy; its noise is about n times that of KF-RTRL.

    Args:
        copies: independent copies, averaged; the paper's UORO-AVG takes as many as units.
        window: None as published: the newest step passes through the rank-one merge, too. 1: the
            newest step's part of the gradient is exact, and only the older part is noisy, at no
            cost.

    Returns:
        the estimator `Online(UORO(copies), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.uoro(copies=4).name
        'uoro(copies=4)'


    Reference: Tallec & Ollivier, Unbiased Online Recurrent Optimization, 2017.
    """
    return Online(UORO(copies), window)


def kf_rtrl(window: int | None = None, copies: int = 1) -> Online:
    """Kronecker-factored RTRL, for every cell whose weights enter as linear maps.

    Keeps `G' = u ⊗ A` with `E[G'] = G`, per weight matrix. Ignores nothing: unbiased for frozen
    parameters. Costs one product `H A` per step and copy, O(n³).

    Args:
        window: None as published (Algorithm 1): the newest step is merged into u ⊗ A, and the
            gradient is read from the merged pair. 1: the gradient is `u⊗(δ H A) + ĥ⊗(δ D)`, read
            before the merge. The newest step then adds no noise, at no cost. Still unbiased.
        copies: independent copies, averaged (KF-RTRL-AVG): 1/copies of the variance, at `copies`
            times the time and memory.

    Returns:
        the estimator `Online(KF(), window)`, with the copies around the trace.

    Example:
        >>> import kronline as kl
        >>> kl.kf_rtrl(window=1).name
        'kf_rtrl(window=1)'

    Reference: Mujika, Meier & Steger, Approximating Real-Time Recurrent Learning with Random
    Kronecker Factors, NeurIPS 2018.
    """
    copies = whole_number("kf_rtrl", "copies", copies)
    trace: Trace = KF() if copies == 1 else Average(KF(), copies)
    return Online(trace, window)


def kf_tbptt(k: int = 10, pairs: int = 8, tail: float | Literal["auto"] = 1.0) -> Online:
    """TBPTT-k made unbiased: a Kronecker-factored trace carries over what lies before the block.

    Exact inside a block, unbiased beyond; `pairs` Kronecker products per weight matrix, merged once
    per block with the least variance (OK-TBPTT). Takes one product of N × N by N × n per step and
    `pairs` products per block: about two thirds of KF-RTRL's time for k = 25 and one pair, about
    the same for eight (`kronline bench`). Updates come every k steps. For linear cells. Ours; it
    combines blocks of TBPTT with the optimal Kronecker sum.

    Args:
        k: the exact window.
        pairs: how many Kronecker products; more: less noise.
        tail: the weight of what lies before the block. 1: unbiased; 0: TBPTT-k; "auto": the weight
            with the least squared error, which gives up unbiasedness for less noise.

    Returns:
        the estimator `Online(KFTBPTT(pairs, tail), k)`.

    Example:
        >>> import kronline as kl
        >>> kl.kf_tbptt(25, pairs=4).name
        'kf_tbptt(25, pairs=4)'

    Reference: the merge is that of Benzing et al., ICML 2019, for more terms.
    """
    k = whole_number("kf_tbptt", "k", k)
    return Online(KFTBPTT(pairs, tail), k)


def ok(pairs: int = 1, window: int | None = None) -> Online:
    """The optimal Kronecker sum: KF-RTRL with the least variance that `pairs` products can have.

    Keeps `G' = Σ_i u_i ⊗ A_i` with `E[G'] = G`. Ignores nothing: unbiased for frozen parameters.
    Costs `pairs` products `H A` per step, O(n³) each. For linear cells.

    Args:
        pairs: r; with r = 1 the variance is never above KF-RTRL's.
        window: as for `kf_rtrl`.

    Returns:
        the estimator `Online(OK(pairs), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.ok(4).name
        'ok(4)'

    Reference: Benzing, Gauy, Mujika, Martinsson & Steger, ICML 2019.
    """
    return Online(OK(pairs), window)


def reverse_kf(window: int | None = None) -> Online:
    """R-KF: a Kronecker product between the unit that a weight belongs to, and everything else.

    Keeps `G' = a ⊗ B` with `E[G'] = G`. Ignores nothing: unbiased for frozen parameters, for every
    cell whose weights enter as linear maps. Costs one product `H B` per step, O(n³) as KF-RTRL, in
    pure JAX. Its noise has a term (n−1)‖F‖², as UORO's has and KF-RTRL's has not.

    Args:
        window: as for `kf_rtrl`; 1 makes the newest step exact, at no cost.

    Returns:
        the estimator `Online(ReverseKF(), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.reverse_kf().name
        'reverse_kf()'

    Reference: Marschall, Cho & Savin, A Unified Framework of Online Learning Algorithms for
    Training Recurrent Neural Networks, JMLR 2020 (R-KF).
    """
    return Online(ReverseKF(), window)


def snap(order: int = 1, window: int | None = None) -> Online:
    """SnAp-n: RTRL for those entries of G that a weight reaches within n steps.

    `G ← mask ∘ (H G + F)`. Ignores what a weight does to all other states: biased, without noise.
    SnAp-1 on a unit-wise cell keeps the slots of the weight's own unit, for O(|θ|) time and memory
    per slot. Where all recurrent weights exist, SnAp-2 keeps everything and is RTRL, at RTRL's
    cost; with masked weights it is cheaper. For every cell whose weights enter as linear maps
    (`traces/snap.py` says what is kept for each kind).

    Args:
        order: n.
        window: None as published: the gradient is read from the masked G. k >= 1: the last k steps
            are exact, and the masked G stands for what lies before.

    Returns:
        the estimator `Online(SnAp(order), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.snap(1).ignores(kl.Tanh(2, 1))
        'states that a weight does not reach within one step'

    Reference: Menick et al., A Practical Sparse Approximation for Real Time Recurrent Learning,
    2020.
    """
    return Online(SnAp(order), window)


def spatial(k: int) -> Online:
    """Exact inside k steps, and the layers' own exact traces for what lies before them.

    For cells made of layers whose units read no other unit's state: LRU, RTU, ELSTM, MinGRU,
    MinLSTM, blocks and stacks of these. Beyond the k steps, the gradient with respect to a layer's
    state is multiplied with that layer's own trace. Ignores, beyond the k steps, what flows from a
    weight to the states of the layers above it, and all weights that belong to no recurrent layer:
    biased in a stack of two layers or more; in one layer nothing is ignored, and this is RTRL.
    `kf_tbptt(k)` estimates what is ignored here. Costs O(q² |W|) once per k steps.

    Args:
        k: steps that are exact; updates come every k steps.

    Returns:
        the estimator `Online(InLayer(), k)`.

    Example:
        >>> import kronline as kl
        >>> kl.spatial(10).ignores(kl.LRU(3, 2))  # one layer: nothing
        ''

    Reference: Zucchet et al., Online learning of long-range dependencies, NeurIPS 2023, for k = 1.
    """
    return Online(InLayer(), whole_number("spatial", "k", k))


def rflo(window: int | None = None) -> Online:
    """RFLO: only what a unit remembers by itself, `e ← E e + D ĥ`; the traces of e-prop.

    Ignores all that flows through recurrent weights: biased, without noise. For unit-wise cells;
    O(|θ|) time and memory per slot. On a plain tanh network it equals `immediate()`.

    Args:
        window: None as published. k >= 1: the last k steps are exact.

    Returns:
        the estimator `Online(RFLO(), window)`.

    Example:
        >>> import kronline as kl
        >>> kl.rflo().ignores(kl.LSTM(2, 1))
        'all that flows through recurrent weights'

    Reference: Murray, Local online learning in recurrent networks with random feedback, eLife 2019
    (whose random feedback weights are not used here: δ is the loss's own).
    """
    return Online(RFLO(), window)


def immediate() -> Online:
    """`G = F`: the newest step alone, the same as `tbptt(1)`.

    Ignores the whole past: the cheapest gradient, O(|θ|) per step for all lanes in one product. A
    baseline: a method that does not beat it is not worth its cost. For any cell.

    Returns:
        the estimator `Online(Nothing(), 1)`.

    Example:
        >>> import kronline as kl
        >>> kl.immediate() == kl.tbptt(1)
        True
    """
    return Online(Nothing(), 1)


def dni(k: int = 5) -> DNI:
    """Synthetic gradients: TBPTT-k, continued by a learnt affine map from state to future gradient.

    Ignores what such a map cannot express: biased, without noise. The map learns from its own
    guess k steps later (bootstrapping). For any cell. Costs as much as `tbptt(k)`, plus O(N²) per
    segment for the map, whose N (N + 1) parameters all lanes share.

    Args:
        k: steps per segment; updates come every k steps.

    Returns:
        the estimator.

    Example:
        >>> import kronline as kl
        >>> kl.dni(5).name
        'dni(5)'

    Reference: Jaderberg et al., Decoupled Neural Interfaces using Synthetic Gradients, 2017.
    """
    return DNI(k)


def reservoir(spectral_radius: float | None = 0.9, input_scale: float = 1.0) -> Reservoir:
    """Fixed recurrent weights: only the readout learns (echo state network, liquid state machine).

    Ignores the cell's whole gradient; costs a forward pass. For any cell; with `LIF` it is a liquid
    state machine.

    Args:
        spectral_radius: of each gate's recurrent weights, drawn at the start in place of the cell's
            own initialisation; None: as the cell's own.
        input_scale: the standard deviation of the weights of inputs, where they are drawn.

    Returns:
        the estimator.

    Example:
        >>> import kronline as kl
        >>> kl.reservoir(0.9).ignores(kl.Tanh(2, 1))
        "the cell's whole gradient"

    References: Jaeger, The "echo state" approach to analysing and training recurrent neural
    networks, 2001; Maass, Natschläger & Markram, Real-time computing without stable states, 2002.
    """
    return Reservoir(spectral_radius, input_scale)

"""Proofs by enumeration: over all noise patterns, so that means and variances are exact."""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from kronline.cells.base import Cell
from kronline.errors import UsageError
from kronline.estimators.base import Estimator, Model
from kronline.estimators.online import Online
from kronline.estimators.rolling import Rolling
from kronline.learner import Learner
from kronline.noise import count, for_lanes, patterns, repeat
from kronline.show import show
from kronline.traces import KFTBPTT, Trace, one_step
from kronline.verifier.problem import READOUT, Problem, dense, flat, relative
from kronline.verifier.report import AtLeast, Check

ROUNDING = 1e-10  # relative, in float64, for what is equal up to rounding
SAME = 1e-12  # of two ways to compute the same sum
CLOSED_FORM = 1e-8
BIASED = 1e-6  # relative; smaller differences could be rounding
LITTLE = 1e-3  # of ‖G‖²: smaller variances count as zero
FULL = 6  # steps after which a trace holds as many terms as it can
ENOUGH = 1 << 14  # patterns; more only where two segments need them,
AT_MOST = 1 << 16  # and never more than these


def exact(
    cell: Cell, estimator: Estimator, name: str, *, steps: int = 5, symbols: bool = False
) -> list[Check]:
    """An estimator without noise: its gradients are those of reverse mode over the whole past."""
    problem = Problem(cell, whole_segments(steps, estimator), symbols)
    learner = problem.learner(estimator)
    _, grads = learner.gradients(problem.start(learner), **problem.data)
    error = relative(flat(grads, 1), by_segment(problem, estimator))
    return [Check("gradient = BPTT, every step", name, show(estimator), error, ROUNDING)]


def same(cell: Cell, other: Cell, estimator: Estimator, name: str, steps: int = 6) -> list[Check]:
    """Two forms of one cell: the same gradients, to the last digits."""
    found = []
    for form in (cell, other):
        problem = Problem(form, steps)
        learner = problem.learner(estimator)
        found.append(flat(learner.gradients(problem.start(learner), **problem.data)[1], 1))
    error = relative(*found)
    title = "cheap = dense RTRL, every step"
    return [Check(title, name, show(estimator), error, SAME)]


def bias(cell: Cell, estimator: Estimator, name: str, *, symbols: bool = False) -> list[Check]:
    """The mean gradient over ALL noise patterns is the exact gradient, at every step.

    An estimator that is weighted or truncated by its settings is compared with that.
    """
    steps = most_steps(cell, estimator)
    k = estimator.span or steps
    # a reset at the start; and one inside a segment, after earlier steps
    places = (1, k + 1) if 1 < k < steps else (1,)
    problems = [Problem(cell, steps, symbols, reset=place) for place in places]
    mean, want, n = zip(*(_mean(problem, estimator) for problem in problems), strict=True)
    title = f"bias of the gradient{_says(estimator, steps)}, {n[0]} patterns"
    error = max(map(relative, mean, want))
    return [Check(title, name, show(estimator), error, ROUNDING)]


def weighed(cell: Cell, estimator: Estimator, name: str) -> list[Check]:
    """A `kf_tbptt` whose tail is not 1: its mean has that weight, and it is biased.

    For "auto" the weight depends on the noise; its bias must be below that of TBPTT.
    """
    problem = Problem(cell, most_steps(cell, estimator))
    mean, _, n = _mean(problem, estimator)
    want = by_segment(problem, estimator)
    distance = relative(mean, want)
    if tail(estimator) == "auto":
        share = distance / relative(_alone(problem, estimator), want)
        title = f"tail auto: distance to BPTT, of TBPTT's, {n} patterns"
        return [Check(title, name, show(estimator), share, 1.0)]
    said = f"biased as stated, without {estimator.ignores(cell)}: distance to BPTT, {n} patterns"
    biased = AtLeast(said, name, show(estimator), distance, BIASED)
    return [*bias(cell, estimator, name), biased]


def _alone(problem: Problem, estimator: Estimator) -> np.ndarray:
    """The gradient of each segment by itself: TBPTT's."""
    return flat(problem.truncated(1, estimator.span or problem.steps), 1)


def _mean(problem: Problem, estimator: Estimator) -> tuple[np.ndarray, np.ndarray, int]:
    """The mean gradient of each segment, what it should be, and over how many patterns it is."""
    learner = problem.learner(estimator)
    state = problem.start(learner)
    noise, probs = _all(learner, problem.steps)
    grads = jax.vmap(lambda z: learner.gradients(state, **problem.data, noise=z)[1])(noise)
    return np.tensordot(probs, flat(grads, 2), axes=1), _meant(problem, estimator), len(probs)


def _meant(problem: Problem, estimator: Estimator) -> np.ndarray:
    """The mean that each segment's gradient should have: exact, truncated or weighted."""
    if isinstance(estimator, Rolling) and estimator.horizon < problem.steps:
        return flat(problem.truncated(estimator.horizon, estimator.every), 1)
    exact = by_segment(problem, estimator)
    if (weight := tail(estimator)) in (1, "auto"):
        return exact
    return float(weight) * exact + (1 - float(weight)) * _alone(problem, estimator)


def _says(estimator: Estimator, steps: int) -> str:
    """The same in words."""
    if isinstance(estimator, Rolling) and estimator.horizon < steps:
        return f" through {estimator.horizon} steps"
    return "" if tail(estimator) == 1 else f" with {tail(estimator)} of its past"


def tail(estimator: Estimator) -> float | Literal["auto"]:
    """The weight of what lies before a segment: 1, unless a `kf_tbptt` was told otherwise."""
    trace = estimator.trace if isinstance(estimator, Online) else None
    return trace.tail if isinstance(trace, KFTBPTT) else 1.0


def _all(learner: Learner, steps: int, lanes: int = 1) -> tuple[Any, np.ndarray]:
    """All noise patterns; for draws that no gradient depends on, only one."""
    segments = steps // (learner.estimator.span or steps)
    read = segments - _unread(learner.estimator)
    noise, probs = patterns(repeat(learner.draws(lanes, steps), read), AT_MOST)
    if read < segments:
        noise = jax.tree.map(lambda a: np.concatenate([a, a[:, -1:]], axis=1), noise)
    return noise, probs


def _unread(estimator: Estimator) -> int:
    """How many segments at the end draw noise that no gradient depends on: 1 with a window."""
    window = estimator.window if isinstance(estimator, Online) else None
    return int(isinstance(window, int) and window > 1)


def trace(
    cell: Cell, tr: Trace, name: str, estimator: str, *, symbols: bool = False, least: int = 2
) -> list[Check]:
    """The trace itself: it starts from zero, its mean is G, and its variance is the formula's.

    All patterns of the first steps, with a reset; and of some later steps, when the trace holds as
    many terms as it can. `least`: how many steps at least.
    """
    size, structure = cell.size, cell.structure(Problem(cell, 1).params.cell)
    draws = tr.draws(structure, 1)
    a_step = count(draws)
    steps = _most(lambda t: a_step**t, least, 5)
    blocks = 1 + -(-FULL // steps)
    problem = Problem(cell, steps * blocks, symbols)
    params = problem.params.cell
    one, probs = patterns(draws, AT_MOST)
    digits = np.array(list(product(range(len(probs)), repeat=steps)))
    weights = np.prod(probs[digits], axis=1)

    def run(start: Any, digits: Any, x: Any, resets: Any) -> Any:
        def step(carry: Any, now: Any) -> Any:
            memory, s = carry
            digit, x, flag = now
            memory, s = tr.reset(memory, flag), jnp.where(flag, jnp.zeros_like(s), s)
            lin, nowhere = cell.linearise(params, s, x), jnp.zeros_like(s)
            HG = jax.vmap(lin.jvp, in_axes=1, out_axes=1)(dense(tr, memory, size))
            added = tr.variance(memory, lin) if tr.closed_form else None
            noise = jax.tree.map(lambda a: jnp.asarray(a)[digit], one)
            memory = tr.segment(memory, one_step(lin, flag), noise, nowhere, "end")[1]
            return (memory, lin.state), (dense(tr, memory, size), HG, added)

        return jax.lax.scan(step, start, (digits, x, resets))

    enumerated = jax.jit(jax.vmap(run, in_axes=(None, 0, None, None)))
    start = (tr.init(structure), jnp.zeros(size))
    found = []
    for b in range(blocks):
        here = (problem.data[key][b * steps : (b + 1) * steps, 0] for key in ("x", "reset"))
        ends, (G, HG, formula) = enumerated(start, digits, *here)
        start = jax.tree.map(lambda a: a[len(digits) // 3], ends)  # go on from one of them
        if b in (0, blocks - 1):
            G, HG = (np.asarray(a).reshape(*a.shape[:2], -1) for a in (G, HG))
            found.append((G, HG, formula))

    want = flat(problem.jacobians(), 2).reshape(steps * blocks, -1)[:steps]
    exists = np.tile(flat(cell.project(jax.tree.map(jnp.ones_like, params)), 0), size)
    zero = float(jnp.linalg.norm(dense(tr, tr.init(structure), size)))
    mean = np.tensordot(weights, found[0][0], axes=1)
    checks = [
        Check("the trace starts from zero", name, estimator, zero, 0.0),
        Check(f"mean of the trace = G, {len(digits)} patterns", name, estimator,
              relative(mean * exists, want), ROUNDING),
    ]  # fmt: skip
    if formula is None:
        return checks
    noisy = [_compared(G, HG, np.asarray(f), probs, weights) for G, HG, f in found]
    single, over_time, noise = (float(np.max(v)) for v in zip(*noisy, strict=True))
    nil = f" (both below {LITTLE:g} ‖G‖²)" if noise <= LITTLE else ""
    return [
        *checks,
        Check(f"one step's variance = closed form{nil}", name, estimator, single, CLOSED_FORM),
        Check(f"Var_t = Var[H G'] + E[added]{nil}", name, estimator, over_time, CLOSED_FORM),
    ]


def _compared(
    G: np.ndarray, HG: np.ndarray, formula: np.ndarray, probs: np.ndarray, weights: np.ndarray
) -> tuple[float, float, float]:
    """The error of the formula, for one step and over time; and the share of noise.

    Relative to the largest variance, or to LITTLE of ‖G‖² where there is less noise than that: then
    both must vanish.
    """
    energy = float(np.max(weights @ (G**2).sum(-1)))
    steps = range(G.shape[1])
    one_step = np.max([_one_step(G, formula, probs, t) for t in steps])
    over_time = _over_time(G, HG, formula, weights)
    at_least = np.maximum(formula.max(), LITTLE * energy)  # NaN stays NaN
    in_time = np.maximum(_variance(G, weights, axis=0).max(), LITTLE * energy)
    return one_step / at_least, over_time / in_time, formula.max() / energy


def _one_step(G: np.ndarray, formula: np.ndarray, probs: np.ndarray, t: int) -> float:
    """Over the noise of step t alone, for every past."""
    P1, steps = len(probs), G.shape[1]
    tree = G[:, t].reshape(P1**t, P1, P1 ** (steps - t - 1), -1)[:, :, 0]
    added = formula[:, t].reshape(P1**t, -1)[:, 0]
    return float(np.max(np.abs(_variance(tree, probs, axis=1) - added)))


def _over_time(G: np.ndarray, HG: np.ndarray, formula: np.ndarray, weights: np.ndarray) -> float:
    """`Var_t = Var[H_t Ĝ_{t−1}] + E[variance that step t adds]`."""
    want = _variance(HG, weights, axis=0) + weights @ formula
    return float(np.max(np.abs(_variance(G, weights, axis=0) - want)))


def _variance(a: np.ndarray, probs: np.ndarray, axis: int) -> Any:
    """The sum of the variances of all entries (last axis), over `axis`."""
    mean = np.tensordot(probs, a, axes=(0, axis))
    centred = a - np.expand_dims(mean, axis)
    return np.tensordot(probs, (centred**2).sum(-1), axes=(0, axis))


def independent(
    cell: Cell, estimator: Estimator, name: str, draw: Callable[..., Any] = for_lanes
) -> list[Check]:
    """Noise from a key: what two lanes draw at the same place is uncorrelated.

    `draw`: how the noise of all lanes comes from a key, as the learner does it.
    """
    keys = jax.random.split(jax.random.key(1), 4096)
    k = estimator.span or 2
    params = Problem(cell, k).params

    def drawn(key: Any) -> Any:
        return draw(key, estimator.draws(Model(cell, READOUT), params, k), 2, jnp.float64)

    noise = flat(jax.jit(jax.vmap(drawn))(keys), 2)  # (keys, lanes, draws)
    centred = noise - noise.mean(0)
    first, second = centred[:, 0], centred[:, 1]
    scale = np.sqrt((first**2).mean(0) * (second**2).mean(0))
    correlation = float(np.max(np.abs((first * second).mean(0)) / np.where(scale > 0, scale, 1)))
    title = f"two lanes: correlation of their noise, {len(keys)} keys"
    return [Check(title, name, show(estimator), correlation, 6 / len(keys) ** 0.5)]


def halves(cell: Cell, estimator: Estimator, name: str) -> list[Check]:
    """Two lanes with the same data: the variance of their mean is half of one lane's."""
    steps = most_steps(cell, estimator, lanes=2, high=3)
    problem = Problem(cell, steps)
    learner = problem.learner(estimator)
    one = _last_variance(problem, learner, *_all(learner, steps), 1)
    two = _last_variance(problem, learner, *_all(learner, steps, 2), 2)

    data, state = _lanes(problem, 2), problem.start(learner, 2)

    def drawn(key: Any) -> Any:
        return learner.gradients(state._replace(key=key), **data)[1].cell

    keys = jax.random.split(jax.random.key(1), 4096)
    grads = flat(jax.vmap(drawn)(keys), 2)[:, -1]
    sampled = _variance(grads, np.full(len(keys), 1 / len(keys)), axis=0)
    return [
        Check("two lanes: half the variance, all patterns", name, show(estimator),
              float(abs(2 * two / one - 1)), CLOSED_FORM),
        Check(f"two lanes: half the variance, {len(keys)} keys", name, show(estimator),
              float(abs(2 * sampled / one - 1)), 0.15),
    ]  # fmt: skip


def copies(cell: Cell, one: Estimator, many: Estimator, k: int, name: str) -> list[Check]:
    """k copies: the variance is 1/k of one copy's, by enumeration."""
    steps = most_steps(cell, many, high=3 * (many.span or 1))
    problem, values = Problem(cell, steps), []
    for estimator in (one, many):
        learner = problem.learner(estimator)
        values.append(_last_variance(problem, learner, *_all(learner, steps), 1))
    error = float(abs(k * values[1] / values[0] - 1))
    title = f"{k} copies: 1/{k} of the variance"
    return [Check(title, name, show(many), error, CLOSED_FORM)]


def _last_variance(
    problem: Problem, learner: Any, noise: Any, probs: np.ndarray, lanes: int
) -> float:
    """The variance of the last step's gradient."""
    data, state = _lanes(problem, lanes), problem.start(learner, lanes)
    grads = jax.vmap(lambda z: learner.gradients(state, **data, noise=z)[1].cell)(noise)
    return float(_variance(flat(grads, 2)[:, -1], probs, axis=0))


def _lanes(problem: Problem, lanes: int) -> dict[str, Any]:
    """The same data in several lanes, without the reset."""
    data = {k: np.repeat(a, lanes, axis=1) for k, a in problem.data.items()}
    return {**data, "reset": np.zeros_like(data["reset"])}


def most_steps(cell: Cell, estimator: Estimator, *, lanes: int = 1, high: int = 5) -> int:
    """As many steps (whole segments, two at least) as can be enumerated."""
    k = estimator.span or 1
    a_segment = count(Problem(cell, k).learner(estimator).draws(lanes, k))
    segments = max(high // k, 2) if k == 1 else 3

    def size(steps: int) -> int:
        return a_segment ** (steps // k - _unread(estimator))

    return _most(size, 2 * k, segments * k, k)


def _most(size: Any, low: int, high: int, by: int = 1) -> int:
    fits = [t for t in range(low, high + 1, by) if size(t) <= ENOUGH]
    if not fits and size(low) <= AT_MOST:
        return low
    if not fits:
        raise UsageError(
            f"needed at most {AT_MOST} noise patterns over {low} steps, got {size(low):.3g}; "
            "give the verifier a smaller cell (two or three units) or fewer copies"
        )
    return fits[-1]


def whole_segments(steps: int, estimator: Estimator) -> int:
    """So many steps that there are at least two segments: what is carried over is tested."""
    k = estimator.span
    return steps if k is None else max(-(-steps // k), 2) * k


def by_segment(problem: Problem, estimator: Estimator) -> np.ndarray:
    """The exact gradient of each segment: the mean over its steps."""
    grads = flat(problem.gradients(), 1)
    k = estimator.span or problem.steps
    return grads.reshape(-1, k, grads.shape[-1]).mean(1)

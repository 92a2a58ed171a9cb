"""Biased methods: each equals its definition, and differs from the exact gradient.

The definitions are implemented again here, with dense Jacobians by automatic differentiation of the
cell's step; no code is shared with the traces.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kronline.cells.base import Cell, LinearCell
from kronline.cells.pieces import Piece, apply
from kronline.estimators.base import Estimator, Params
from kronline.estimators.dni import DNI
from kronline.estimators.online import Online
from kronline.estimators.reservoir import Reservoir
from kronline.estimators.rolling import Rolling
from kronline.show import show
from kronline.traces import RFLO, InLayer, Nothing, SnAp, Trace
from kronline.verifier.enumeration import BIASED, ROUNDING, by_segment, whole_segments
from kronline.verifier.problem import READOUT, Problem, flat, relative
from kronline.verifier.report import AtLeast, Check

Past = Callable[[Any, Any, Any], Any]  # (G, s, x) -> G after the step


def biased(
    cell: Cell,
    estimator: Estimator,
    name: str,
    *,
    symbols: bool = False,
    steps: int = 5,
    of: Estimator | None = None,
) -> list[Check]:
    """Equal to its definition, where that is known here; and not equal to the exact gradient.

    `of`: whose definition that is; by default the estimator's own.
    """
    problem = Problem(cell, whole_segments(steps, estimator), symbols)
    learner = problem.learner(estimator)
    state = problem.start(learner)
    rng = np.random.default_rng(1)
    own = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), state.params.estimator)
    state = state._replace(params=state.params._replace(estimator=own))
    got = learner.gradients(state, **problem.data)[1]
    checks = []
    if (want := defined(problem, of or estimator, state.params)) is not None:
        parts = [(g, w) for g, w in zip(got, want, strict=True) if jax.tree.leaves(g)]
        error = max(relative(flat(g, 1), flat(w, 1)) for g, w in parts)
        checks += [
            Check("gradient = definition, every step", name, show(estimator), error, ROUNDING)
        ]
    if isinstance(estimator, Rolling) and problem.steps <= estimator.horizon + estimator.every:
        return checks  # nothing is so old that it is left out
    bias = relative(flat(got[:2], 1), by_segment(problem, estimator))
    said = f"biased as stated, without {estimator.ignores(cell)}: distance to BPTT"
    return [*checks, AtLeast(said, name, show(estimator), bias, BIASED)]


def defined(problem: Problem, estimator: Estimator, params: Params) -> Params | None:
    """The gradient of every segment by the method's definition; None: it is not known here."""
    if isinstance(estimator, DNI):
        return _segments(problem, estimator, params, _nothing)
    if isinstance(estimator, Reservoir):
        exact = _segments(problem, estimator, params, _nothing)
        return exact._replace(cell=jax.tree.map(jnp.zeros_like, exact.cell))
    if isinstance(estimator, Rolling):
        return problem.truncated(estimator.horizon, estimator.every)
    past = _past(problem, estimator.trace) if isinstance(estimator, Online) else None
    if past is None:
        return None
    assert isinstance(estimator, Online)
    if estimator.window is None:
        return _merged(problem, params, past)
    return _segments(problem, estimator, params, past)


def _nothing(G: Any, s: Any, x: Any) -> Any:
    return jax.tree.map(np.zeros_like, G)


def _past(problem: Problem, trace: Trace) -> Past | None:
    """How G moves over one step."""
    cell, params = problem.cell, problem.params.cell
    jacobians = jax.jit(jax.jacrev(cell.step, argnums=(0, 1)))

    def moved(factor: Any, G: Any, F: Any) -> Any:
        return jax.tree.map(lambda g, f: np.tensordot(factor, g, axes=1) + f, G, F)

    def snap(G: Any, s: Any, x: Any) -> Any:
        F, H = jacobians(params, s, x)
        return jax.tree.map(np.multiply, mask, moved(H, G, F))

    def in_layer(G: Any, s: Any, x: Any) -> Any:
        F, H = jacobians(params, s, x)
        return jax.tree.map(np.multiply, _own_layer(problem), moved(H, G, F))

    def rflo(G: Any, s: Any, x: Any) -> Any:
        assert isinstance(cell, LinearCell)
        return moved(_direct(cell, params, s, x), G, jacobians(params, s, x)[0])

    match trace:
        case Nothing():
            return _nothing
        case SnAp(order):
            mask = _mask(problem, order)
            return snap
        case RFLO():
            return rflo
        case InLayer():
            return in_layer
    return None


def _direct(cell: LinearCell, params: Any, s: Any, x: Any) -> Array:
    """`∂s'/∂s` with all linear maps held fixed."""

    def linear(name: str, *pieces: Piece) -> Array:
        return jax.lax.stop_gradient(apply(params[name], pieces))

    return jax.jacrev(lambda s: cell.forward(linear, s, x))(jnp.asarray(s))


def _own_layer(problem: Problem) -> Any:
    """1 where an entry of G belongs to the layer that owns the weight, 0 elsewhere.

    A layer's weights are those whose names begin like the layer; a block's maps belong to none.
    """
    cell = problem.cell
    assert isinstance(cell, LinearCell)
    found = cell.diagonal()
    assert found is not None
    mask = jax.tree.map(lambda p: np.zeros((cell.size, *p.shape)), problem.params.cell)
    for layer in found.layers:
        for name in layer.cell.weights():
            mask[layer.prefix + name][layer.at : layer.at + layer.cell.size] = 1
    return mask


def _mask(problem: Problem, order: int, draws: int = 64) -> Any:
    """Where `ds_n/dθ` is not zero after n steps, for some of many parameters, states, inputs."""
    cell = problem.cell
    rng = np.random.default_rng(2)

    def end(params: Any, s: Any, xs: Any) -> Any:
        for x in xs:
            s = cell.step(params, s, x)
        return s

    params = jax.tree.map(lambda p: rng.normal(0, 0.7, (draws, *p.shape)), problem.params.cell)
    s = rng.normal(size=(draws, cell.size))
    symbols = rng.integers(0, cell.inputs, (draws, order))
    xs = symbols if problem.symbols else rng.normal(size=(draws, order, cell.inputs))
    params = jax.vmap(cell.project)(params)
    J = jax.jit(jax.vmap(jax.jacrev(end)))(params, s, xs)
    return jax.tree.map(lambda j: np.asarray(j != 0).any(0), J)


def _steps(problem: Problem, k: int) -> list[Any]:
    """Segments of (x, y, reset, weight)."""
    data = [problem.data[name][:, 0] for name in ("x", "y", "reset", "weight")]
    return [[a[t : t + k] for a in data] for t in range(0, problem.steps, k)]


def _empty(problem: Problem) -> Any:
    size = problem.cell.size
    return jax.tree.map(lambda p: np.zeros((size, *p.shape)), problem.params.cell)


def _read(delta: Any, G: Any) -> Any:
    return jax.tree.map(lambda g: np.tensordot(delta, g, axes=1), G)


def _stacked(problem: Problem, grads: list[Params]) -> Params:
    out = jax.tree.map(lambda *g: jnp.stack(g), *grads)
    return out._replace(cell=jax.vmap(problem.cell.project)(out.cell))


def _merged(problem: Problem, params: Params, past: Past) -> Params:
    """`δ·G`, G after the step."""
    cell = problem.cell

    @jax.jit
    def differentiated(readout: Any, s: Any, y: Any, weight: Any) -> Any:
        def loss(readout: Any, s: Any) -> Any:
            return weight * READOUT.loss(READOUT.predict(readout, cell.output(s)), y)

        return jax.grad(loss, argnums=(0, 1))(readout, s)

    step, out = jax.jit(cell.step), []
    s, G = np.zeros(cell.size), _empty(problem)
    for x, y, reset, weight in (map(np.squeeze, seg) for seg in _steps(problem, 1)):
        if reset:
            s, G = np.zeros(cell.size), _empty(problem)
        G, s = past(G, s, x), np.asarray(step(params.cell, s, x))
        g_readout, delta = differentiated(params.readout, s, y, weight)
        out.append(Params(_read(delta, G), g_readout))
    return _stacked(problem, out)


def _segments(problem: Problem, estimator: Estimator, params: Params, past: Past) -> Params:
    """Exact inside a segment, and `δ0·G0`; with a map of the state for the future, if there is."""
    cell, k = problem.cell, estimator.span or problem.steps
    learnt = isinstance(estimator, DNI)

    def guess(own: Any, s: Any) -> Any:
        return own["B"][:-1].T @ s + own["B"][-1]

    def loss(cell_params: Any, readout: Any, s: Any, seg: Any) -> Any:
        total, before = jnp.zeros(()), []
        for t in range(k):
            x, y, reset, weight = (a[t] for a in seg)
            s = jnp.where(reset, 0.0, s)
            before.append(s)
            s = cell.step(cell_params, s, x)
            total += weight * READOUT.loss(READOUT.predict(readout, cell.output(s)), y)
        if learnt:
            total += jnp.dot(guess(params.estimator, jax.lax.stop_gradient(s)), s)
        return total, (s, before)

    def error(own: Any, s: Any, target: Any) -> Any:
        return jnp.sum((guess(own, s) - target) ** 2) / 2

    run = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    s, G, out = np.zeros(cell.size), _empty(problem), []
    for seg in _steps(problem, k):
        (g_cell, g_readout, delta), (end, before) = run(params.cell, params.readout, s, seg)
        g_cell = jax.tree.map(jnp.add, g_cell, _read(delta, G))
        own = jax.grad(error)(params.estimator, s, delta) if learnt else ()
        out.append(jax.tree.map(lambda g: g / k, Params(g_cell, g_readout, own)))
        for x, reset, s_before in zip(seg[0], seg[2], before, strict=True):
            G = past(_empty(problem) if reset else G, np.asarray(s_before), x)
        s = end
    return _stacked(problem, out)

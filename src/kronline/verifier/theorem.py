"""Theorem 1, measured: noise does not grow over time, and is a factor n below UORO's.

Both need too many steps for enumeration; they draw from fixed keys, so that the result is always
the same.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kronline.cells import RHN, Normal, gate_bias
from kronline.cells.base import Cell
from kronline.linearised import Kronecker
from kronline.noise import repeat, sample
from kronline.traces import KF, UORO, Exact, Stepwise
from kronline.verifier.problem import dense
from kronline.verifier.report import Check


def variances(
    trace: Stepwise[Any],
    cell: Cell,
    steps: int,
    lanes: int,
    *,
    every: int = 1,
    norm: float | None = None,
    seed: int = 0,
) -> np.ndarray:
    """`Var[G'_t]`, once every `every` steps, over lanes that differ in their noise only.

    Args:
        norm: every H_t is scaled to this spectral norm, for the exact G too; None: H as it is.
    """
    k_params, k_x, k_noise = jax.random.split(jax.random.key(seed), 3)
    params = cell.init(k_params, jnp.float64)
    structure = cell.structure(params)
    symbols = jax.random.randint(k_x, (steps // every, every), 0, cell.inputs)
    draws = repeat(trace.step_draws(structure), steps // every, every, lanes)
    noise = sample(k_noise, draws, jnp.float64)

    def step(carry: Any, now: Any) -> Any:
        s, G, memories = carry
        x, signs = now
        lin = cell.linearise(params, s, x)
        if norm is not None:
            assert isinstance(lin, Kronecker)
            factor = norm / jnp.linalg.norm(lin.H.dense(), ord=2)
            lin = replace(lin, H=lin.H.scaled(factor))
        memories = jax.vmap(lambda m, c: trace.step(m, lin, c))(memories, signs)
        return (lin.state, Exact().step(G, lin, ()), memories), None

    def measured(carry: Any, now: Any) -> Any:
        _, G, memories = carry = jax.lax.scan(step, carry, now)[0]
        want = dense(Exact(), G, cell.size)
        error = jax.lax.map(lambda m: jnp.sum((dense(trace, m, cell.size) - want) ** 2), memories)
        return carry, error.mean()

    empty = trace.init(structure)
    memories = jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape)), empty)
    start = (jnp.zeros(cell.size), Exact().init(structure), memories)
    return np.asarray(
        jax.jit(lambda c, d: jax.lax.scan(measured, c, d)[1])(start, (symbols, noise))
    )


def stops_growing(norm: float = 0.9, steps: int = 160) -> float:
    """With ‖H‖ = norm: the variance of the second half over that of the quarter before it.

    Transfer gates that are nearly shut make H a nearly uniform contraction by `norm`, which is the
    hard case: for a norm above 1 the variance grows without bound.
    """
    cell = RHN(8, 4, init_weights=gate_bias(Normal(0.3), t=-3.0))
    variance = variances(KF(), cell, steps, 256, every=steps // 16, norm=norm)
    return float(variance[8:].mean() / variance[4:8].mean())


def exponent(sizes: tuple[int, ...] = (8, 16, 32, 64), steps: int = 15, lanes: int = 48) -> float:
    """The fitted exponent of Var(UORO)/Var(KF) in n, over untrained RHNs."""

    def last(trace: Stepwise[Any], n: int) -> float:
        return float(variances(trace, RHN(n, 4), steps, lanes, every=steps)[-1])

    ratios = [last(UORO(), n) / last(KF(), n) for n in sizes]
    return float(np.polyfit(np.log(sizes), np.log(ratios), 1)[0])


def theorem() -> list[Check]:
    """Both statements."""
    return [
        Check("‖H‖ <= 0.9: variance, late / early", "RHN", "kf_rtrl()", stops_growing(), 1.15),
        Check("|exponent of Var(UORO)/Var(KF) in n − 1|, n = 8..64", "RHN", "kf_rtrl(), uoro()",
              abs(exponent() - 1), 0.15),
    ]  # fmt: skip

"""Theorem 1's content, measured: noise does not pile up over time, and is a factor n below UORO's.

These two run too long for enumeration; they draw from fixed keys, so that they always give the same
figures.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kronline.cells import RHN, Normal
from kronline.cells.base import Cell
from kronline.jacobians import Kronecker
from kronline.noise import repeat, sample
from kronline.traces import KF, UORO, Exact, Trace
from kronline.verifier.problem import dense
from kronline.verifier.report import Check


def variance_over_time(
    trace: Trace, cell: Cell, steps: int, lanes: int, norm: float | None = None, seed: int = 0
) -> np.ndarray:
    """`Var[G'_t]` for every t, over lanes that differ in their noise only.

    Args:
        norm: every H_t is scaled to this spectral norm, for the exact G too; None: H as it is.
    """
    k_params, k_x, k_noise = jax.random.split(jax.random.key(seed), 3)
    params = cell.init(k_params, jnp.float64)
    symbols = jax.random.randint(k_x, (steps,), 0, cell.inputs)
    draws = repeat(trace.draws(cell.size, params), steps, lanes)
    noise = sample(k_noise, draws, jnp.float64)

    def one(carry: Any, now: Any) -> Any:
        s, G, memories = carry
        x, signs = now
        lin = cell.linearise(params, s, x)
        if norm is not None:
            assert isinstance(lin, Kronecker)
            factor = norm / jnp.linalg.norm(lin.H.dense(), ord=2)
            lin = replace(lin, H=lin.H.scaled(factor))
        G = Exact().step(G, lin, ())
        memories = jax.vmap(lambda m, c: trace.step(m, lin, c))(memories, signs)
        want = dense(Exact(), G, cell.size)
        error = jax.lax.map(lambda m: jnp.sum((dense(trace, m, cell.size) - want) ** 2), memories)
        return (lin.state, G, memories), error.mean()

    empty = trace.init(cell.size, params)
    memories = jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape)), empty)
    start = (jnp.zeros(cell.size), Exact().init(cell.size, params), memories)
    return np.asarray(jax.jit(lambda c, d: jax.lax.scan(one, c, d)[1])(start, (symbols, noise)))


def stops_growing(norm: float = 0.9, steps: int = 120) -> float:
    """With ‖H‖ = norm: the variance of the second half over that of the quarter before it."""
    variance = variance_over_time(KF(), RHN(8, 4, init_weights=Normal(0.5)), steps, 512, norm)
    return float(variance[steps // 2 :].mean() / variance[steps // 4 : steps // 2].mean())


def exponent(sizes: tuple[int, ...] = (8, 16, 32, 64), steps: int = 15, lanes: int = 64) -> float:
    """The fitted exponent of Var(UORO)/Var(KF) in n, over untrained RHNs."""
    ratios = []
    for n in sizes:
        cell = RHN(n, 4)
        uoro, kf = (variance_over_time(tr, cell, steps, lanes)[-1] for tr in (UORO(), KF()))
        ratios.append(uoro / kf)
    return float(np.polyfit(np.log(sizes), np.log(ratios), 1)[0])


def theorem() -> list[Check]:
    """Both statements."""
    return [
        Check("‖H‖ <= 0.9: variance, late / early", "RHN", "kf_rtrl()", stops_growing(), 1.15),
        Check("|exponent of Var(UORO)/Var(KF) in n − 1|, n = 8..64", "RHN", "kf_rtrl(), uoro()",
              abs(exponent() - 1), 0.15),
    ]  # fmt: skip

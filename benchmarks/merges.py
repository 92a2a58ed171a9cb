"""How k + r Kronecker products are best merged into r: what each way adds to the variance.

    python benchmarks/merges.py

On an RHN, untrained and trained, the terms that a segment of KF-TBPTT really leaves; the variance
that one merge adds, over ‖G‖², mean over lanes:

- signs: each product balanced, all of them added with random signs (for r > 1 the r − 1 largest
  products are kept as they are);
- singular, signs: the same in the basis in which both factors are orthogonal;
- optimal: what `traces/mixing.py` does, its inner products taken over all rows, or over some.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from kronline.cells import RHN
from kronline.estimators.methods import kf_tbptt
from kronline.lab.tasks import corpus
from kronline.learner import Learner
from kronline.readout import softmax
from kronline.traces import mixing, segment_merge
from kronline.traces.base import Steps

ROWS = (4, 8, 16, 0)  # 0: all of them
LANES = 16


def signs_only(Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], r: int) -> Float[Array, ""]:
    """Keep the r − 1 largest products, add the others with random signs."""
    size = jnp.diagonal(Gu) * jnp.diagonal(Gb)
    rest = jnp.argsort(-size)[r - 1 :]
    Gu, Gb = Gu[rest][:, rest], Gb[rest][:, rest]
    a = jnp.sqrt(jnp.sqrt(jnp.diagonal(Gb) / jnp.diagonal(Gu)))  # u a ⊗ b/a
    Gu, Gb = Gu * jnp.outer(a, a), Gb / jnp.outer(a, a)
    both = Gu * Gb
    return jnp.trace(Gu) * jnp.trace(Gb) + jnp.sum(both) - 2 * jnp.trace(both)


def singular_signs(Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], r: int) -> Float[Array, ""]:
    """`(Σ d)² − Σ d²` over all but the r − 1 largest."""
    d = mixing.basis(Gu, Gb).d[r - 1 :]
    return jnp.sum(d) ** 2 - jnp.sum(d**2)


def optimal(
    Gu: Float[Array, "K K"], Gb: Float[Array, "K K"], seen: Float[Array, "K K"], r: int
) -> Float[Array, ""]:
    """The mix is chosen by `seen`, and judged by Gb.

    With C = L Lᵀ of the mixing rows L, the variance over all signs is
    `Σ_jl C_jl² (‖u_j‖²‖b_l‖² + ⟨u_j, u_l⟩⟨b_j, b_l⟩) − 2 Σ_j ‖u_j‖²‖b_j‖²`, in the basis chosen.
    """
    a = jnp.sqrt(jnp.sqrt(jnp.diagonal(seen) / jnp.diagonal(Gu)))  # u a ⊗ b/a
    Gu, Gb, seen = Gu * jnp.outer(a, a), Gb / jnp.outer(a, a), seen / jnp.outer(a, a)
    basis = mixing.basis(Gu, seen)
    L = mixing.rows(mixing.shares(basis.d, r)[0], r)
    C2 = (L @ L.T) ** 2
    Gu, Gb = basis.X.T @ Gu @ basis.X, basis.Y.T @ Gb @ basis.Y
    nu, nb = jnp.diagonal(Gu), jnp.diagonal(Gb)
    return nu @ C2 @ nb + jnp.sum(C2 * Gu * Gb) - 2 * nu @ nb


def ways(B: Float[Array, "K N c"], U: Float[Array, "K m"], r: int) -> dict[str, Array]:
    """The variance that each way adds, over ‖G‖²."""
    K, N = B.shape[:2]
    Gu = U @ U.T

    def inner(rows: int) -> Array:
        some = B[:, (2 * jnp.arange(rows) + 1) * N // (2 * rows)].reshape(K, -1)
        return some @ some.T * (N / rows)

    Gb = inner(N)
    out = {"signs": signs_only(Gu, Gb, r), "singular, signs": singular_signs(Gu, Gb, r)}
    for rows in ROWS:
        out[f"optimal, {rows or 'all'} rows"] = optimal(Gu, Gb, inner(rows or N), r)
    return {name: v / jnp.sum(Gu * Gb) for name, v in out.items()}


def measure(n: int, k: int, pairs: int, updates: int) -> dict[str, float]:
    """On terms that a network leaves after so many updates, with a trace that has settled."""
    text = corpus.read()
    symbols, length = len(text.symbols), len(text.train) // LANES
    x = np.asarray(text.train)[: LANES * length].reshape(LANES, length).T
    learner = Learner(RHN(n, symbols), softmax(symbols), kf_tbptt(k, pairs), optax.adam(3e-3))
    state = learner.init(jax.random.key(0), LANES)
    if updates:
        steps = updates * k
        data = np.resize(x, (steps + 1, LANES))
        state, _ = learner.run(state, data[:-1], data[1:])
    frozen = Learner(learner.cell, learner.readout, learner.estimator, optax.sgd(0.0))
    start = frozen.init(jax.random.key(1), LANES)._replace(params=state.params)
    start, _ = frozen.run(start, x[: 40 * k], x[1 : 40 * k + 1])
    return _of_lanes(frozen, start, x[40 * k : 41 * k], k, pairs)


def _of_lanes(learner: Any, state: Any, x: Any, k: int, pairs: int) -> dict[str, float]:
    cell, params = learner.cell, state.params.cell

    def lane(s: Array, held: segment_merge.Pairs, x: Array) -> tuple[Array, Array]:
        def step(s: Array, x: Array) -> tuple[Array, Array]:
            return cell.step(params, s, x), s

        _, before = jax.lax.scan(step, s, x)
        lins = segment_merge.linearised(
            Steps(k, lambda t: cell.linearise(params, before[t], x[t]), jnp.zeros(k, bool))
        )
        B = segment_merge.terms(held.A, lins.groups["W"].M, lins.H, jnp.zeros(k, bool))
        U = jnp.concatenate([lins.groups["W"].feats, held.U])
        return B.reshape(*B.shape[:2], -1), U

    held = state.memory.pairs["W"]
    terms = jax.jit(jax.vmap(lane))(state.s, held, jnp.asarray(x).T)
    with jax.enable_x64(True):  # small differences of large numbers
        B, U = (jnp.asarray(a, jnp.float64) for a in terms)
        out = jax.jit(jax.vmap(partial(ways, r=pairs)))(B, U)
        return {name: float(jnp.mean(v)) for name, v in out.items()}


def main() -> None:
    """Print the table."""
    table = {}
    for trained, updates in (("untrained", 0), ("trained", 400)):
        for k, pairs in ((8, 1), (8, 4), (10, 8), (25, 1), (25, 8)):
            table[f"{trained}, k = {k}, {pairs}"] = measure(64, k, pairs, updates)
    names = ["signs", "singular, signs", *(f"optimal, {r or 'all'} rows" for r in ROWS)]
    print("| network, k, pairs | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for row, values in table.items():
        print(f"| {row} | " + " | ".join(f"{values[name]:.2g}" for name in names) + " |")


if __name__ == "__main__":
    main()

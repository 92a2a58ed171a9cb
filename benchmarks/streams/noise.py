"""A stream of pure noise, without a reset, for ten million steps: is all that is kept finite?

    python benchmarks/streams/noise.py [--steps 10000000] [--hidden 64] [--estimator "kf_rtrl()"]

One lane of an RHN with Adam at 0.001. Targets are noise too, so that there is nothing to learn and
nothing that holds the recurrent weights back. Prints a line per million steps, and the end as JSON.
"""

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kronline as kl
from kronline.spec import parse

CHUNK = 20_000  # steps per call


def largest(tree: Any) -> float:
    """Of all numbers; infinite or NaN if one is."""
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]
    return max(float(jnp.abs(a).max()) for a in leaves)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--estimator", default="kf_rtrl()")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    estimator = parse(args.estimator, "estimator")
    learner = kl.Learner(kl.RHN(args.hidden, 1), kl.linear(1), estimator, optax.adam(1e-3))
    state = learner.init(jax.random.key(args.seed), lanes=1)
    rng, start, worst = np.random.default_rng(args.seed), time.perf_counter(), 0.0
    for done in range(CHUNK, args.steps + 1, CHUNK):
        noise = rng.normal(size=(2, CHUNK, 1, 1)).astype(np.float32)
        state, out = learner.run(state, *noise)
        worst = max(worst, float(out.loss.max()))
        assert np.isfinite(worst), f"a loss is not finite before step {done:,}"
        if done % 1_000_000 == 0:
            spent = time.perf_counter() - start
            left = spent / done * (args.steps - done)
            size = largest(state.memory)
            print(f"{done:,} steps, trace up to {size:.3g}, {left:.0f} s left", flush=True)
    found = {
        "steps": args.steps,
        "largest parameter": largest(state.params),
        "largest of the trace": largest(state.memory),
        "largest loss": worst,
        "updates skipped": int(state.skipped),
        "seconds": round(time.perf_counter() - start),
    }
    assert all(np.isfinite(v) for v in found.values()), found
    print(json.dumps(found))


if __name__ == "__main__":
    main()

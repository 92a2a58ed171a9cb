"""Memory does not grow with time: a real process, many steps.

`KRONLINE_STEPS=1000000 make test` (or pytest on this file) for the full million.
"""

import os
import subprocess
import sys

import pytest

from compiling import as_users_have_it

PROGRAM = """
import resource, sys
import jax, jax.numpy as jnp, optax
import kronline as kl

estimator = {"kf_rtrl": kl.kf_rtrl, "uoro": kl.uoro}[sys.argv[1]]()
learner = kl.Learner(kl.RHN(32, 4), kl.softmax(4), estimator, optax.adam(1e-4))
state = learner.init(jax.random.key(0))
CHUNK = 10_000

@jax.jit
def chunk(state, key):
    k_walk, k_reset = jax.random.split(key)
    walk = jax.random.randint(k_walk, (CHUNK + 1, 1), 0, 2).cumsum(0) % 4  # stay, or go on by one
    reset = jax.random.bernoulli(k_reset, 0.01, (CHUNK, 1))  # as in the paper
    state, out = learner.run(state, walk[:-1], walk[1:], reset=reset)
    return state, out.loss.mean()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

for i in range(int(sys.argv[2]) // CHUNK):
    state, loss = chunk(state, jax.random.fold_in(jax.random.key(1), i))
    loss.block_until_ready()
    if i == 0:
        early = peak()
print(early, peak(), float(loss))
"""


STEPS = os.environ.get("KRONLINE_STEPS", "200000")


@pytest.mark.parametrize("method", ["kf_rtrl", "uoro"])
def test_many_steps_take_the_memory_of_ten_thousand(method):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, method, STEPS],
        capture_output=True,
        text=True,
        check=True,
        env={**as_users_have_it(), "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"},
    )
    early, late, loss = (float(v) for v in done.stdout.split())
    print(f"{method}: peak {early:.0f} kB after 10000 steps, {late:.0f} kB after {STEPS}")
    assert late <= 1.01 * early
    assert 0.69 < loss < 1.39  # between log 2, which such a walk allows, and log 4

"""Small problems for tests that compare gradients: data, parameters from numpy, and closeness."""

import jax
import jax.numpy as jnp
import numpy as np

INPUTS, SYMBOLS, LANES = 3, 4, 2


def data(steps, seed=0, lanes=LANES, vectors=False):
    """Symbols (or vectors), targets, resets and weights at random."""
    rng = np.random.default_rng(seed)
    lead = (steps, lanes)
    return {
        "x": rng.normal(size=(*lead, INPUTS)) if vectors else rng.integers(0, INPUTS, lead),
        "y": rng.integers(0, SYMBOLS, lead),
        "reset": rng.random(lead) < 0.15,
        "weight": rng.uniform(0.2, 2, lead),
    }


def start(a, lanes=LANES, **kwargs):
    """A state with parameters from numpy, the estimator's own included: nothing to compile."""
    rng = np.random.default_rng(7)
    shapes = a.engine.shapes()
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(0, 0.5, p.shape)), shapes)
    params = params._replace(cell=a.cell.project(params.cell))
    return a.start(params, jax.random.key(0), lanes, **kwargs)


def close(a, b, rtol=1e-10):
    """Two trees, to rounding in float64."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-13), a, b)

"""A cell of one's own, in a dozen lines: a minimal gated unit (Zhou et al., 2016).

kronline verify --cell "examples/own_cell.py:MinimalGated(2, 2)" --estimator kf_rtrl
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import kronline as kl


@dataclass(frozen=True)
class MinimalGated(kl.UnitCell):
    gates = ("f", "g")  # two linear maps of ĥ = [h, x, 1]

    def unit(self, z, s):  # one unit's scalars: z of the gates, s of the slots
        f = jax.nn.sigmoid(z[0])
        return (1 - f) * s[0] + f * jnp.tanh(z[1])

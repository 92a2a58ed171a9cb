"""A trace of one's own, in some thirty lines: KF-RTRL-AVG, the mean of independent pairs.

kronline verify --estimator examples/own_trace.py:estimator
"""

from dataclasses import dataclass

import jax

import kronline as kl
from kronline.linearised.gradients import Outer
from kronline.noise import repeat


@dataclass(frozen=True)
class Averaged(kl.Stepwise):
    one: kl.Stepwise
    copies: int = 2

    def check(self, structure):
        self.one.check(structure)

    def init(self, structure):
        empty = self.one.init(structure)
        return jax.tree.map(lambda a: jax.numpy.stack([a] * self.copies), empty)

    def step_draws(self, structure):  # what one step draws: for every copy its own
        return repeat(self.one.step_draws(structure), self.copies)

    def step(self, memory, lin, noise):  # G ← H G + F, in expectation
        return jax.vmap(lambda m, c: self.one.step(m, lin, c))(memory, noise)

    def pull(self, memory, delta):  # δ·G, outer products side by side
        grads = jax.vmap(lambda m: self.one.pull(m, delta))(memory)
        return {k: Outer(g.left[:, 0] / self.copies, g.right[:, 0]) for k, g in grads.items()}


def estimator():
    return kl.Online(Averaged(kl.KF()), window=1)

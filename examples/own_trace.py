"""A trace of one's own, in some thirty lines: KF-RTRL-AVG, the mean of independent pairs.

kronline verify --estimator examples/own_trace.py:estimator
"""

from dataclasses import dataclass

import jax

import kronline as kl
from kronline.linearised.grads import Outer
from kronline.noise import repeat


@dataclass(frozen=True)
class Averaged(kl.Trace):
    one: kl.Trace
    copies: int = 2

    def check(self, cell):
        self.one.check(cell)

    def init(self, size, params):
        empty = self.one.init(size, params)
        return jax.tree.map(lambda a: jax.numpy.stack([a] * self.copies), empty)

    def draws(self, size, params):  # what one step draws: for every copy its own
        return repeat(self.one.draws(size, params), self.copies)

    def step(self, memory, lin, noise):  # G ← H G + F, in expectation
        return jax.vmap(lambda m, c: self.one.step(m, lin, c))(memory, noise)

    def pull(self, memory, delta):  # δ·G, outer products side by side
        grads = jax.vmap(lambda m: self.one.pull(m, delta))(memory)
        return {k: Outer(g.left[:, 0] / self.copies, g.right[:, 0]) for k, g in grads.items()}


def estimator():
    return kl.Online(Averaged(kl.KF()), window=1)

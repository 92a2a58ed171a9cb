"""Estimators with the mistakes that are made in practice; the verifier must refuse them.

Each wraps a trace of the library and does one thing wrong.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

import kronline as kl
from kronline.linearised import DenseH, Kronecker
from kronline.noise import repeat, sample
from kronline.traces import kf


@dataclass(frozen=True)
class Wrapped(kl.Stepwise):
    """A trace that goes step by step, as it is."""

    inner: kl.Stepwise = field(default_factory=kl.KF)

    def check(self, structure):
        self.inner.check(structure)

    def init(self, structure):
        return self.inner.init(structure)

    def step_draws(self, structure):
        return self.inner.step_draws(structure)

    def step(self, memory, lin, noise):
        return self.inner.step(memory, lin, noise)

    def pull(self, memory, delta):
        return self.inner.pull(memory, delta)

    def reset(self, memory, flag):
        return self.inner.reset(memory, flag)

    @property
    def closed_form(self):
        return self.inner.closed_form

    def variance(self, memory, lin):
        return self.inner.variance(memory, lin)


@dataclass(frozen=True)
class SignDependentP(Wrapped):
    """ρ = p1/p2 depends on the current sign."""

    def step(self, memory, lin, noise):
        out = {}
        for name, pair in super().step(memory, lin, noise).items():
            g, c = lin.groups[name], noise[name]
            # u ← u + c ĥ/ρ, A ← H A + c ρ D with ρ(1 + c/10) for ρ: a fair merge with ρ, corrected
            rho = self.rho(memory[name], lin, g)
            wrong = rho * (1 + 0.1 * c)
            u = pair.u + c * (1 / wrong - 1 / rho) * g.feats
            out[name] = pair._replace(u=u, A=g.M.added(pair.A, c * (wrong - rho)))
        return out

    def rho(self, pair, lin, g):
        """As in the fair merge, gauge included."""
        norm = jnp.linalg.norm
        sigma = jnp.exp2(jnp.round(jnp.log2(kf.safe_sqrt_ratio(norm(pair.u), pair.norm))))
        HA, u = lin.H.scaled(sigma).mm(pair.A), pair.u / sigma
        fair = kf.safe_sqrt_ratio(norm(HA) * norm(g.feats), norm(u) * jnp.sqrt(g.M.norm2()))
        return jnp.where(norm(u) * norm(HA) > 0, fair, 1.0)


@dataclass(frozen=True)
class StaleH(Wrapped):
    """H of the step before, as happens when it is computed from the new state."""

    def init(self, structure):
        return super().init(structure), jnp.eye(structure.size)

    def step(self, memory, lin, noise):
        pairs, old = memory
        H, _ = lin.dense()
        return super().step(pairs, Kronecker(lin.state, lin.groups, DenseH(old)), noise), H

    def pull(self, memory, delta):
        return super().pull(memory[0], delta)

    def reset(self, memory, flag):
        return super().reset(memory[0], flag), memory[1]

    @property
    def closed_form(self):
        return False


@dataclass(frozen=True)
class NoisyStart(Wrapped):
    """Factors that start from noise."""

    def init(self, structure):
        key = jax.random.key(0)
        return {
            name: kf.Pair(
                0.1 * jax.random.normal(key, p.u.shape, p.u.dtype),
                0.1 * jax.random.normal(key, p.A.shape, p.A.dtype),
                jnp.ones_like(p.norm),
            )
            for name, p in super().init(structure).items()
        }


@dataclass(frozen=True)
class HalfRead(Wrapped):
    """A gradient that is read with half of δ."""

    def pull(self, memory, delta):
        return super().pull(memory, 0.5 * delta)


def shared_signs(key, draws, lanes, dtype):
    """One draw for all lanes, in place of `noise.for_lanes`."""
    one = sample(key, repeat(draws, 1), dtype)
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (lanes, *a.shape[1:])), one)


@dataclass(frozen=True)
class SharedCopies(Wrapped):
    """Copies that share their signs: their mean is as noisy as one."""

    def step(self, memory, lin, noise):
        return super().step(memory, lin, jnp.broadcast_to(noise[:1], noise.shape))


@dataclass(frozen=True)
class WrongFormula(Wrapped):
    """A closed form that is off by a factor, or NaN."""

    factor: float = 1.1

    def variance(self, memory, lin):
        return self.factor * super().variance(memory, lin)


@dataclass(frozen=True)
class LateResetsIgnored(kl.Trace):
    """A reset inside a segment counts only as long as the trace is empty."""

    inner: kl.KFTBPTT = field(default_factory=kl.KFTBPTT)

    def spec(self, window):
        return f"LateResetsIgnored, window {window}"

    def init(self, structure):
        return self.inner.init(structure)

    def draws(self, structure, k):
        return self.inner.draws(structure, k)

    def segment(self, memory, steps, noise, delta, read):
        empty = jnp.all(memory.pairs["W"].A == 0)
        steps = steps._replace(resets=steps.resets & empty)
        return self.inner.segment(memory, steps, noise, delta, read)

    def pull(self, memory, delta):
        return self.inner.pull(memory, delta)

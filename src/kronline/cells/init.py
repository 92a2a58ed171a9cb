"""Initialisations of a cell's weights: an argument of every cell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from kronline.linearised import decompositions
from kronline.show import called, parts


@dataclass(frozen=True)
class Weight:
    """The shape of one weight matrix, (m, r, n), by the meaning of its rows and columns.

    Args:
        recurrent: rows that multiply the state.
        inputs: rows that multiply the input.
        bias: whether there is a last row, which multiplies the constant 1.
        gates: r linear maps, by name.
        units: n.
        mask: (m, r, n or 1), 0 where a weight does not exist; None: all exist.

    Example:
        >>> import kronline as kl
        >>> kl.Weight(3, 2, True, ("f", "g"), 3).shape
        (6, 2, 3)
    """

    recurrent: int
    inputs: int
    bias: bool
    gates: tuple[str, ...]
    units: int
    mask: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """`m`."""
        return self.recurrent + self.inputs + int(self.bias)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(m, r, n)`."""
        return self.rows, len(self.gates), self.units


def needs_initialiser(owner: str, given: Any) -> None:
    """Raise TypeError for what cannot draw weights."""
    if not callable(given):
        raise TypeError(f"{owner} needs an initialiser such as Normal(0.1), got {given!r}")


class Init(Protocol):
    """Draws the values of one weight matrix."""

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""


@dataclass(frozen=True)
class Normal:
    """All weights, biases included, from N(0, std²). The paper's group used std = 0.01.

    Args:
        std: the standard deviation.

    Example:
        >>> import kronline as kl
        >>> kl.RHN(64, 4, init_weights=kl.Normal(0.1)).init_weights
        Normal(std=0.1)
    """

    std: float = 0.01

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        return self.std * jax.random.normal(key, w.shape, dtype)


@dataclass(frozen=True)
class Uniform:
    """Weights uniform in ±scale, biases zero.

    Args:
        scale: the largest weight; None: 1/√n for n units.

    Example:
        >>> import kronline as kl
        >>> kl.GRU(64, 4, init_weights=kl.Uniform()).init_weights
        Uniform(scale=None)
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale >= 0:
            raise ValueError(f"Uniform needs scale >= 0 or None, got {self.scale}")

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        scale = w.units**-0.5 if self.scale is None else self.scale
        W = jax.random.uniform(key, w.shape, dtype, -scale, scale)
        return W.at[-1].set(0) if w.bias else W


@dataclass(frozen=True)
class FanIn:
    """Weights from N(0, scale²/m) for m rows without the bias, biases zero: z starts of size scale.

    Args:
        scale: of z, for features of size 1.

    Example:
        >>> import kronline as kl
        >>> kl.MinGRU(64, 4).init_weights
        FanIn(scale=1.0)
    """

    scale: float = 1.0

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        std = self.scale / max(w.rows - int(w.bias), 1) ** 0.5
        W = std * jax.random.normal(key, w.shape, dtype)
        return W.at[-1].set(0) if w.bias else W


@dataclass(frozen=True)
class Ring:
    """Eigenvalues `ρ e^{iφ}` on a ring of the complex plane, for the own numbers of an LRU or RTU.

    ρ² is uniform between the squares of the two moduli, so that eigenvalues are uniform on the
    ring; φ is uniform from 0 to `phase`. Written down as logarithms: ρ = exp(−e^ν), φ = e^θ, and
    for an LRU e^γ = √(1−ρ²), which makes a state of size 1 of inputs of size 1.

    Args:
        smallest: the smallest modulus ρ.
        largest: the largest, below 1. A unit of modulus ρ remembers some 1/(1−ρ) steps.
        phase: the largest φ; 2π: oscillations of every period.

    Example:
        >>> import kronline as kl
        >>> kl.LRU(64, 4, init_own=kl.Ring(0.5, 0.99)).init_own
        Ring(smallest=0.5, largest=0.99)

    Reference: Orvieto et al., Resurrecting Recurrent Neural Networks for Long Sequences, ICML 2023.
    """

    smallest: float = 0.9
    largest: float = 0.999
    phase: float = 2 * math.pi

    def __post_init__(self) -> None:
        if not (0 <= self.smallest < self.largest < 1 and self.phase > 0):
            raise ValueError(
                "Ring needs 0 <= smallest < largest < 1 and phase > 0, got "
                f"{self.smallest}, {self.largest} and {self.phase}"
            )

    def __repr__(self) -> str:
        return parts(self)

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "1 r n"]:
        """One row: ν, θ, and γ where there is one."""
        k_modulus, k_phase = jax.random.split(key)
        lo, hi = self.smallest**2, self.largest**2
        modulus2 = jax.random.uniform(k_modulus, (w.units,), dtype, lo, hi)
        # not 0, whose logarithm is not finite
        phase = jax.random.uniform(k_phase, (w.units,), dtype, 1e-3 * self.phase, self.phase)
        values = {
            "nu": jnp.log(-jnp.log(jnp.maximum(modulus2, 1e-12)) / 2),
            "theta": jnp.log(phase),
            "gamma": jnp.log(1 - modulus2) / 2,
        }
        if w.rows != 1 or not set(w.gates) <= set(values):
            raise ValueError(
                f"Ring needs numbers of each unit's own called {', '.join(values)}, got "
                f"{', '.join(w.gates)}; use another initialisation"
            )
        return jnp.stack([values[gate] for gate in w.gates])[None]


@dataclass(frozen=True)
class Orthogonal:
    """Recurrent rows orthogonal for each gate, inputs N(0, 1/d) for d inputs, bias zero.

    Args:
        scale: of the recurrent rows.

    Example:
        >>> import kronline as kl
        >>> kl.Tanh(64, 4, init_weights=kl.Orthogonal(0.9)).init_weights
        Orthogonal(scale=0.9)

    Reference: Saxe, McClelland & Ganguli, Exact solutions to the nonlinear dynamics of learning in
    deep linear neural networks, 2013.
    """

    scale: float = 1.0

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        k_rec, k_in = jax.random.split(key)
        parts = []
        if w.recurrent:
            orthogonal = jax.nn.initializers.orthogonal(self.scale)
            keys = jax.random.split(k_rec, len(w.gates))
            blocks = [orthogonal(k, (w.recurrent, w.units), dtype) for k in keys]
            parts.append(jnp.stack(blocks, axis=1))
        shape = (w.inputs, len(w.gates), w.units)
        parts.append(jax.random.normal(k_in, shape, dtype) / max(w.inputs, 1) ** 0.5)
        parts.append(jnp.zeros((int(w.bias), len(w.gates), w.units), dtype))
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class Spectral:
    """Recurrent weights from a normal distribution, scaled to a spectral radius; for reservoirs.

    Each gate's square block for each slot that it reads gets the radius (the largest |eigenvalue|);
    weights that do not exist count as zero. Inputs are N(0, inputs²), biases zero.

    Args:
        radius: the spectral radius of each block.
        inputs: the standard deviation of the weights of inputs.

    Example:
        >>> import kronline as kl
        >>> kl.Tanh(64, 4, init_weights=kl.Spectral(0.9)).init_weights
        Spectral(radius=0.9, inputs=1.0)

    Reference: Jaeger, The "echo state" approach to analysing and training recurrent neural
    networks, 2001.
    """

    radius: float = 0.9
    inputs: float = 1.0

    def __post_init__(self) -> None:
        if not self.radius >= 0 or not self.inputs >= 0:
            raise ValueError(
                f"Spectral needs radius >= 0 and inputs >= 0, got {self.radius} and {self.inputs}"
            )

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        if w.recurrent % w.units:
            raise ValueError(
                "a spectral radius needs square blocks of recurrent weights, got "
                f"{w.recurrent} rows for {w.units} units; use another initialisation"
            )
        W = jax.random.normal(key, w.shape, dtype)
        if w.mask is not None:
            W = W * jnp.asarray(w.mask, dtype)
        recurrent, inputs, bias = jnp.split(W, [w.recurrent, w.recurrent + w.inputs])
        if w.recurrent:
            blocks = recurrent.reshape(-1, w.units, len(w.gates), w.units)
            of_each = jax.vmap(jax.vmap(decompositions.spectral_radius))
            radius = of_each(blocks.swapaxes(1, 2))  # (slots, gates)
            scale = self.radius / jnp.where(radius > 0, radius, 1)
            recurrent = (blocks * scale[:, None, :, None]).reshape(recurrent.shape)
        return jnp.concatenate([recurrent, self.inputs * inputs, jnp.zeros_like(bias)])


@dataclass(frozen=True)
class GateBias:
    """Another initialisation, with constants added to the biases of named gates (`gate_bias`)."""

    base: Init
    offsets: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        needs_initialiser("gate_bias", self.base)

    @property
    def name(self) -> str:
        """As it is written: `gate_bias(Orthogonal(), f=1.0)`."""
        offsets = {gate: float(offset) for gate, offset in self.offsets}
        if self != gate_bias(self.base, **offsets):  # not in order
            return parts(self)
        base = () if self.base == Normal() else (self.base,)
        return called("gate_bias", *base, **offsets)

    def __call__(self, key: Key[Array, ""], w: Weight, dtype: Any) -> Float[Array, "m r n"]:
        """Values of shape `w.shape`."""
        W = self.base(key, w, dtype)
        for gate, offset in self.offsets:
            if w.bias and gate in w.gates:
                W = W.at[-1, w.gates.index(gate)].add(offset)
        return W

    def check(self, weights: Iterable[Weight]) -> None:
        """Every named gate must be there, with a bias."""
        gates = [gate for w in weights if w.bias for gate in w.gates]
        for gate, _ in self.offsets:
            if gate not in gates:
                raise ValueError(
                    f"gate_bias needs gates that the cell has, with bias=True, got {gate!r}; "
                    f"gates with a bias here: {', '.join(gates) or 'none'}"
                )


def gate_bias(base: Init = Normal(), **offsets: float) -> GateBias:  # noqa: B008
    """An initialisation with constants added to the biases of named gates.

    Args:
        base: how all weights start, before that.
        offsets: what is added, by the name of the gate.

    Returns:
        the initialisation, for a cell's `init_weights`.

    Example: an LSTM that remembers at the start.
        >>> import kronline as kl
        >>> cell = kl.LSTM(64, 50, init_weights=kl.gate_bias(kl.Orthogonal(), f=1.0))
        >>> cell.init_weights.offsets
        (('f', 1.0),)

    Reference: Jozefowicz, Zaremba & Sutskever, An Empirical Exploration of Recurrent Network
    Architectures, 2015, for a forget gate's bias of 1.
    """
    return GateBias(base, tuple(sorted(offsets.items())))

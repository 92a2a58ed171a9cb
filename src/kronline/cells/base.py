"""A cell is its step, written so that its linear maps are visible.

Three kinds, by what a trace may know about them:

- `Cell`: any differentiable step. UORO, RTRL, BPTT and TBPTT take it.
- `LinearCell`: every weight enters as `z = linear(name, *pieces)`. One Kronecker pair per weight
  matrix is then exactly unbiased, whatever the step does with z.
- `UnitCell` (`unit.py`): also, each unit's new state depends on its own z and old state only (the
  paper's Lemma 1). Written as a function of ONE unit's scalars; D, E, H and ĥ are derived there.

There is no batch axis and no algorithm in this package.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from kronline import linearised as jac
from kronline.cells.init import GateBias, Init, Weight
from kronline.cells.layers import Layers, UnitLayer
from kronline.cells.pieces import Input, Linear, Piece, apply, features
from kronline.linearised import Vector
from kronline.linearised.gradients import Grads
from kronline.linearised.layers import some, spread, times

Params = Any


class Cell(ABC):
    """Any differentiable step, `s' = f(s, x; θ)`: UORO, RTRL, BPTT and TBPTT take it.

    Subclasses are frozen dataclasses with a field `inputs`, and give `size`, `init` and `step`;
    `outputs` and `output` where the readout sees a part of the state only.

    Example:
        >>> from dataclasses import dataclass
        >>> import jax, jax.numpy as jnp, kronline as kl
        >>> @dataclass(frozen=True)
        ... class Bilinear(kl.Cell):  # its weights enter as x W s, which is no linear map of s
        ...     inputs: int
        ...     size = 2
        ...
        ...     def init(self, key, dtype=jnp.float32):
        ...         return jax.random.normal(key, (self.inputs, 2, 2), dtype)
        ...
        ...     def step(self, params, s, x):
        ...         return jnp.tanh(jnp.einsum("i,ijk,k->j", x, params, s) + 1)
        >>> kl.uoro().check(Bilinear(3))  # no error: it is taken
    """

    inputs: int  # an input is a vector of this length, or a symbol below it

    @property
    @abstractmethod
    def size(self) -> int:
        """`N`: how many numbers the state has."""

    @property
    def outputs(self) -> int:
        """How many numbers the readout sees."""
        return self.size

    @abstractmethod
    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> Params:
        """The parameters θ."""

    @abstractmethod
    def step(self, params: Params, s: Vector, x: Input) -> Vector:
        """`s' = f(s, x; θ)`."""

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The part of the state that the readout sees."""
        return s

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """The step and its derivatives, as products with them."""
        new, back = jax.vjp(lambda p, s: self.step(p, s, x), params, s)

        def push(v: Vector) -> Vector:
            return jax.jvp(lambda s: self.step(params, s, x), (s,), (v,))[1]

        def vjp(d: Vector) -> tuple[Vector, Grads]:
            grads, dH = back(d)
            return dH, grads

        return jac.OpaqueLin(new, push, vjp)

    def structure(self, params: Params = None) -> jac.Structure:
        """What traces are told of this cell: sizes and shapes, never the cell itself.

        Args:
            params: its parameters or their shapes; None: those that `init` gives.
        """
        if params is None:
            params = jax.eval_shape(lambda: self.init(jax.random.key(0)))
        return jac.Structure(type(self).__name__, self.size, params)

    def project(self, grads: Grads) -> Grads:
        """Drop the gradient of weights that do not exist (masks)."""
        return grads


class LinearCell(Cell):
    """A step whose weights enter only as `z = linear(name, *pieces)`.

    `linear` multiplies the pieces, side by side, with the named matrix: `z = [pieces] W`. The step
    may do anything with z. So `∂s'/∂W = [pieces] ⊗ ∂s'/∂z` exactly: one Kronecker pair per weight
    matrix. Subclasses are frozen dataclasses with fields `inputs` and `init_weights`, and give
    `size`, `weights` and `forward`.

    Example:
        >>> from dataclasses import dataclass
        >>> import jax.numpy as jnp, kronline as kl
        >>> @dataclass(frozen=True)
        ... class Residual(kl.LinearCell):  # s' = s + tanh([s, x] A) B
        ...     hidden: int
        ...     inputs: int
        ...     init_weights: kl.Normal = kl.Normal(0.1)
        ...
        ...     @property
        ...     def size(self):
        ...         return self.hidden
        ...
        ...     def weights(self):
        ...         return {
        ...             "A": kl.Weight(self.hidden, self.inputs, False, ("a",), self.hidden),
        ...             "B": kl.Weight(self.hidden, 0, False, ("b",), self.hidden),
        ...         }
        ...
        ...     def forward(self, linear, s, x):
        ...         return s + linear("B", jnp.tanh(linear("A", s, x)[0]))[0]
        >>> kl.kf_rtrl().check(Residual(3, 2))  # no error: it is taken
    """

    init_weights: Init

    @abstractmethod
    def weights(self) -> dict[str, Weight]:
        """The weight matrices, by name."""

    @abstractmethod
    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """The step; `linear(name, *pieces)` is `z = [pieces] @ W_name`, of shape (r, n)."""

    def initialiser(self, name: str) -> Init:
        """How the named weight starts."""
        return self.init_weights

    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> dict[str, Array]:
        """One array (m, r, n) per weight matrix."""
        weights = self.weights()
        for name in weights:
            if isinstance(initialiser := self.initialiser(name), GateBias):
                initialiser.check(weights.values())
        keys = jax.random.split(key, len(weights))
        values = {
            name: self.initialiser(name)(k, w, dtype)
            for k, (name, w) in zip(keys, weights.items(), strict=True)
        }
        return self.project(values)

    def step(self, params: Params, s: Vector, x: Input) -> Vector:
        """`s' = f(s, x; θ)`."""
        return self.traced(params, None, s, x)[0]

    def traced(
        self, params: Params, dz: dict[str, Array] | None, s: Vector, x: Input
    ) -> tuple[Vector, dict[str, Float[Array, " m"]]]:
        """The step with `z + dz` in place of each z, and the feature vectors that it met.

        Derivatives with respect to dz are `∂s'/∂z`: together with the features they determine
        `∂s'/∂W`, in a fraction of the memory.
        """
        new, feats, _ = self._traced(params, dz, s, x)
        return new, feats

    def _traced(
        self, params: Params, dz: dict[str, Array] | None, s: Vector, x: Input
    ) -> tuple[Vector, dict[str, Float[Array, " m"]], dict[str, Float[Array, "r n"]]]:
        """The same, with every z."""
        weights, feats, met = self.weights(), {}, {}

        def linear(name: str, *pieces: Piece) -> Float[Array, "r n"]:
            if name in feats:
                raise ValueError(
                    f"each weight must enter a step once, {name!r} was used twice; give the second "
                    "use a weight of its own, or make the cell a plain Cell (UORO, RTRL, TBPTT)"
                )
            W = masked(params[name], weights[name])
            feats[name] = features(pieces, W.dtype)
            z = apply(W, pieces)
            met[name] = z if dz is None or name not in dz else z + dz[name]
            return met[name]

        new = self.forward(linear, s, x)
        return new, {name: feats[name] for name in weights}, met

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """Groups with dense M and H, by N reverse passes through the step."""
        dtype = s.dtype
        zero = {name: jnp.zeros(w.shape[1:], dtype) for name, w in self.weights().items()}

        def f(s: Vector, dz: dict[str, Array]) -> tuple[Vector, Any]:
            new, feats, z = self._traced(params, dz, s, x)
            return new, (feats, z)

        new, back, (feats, z) = jax.vjp(f, s, zero, has_aux=True)
        H, M = jax.vmap(back)(jnp.eye(new.size, dtype=dtype))
        groups = {
            name: jac.WeightJac(feats[name], jac.DenseM(M[name]), mask_of(w, dtype))
            for name, w in self.weights().items()
        }
        layers = self._layers(s, z)  # for whose traces a reverse pass is enough
        return jac.Kronecker(new, groups, jac.DenseH(H), layers, back if layers else None)

    def met(self, params: Params, s: Vector, x: Input) -> jac.Met:
        """What traces inside layers need of a step; H and M are not formed."""
        _, feats, z = self._traced(params, None, s, x)
        return jac.Met(self._layers(s, z), feats)

    def _layers(self, s: Vector, z: dict[str, Array]) -> tuple[jac.LayerJac, ...]:
        """Each layer of a diagonal recurrence to first order, by forward mode through one unit."""
        found = []
        for layer in self._diagonal_layers():
            D, E, *own = layer.cell.derivatives(*layer.met(s, z))
            of = dict(zip(layer.cell.weights(), (D, *own), strict=True))
            found.append(layer.cell.layer(E, of, layer.prefix))
        return tuple(found)

    def rows(
        self,
        params: Params,
        s: Vector,
        x: Input,
        layers: tuple[jac.Layer, ...],
        u: int,
        S: Float[Array, "c c n"],
        P: tuple[Float[Array, "R c n"], ...],
        names: tuple[str, ...],
    ) -> tuple[tuple[Array, tuple[Array, ...]], dict[str, Float[Array, "R r n"]]]:
        """`P H` and `P M` for one row P of each of a layer's states; H and M are not formed.

        A state of the layer depends on the layers below by the layer's inputs alone: so what passes
        down is `P D W` on these, of as many numbers as the inputs, and one reverse pass per row
        through what lies below.

        Args:
            params, s, x: of the step.
            layers: as `structure` tells of them.
            u: whose states' rows these are, c n of them.
            S: their columns in the layer itself, where they are diagonal.
            P: their columns in the layers below.
            names: weights to return `P M` of; all belong to the layers below, or to none.

        Returns:
            S and P of `P H`; and `P M` of each weight.
        """
        weights = self.weights()
        reached = [w.name for layer in layers[: u + 1] for w in layer.weights]
        zero = {name: jnp.zeros(weights[name].shape[1:], s.dtype) for name in names}

        def inputs(s: Vector, dz: dict[str, Array]) -> Any:
            _, feats, z = self._traced(params, dz, s, x)
            return {name: feats[name] for name in reached}, z

        _, back, z = jax.vjp(inputs, s, zero, has_aux=True)
        now, down, PM = self._layers(s, z), {}, {}
        for w in layers[u].weights:
            W = some(masked(params[w.name], weights[w.name]), w.gates, 1)
            SD = times(S, now[u].D[w.name])
            # row (a, j): Σ_g SD[a,g,j] W[:,g,j]
            parts = [SD[:, g, :, None] * W[:, g].T[None] for g in range(len(w.gates))]
            down[w.name] = jnp.asarray(sum(parts)).reshape(-1, len(W))
        for layer, jacobian, p in zip(layers, now, P, strict=False):
            for w in layer.weights:
                W = some(masked(params[w.name], weights[w.name]), w.gates, 1)
                PD = times(p, jacobian.D[w.name])
                down[w.name] = jnp.einsum("Rgn,mgn->Rm", PD, W)
                PM[w.name] = spread(PD, w.gates, w.of, 1)
        ds, dz = jax.vmap(back)(down)
        PH = tuple(
            layer.state(ds) + times(p, jacobian.E)
            for layer, jacobian, p in zip(layers, now, P, strict=False)
        )
        PM = {name: dz[name] + PM[name] if name in PM else dz[name] for name in names}
        return (times(S, now[u].E), PH), PM

    def _diagonal_layers(self) -> tuple[UnitLayer, ...]:
        found = self.diagonal()
        return () if found is None else found.layers

    def diagonal(self) -> Layers | None:
        """The layers of a cell in which no unit reads another unit's state of its own layer.

        None for any other cell. A layer may read the new state of those below it.
        """
        return None

    def structure(self, params: Params = None) -> jac.Structure:
        """Also that weights are visible, where H and M may differ from zero, and the layers."""
        told = replace(super().structure(params), linear=True, pattern=partial(pattern, self))
        found = self.diagonal()
        if found is None:
            return told
        layers = tuple(cell.told(prefix, at) for cell, prefix, at in found.layers)
        own = {name: i for i, layer in enumerate(layers) for name, *_ in layer.weights}
        above = {name: own.get(name, first - 1) + 1 for name, first in found.first.items()}
        return replace(told, layers=layers, above=above)

    def project(self, grads: Grads) -> Grads:
        """Drop the gradient of weights that do not exist (masks)."""
        weights = self.weights()
        return {name: masked(g, weights[name]) for name, g in grads.items()}


POINTS = 16  # random points at which Jacobians are evaluated


@functools.lru_cache(maxsize=64)
def pattern(cell: LinearCell) -> jac.Pattern:
    """Where H (N, N) and each weight's M (N, r, n) may differ from zero, for any weights.

    They are evaluated at random points: an entry that is zero at all of these is always zero.
    """
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(POINTS, *shape)).astype(np.float32)

    def look(at: tuple[Any, Array, Array]) -> tuple[Array, dict[str, Array]]:
        weights, s, x = at
        lin = cell.linearise(cell.project(weights), s, x)
        assert isinstance(lin, jac.Kronecker)
        return lin.H.dense() != 0, {name: g.M.dense() != 0 for name, g in lin.groups.items()}

    weights = {n: normal(*w.shape) / np.float32(w.rows**0.5) for n, w in cell.weights().items()}
    points = (weights, normal(cell.size), normal(cell.inputs))
    with jax.ensure_compile_time_eval():  # also where a program is being compiled
        found = jax.jit(lambda at: jax.lax.map(look, at))(points)
    return jax.tree.map(lambda a: np.asarray(a).any(0), found)


def masked(W: Float[Array, "m r n"], w: Weight) -> Float[Array, "m r n"]:
    """W, with zeros where a weight does not exist."""
    return W if w.mask is None else W * jnp.asarray(w.mask, W.dtype)


def mask_of(w: Weight, dtype: Any) -> Float[Array, "m r #n"] | None:
    """Its mask as a JAX array, if there is one."""
    return None if w.mask is None else jnp.asarray(w.mask, dtype)

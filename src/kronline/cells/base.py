"""A cell is its step, written so that its linear maps are visible.

Three kinds, by what a trace may know about them:

- `Cell`: any differentiable step. UORO, RTRL, BPTT and TBPTT take it.
- `LinearCell`: every weight enters as `z = linear(name, *pieces)`. One Kronecker pair per weight
  matrix is then exactly unbiased, whatever the step does with z.
- `UnitCell`: also, each unit's new state depends on its own z and old state only (the paper's
  Lemma 1). Written as a function of ONE unit's scalars; D, E, H and ĥ are derived here.

There is no batch axis and no algorithm in this package.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline import linearised as jac
from kronline.cells.blocks import Blocks
from kronline.cells.init import GateBias, Init, Normal, Weight, needs_initialiser
from kronline.errors import whole_numbers
from kronline.linearised import BlockH, Vector
from kronline.linearised.gradients import Grads

Params = Any
Input = Float[Array, " d"] | Int[Array, ""]  # a vector, or one symbol


class OneHot(NamedTuple):
    """A symbol as a one-hot vector that is never written out: products with it look up a row."""

    symbol: Int[Array, ""]
    size: int


Piece = Float[Array, " p"] | OneHot  # a part of a feature vector
Linear = Callable[..., Float[Array, "r n"]]  # linear(name, *pieces) -> z


def encode(x: Any, size: int) -> Piece:
    """An input as a piece of a feature vector."""
    x = jnp.asarray(x)
    # narrow integers (uint8) would wrap around where the symbols are counted
    return OneHot(x.astype(jnp.int32), size) if jnp.issubdtype(x.dtype, jnp.integer) else x


def features(pieces: tuple[Piece, ...], dtype: Any) -> Float[Array, " m"]:
    """The feature vector ĥ, written out."""
    parts = [jax.nn.one_hot(*p, dtype=dtype) if isinstance(p, OneHot) else p for p in pieces]
    return jnp.concatenate(parts)


def apply(W: Float[Array, "m r n"], pieces: tuple[Piece, ...]) -> Float[Array, "r n"]:
    """`z = ĥ W`, piece by piece."""
    z, at = jnp.zeros(W.shape[1:], W.dtype), 0
    for p in pieces:
        size = p.size
        rows = W[at : at + size]
        z = z + (rows[p.symbol] if isinstance(p, OneHot) else jnp.tensordot(p, rows, axes=1))
        at += size
    return z


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
        weights, feats = self.weights(), {}

        def linear(name: str, *pieces: Piece) -> Float[Array, "r n"]:
            if name in feats:
                raise ValueError(
                    f"each weight must enter a step once, {name!r} was used twice; give the second "
                    "use a weight of its own, or make the cell a plain Cell (UORO, RTRL, TBPTT)"
                )
            W = masked(params[name], weights[name])
            feats[name] = features(pieces, W.dtype)
            z = apply(W, pieces)
            return z if dz is None else z + dz[name]

        new = self.forward(linear, s, x)
        return new, {name: feats[name] for name in weights}

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """Groups with dense M and H, by N reverse passes through the step."""
        dtype = s.dtype
        zero = {name: jnp.zeros(w.shape[1:], dtype) for name, w in self.weights().items()}

        def f(s: Vector, dz: dict[str, Array]) -> tuple[Vector, tuple[Vector, dict[str, Array]]]:
            new, feats = self.traced(params, dz, s, x)
            return new, (new, feats)

        (H, M), (new, feats) = jax.jacrev(f, argnums=(0, 1), has_aux=True)(s, zero)
        groups = {
            name: jac.WeightJac(feats[name], jac.DenseM(M[name]), mask_of(w, dtype))
            for name, w in self.weights().items()
        }
        return jac.Kronecker(new, groups, jac.DenseH(H))

    def structure(self, params: Params = None) -> jac.Structure:
        """Also that weights are visible, and where H and M may differ from zero."""
        told = super().structure(params)
        return replace(told, linear=True, pattern=partial(pattern, self))

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


@dataclass(frozen=True)
class UnitCell(LinearCell):
    """A cell given by ONE unit's scalars: `unit(z, s)`. Subclasses name gates and slots.

    `z = ĥ W` with ĥ = [slots that are read, x, 1], then the same function of each unit's own z and
    slots: the paper's class of networks. D, E and H are derived from `unit`.

    Args:
        hidden: units, n.
        inputs: length of an input vector, or number of symbols.
        bias: whether ĥ ends in a constant 1.
        init_weights: how W starts; N(0, 0.01²) as in the paper's group's later code.
        sparse: which units read which, in blocks; None: all read all.

    Example:
        >>> from dataclasses import dataclass
        >>> import jax, jax.numpy as jnp, kronline as kl
        >>> @dataclass(frozen=True)
        ... class MinimalGated(kl.UnitCell):
        ...     gates = ("f", "g")  # two linear maps of [h, x, 1]
        ...
        ...     def unit(self, z, s):  # one unit: z of its gates, s of its slots
        ...         f = jax.nn.sigmoid(z[0])
        ...         return (1 - f) * s[0] + f * jnp.tanh(z[1])
        >>> MinimalGated(3, 2).weights()["W"].shape  # (3 + 2 + 1, gates, units)
        (6, 2, 3)

    Reference: Mujika, Meier & Steger, NeurIPS 2018, Lemma 1.
    """

    hidden: int
    inputs: int
    bias: bool = field(default=True, kw_only=True)
    init_weights: Init = field(default=Normal(), kw_only=True)
    sparse: Blocks | None = field(default=None, kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("z",)  # r linear maps of ĥ
    slots: ClassVar[tuple[str, ...]] = ("h",)  # q numbers that each unit remembers
    reads: ClassVar[tuple[str, ...]] = ("h",)  # the slots in ĥ, which the readout sees too

    def __post_init__(self) -> None:
        whole_numbers(self, "hidden", "inputs")
        needs_initialiser(type(self).__name__, self.init_weights)
        if self.sparse is not None and not isinstance(self.sparse, Blocks):
            raise ValueError(
                f"{type(self).__name__} needs sparse=Blocks(density) or None, got {self.sparse!r}"
            )

    @abstractmethod
    def unit(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Any:
        """One unit's new slots: a tuple of q scalars, or one scalar where q = 1."""

    def mask(self) -> np.ndarray | None:
        """(m, r, n) or (m, r, 1): 0 where a weight does not exist; None: all weights exist."""
        return None

    @property
    def size(self) -> int:
        """`N = q n`."""
        return len(self.slots) * self.hidden

    @property
    def outputs(self) -> int:
        """The slots that are read."""
        return len(self.reads) * self.hidden

    @property
    def read_slots(self) -> tuple[int, ...]:
        """The places, among the slots, of those that are read."""
        return tuple(self.slots.index(name) for name in self.reads)

    def weights(self) -> dict[str, Weight]:
        """One matrix W (m, r, n) for all gates: ĥ is common to them."""
        w = Weight(self.outputs, self.inputs, self.bias, self.gates, self.hidden, self._mask())
        return {"W": w}

    def _mask(self) -> np.ndarray | None:
        """The cell's mask, times that of the blocks."""
        own = self.mask()
        if self.sparse is None:
            return own
        mask = np.ones((self.outputs + self.inputs + int(self.bias), 1, self.hidden))
        mask[: self.outputs, 0] = np.tile(self.sparse.mask(self.hidden), (len(self.reads), 1))
        return np.repeat(mask, len(self.gates), axis=1) * (1 if own is None else own)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The slots that are read."""
        return s.reshape(-1, self.hidden)[np.array(self.read_slots)].reshape(-1)

    def units(self, z: Float[Array, "r n"], slots: Float[Array, "q n"]) -> Float[Array, "q n"]:
        """The new slots of all units: `unit`, unit by unit."""
        return jax.vmap(self._one, in_axes=-1, out_axes=-1)(z, slots)

    def _one(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Float[Array, " q"]:
        out = self.unit(z, s)
        return jnp.reshape(jnp.stack(out) if isinstance(out, tuple) else out, (len(self.slots),))

    def derivatives(
        self, z: Float[Array, "r n"], slots: Float[Array, "q n"]
    ) -> tuple[Float[Array, "q r n"], Float[Array, "q q n"]]:
        """D and E: `D[a,k,j] = ∂f_a/∂z_k`, `E[a,b,j] = ∂f_a/∂s_b`, of unit j."""
        derivative = jax.jacfwd(self._one, argnums=(0, 1))
        return jax.vmap(derivative, in_axes=-1, out_axes=-1)(z, slots)

    def pieces(self, s: Vector, x: Input) -> tuple[Piece, ...]:
        """The parts of ĥ: the slots that are read, the input, and 1 for the bias."""
        one = (jnp.ones(1, s.dtype),) if self.bias else ()
        return self.output(s), encode(x, self.inputs), *one

    def structure(self, params: Params = None) -> jac.Structure:
        """Also that units are visible."""
        return replace(super().structure(params), slots=len(self.slots))

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """`z = ĥ W`, then unit by unit."""
        z = linear("W", *self.pieces(s, x))
        return self.units(z, s.reshape(-1, self.hidden)).reshape(-1)

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """D and E by forward mode through one unit, O(n); H as `UnitH` or `BlockH`, in factors."""
        w = self.weights()["W"]
        W = masked(params["W"], w)
        pieces, slots = self.pieces(s, x), s.reshape(-1, self.hidden)
        z = apply(W, pieces)
        D, E = self.derivatives(z, slots)
        read = W[: self.outputs].reshape(len(self.reads), self.hidden, *W.shape[1:])
        group = jac.WeightJac(features(pieces, W.dtype), jac.UnitM(D), mask_of(w, W.dtype))
        H: jac.StateJac = jac.UnitH(read, D, E, self.read_slots)
        if self.sparse is not None:
            offsets = self.sparse.offsets(self.hidden)
            H = BlockH(self.sparse.taken(read), D, E, self.read_slots, offsets)
        return jac.Kronecker(self.units(z, slots).reshape(-1), {"W": group}, H)


@dataclass(frozen=True)
class Opaque(Cell):
    """A cell with its structure hidden: only products with its Jacobians are available.

    For tests and comparisons: the estimators that take any cell give the same gradient for it.

    Args:
        cell: any cell.

    Example:
        >>> import kronline as kl
        >>> kl.Opaque(kl.GRU(3, 2)).structure().linear
        False
    """

    cell: Cell

    def __post_init__(self) -> None:
        if not isinstance(self.cell, Cell):
            raise TypeError(f"Opaque needs a cell such as GRU(64, 4), got {self.cell!r}")

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """As the cell inside."""
        return self.cell.inputs

    @property
    def size(self) -> int:
        """As the cell inside."""
        return self.cell.size

    @property
    def outputs(self) -> int:
        """As the cell inside."""
        return self.cell.outputs

    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> Params:
        """As the cell inside."""
        return self.cell.init(key, dtype)

    def step(self, params: Params, s: Vector, x: Input) -> Vector:
        """As the cell inside."""
        return self.cell.step(params, s, x)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """As the cell inside."""
        return self.cell.output(s)

"""A cell is its step, written so that its linear maps are visible.

Three kinds, by what a trace may know about them:

- `Cell`: any differentiable step. UORO, RTRL, BPTT and TBPTT take it.
- `LinearCell`: every weight enters as `z = linear(name, *pieces)`. One Kronecker pair a weight
  matrix is then exactly unbiased, whatever the step does with z.
- `UnitCell`: besides, each unit's new state depends on its own z and old state only (the paper's
  Lemma 1). Written as a function of ONE unit's scalars; D, E, H and ĥ are derived here.

No batch axis, and no algorithm, in this package.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline.cells.blocks import Blocks
from kronline.cells.init import GateBias, Init, Normal, Weight
from kronline.errors import whole_numbers
from kronline.linearised import jacobians as jac
from kronline.linearised.grads import Grads
from kronline.linearised.sparse import BlockH

Params = Any
State = Float[Array, " N"]
Input = Float[Array, " d"] | Int[Array, ""]  # a vector, or one symbol


class OneHot(NamedTuple):
    """A symbol as a feature vector that is never written out: a row look-up."""

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
    """Any differentiable step. Subclasses give `size`, `outputs`, `init` and `step`."""

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
    def step(self, params: Params, s: State, x: Input) -> State:
        """`s' = f(s, x; θ)`."""

    def output(self, s: State) -> Float[Array, " h"]:
        """The part of the state that the readout sees."""
        return s

    def linearise(self, params: Params, s: State, x: Input) -> jac.Lin:
        """The step and its derivatives, as products with them."""
        new, back = jax.vjp(lambda p, s: self.step(p, s, x), params, s)

        def push(v: State) -> State:
            return jax.jvp(lambda s: self.step(params, s, x), (s,), (v,))[1]

        def vjp(d: State) -> tuple[State, Grads]:
            grads, dH = back(d)
            return dH, grads

        return jac.OpaqueLin(new, push, vjp)

    def project(self, grads: Grads) -> Grads:
        """Drop the gradient of weights that do not exist (masks)."""
        return grads


class LinearCell(Cell):
    """A step whose weights enter only as `linear(name, *pieces)`: one Kronecker pair a weight."""

    init_weights: Init

    @abstractmethod
    def weights(self) -> dict[str, Weight]:
        """The weight matrices, by name."""

    @abstractmethod
    def forward(self, linear: Linear, s: State, x: Input) -> State:
        """The step; `linear(name, *pieces)` is `z = [pieces] @ W_name`, of shape (r, n)."""

    def initialiser(self, name: str) -> Init:
        """How the named weight starts."""
        return self.init_weights

    def init(self, key: Key[Array, ""], dtype: Any = jnp.float32) -> dict[str, Array]:
        """One array (m, r, n) a weight matrix."""
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

    def step(self, params: Params, s: State, x: Input) -> State:
        """`s' = f(s, x; θ)`."""
        return self.traced(params, None, s, x)[0]

    def traced(
        self, params: Params, dz: dict[str, Array] | None, s: State, x: Input
    ) -> tuple[State, dict[str, Float[Array, " m"]]]:
        """The step with `z + dz` in place of each z, and the feature vectors that it met.

        Derivatives with respect to dz are `∂s'/∂z`: with the features, they hold all that is to be
        known of `∂s'/∂W`, in a fraction of the memory.
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

    def linearise(self, params: Params, s: State, x: Input) -> jac.Lin:
        """Groups with dense M and H, by N reverse passes through the step."""
        dtype = s.dtype
        zero = {name: jnp.zeros(w.shape[1:], dtype) for name, w in self.weights().items()}

        def f(s: State, dz: dict[str, Array]) -> tuple[State, tuple[State, dict[str, Array]]]:
            new, feats = self.traced(params, dz, s, x)
            return new, (new, feats)

        (H, M), (new, feats) = jax.jacrev(f, argnums=(0, 1), has_aux=True)(s, zero)
        groups = {
            name: jac.Group(feats[name], jac.DenseM(M[name]), mask_of(w, dtype))
            for name, w in self.weights().items()
        }
        return jac.Kronecker(new, groups, jac.DenseH(H))

    def project(self, grads: Grads) -> Grads:
        """Drop the gradient of weights that do not exist (masks)."""
        weights = self.weights()
        return {name: masked(g, weights[name]) for name, g in grads.items()}


def masked(W: Float[Array, "m r n"], w: Weight) -> Float[Array, "m r n"]:
    """W, with zeros where a weight does not exist."""
    return W if w.mask is None else W * jnp.asarray(w.mask, W.dtype)


def mask_of(w: Weight, dtype: Any) -> Float[Array, "m r #n"] | None:
    """Its mask as an array of JAX's, if there is one."""
    return None if w.mask is None else jnp.asarray(w.mask, dtype)


@dataclass(frozen=True)
class UnitCell(LinearCell):
    """A cell given by ONE unit's scalars: `unit(z, s)`. Subclasses name gates and slots.

    Args:
        hidden: units, n.
        inputs: length of an input vector, or number of symbols.
        bias: whether ĥ ends in a constant 1.
        init_weights: how W starts; N(0, 0.01²) as in the paper's group's later code.
        sparse: which units read which, in blocks; None: all read all.
    """

    hidden: int
    inputs: int
    bias: bool = field(default=True, kw_only=True)
    init_weights: Init = field(default=Normal(), kw_only=True)
    sparse: Blocks | None = field(default=None, kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("z",)  # r linear maps of ĥ
    slots: ClassVar[tuple[str, ...]] = ("h",)  # q numbers a unit remembers
    reads: ClassVar[tuple[str, ...]] = ("h",)  # the slots in ĥ, which the readout sees too

    def __post_init__(self) -> None:
        whole_numbers(self, "hidden", "inputs")
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
    def _read(self) -> tuple[int, ...]:
        return tuple(self.slots.index(name) for name in self.reads)

    def weights(self) -> dict[str, Weight]:
        """One matrix W (m, r, n) for all gates: ĥ is common to them."""
        w = Weight(self.outputs, self.inputs, self.bias, self.gates, self.hidden, self._mask())
        return {"W": w}

    def _mask(self) -> np.ndarray | None:
        """The cell's own mask, and that of the blocks."""
        own = self.mask()
        if self.sparse is None:
            return own
        mask = np.ones((self.outputs + self.inputs + int(self.bias), 1, self.hidden))
        mask[: self.outputs, 0] = np.tile(self.sparse.mask(self.hidden), (len(self.reads), 1))
        return np.repeat(mask, len(self.gates), axis=1) * (1 if own is None else own)

    def output(self, s: State) -> Float[Array, " h"]:
        """The slots that are read."""
        return s.reshape(-1, self.hidden)[np.array(self._read)].reshape(-1)

    def _units(self, z: Float[Array, "r n"], slots: Float[Array, "q n"]) -> Float[Array, "q n"]:
        return jax.vmap(self._one, in_axes=-1, out_axes=-1)(z, slots)

    def _one(self, z: Float[Array, " r"], s: Float[Array, " q"]) -> Float[Array, " q"]:
        out = self.unit(z, s)
        return jnp.reshape(jnp.stack(out) if isinstance(out, tuple) else out, (len(self.slots),))

    def _derivatives(
        self, z: Float[Array, "r n"], slots: Float[Array, "q n"]
    ) -> tuple[Float[Array, "q r n"], Float[Array, "q q n"]]:
        """D and E: `D[a,k,j] = ∂f_a/∂z_k`, `E[a,b,j] = ∂f_a/∂s_b`, of unit j."""
        derivative = jax.jacfwd(self._one, argnums=(0, 1))
        return jax.vmap(derivative, in_axes=-1, out_axes=-1)(z, slots)

    def _pieces(self, s: State, x: Input) -> tuple[Piece, ...]:
        one = (jnp.ones(1, s.dtype),) if self.bias else ()
        return self.output(s), encode(x, self.inputs), *one

    def forward(self, linear: Linear, s: State, x: Input) -> State:
        """`z = ĥ W`, then unit by unit."""
        z = linear("W", *self._pieces(s, x))
        return self._units(z, s.reshape(-1, self.hidden)).reshape(-1)

    def linearise(self, params: Params, s: State, x: Input) -> jac.Lin:
        """D and E by forward mode through one unit, O(n); H as `UnitH` or `BlockH`, in factors."""
        w = self.weights()["W"]
        W = masked(params["W"], w)
        pieces, slots = self._pieces(s, x), s.reshape(-1, self.hidden)
        z = apply(W, pieces)
        D, E = self._derivatives(z, slots)
        read = W[: self.outputs].reshape(len(self.reads), self.hidden, *W.shape[1:])
        group = jac.Group(features(pieces, W.dtype), jac.UnitM(D), mask_of(w, W.dtype))
        H: jac.StateJac = jac.UnitH(read, D, E, self._read)
        if self.sparse is not None:
            offsets = self.sparse.offsets(self.hidden)
            H = BlockH(self.sparse.taken(read), D, E, self._read, offsets)
        return jac.Kronecker(self._units(z, slots).reshape(-1), {"W": group}, H)


@dataclass(frozen=True)
class Opaque(Cell):
    """A cell with its structure hidden: only products with its Jacobians are left."""

    cell: Cell

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

    def step(self, params: Params, s: State, x: Input) -> State:
        """As the cell inside."""
        return self.cell.step(params, s, x)

    def output(self, s: State) -> Float[Array, " h"]:
        """As the cell inside."""
        return self.cell.output(s)

"""Cells given by ONE unit's scalars: the paper's class of networks, and diagonal recurrence.

D, E, H, ĥ and the derivatives with respect to a unit's own numbers are derived from `unit`, by
forward mode.
"""

import functools
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline import linearised as jac
from kronline.cells.base import POINTS, LinearCell, Params, mask_of, masked
from kronline.cells.blocks import Blocks
from kronline.cells.init import Init, Normal, Weight, needs_initialiser
from kronline.cells.layers import Layers, UnitLayer
from kronline.cells.pieces import Input, Linear, Piece, apply, encode, features
from kronline.errors import whole_numbers
from kronline.linearised import BlockH, Vector
from kronline.linearised.layers import some


@dataclass(frozen=True)
class UnitCell(LinearCell):
    """A cell given by ONE unit's scalars: `unit(z, s)`. Subclasses name gates and slots.

    `z = ĥ W` with ĥ = [slots that are read, x, 1], then the same function of each unit's own z and
    slots: the paper's class of networks. D, E and H are derived from `unit`.

    A class that also names numbers of each unit's `own` has `unit(z, s, own)`; they are learnt.
    One that reads no slot, `reads = ()`, has a diagonal recurrence: no unit sees another unit's
    state, and `rtrl()` is exact for the price of the parameters. It names the slots that the
    readout sees in `shows`.

    Args:
        hidden: units, n.
        inputs: length of an input vector, or number of symbols.
        bias: whether ĥ ends in a constant 1.
        init_weights: how W starts; N(0, 0.01²) as in the paper's group's later code.
        init_own: how the units' own numbers start, a weight of shape (1, numbers, n).
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

    Example: each unit forgets at a rate of its own, and reads the input only.
        >>> @dataclass(frozen=True)
        ... class Leaky(kl.UnitCell):
        ...     own = ("decay",)
        ...     reads, shows = (), ("h",)
        ...
        ...     def unit(self, z, s, own):
        ...         return jax.nn.sigmoid(own[0]) * s[0] + jnp.tanh(z[0])
        >>> kl.Exact().init(Leaky(3, 2).structure()).e["W"].shape  # one number per weight
        (3, 1, 1, 3)

    Reference: Mujika, Meier & Steger, NeurIPS 2018, Lemma 1.
    """

    hidden: int
    inputs: int
    bias: bool = field(default=True, kw_only=True)
    init_weights: Init = field(default=Normal(), kw_only=True)
    init_own: Init = field(default=Normal(), kw_only=True)
    sparse: Blocks | None = field(default=None, kw_only=True)

    gates: ClassVar[tuple[str, ...]] = ("z",)  # r linear maps of ĥ
    slots: ClassVar[tuple[str, ...]] = ("h",)  # q numbers that each unit remembers
    reads: ClassVar[tuple[str, ...]] = ("h",)  # the slots in ĥ; none: a diagonal recurrence
    shows: ClassVar[tuple[str, ...] | None] = None  # what the readout sees; None: what is read
    own: ClassVar[tuple[str, ...]] = ()  # p numbers of each unit's own

    def __post_init__(self) -> None:
        whole_numbers(self, "hidden", "inputs")
        needs_initialiser(type(self).__name__, self.init_weights)
        needs_initialiser(type(self).__name__, self.init_own)
        if not (self.reads or self.shows):
            raise TypeError(
                f"{type(self).__name__} reads no slot, and must name the slots that the readout "
                f"sees: shows = {self.slots!r}, for instance"
            )
        if self.sparse is not None and not (isinstance(self.sparse, Blocks) and self.reads):
            wanted = "sparse=Blocks(density) or None" if self.reads else "sparse=None"
            raise ValueError(f"{type(self).__name__} needs {wanted}, got {self.sparse!r}")

    @abstractmethod
    def unit(self, *scalars: Any) -> Any:
        """`unit(z, s)`, or `unit(z, s, own)` for a cell whose units have numbers of their own.

        Args:
            scalars: one unit's z (r,), its slots s (q,), its own numbers (p,).

        Returns:
            its new slots: a tuple of q scalars, or one scalar where q = 1.
        """

    def mask(self) -> np.ndarray | None:
        """(m, r, n) or (m, r, 1): 0 where a weight does not exist; None: all weights exist."""
        return None

    @property
    def size(self) -> int:
        """`N = q n`."""
        return len(self.slots) * self.hidden

    @property
    def outputs(self) -> int:
        """The slots that the readout sees."""
        return len(self.reads if self.shows is None else self.shows) * self.hidden

    @property
    def recurrent(self) -> int:
        """How many numbers of the state ĥ has."""
        return len(self.reads) * self.hidden

    @property
    def read_slots(self) -> tuple[int, ...]:
        """The places, among the slots, of those that are read."""
        return tuple(self.slots.index(name) for name in self.reads)

    def weights(self) -> dict[str, Weight]:
        """One matrix W (m, r, n) for all gates: ĥ is common to them; and the units' own numbers.

        The latter are a linear map of the constant 1: all that holds for weights holds for them.
        """
        w = Weight(self.recurrent, self.inputs, self.bias, self.gates, self.hidden, self._mask())
        own = {"own": Weight(0, 0, True, self.own, self.hidden)} if self.own else {}
        return {"W": w, **own}

    def initialiser(self, name: str) -> Init:
        """How W starts, or the units' own numbers."""
        return self.init_own if name == "own" else self.init_weights

    def _mask(self) -> np.ndarray | None:
        """The cell's mask, times that of the blocks."""
        own = self.mask()
        if self.sparse is None:
            return own
        mask = np.ones((self.recurrent + self.inputs + int(self.bias), 1, self.hidden))
        mask[: self.recurrent, 0] = np.tile(self.sparse.mask(self.hidden), (len(self.reads), 1))
        return np.repeat(mask, len(self.gates), axis=1) * (1 if own is None else own)

    def output(self, s: Vector) -> Float[Array, " h"]:
        """The slots that the readout sees."""
        seen = self.reads if self.shows is None else self.shows
        return self._some(s, seen)

    def _some(self, s: Vector, names: tuple[str, ...]) -> Float[Array, " h"]:
        places = tuple(map(self.slots.index, names))
        return some(s.reshape(-1, self.hidden), places, 0).reshape(-1)

    def units(
        self, z: Float[Array, "r n"], slots: Float[Array, "q n"], *own: Float[Array, "p n"]
    ) -> Float[Array, "q n"]:
        """The new slots of all units: `unit`, unit by unit."""
        return jax.vmap(self._one, in_axes=-1, out_axes=-1)(z, slots, *own)

    def _one(self, *scalars: Any) -> Float[Array, " q"]:
        out = self.unit(*scalars)
        return jnp.reshape(jnp.stack(out) if isinstance(out, tuple) else out, (len(self.slots),))

    def derivatives(
        self, z: Float[Array, "r n"], slots: Float[Array, "q n"], *own: Float[Array, "p n"]
    ) -> tuple[Float[Array, "q r n"], ...]:
        """`D[a,k,j] = ∂f_a/∂z_k`, `E[a,b,j] = ∂f_a/∂s_b`, and `∂f_a/∂own_c`, of unit j."""
        derivative = jax.jacfwd(self._one, argnums=tuple(range(2 + len(own))))
        return jax.vmap(derivative, in_axes=-1, out_axes=-1)(z, slots, *own)

    def pieces(self, s: Vector, x: Input) -> tuple[Piece, ...]:
        """The parts of ĥ: the slots that are read, the input, and 1 for the bias."""
        read = (self._some(s, self.reads),) if self.reads else ()
        one = (jnp.ones(1, s.dtype),) if self.bias else ()
        return *read, encode(x, self.inputs), *one

    def structure(self, params: Params = None) -> jac.Structure:
        """Also that units are visible."""
        return replace(super().structure(params), slots=len(self.slots))

    def diagonal(self) -> Layers | None:
        """One layer, if no unit reads another unit's state."""
        if self.reads:
            return None
        return Layers((UnitLayer(self, "", 0),), dict.fromkeys(self.weights(), 0))

    def forward(self, linear: Linear, s: Vector, x: Input) -> Vector:
        """`z = ĥ W`, then unit by unit."""
        z = linear("W", *self.pieces(s, x))
        own = (linear("own", jnp.ones(1, s.dtype)),) if self.own else ()
        return self.units(z, s.reshape(-1, self.hidden), *own).reshape(-1)

    def linearise(self, params: Params, s: Vector, x: Input) -> jac.Lin:
        """Derivatives by forward mode through one unit, O(n); H in factors."""
        w = self.weights()["W"]
        W = masked(params["W"], w)
        pieces, slots = self.pieces(s, x), s.reshape(-1, self.hidden)
        z, own = apply(W, pieces), (params["own"][0],) if self.own else ()
        D, E, *of_own = self.derivatives(z, slots, *own)
        feats, one = features(pieces, W.dtype), jnp.ones(1, W.dtype)
        groups = {"W": jac.WeightJac(feats, jac.UnitM(D), mask_of(w, W.dtype))}
        if self.own:
            groups["own"] = jac.WeightJac(one, jac.OwnM(of_own[0]))
        new = self.units(z, slots, *own).reshape(-1)
        if not self.reads:
            layer = self.layer(E, dict(zip(groups, (D, *of_own), strict=True)))
            return jac.Kronecker(new, groups, jac.DiagonalH(E), (layer,))
        read = W[: self.recurrent].reshape(len(self.reads), self.hidden, *W.shape[1:])
        H: jac.StateJac = jac.UnitH(read, D, E, self.read_slots)
        if self.sparse is not None:
            offsets = self.sparse.offsets(self.hidden)
            H = BlockH(self.sparse.taken(read), D, E, self.read_slots, offsets)
        return jac.Kronecker(new, groups, H)

    # -- as a layer of a diagonal recurrence -------------------------------------------------------

    def told(self, prefix: str, at: int) -> jac.Layer:
        """What traces are told of this cell as a layer.

        Args:
            prefix: of its weights' names.
            at: where its state begins.
        """
        kept, gates = kept_of(self)
        weights = tuple(
            jac.LayerWeight(prefix + name, gates[name], len(w.gates))
            for name, w in self.weights().items()
        )
        return jac.Layer(at, len(self.slots), self.hidden, kept, weights)

    def layer(
        self,
        E: Float[Array, "q q n"],
        D: dict[str, Float[Array, "q r n"]],
        prefix: str = "",
    ) -> jac.LayerJac:
        """One step of this cell as a layer, from E and each weight's D."""
        kept, gates = kept_of(self)
        counts = {prefix + n: some(some(d, kept, 0), gates[n], 1) for n, d in D.items()}
        return jac.LayerJac(some(some(E, kept, 0), kept, 1), counts)


@functools.lru_cache(maxsize=64)
def kept_of(cell: UnitCell) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """The slots that the next step reads, and for each weight the gates that can move these.

    Derivatives of one unit are evaluated at random points: what is zero at all of them always is.
    """
    rng = np.random.default_rng(0)
    sizes = [len(names) for names in (cell.gates, cell.slots, cell.own) if names]
    points = [rng.normal(size=(size, POINTS)).astype(np.float32) for size in sizes]
    with jax.ensure_compile_time_eval():  # also where a program is being compiled
        found = jax.jit(cell.derivatives)(*map(jnp.asarray, points))
    D, E, *own = ((np.asarray(a) != 0).any(-1) for a in found)
    kept = np.flatnonzero(E.any(0))
    gates = {}
    for name, moved in zip(cell.weights(), (D, *own), strict=True):
        reached = moved.astype(int)
        for _ in cell.slots:
            reached = moved + E.astype(int) @ reached
        gates[name] = tuple(map(int, np.flatnonzero(reached[kept].any(0))))
    return tuple(map(int, kept)), gates

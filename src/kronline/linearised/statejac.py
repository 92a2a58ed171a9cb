"""`H = ∂s'/∂s`, as the products that traces need; dense here, with structure in the other files."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kronline.linearised.sensitivity import Sensitivity, Vector


class StateJac(ABC):
    """`H = ∂s'/∂s`, as the products that the traces need."""

    shared: ClassVar[tuple[str, ...]] = ()  # fields that are weights, the same at every step

    @abstractmethod
    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`."""

    @abstractmethod
    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`."""

    @abstractmethod
    def scaled(self, c: Float[Array, ""]) -> "StateJac":
        """`c H`, without a pass over what H is multiplied with."""

    def mv(self, v: Vector) -> Vector:
        """`H v`."""
        return self.mm(v[:, None])[:, 0]

    def vm(self, d: Vector) -> Vector:
        """`d H`."""
        return self.rmm_few(d[None])[0]

    def entries(self, to: Int[Array, "n p 1"], of: Int[Array, "n 1 p"]) -> Float[Array, "n p p"]:
        """Some entries `H[to, of]`."""
        return self.dense()[to, of]

    # Two merges that a native kernel does in one pass where H allows it. H decides which path is
    # taken; `plain` is the trace's function in pure JAX, which computes the same.

    def merge_pair(
        self,
        plain: Callable[..., Any],
        pair: Any,
        jac: Any,
        c: Float[Array, ""],
        delta: Vector,
        *,
        before: bool,
    ) -> Any:
        """KF-RTRL's merge of one pair (`traces/kf.py`)."""
        return plain(pair, jac, self, c, delta)

    def merge_segment(
        self,
        plain: Callable[..., Any],
        A: Array,
        U: Array,
        M: Sensitivity,
        H: "StateJac",
        resets: Array,
        signs: Array,
        delta: Vector,
        *,
        rows: int,
        start: bool,
    ) -> Any:
        """The merge of a segment into r pairs (`traces/segment_merge.py`)."""
        return plain(A, U, M, H, resets, signs, delta)

    def rmm_few(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H` for few rows, where building H would take longer than the product."""
        return self.rmm(P)

    def dense(self) -> Float[Array, "N N"]:
        """H, written out."""
        raise TypeError(f"{type(self).__name__} cannot be written out")


@partial(jax.tree_util.register_dataclass, data_fields=("H",), meta_fields=())
@dataclass(frozen=True)
class DenseH(StateJac):
    """H of a cell without further structure."""

    H: Float[Array, "N N"]

    def mm(self, A: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`H A`."""
        return jnp.tensordot(self.H, A, axes=1)

    def rmm(self, P: Float[Array, "p N"]) -> Float[Array, "p N"]:
        """`P H`."""
        return P @ self.H

    def scaled(self, c: Float[Array, ""]) -> "DenseH":
        """`c H`."""
        return DenseH(c * self.H)

    def dense(self) -> Float[Array, "N N"]:
        """H itself."""
        return self.H

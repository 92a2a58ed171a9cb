"""A learner at work on a stream: its state in few arrays, and one small program per event.

A call of a program costs JAX about three microseconds per array, and a state has some twenty. Here
all of a state's numbers lie in two arrays, one of floats and one of whole numbers; parameters and
traces that are large stay by themselves, so that they are not copied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline import checks
from kronline.estimators import Segment
from kronline.learner import single
from kronline.learner.engine import Engine
from kronline.learner.state import State

if TYPE_CHECKING:
    from kronline.learner.learner import Learner

SMALL = 1 << 13  # an array of more bytes stays by itself: to copy it takes longer


@dataclass(frozen=True)
class Layout:
    """Where each array of a state lies: among the floats, among the words, or by itself."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, state: State) -> "Layout":
        """The layout of a state."""
        leaves, tree = jax.tree.flatten(state)
        return cls(tree, tuple(a.shape for a in leaves), tuple(str(a.dtype) for a in leaves))

    @property
    def places(self) -> list[str]:
        """floats, words or alone, for each array."""

        def place(shape: tuple[int, ...], dtype: str) -> str:
            if np.prod(shape, dtype=int) * np.dtype(dtype).itemsize > SMALL:
                return "alone"
            return "floats" if dtype in ("float32", "float64") else "words"

        return [place(*a) for a in zip(self.shapes, self.dtypes, strict=True)]

    def packed(self, state: State) -> tuple[Array, Array, list[Array]]:
        """Floats, words, and what is by itself."""
        found: dict[str, list[Array]] = {"floats": [], "words": [], "alone": []}
        for a, place in zip(jax.tree.leaves(state), self.places, strict=True):
            found[place].append(a if place == "alone" else _flat(a))
        floats, words = (jnp.concatenate(found[p]) for p in ("floats", "words"))
        return floats, words, found["alone"]

    def unpacked(self, floats: Array, words: Array, alone: list[Array]) -> State:
        """The state."""
        at, rest, leaves = {"floats": 0, "words": 0}, iter(alone), []
        for shape, dtype, place in zip(self.shapes, self.dtypes, self.places, strict=True):
            if place == "alone":
                leaves.append(next(rest))
                continue
            n = int(np.prod(shape, dtype=int))
            a = (floats if place == "floats" else words)[at[place] : at[place] + n].reshape(shape)
            at[place] += n
            if place == "words":
                whole = jax.lax.bitcast_convert_type
                a = a != 0 if dtype == "bool" else whole(a, jnp.dtype(dtype))
            leaves.append(a)
        return jax.tree.unflatten(self.tree, leaves)


def _flat(a: Array) -> Array:
    """One axis; whole numbers and flags as words."""
    if jnp.issubdtype(a.dtype, jnp.floating):
        return a.reshape(-1)
    whole = a.astype(jnp.uint32) if a.dtype == bool else jax.lax.bitcast_convert_type(a, jnp.uint32)
    return whole.reshape(-1)


def _looped(part: Callable[[Any], Any], state: Any, times: Array) -> Any:
    """`part(state)`, a new state and what is seen, in a loop whose length XLA does not know.

    XLA hands the parts of a program from thread to thread as soon as more than eight of them could
    go on at a time, which takes longer than the work of a small step, and far longer on a busy
    machine. A loop is one part; so what could go on at a time is kept to a few.
    """
    seen = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(part, state)[1])
    return jax.lax.fori_loop(0, times, lambda _, both: part(both[0]), (state, seen))


@lru_cache(maxsize=256)
def unpack(layout: Layout) -> Callable[..., State]:
    """The program that makes a state of a packed one."""
    return jax.jit(layout.unpacked)


@lru_cache(maxsize=256)
def program(engine: Engine, layout: Layout) -> Callable[..., Any]:
    """One step of a packed state, in place."""

    def step(
        packed: Any,
        seg: Segment,
        at: Array | None,
        active: Array | None,
        padded: bool,
        times: Array,
    ) -> tuple[Any, Array]:
        def apart(part: Callable[[State], Any], state: State) -> Any:
            own = Layout.of(state)  # of fewer lanes, where only some have an event

            def inside(packed: Any) -> Any:
                state, seen = part(own.unpacked(*packed))
                return own.packed(state), seen

            packed, seen = _looped(inside, own.packed(state), times)
            return own.unpacked(*packed), seen

        def one(packed: Any) -> tuple[Any, Array]:
            state = layout.unpacked(*packed)
            if at is None:
                new, seen = single.taken(engine, state, engine.typed(seg), None, active, apart)
            else:
                new, seen = single.some_lanes(engine, padded, state, at, seg, None, apart)
            flat = seen.prediction.reshape(seen.loss.shape[0], -1)
            return layout.packed(new), jnp.concatenate([seen.loss[:, None], flat], 1)

        return _looped(one, packed, times)

    return jax.jit(step, donate_argnums=0, static_argnums=4)


@lru_cache(maxsize=256)
def look(engine: Engine, layout: Layout) -> Callable[..., Array]:
    """The predictions of a packed state for events that are not taken."""

    def peek(packed: Any, x: Any, at: Array | None, reset: Any, times: Array) -> Array:
        def one(seen: Array | None) -> Array:
            return single.seen(engine, layout.unpacked(*packed), at, x, reset)

        seen = jax.eval_shape(one, None)
        return jax.lax.fori_loop(0, times, lambda _, p: one(p), jnp.zeros(seen.shape, seen.dtype))

    return jax.jit(peek)


class Live:
    """A learner that is fed event by event: `Learner.live(state)` makes it.

    Args:
        learner: whose steps are taken.
        state: where it starts; it is copied.

    Example:
        >>> import jax, numpy as np, optax, kronline as kl
        >>> learner = kl.Learner(kl.GRU(8, 3), kl.linear(1), kl.rtrl(), optax.sgd(0.1))
        >>> live = learner.live(learner.init(jax.random.key(0)))
        >>> seen = live.step(np.ones((1, 3)), np.ones((1, 1)))
        >>> seen.prediction.shape, live.state.s.shape
        ((1, 1), (1, 8))
    """

    def __init__(self, learner: "Learner", state: State) -> None:
        self.learner, self.lanes = learner, int(state.s.shape[0])
        self._layout = Layout.of(state)
        self._program = program(learner.engine, self._layout)
        self._look = look(learner.engine, self._layout)
        self._packed = jax.jit(self._layout.packed)(jax.tree.map(jnp.copy, state))
        self._once = jnp.int32(1)
        self._kinds: set[Any] = set()  # of data that was checked

    @property
    def state(self) -> State:
        """The learner's state, as an ordinary one: a copy."""
        return jax.tree.map(jnp.copy, unpack(self._layout)(*self._packed))

    def step(
        self, x: Any, y: Any = None, *, reset: Any = None, weight: Any = None, lanes: Any = None
    ) -> "Seen":
        """Move on by one event of every lane, or of some, and learn from it.

        Args:
            x, y, reset, weight, lanes: as for `Learner.step`. Shapes and types are checked when
                they are first met, and that numbers are finite not at all: a lane whose numbers are
                not starts anew.

        Returns:
            losses and predictions, fetched when they are read.
        """
        if lanes is None:
            seg = self._event(self.lanes, x, y, reset, weight)
            self._packed, out = self._program(self._packed, seg, None, None, False, self._once)
            return Seen(out, slice(self.lanes))
        lanes = np.asarray(lanes, np.int32)
        seg = self._event(len(lanes), x, y, reset, weight)
        if len(lanes) > 1:
            checks.some_lanes(lanes, self.lanes)
        if 2 * len(lanes) <= self.lanes:
            seg, places, padded = single.places(seg, lanes, self.lanes)
            self._packed, out = self._program(self._packed, seg, places, None, padded, self._once)
            return Seen(out, slice(len(lanes)))
        # most of them: all are computed, and those without an event keep what they had
        active = np.zeros(self.lanes, bool)
        active[lanes] = True
        seg = jax.tree.map(lambda a: _in_place(a, lanes, self.lanes), seg)
        every = None if active.all() else active
        self._packed, out = self._program(self._packed, seg, None, every, False, self._once)
        return Seen(out, lanes)

    def _event(self, lanes: int, x: Any, y: Any, reset: Any, weight: Any) -> Segment:
        """The data of one event; checked where its kind is not known yet."""
        kind = tuple(
            (a.shape, a.dtype) if hasattr(a, "dtype") else type(a)
            for a in (*jax.tree.leaves((x, y)), reset, weight)
        )
        if kind in self._kinds and y is not None:
            return Segment(x, y, reset, weight)
        learner = self.learner
        if y is None:
            y = checks.no_targets(learner.readout, (lanes,))
            weight = np.zeros(lanes, np.float32)
        seg = checks.segment(
            learner.cell, learner.readout, (lanes,), x, y, reset, weight, learner.dtype
        )
        self._kinds.add(kind)
        return seg

    def peek(self, x: Any, *, reset: Any = None, lanes: Any = None) -> Float[np.ndarray, "lanes o"]:
        """The predictions for one event that is not taken.

        Args:
            x, reset, lanes: as for `Learner.peek`; a lane may be named more than once.
        """
        at = None if lanes is None else np.asarray(lanes, np.int32)
        reset = np.zeros(len(x), bool) if reset is None else reset
        return np.asarray(self._look(self._packed, x, at, reset, self._once))


class Seen:
    """What was predicted for an event; it is fetched when it is read."""

    def __init__(self, out: Array, which: slice | np.ndarray) -> None:
        self._out, self._which = out, which

    @property
    def loss(self) -> Float[np.ndarray, " lanes"]:
        """Of every lane."""
        return np.asarray(self._out)[self._which, 0]

    @property
    def prediction(self) -> Float[np.ndarray, "lanes o"]:
        """Of every lane, before it learnt."""
        return np.asarray(self._out)[self._which, 1:]


def _in_place(a: Any, lanes: np.ndarray, count: int) -> np.ndarray:
    """Rows of some lanes, where these lie among all lanes; zeros elsewhere."""
    a = np.asarray(a)
    out = np.zeros((count, *a.shape[1:]), a.dtype)
    out[lanes] = a
    return out

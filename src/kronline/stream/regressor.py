"""The next number, from features and from what came before."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.readout import Readout
from kronline.stream.experts import Twice
from kronline.stream.features import LARGEST, Event
from kronline.stream.linear import LeastSquares
from kronline.stream.model import Model, Rows, as_lists, rounds
from kronline.stream.running import clamped, within
from kronline.stream.simple import FAST, SLOW, Simple, weight

ERRORS = 512  # errors that intervals are calibrated by
MOST = 8.0  # scaled errors beyond this count as this
BEFORE = (0.3, 0.1, 0.6)  # weights of the mixture, the mean and the last value at the start
MEAN, LAST, ANCHOR, STRAIGHT, CURVED, NETWORK, TOP, PARTS = 0, 1, 2, 4, 5, 6, 7, 8  # of the mixture


def two_heads(prediction: Float[Array, " 3"], target: Float[Array, " 3"]) -> Float[Array, ""]:
    """`H(μ₁ − y₁) + H(μ₂ − y₂) + ρ + ½e² exp(−2ρ)`, H Huber's loss; target: y₁, y₂, e."""
    error = jnp.abs(prediction[:2] - target[:2])
    rho = jnp.clip(prediction[2], -5, 5)
    huber = jnp.where(error < 1, error**2 / 2, error - 0.5)
    return huber.sum() + rho + target[2] ** 2 * jnp.exp(-2 * rho) / 2


class _Look(NamedTuple):
    """What was predicted for some events."""

    at: tuple[Any, ...]  # which events, of which keys, and when
    table: tuple[np.ndarray, np.ndarray]
    past: np.ndarray  # the last targets of their lanes
    inputs: np.ndarray
    rows: tuple[np.ndarray, np.ndarray]  # of the two least squares
    parts: np.ndarray  # (events, parts of the mixture)
    width: np.ndarray


class Regressor(Model):
    """A number per event, from its features and from all earlier events of its key.

    What is predicted is a mixture of eight parts, weighed by how good each has been lately: the
    running mean; the last value of the key; an anchor between them; a trend beyond the last value
    (see `Simple`); recursive least squares, straight and curved (see `LeastSquares`); and the
    network, which predicts how far the target is from the anchor, and how far from what the
    curved least squares say. This mixture is weighed once more beside the mean and the last value,
    by the last 500 events or so (see `Twice`). Inputs are the scaled features and the last targets.

    Args:
        lags: how many of the last targets least squares and the network see.
        memory: events over which the parts of the mixture are judged.
        curves: random columns of the curved least squares.
        cell, hidden, estimator, rate, clip, skip, halflife, scale, indicator, max_keys, seed: see
            `Model`.

    Example:
        >>> from kronline import stream
        >>> model = stream.Regressor()
        >>> for t in range(20):
        ...     _ = model.learn_one({"t": t % 2}, float(t % 2))
        >>> low, high = model.predict_interval_one({"t": 0})
        >>> low <= high
        True
    """

    def __init__(
        self,
        *,
        lags: int = 8,
        memory: float = 50.0,
        curves: int = 96,
        cell: str = "ELSTM",
        hidden: int = 64,
        estimator: str = "rtrl()",
        rate: float = 0.003,
        clip: float = 1.0,
        skip: bool = True,
        halflife: float | None = None,
        scale: str | None = "running",
        indicator: bool = False,
        max_keys: int = 1024,
        seed: int = 0,
    ) -> None:
        self.lags, self.memory, self.curves = lags, memory, curves
        super().__init__(
            cell=cell,
            hidden=hidden,
            estimator=estimator,
            rate=rate,
            clip=clip,
            skip=skip,
            halflife=halflife,
            scale=scale,
            indicator=indicator,
            max_keys=max_keys,
            seed=seed,
        )
        inputs = self._extra + self._features.room
        self._simple = Simple(lags, halflife)
        self._straight = LeastSquares(inputs)
        self._curved = LeastSquares(inputs, curves, seed)
        self._experts = Twice(PARTS, memory, FAST, (MEAN, LAST), BEFORE)
        self._distance = 0.0  # the usual one between target and curved least squares
        self._errors = np.zeros(ERRORS)  # |y − prediction| over the scale that was predicted
        self._judged = 0  # how many there were
        self._seen: _Look | None = None

    # -- for users ---------------------------------------------------------------------------------

    def predict_one(self, x: Event, key: Hashable = None) -> float:
        """The target that is expected of an event; the model does not move on.

        Args:
            x: a dict, or a tuple or array of numbers.
            key: which sensor, user or machine it is from.
        """
        return float(self._predict([x], [key])[0][0])

    def predict_many(
        self, xs: Sequence[Event], keys: Sequence[Hashable] | None = None
    ) -> list[float]:
        """`predict_one` of many events, each as if it were the next one of its key."""
        if not len(xs):
            return []
        return self._predict(xs, as_lists(xs, keys))[0].tolist()

    def predict_interval_one(
        self, x: Event, level: float = 0.9, key: Hashable = None
    ) -> tuple[float, float]:
        """Where the target is expected to be with a probability of `level`.

        The network predicts how wide the errors are; how many of these widths are needed is taken
        from the last errors.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        guess, width = self._predict([x], [key])
        count = min(self._judged, ERRORS)
        if not count:
            return -np.inf, np.inf
        # the smallest of the last errors that a share of level·(n+1)/n is within
        rank = min(int(np.ceil(level * (count + 1))), count) - 1
        q = np.partition(self._errors[:count], rank)[rank]
        half = float(q * width[0])
        return float(guess[0]) - half, float(guess[0]) + half

    def learn_one(self, x: Event, y: float | None, key: Hashable = None) -> Self:
        """Move on by one event, and learn from its target; without a target, only move on."""
        return self._learn([self._features.read(x)], [number(y)], [key])

    def learn_many(
        self,
        xs: Sequence[Event],
        ys: Sequence[float | None],
        keys: Sequence[Hashable] | None = None,
    ) -> Self:
        """Events in their order. Those of different keys are learnt from together.

        Without keys this is a loop of `learn_one`. With keys, the next event of each key is taken
        from all of them, one update is made for these, and so on.
        """
        if len(xs) != len(ys):
            raise ValueError(f"needed a target for each of {len(xs)} events, got {len(ys)}")
        named = as_lists(xs, keys)
        read = [self._features.read(x) for x in xs]  # all of it, before anything is learnt
        good = [number(y) for y in ys]
        for some in rounds(named, self.max_keys):
            self._learn([read[i] for i in some], [good[i] for i in some], [named[i] for i in some])
        return self

    # -- one round of events -----------------------------------------------------------------------

    @property
    def _outputs(self) -> int:
        return 3

    @property
    def _extra(self) -> int:
        return max(self.lags, 1)

    def _readout(self, outputs: int) -> Readout:
        return Readout(outputs, two_heads)

    def _targets(self, lanes: int, outputs: int) -> Any:
        return np.zeros((lanes, 3), np.float32)

    def _look(self, events: Rows, keys: Sequence[Hashable]) -> _Look:
        """What is predicted for events; kept for the case that they are learnt from next."""
        at = (events, keys, self.events, self._features.used)
        if self._seen is None or self._seen.at != at:
            self._seen = self._look_at(at, events, *self._found(keys))
        return self._seen

    def _look_at(
        self, at: tuple[Any, ...], events: Rows, lanes: np.ndarray, new: np.ndarray
    ) -> _Look:
        table = self._features.table(events)
        past = self._simple.last(lanes, new)
        inputs = self._inputs(*table, past)
        raw = self.network.predict(inputs, lanes, new)
        rows = self._straight.rows(inputs), self._curved.rows(inputs)
        return _Look(at, table, past, inputs, rows, *self._parts(raw, past, rows))

    def _predict(
        self, xs: Sequence[Event], keys: Sequence[Hashable]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predictions, and how wide errors are expected to be."""
        seen = self._look([self._features.read(x) for x in xs], keys)
        return seen.parts @ self._experts.weights, seen.width

    def _learn(self, events: Rows, ys: Sequence[float], keys: Sequence[Hashable]) -> Self:
        y = np.array(ys)
        there = y == y  # noqa: PLR0124
        kept = self._seen  # a look at keys that are new is one at the zero state, as is theirs
        room = self._features.room
        lanes, new = self._admit(events, keys)
        if self._features.room > room:
            for squares in (self._straight, self._curved):
                squares.grow(self._extra + self._features.room)
        self._seen = kept
        anew = np.count_nonzero(new) > 0
        seen = self._look_at((), events, lanes, new) if anew else self._look(events, keys)
        parts, scale = seen.parts, self._simple.scale
        guess = parts @ self._experts.weights
        near = within((y - parts[:, ANCHOR]) / scale, MOST)
        target = np.empty((len(y), 3), np.float32)
        target[:, 0] = near
        target[:, 1] = within((y - parts[:, CURVED]) / self._small, MOST)
        target[:, 2] = within((y - guess) / scale, MOST)
        every = np.count_nonzero(there) == len(y)
        share = None if every else there.astype(np.float32)
        self.network.learn(seen.inputs, target, share, lanes, new if anew else None)
        if every:
            self._judge(y, near, guess, seen)
        elif there.any():
            some = seen._replace(
                past=seen.past[there],
                rows=(seen.rows[0][there], seen.rows[1][there]),
                parts=parts[there],
                width=seen.width[there],
            )
            self._judge(y[there], near[there], guess[there], some)
        self._features.learn(*seen.table)
        self._simple.remember(y, lanes, new)
        self.events += len(y)
        return self

    def _inputs(self, rows: np.ndarray, there: np.ndarray, past: np.ndarray) -> np.ndarray:
        """The level of the last target, the steps from it to those before; then the features."""
        n, simple = self._extra, self._simple
        inputs = np.empty((len(rows), n + rows.shape[1]), np.float32)
        front = (past[:, :n] - past[:, :1]) * (1 / simple.scale)
        front[:, 0] = (past[:, 0] - simple.mean) * simple.inverse
        inputs[:, :n] = within(front, MOST)
        inputs[:, n:] = self._features.vectors(rows, there)
        return inputs

    def _parts(
        self, raw: np.ndarray, past: np.ndarray, rows: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What each part of the mixture predicts, and how wide errors are expected to be."""
        if len(raw) == 1:  # as below, in a third of the time
            return self._parts_of_one(raw[0].tolist(), past, rows)
        scaled, scale = within(raw.astype(float), MOST), self._simple.scale
        parts = np.empty((len(raw), PARTS))
        parts[:, :STRAIGHT] = self._simple.parts(past)
        anchor = parts[:, ANCHOR]
        parts[:, STRAIGHT] = anchor + scale * self._straight.predict(rows[0], MOST)
        parts[:, CURVED] = anchor + scale * self._curved.predict(rows[1], MOST)
        parts[:, NETWORK] = anchor + scale * scaled[:, 0]
        parts[:, TOP] = parts[:, CURVED] + self._small * scaled[:, 1]
        return parts, scale * np.exp(scaled[:, 2])

    def _parts_of_one(
        self, raw: list[float], past: np.ndarray, rows: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        near, top, rho = (clamped(v, MOST) for v in raw)
        scale, simple = self._simple.scale, self._simple.parts_of_one(past[0])
        straight, curved = (
            float((V @ squares.w)[0])
            for V, squares in zip(rows, (self._straight, self._curved), strict=True)
        )
        anchor = simple[ANCHOR]
        curve = anchor + scale * clamped(curved, MOST)
        found = [*simple, anchor + scale * clamped(straight, MOST), curve]
        found += [anchor + scale * near, curve + self._small * top]
        return np.array([found]), np.array([scale * math.exp(rho)])

    @property
    def _small(self) -> float:
        """The usual distance between target and curved least squares."""
        return self._distance or 1.0

    def _judge(self, y: np.ndarray, near: np.ndarray, guess: np.ndarray, seen: _Look) -> None:
        """All but the network learns from targets that are there."""
        self._straight.learn(seen.rows[0], near)
        self._curved.learn(seen.rows[1], near)
        self._simple.learn(y, seen.past, seen.parts)
        errors = y[:, None] - seen.parts
        self._experts.judge(errors)
        n = len(y)
        share = weight(n, self._experts.first.seen, SLOW)
        curved = errors[:, CURVED]
        distance = abs(float(curved[0])) if n == 1 else float(np.abs(curved).mean())
        self._distance += share * (distance - self._distance)
        first = self._judged % ERRORS
        at = slice(first, first + 1) if n == 1 else (self._judged + np.arange(n)) % ERRORS
        self._errors[at] = np.abs(y - guess) / seen.width
        self._judged += n

    # -- growth and files --------------------------------------------------------------------------

    def _grown(self, lanes: int) -> None:
        self._simple.grow(lanes)

    def _arrays(self) -> dict[str, np.ndarray]:
        inner: dict[str, Any] = {
            "experts": self._experts,
            "simple": self._simple,
            "straight": self._straight,
            "curved": self._curved,
        }
        found = {f"{name}.{k}": v for name, part in inner.items() for k, v in part.state().items()}
        return found | {"distance": np.array(self._distance), "errors": self._errors}

    def _header(self) -> dict[str, Any]:
        return {"judged": self._judged, "seen": self._experts.first.seen}

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        def inside(name: str) -> dict[str, np.ndarray]:
            return {k[len(name) :]: v for k, v in arrays.items() if k.startswith(name)}

        self._simple.restore(inside("simple."))
        self._straight.restore(inside("straight."))
        self._curved.restore(inside("curved."))
        self._distance = float(arrays["distance"])
        self._experts.restore(inside("experts."), header["seen"])
        self._errors = np.array(arrays["errors"])
        self._judged = header["judged"]


def number(y: Any) -> float:
    """A target as a float; NaN for none."""
    if y is None:
        return np.nan
    try:
        value = float(y)
    except (TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"a target must be a number or None, got {y!r}") from e
    if abs(value) > LARGEST:
        raise ValueError(f"a target must be finite and at most {LARGEST:g}, got {y!r}")
    return value

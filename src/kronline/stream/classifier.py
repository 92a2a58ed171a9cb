"""The class of each event, with probabilities; new classes may appear at any time."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.readout import Readout
from kronline.stream.experts import Experts
from kronline.stream.features import Event
from kronline.stream.model import Model, as_lists, rounds

FIRST = 4  # how many classes there is room for at the start
LAST = "last class"  # the feature that holds the class of the event before
SURE = 1e-4  # no part of the mixture gives a class less than this


def known_classes(logits: Float[Array, " o"], target: Any) -> Float[Array, ""]:
    """Cross entropy over the classes that are known; target: the class, and how many are known."""
    label, known = target
    logits = jnp.where(jnp.arange(logits.size) < known, logits, -jnp.inf)
    return jax.nn.logsumexp(logits) - logits[label]


class Classifier(Model):
    """A class per event, from its features and from all earlier events of its key.

    What is predicted is a mixture of the network, of the last class (with the shares of classes
    that follow it), and of the shares of all classes, weighed by how good each has been lately.

    Args:
        memory: events over which the parts of the mixture are judged.
        cell, hidden, estimator, rate, clip, skip, halflife, scale, indicator, max_keys, seed: see
            `Model`.

    Example:
        >>> from kronline import stream
        >>> model = stream.Classifier()
        >>> for t in range(6):
        ...     _ = model.learn_one({"t": t % 2}, "odd" if t % 2 else "even")
        >>> sorted(model.predict_proba_one({"t": 1}))
        ['even', 'odd']
    """

    def __init__(
        self,
        *,
        memory: float = 100.0,
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
        self.memory = memory
        self._room = FIRST
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
        self.classes: list[Any] = []  # in the order in which they came
        self._index: dict[Any, int] = {}
        self._last = np.full(1, -1, np.int64)  # of each lane; −1: none
        self._counts = np.zeros(FIRST)
        self._follows = np.zeros((FIRST, FIRST))  # how often a class came after another
        self._experts = Experts(3, memory)

    # -- for users ---------------------------------------------------------------------------------

    def predict_proba_one(self, x: Event, key: Hashable = None) -> dict[Any, float]:
        """The probability of every class so far; they sum to one. Empty before the first class."""
        return self.predict_proba_many([x], [key])[0]

    def predict_one(self, x: Event, key: Hashable = None) -> Any:
        """The most probable class; None before the first one."""
        shares = self.predict_proba_one(x, key)
        return _most_probable(shares)

    def predict_proba_many(
        self, xs: Sequence[Event], keys: Sequence[Hashable] | None = None
    ) -> list[dict[Any, float]]:
        """`predict_proba_one` of many events, each as if it were the next one of its key."""
        events = [self._features.read(x) for x in xs]
        if not self.classes or not events:
            return [{} for _ in events]
        lanes, new = self._found(as_lists(xs, keys))
        raw = self.network.predict(self._inputs(events, lanes, new)[0], lanes, new)
        shares = np.einsum("e,mec->mc", self._experts.weights, self._parts(raw, lanes, new))
        shares /= shares.sum(1, keepdims=True)
        return [dict(zip(self.classes, row.tolist(), strict=True)) for row in shares]

    def predict_many(
        self, xs: Sequence[Event], keys: Sequence[Hashable] | None = None
    ) -> list[Any]:
        """`predict_one` of many events."""
        found = self.predict_proba_many(xs, keys)
        return [_most_probable(shares) for shares in found]

    def learn_one(self, x: Event, y: Any, key: Hashable = None) -> Self:
        """Move on by one event, and learn from its class; without a class, only move on."""
        return self._learn([self._features.read(x)], [_label(y)], [key])

    def learn_many(
        self, xs: Sequence[Event], ys: Sequence[Any], keys: Sequence[Hashable] | None = None
    ) -> Self:
        """Events in their order; those of different keys together, as `Regressor.learn_many`."""
        if len(xs) != len(ys):
            raise ValueError(f"needed a class for each of {len(xs)} events, got {len(ys)}")
        named = as_lists(xs, keys)
        read, good = [self._features.read(x) for x in xs], [_label(y) for y in ys]
        for some in rounds(named, self.max_keys):
            self._learn([read[i] for i in some], [good[i] for i in some], [named[i] for i in some])
        return self

    # -- one round of events -----------------------------------------------------------------------

    @property
    def _outputs(self) -> int:
        return self._room

    def _readout(self, outputs: int) -> Readout:
        return Readout(outputs, known_classes)

    def _targets(self, lanes: int, outputs: int) -> Any:
        return np.zeros(lanes, np.int32), np.ones(lanes, np.int32)

    def _learn(
        self, events: list[dict[str, Any]], ys: Sequence[Any], keys: Sequence[Hashable]
    ) -> Self:
        for y in ys:
            if y is not None and y not in self._index:
                self._new_class(y)
        y = np.array([-1 if v is None else self._index[v] for v in ys])
        there = y >= 0
        lanes, new = self._admit(self._with_last(events, *self._found(keys)), keys)
        inputs, table = self._inputs(events, lanes, new)
        raw = self.network.predict(inputs, lanes, new)
        label = np.maximum(y, 0).astype(np.int32)
        known = np.full(len(y), max(len(self.classes), 1), np.int32)
        self.network.learn(inputs, (label, known), there.astype(np.float32), lanes, new)
        if there.any():
            parts = self._parts(raw, lanes, new)
            self._experts.learn(-np.log(parts[there, :, y[there]]))
            np.add.at(self._counts, y[there], 1)
            before = np.where(new, -1, self._last[lanes])[there]
            np.add.at(self._follows, (before[before >= 0], y[there][before >= 0]), 1)
        self._features.learn(*table)
        self._last[lanes[new]] = -1
        self._last[lanes[there]] = y[there]
        self.events += len(y)
        return self

    def _inputs(
        self, events: list[dict[str, Any]], lanes: np.ndarray, new: np.ndarray
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """What the network sees: features, and the last class as one of them."""
        table = self._features.table(self._with_last(events, lanes, new))
        return self._features.vectors(*table).astype(np.float32), table

    def _with_last(
        self, events: list[dict[str, Any]], lanes: np.ndarray, new: np.ndarray
    ) -> list[dict[str, Any]]:
        last = np.where(new, -1, self._last[lanes]).tolist()
        return [e | {LAST: str(at)} for e, at in zip(events, last, strict=True)]

    def _parts(self, raw: np.ndarray, lanes: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Probabilities (events, parts, classes) by network, last class and all classes."""
        n = len(self.classes)
        logits = np.nan_to_num(raw[:, :n].astype(float), nan=0.0, posinf=50, neginf=-50)
        network = np.exp(logits - logits.max(1, keepdims=True))
        counts = np.tile(self._counts[:n] + 0.5, (len(raw), 1))
        last = np.where(new, -1, self._last[lanes])
        follows = np.where(
            last[:, None] >= 0, self._follows[last, :n] + 0.5 * np.eye(n)[last] + 0.1, counts
        )
        parts = np.stack([network, follows, counts], 1)
        parts = parts / parts.sum(2, keepdims=True)
        return (1 - SURE) * parts + SURE / n

    def _new_class(self, y: Any) -> None:
        self._index[y] = len(self.classes)
        self.classes.append(y)
        if len(self.classes) > self._room:
            self._room *= 2
            self.network.grow(outputs=self._room)
            self._counts = np.pad(self._counts, (0, self._room - len(self._counts)))
            self._follows = np.pad(self._follows, (0, self._room - len(self._follows)))

    # -- growth and files --------------------------------------------------------------------------

    def _grown(self, lanes: int) -> None:
        self._last = np.concatenate([self._last, np.full(lanes - len(self._last), -1)])

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "last": self._last,
            "counts": self._counts,
            "follows": self._follows,
            "experts": self._experts.total,
        }

    def _header(self) -> dict[str, Any]:
        odd = [c for c in self.classes if not isinstance(c, str | int | float | bool)]
        if odd:
            raise TypeError(f"classes must be texts or numbers to be saved, got {odd[0]!r}")
        return {"classes": self.classes, "room": self._room}

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._last, self._counts = np.array(arrays["last"]), np.array(arrays["counts"])
        self._follows = np.array(arrays["follows"])
        self._experts.restore(np.array(arrays["experts"]))
        self.classes, self._room = list(header["classes"]), header["room"]
        self._index = {c: i for i, c in enumerate(self.classes)}


def _most_probable(shares: dict[Any, float]) -> Any:
    """The first of the most probable classes; None of no classes."""
    return max(shares, key=shares.__getitem__) if shares else None


def _label(y: Any) -> Any:
    """A class as a key of a dict; None for none."""
    if isinstance(y, np.generic):
        y = y.item()
    if isinstance(y, float) and math.isnan(y):
        return None
    try:
        hash(y)
    except TypeError as e:
        raise TypeError(f"a class must be a text or a number, got {type(y).__name__}") from e
    return y

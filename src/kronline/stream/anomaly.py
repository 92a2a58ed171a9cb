"""How surprising each event is, given all earlier events of its key."""

from collections.abc import Hashable, Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kronline.readout import Readout
from kronline.stream.features import FIRST, Event
from kronline.stream.model import Model, as_lists, rounds

KEPT = 1024  # surprises that a new one is compared with


def next_event(prediction: Float[Array, " o"], target: Any) -> Float[Array, ""]:
    """The Gaussian `Σ ρ + ½(z − μ)² exp(−2ρ)` over what is there of the next event."""
    z, there = target
    mu, rho = jnp.split(prediction, 2)
    rho = jnp.clip(rho, -3, 3)
    each = rho + (z - mu) ** 2 * jnp.exp(-2 * rho) / 2
    return jnp.sum(jnp.where(there > 0, each, 0)) / jnp.maximum(jnp.sum(there), 1)


class AnomalyDetector(Model):
    """A score per event: the share of the last events that were less surprising.

    The network predicts mean and width of every feature of the next event of a key. The surprise of
    an event is its negative log-likelihood, its mean over the features that are there.

    Args:
        cell, hidden, estimator, rate, clip, skip, halflife, scale, indicator, max_keys, seed: see
            `Model`.

    Example:
        >>> from kronline import stream
        >>> model = stream.AnomalyDetector()
        >>> for t in range(30):
        ...     _ = model.learn_one({"load": t % 3})
        >>> 0 <= model.score_one({"load": 100}) <= 1
        True
    """

    def __init__(
        self,
        *,
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
        self._before = np.zeros((1, FIRST), np.float32)  # the last event of each lane, as a vector
        self._kept = np.zeros(KEPT)
        self._count = 0

    # -- for users ---------------------------------------------------------------------------------

    def score_one(self, x: Event, key: Hashable = None) -> float:
        """From 0, nothing was less surprising, to 1, everything was; 0 before the first event."""
        surprise = self.surprise_one(x, key)
        count = min(self._count, KEPT)
        if not count:
            return 0.0
        return float((self._kept[:count] < surprise).mean())

    def surprise_one(self, x: Event, key: Hashable = None) -> float:
        """The negative log-likelihood of an event per feature, up to a constant, in nats."""
        lanes, new = self._found([key])
        rows, there = self._features.table([self._features.read(x)])
        raw = self.network.predict(self._inputs(lanes, new), lanes, new)
        z = self._wide(rows, there)
        return float(_surprises(raw, z, there)[0])

    def learn_one(self, x: Event, key: Hashable = None) -> Self:
        """Move on by one event, and learn to expect it."""
        return self._learn([self._features.read(x)], [key])

    def learn_many(self, xs: Sequence[Event], keys: Sequence[Hashable] | None = None) -> Self:
        """Events in their order; those of different keys together, as `Regressor.learn_many`."""
        named = as_lists(xs, keys)
        read = [self._features.read(x) for x in xs]
        for some in rounds(named, self.max_keys):
            self._learn([read[i] for i in some], [named[i] for i in some])
        return self

    # -- one round of events -----------------------------------------------------------------------

    @property
    def _outputs(self) -> int:
        return 2 * self._features.room

    def _readout(self, outputs: int) -> Readout:
        return Readout(outputs, next_event)

    def _targets(self, lanes: int, outputs: int) -> Any:
        return (np.zeros((lanes, outputs // 2), np.float32),) * 2

    def _inputs(self, lanes: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.where(new[:, None], 0, self._before[lanes]).astype(np.float32)

    def _wide(self, rows: np.ndarray, there: np.ndarray) -> np.ndarray:
        """An event as a vector, less clipped than what the network sees."""
        f = self._features
        if f.scale is None:
            return rows
        z = (rows - f.running.mean) * f.running.inverse
        return np.clip(np.where(f.numeric, np.where(there, z, 0), rows), -100, 100)

    def _learn(self, events: list[dict[str, Any]], keys: Sequence[Hashable]) -> Self:
        room = self._features.room
        lanes, new = self._admit(events, keys)
        if self._features.room > room:
            self.network.grow(outputs=self._outputs)
            self._before = np.pad(self._before, ((0, 0), (0, self._features.room - room)))
        rows, there = self._features.table(events)
        inputs = self._inputs(lanes, new)
        raw = self.network.predict(inputs, lanes, new)
        z = self._features.vectors(rows, there).astype(np.float32)
        self.network.learn(
            inputs, (z, there.astype(np.float32)), np.ones(len(events), np.float32), lanes, new
        )
        for surprise in _surprises(raw, self._wide(rows, there), there):
            self._kept[self._count % KEPT] = surprise
            self._count += 1
        self._before[lanes] = z
        self._features.learn(rows, there)
        self.events += len(events)
        return self

    # -- growth and files --------------------------------------------------------------------------

    def _grown(self, lanes: int) -> None:
        self._before = np.pad(self._before, ((0, lanes - len(self._before)), (0, 0)))

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"before": self._before, "kept": self._kept}

    def _header(self) -> dict[str, Any]:
        return {"count": self._count}

    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._before, self._kept = np.array(arrays["before"]), np.array(arrays["kept"])
        self._count = header["count"]


def _surprises(raw: np.ndarray, z: np.ndarray, there: np.ndarray) -> np.ndarray:
    """As `next_event`, of many events."""
    mu, rho = np.split(np.nan_to_num(raw.astype(float)), 2, axis=1)
    rho = np.clip(rho, -3, 3)
    each = rho + (z - mu) ** 2 * np.exp(-2 * rho) / 2
    return np.where(there, each, 0).sum(1) / np.maximum(there.sum(1), 1)

"""What all stream models have in common: settings, features, keys, and the network."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import optax

from kronline.cells import LinearCell, Stack
from kronline.learner import Learner
from kronline.readout import Readout
from kronline.spec import parse
from kronline.stream.features import Event, Features
from kronline.stream.keys import Keys
from kronline.stream.network import Network

Rows = Sequence[dict[str, Any]]


class Model(ABC):
    """A recurrent network that learns from a stream of events, and all that it needs for that.

    Args:
        cell: a cell's spec, without its sizes: "GRU", "LSTM", "LRU", "RHN", ...
        hidden: units.
        estimator: how credit is assigned: "rtrl()", "kf_rtrl()", "snap()", "tbptt(10)", ...
        rate: of Adam.
        clip: gradients are clipped to this norm.
        skip: whether the readout sees the input, too, beside the cell's output.
        halflife: events after which one counts half in running means; None: all count alike.
        scale: "running": numbers are standardised; None: they are taken as they are.
        indicator: whether the network is told which numbers are missing.
        max_keys: how many keys have a lane of their own; the least recently seen one is dropped.
        seed: of parameters and noise.
    """

    def __init__(
        self,
        *,
        cell: str,
        hidden: int,
        estimator: str,
        rate: float,
        clip: float,
        skip: bool,
        halflife: float | None,
        scale: str | None,
        indicator: bool,
        max_keys: int,
        seed: int,
    ) -> None:
        self.cell, self.hidden, self.estimator = cell, hidden, estimator
        self.rate, self.clip, self.skip = rate, clip, skip
        self.halflife, self.scale, self.indicator = halflife, scale, indicator
        self.max_keys, self.seed = max_keys, seed
        if not rate > 0:
            raise ValueError(f"rate must be positive, got {rate!r}")
        if max_keys < 1:
            raise ValueError(f"max_keys must be 1 or more, got {max_keys!r}")
        self._features = Features(scale=scale, halflife=halflife, indicator=indicator)
        self._keys = Keys(max_keys)
        self._network: Network | None = None
        self.events = 0  # learnt from, or seen without a target
        self._make(2, 1)  # early, so that wrong specs are told at once

    # -- for users ---------------------------------------------------------------------------------

    @property
    def skipped(self) -> int:
        """Updates that were left out, since they were not finite."""
        return 0 if self._network is None else int(self._network.state.skipped)

    def save(self, path: str | Path) -> None:
        """Write the whole model to one file; `load` goes on from it, bit for bit."""
        from kronline.stream import file  # noqa: PLC0415  it needs all models

        file.save(path, self)

    # -- for models --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _outputs(self) -> int:
        """How many numbers the network predicts."""

    @property
    def _extra(self) -> int:
        """How many inputs there are in front of the features."""
        return 0

    @abstractmethod
    def _readout(self, outputs: int) -> Readout:
        """The readout and its loss."""

    @abstractmethod
    def _targets(self, lanes: int, outputs: int) -> Any:
        """Targets that stand for none, for estimators that keep steps until a window is full."""

    @abstractmethod
    def _grown(self, lanes: int) -> None:
        """There are so many lanes from now on."""

    def _arrays(self) -> dict[str, np.ndarray]:
        """What is to be saved besides network and features."""
        return {}

    @abstractmethod
    def _restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """From what was saved."""

    def _header(self) -> dict[str, Any]:
        """What is to be saved, and is no array."""
        return {}

    def _make(self, inputs: int, outputs: int) -> Learner:
        cell = parse(self.cell, "cell", self.hidden, inputs)
        if self.skip and isinstance(cell, LinearCell):
            cell = Stack((cell,), see_input=True)
        return Learner(
            cell,
            self._readout(outputs),
            parse(self.estimator, "estimator"),
            _optimiser(self.rate, self.clip),
            donate=True,
        )

    @property
    def network(self) -> Network:
        """The network, made when it is first needed."""
        if self._network is None:
            inputs = self._extra + self._features.room
            self._network = Network(self._make, self._targets, inputs, self._outputs, self.seed)
        return self._network

    def _admit(self, events: Rows, keys: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
        """Room for what is new in these events and keys; the keys' lanes, and which are new."""
        network = self.network
        if self._features.admit(events):
            network.grow(inputs=self._extra + self._features.room)
        lanes, new = self._keys.take(keys)
        if self._keys.count > network.lanes:
            network.grow(lanes=self._keys.count)
            self._grown(self._keys.count)
        return lanes, new

    def _found(self, keys: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
        """The lanes of keys, and which keys have none; their lane is then 0, and counts as new."""
        lanes = self._keys.find(keys)
        return np.maximum(lanes, 0), lanes < 0


@lru_cache(maxsize=64)
def _optimiser(rate: float, clip: float) -> optax.GradientTransformation:
    """The same object for the same numbers, so that equal models share compiled programs."""
    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate))


def rounds(keys: Sequence[Hashable], most: int) -> list[list[int]]:
    """Places of events that can be learnt from together: no key twice, at most so many.

    The order of the events of a key is kept.
    """
    found: list[list[int]] = []
    at: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        turn = at.get(key, 0)
        while turn < len(found) and len(found[turn]) >= most:
            turn += 1
        if turn == len(found):
            found.append([])
        found[turn].append(i)
        at[key] = turn + 1
    return found


def settings(model: Any) -> dict[str, Any]:
    """A model's settings, by the names of its arguments."""
    names = [n for n in inspect.signature(type(model).__init__).parameters if n != "self"]
    return {name: getattr(model, name) for name in names}


def as_lists(xs: Sequence[Event], keys: Sequence[Hashable] | None) -> list[Hashable]:
    """A key for every event; without keys all have the same one, None."""
    if keys is None:
        return [None] * len(xs)
    if len(keys) != len(xs):
        raise ValueError(f"needed one key for each of {len(xs)} events, got {len(keys)} keys")
    return list(keys)

"""What one would guess without a model: the last value, the mean; the last class, the commonest."""

from typing import Any, Protocol

from kronline.lab.learn.events import Recent

Guess = tuple[Any, Any]  # by the last target, and by all of them


class Baseline(Protocol):
    """Two guesses, and what they are made from."""

    names: tuple[str, str]

    def guess(self, key: str | None) -> Guess | None:
        """For the next target of a key; None before the first one of all."""

    def learn(self, y: Any, key: str | None) -> None:
        """A target came."""

    def state(self) -> Any:
        """For a checkpoint."""

    def restore(self, state: Any) -> None:
        """Of a checkpoint."""


class Numbers:
    """The last value of the same key, and the mean of its values; of all keys where it is new."""

    names = ("last value", "running mean")

    def __init__(self) -> None:
        self._keys = Recent()
        self._all = [0.0, 0, 0.0]  # last, how many, mean

    def guess(self, key: str | None) -> Guess | None:
        """Last value and mean."""
        last, count, mean = self._keys.get(key or "", self._all)
        return (last, mean) if count else None

    def learn(self, y: float, key: str | None) -> None:
        """`m ← m + (y - m) / n`."""
        self._all = _moved(self._all, y)
        self._keys.put(key or "", _moved(self._keys.get(key or "", [0.0, 0, 0.0]), y))

    def state(self) -> Any:
        """All of it."""
        return {"all": self._all, "keys": list(self._keys.items())}

    def restore(self, state: Any) -> None:
        """As it was."""
        self._all, self._keys = state["all"], Recent(map(tuple, state["keys"]))


def _moved(found: list[Any], y: float) -> list[Any]:
    count = found[1] + 1
    return [y, count, found[2] + (y - found[2]) / count]


class Classes:
    """The last class of the same key, and the class that came most often."""

    names = ("last class", "commonest class")

    def __init__(self) -> None:
        self._keys = Recent()
        self._last: Any = None
        self._counts: dict[Any, int] = {}
        self._most: Any = None

    def guess(self, key: str | None) -> Guess | None:
        """Last and commonest class."""
        return (self._keys.get(key or "", self._last), self._most) if self._counts else None

    def learn(self, y: Any, key: str | None) -> None:
        """One more of this class."""
        self._last = y
        self._keys.put(key or "", y)
        self._counts[y] = self._counts.get(y, 0) + 1
        if self._most is None or self._counts[y] > self._counts[self._most]:
            self._most = y

    def state(self) -> Any:
        """All of it."""
        rest = {"last": self._last, "most": self._most, "counts": list(self._counts.items())}
        return rest | {"keys": list(self._keys.items())}

    def restore(self, state: Any) -> None:
        """As it was."""
        self._last, self._most = state["last"], state["most"]
        self._counts = dict(map(tuple, state["counts"]))
        self._keys = Recent(map(tuple, state["keys"]))


def of(task: str) -> Numbers | Classes:
    """Those of a task."""
    return Classes() if task == "classify" else Numbers()

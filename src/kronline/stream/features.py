"""Events as vectors: numbers, booleans and categories, any of them missing, new or vanished."""

import math
import numbers
from collections.abc import Mapping, Sequence
from datetime import date, time
from itertools import chain
from typing import Any

import numpy as np

from kronline.stream.running import Running, within

LARGEST = 1e100  # numbers beyond this are refused: their squares must be finite
FIRST = 8  # how many numbers there is room for at the start

Event = Mapping[str, Any] | Sequence[Any] | np.ndarray


class Features:
    """Where each feature of an event goes, and how it is scaled.

    A number has one place. A category has one place per value, up to `categories` of them per
    feature; later values share one place. Places are given in the order in which features and
    values come; the room for them doubles when it is full. What an event does not have, and what
    is None or NaN, is missing: its mean, which is 0 after scaling.

    Args:
        scale: "running": numbers are standardised by running means and variances; None: as given.
        halflife: events after which one counts half for means and variances; None: never.
        indicator: a place for each number that says whether it is missing.
        categories: places per category feature.
        clip: scaled numbers are kept within ±clip.
    """

    def __init__(
        self,
        *,
        scale: str | None = "running",
        halflife: float | None = None,
        indicator: bool = False,
        categories: int = 64,
        clip: float = 5.0,
    ) -> None:
        if scale not in ("running", None):
            raise ValueError(f"scale must be 'running' or None, got {scale!r}")
        self.scale, self.indicator, self.categories, self.clip = scale, indicator, categories, clip
        self.places: dict[str, int] = {}  # of a number's name, or a category's `name=value`
        self.kinds: dict[str, str] = {}  # number or category, by name
        self.values: dict[str, int] = {}  # how many places a category has
        self.running = Running(FIRST, halflife)
        self.numeric = np.zeros(FIRST, bool)
        self._names: list[str] | None = None  # of the last event by itself, if it had numbers only,
        self._at = np.zeros(0, np.intp)  # and where these are
        self._numbered: list[str] = []  # names of the last dict that was read, if all are numbers'

    @property
    def room(self) -> int:
        """How many places there are, used or not."""
        return self.running.size

    @property
    def used(self) -> int:
        """How many places are used."""
        return len(self.places)

    # -- reading an event --------------------------------------------------------------------------

    def read(self, x: Event) -> dict[str, Any]:
        """An event by the names of its features: floats and texts; what is missing is left out.

        Raises:
            TypeError, ValueError: for what is no event, with the name of the feature.
        """
        if type(x) is dict and list(x) == self._numbered and all(map(_fine, x.values())):
            return dict(x)  # as below, in a third of the time
        if isinstance(x, Mapping):
            items = x.items()
        elif isinstance(x, np.ndarray | Sequence) and not isinstance(x, str | bytes):
            if isinstance(x, np.ndarray) and x.ndim != 1:
                raise ValueError(f"an event needs one axis of features, got shape {x.shape}")
            items = enumerate(x)  # type: ignore[assignment]
        else:
            raise TypeError(
                f"an event must be a dict, or a tuple or array of numbers, got {type(x).__name__}"
            )
        found: dict[str, Any] = {}
        for name, v in items:
            value = v if type(v) is float else _plain(name, v)
            if value is None or value != value:  # noqa: PLR0124  NaN
                continue
            if type(value) is float and not -LARGEST <= value <= LARGEST:
                raise ValueError(
                    f"feature {name!r} must be finite and at most {LARGEST:g}, got {v!r}"
                )
            found[name if type(name) is str else str(name)] = value
        for name, value in found.items():
            kind = "category" if type(value) is str else "number"
            known = self.kinds.get(name, kind)
            if kind != known:
                raise ValueError(
                    f"feature {name!r} was a {known} before, got {value!r}; give it another name"
                )
        self._numbered = list(found) if self._numbers(list(found)) else []
        return found

    def admit(self, events: Sequence[dict[str, Any]]) -> bool:
        """Places for what is new in these events; whether the room had to grow for it."""
        for event in events:
            if list(event) == self._numbered:  # all have their places
                continue
            for name, value in event.items():
                if type(value) is not str:
                    if name not in self.places:
                        self._place(name, name, "number")
                        if self.indicator:
                            self._place(f"{name}?", name, "number", numeric=False)
                elif self._category(name, value) not in self.places:
                    self._place(self._category(name, value), name, "category", numeric=False)
                    self.values[name] = self.values.get(name, 0) + 1
        room = self.room
        while room < self.used:
            room *= 2
        if room == self.room:
            return False
        self.running.grow(room)
        self.numeric = np.concatenate([self.numeric, np.zeros(room - len(self.numeric), bool)])
        for name, kind in self.kinds.items():
            if kind == "number":
                self.numeric[self.places[name]] = True
        return True

    def _category(self, name: str, value: str) -> str:
        known = f"{name}={value}"
        full = self.values.get(name, 0) >= self.categories
        return known if known in self.places or not full else f"{name}=*"

    def _place(self, place: str, name: str, kind: str, numeric: bool = True) -> None:
        at = self.places[place] = len(self.places)
        self.kinds[name] = kind
        if numeric and at < len(self.numeric):
            self.numeric[at] = True

    # -- vectors -----------------------------------------------------------------------------------

    def table(self, events: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """The values in their places (events, room), and which are there."""
        rows = np.zeros((len(events), self.room))
        there = np.zeros((len(events), self.room), bool)
        places, kinds = self.places, self.kinds
        names = list(events[0])
        if len(events) == 1 and names == self._names:  # the same numbers as the last time
            rows[0, self._at], there[0, self._at] = list(events[0].values()), True
            events = []
        elif len(events) == 1 and not self.indicator and self._numbers(names):
            self._names, self._at = names, np.array([places[name] for name in names], np.intp)
        if len(events) > 1 and self._alike(events, names):  # columns at once
            at = [places[name] for name in names]
            numbers_of = chain.from_iterable(e.values() for e in events)
            flat = np.fromiter(numbers_of, float, len(events) * len(at))
            rows[:, at], there[:, at] = flat.reshape(len(events), -1), True
            events = []
        for i, event in enumerate(events):
            at, values = [], []
            for name, value in event.items():
                text = type(value) is str
                place = places.get(self._category(name, value) if text else name)
                if place is not None:
                    at.append(place)
                    values.append(1.0 if text else value)
            rows[i, at] = values
            there[i, at] = True
        if self.indicator:
            for name, kind in kinds.items():
                if kind == "number":
                    rows[:, places[f"{name}?"]] = ~there[:, places[name]]
        return rows, there

    def _alike(self, events: Sequence[dict[str, Any]], names: list[str]) -> bool:
        """Whether all events have the same numbers and nothing else."""
        return self._numbers(names) and all(list(event) == names for event in events)

    def _numbers(self, names: list[str]) -> bool:
        return all(self.kinds.get(name) == "number" for name in names)

    def vectors(self, rows: np.ndarray, there: np.ndarray) -> np.ndarray:
        """What the network sees (events, room): numbers scaled, what is missing 0."""
        if self.scale is None:
            return np.where(there | ~self.numeric, rows, 0)
        z = (rows - self.running.mean) * self.running.inverse
        return within(np.where(self.numeric, z * there, rows), self.clip)

    def learn(self, rows: np.ndarray, there: np.ndarray) -> None:
        """Means and variances with these events."""
        if self.scale is not None:
            self.running.update(rows, there & self.numeric)

    # -- on disk -----------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """What is not an array."""
        return {"places": self.places, "kinds": self.kinds, "values": self.values}

    def restore(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """From what was saved."""
        self.places, self.kinds, self.values = (
            dict(header[k]) for k in ("places", "kinds", "values")
        )
        self.running.restore(arrays)
        self._names, self._numbered = None, []
        self.numeric = np.zeros(self.room, bool)
        for name, kind in self.kinds.items():
            if kind == "number":
                self.numeric[self.places[name]] = True


def _fine(v: Any) -> bool:
    """Whether a value is a float that can be taken as it is."""
    return type(v) is float and -LARGEST <= v <= LARGEST


def _plain(name: Any, v: Any) -> float | str | None:
    """A feature's value as a float or a text; None: missing."""
    if v is None or isinstance(v, str):
        return v
    if isinstance(v, bool | numbers.Real | np.bool_):
        try:
            return float(v)
        except OverflowError:
            return math.inf
    fix = ""
    if isinstance(v, date | time):
        fix = "; give its parts that count, as a text each: the month, the weekday, the hour"
    raise TypeError(
        f"feature {name!r} must be a number, a boolean, a text or None, got {type(v).__name__}{fix}"
    )

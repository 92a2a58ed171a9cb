"""Which lane belongs to which sensor, user or machine."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np


class Keys:
    """A lane for each key; the least recently seen one is given away when all are taken.

    Args:
        most: how many lanes there may be. The number of lanes at least doubles, up to that.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lanes: OrderedDict[Hashable, int] = OrderedDict()  # the least recently seen first
        self.count = 1

    def find(self, keys: Sequence[Hashable]) -> np.ndarray:
        """The lanes of these keys; −1 for a key that has none."""
        return np.array([self.lanes.get(key, -1) for key in keys], np.int32)

    def take(self, keys: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
        """Lanes for keys that have an event now, each named once, and which of them start anew.

        `count` is the number of lanes that are needed from now on.
        """
        lanes, new = np.zeros(len(keys), np.int32), np.zeros(len(keys), bool)
        for i, key in enumerate(keys):
            lane = self.lanes.get(key)
            if lane is None:
                new[i] = True
                if len(self.lanes) < self.most:
                    lane = len(self.lanes)
                else:
                    _, lane = self.lanes.popitem(last=False)
                self.lanes[key] = lane
            else:
                self.lanes.move_to_end(key)
            lanes[i] = lane
        if self.count < len(self.lanes):  # just enough for many at once: a round of all is faster
            self.count = min(max(2 * self.count, len(self.lanes)), self.most)
        return lanes, new

    def header(self) -> dict[str, Any]:
        """What is saved: keys and lanes, in the order in which they were last seen."""
        odd = [k for k in self.lanes if not isinstance(k, str | int | float | bool | None)]
        if odd:
            raise TypeError(f"keys must be texts or numbers to be saved, got {odd[0]!r}")
        return {"lanes": [[k, lane] for k, lane in self.lanes.items()], "count": self.count}

    def restore(self, header: dict[str, Any]) -> None:
        """From what was saved."""
        self.lanes = OrderedDict((k, lane) for k, lane in header["lanes"])
        self.count = header["count"]

"""How long events take: counts in classes of time, over the stream; bounded for any length.

Nothing here is determined by the events: it is kept apart from the model and the journal.
"""

import json
import math
from pathlib import Path
from typing import Any

from kronline import disk
from kronline.lab.learn.meter import BINS, FIRST

FILE = "timing.json"
STEPS = 6  # classes per doubling
LOWEST = 1e-6  # seconds
CLASSES = 22 * STEPS  # up to four seconds


class Timing:
    """Times of events, in bins as `Meter` has them."""

    def __init__(self) -> None:
        self.bins: list[dict[str, Any]] = []
        self.size = FIRST
        self._open = _empty()

    @classmethod
    def read(cls, folder: Path) -> "Timing":
        """What was measured before; nothing, if it was lost."""
        found = cls()
        try:
            saved = json.loads((folder / FILE).read_text())
            found.bins, found.size, found._open = saved["bins"], saved["size"], saved["open"]
        except (OSError, ValueError, KeyError):
            return cls()
        return found

    def write(self, folder: Path) -> None:
        """Beside the checkpoint."""
        found = {"bins": self.bins, "size": self.size, "open": self._open}
        disk.write(folder / FILE, json.dumps(found) + "\n")

    def event(self, seconds: float, clock: float) -> None:
        """One more; `clock`: since the one before, commits and checkpoints included."""
        at = int(STEPS * math.log2(seconds / LOWEST)) if seconds > LOWEST else 0
        at = min(at, CLASSES - 1)
        b = self._open
        b["events"] += 1
        b["seconds"] += seconds
        b["clock"] += clock
        b["classes"][at] = b["classes"].get(at, 0) + 1
        if b["events"] >= self.size:
            self._close()

    def committed(self) -> None:
        """One more commit."""
        self._open["commits"] += 1

    def _close(self) -> None:
        b = self._open
        b["classes"] = {str(k): v for k, v in b["classes"].items()}
        self.bins.append(b)
        self._open = _empty()
        if len(self.bins) >= BINS:
            self.bins = [_added(a, b) for a, b in zip(self.bins[::2], self.bins[1::2], strict=True)]
            self.size *= 2

    @property
    def history(self) -> list[dict[str, Any]]:
        """All bins, the last of which may be of fewer events."""
        return [*self.bins, self._open] if self._open["events"] else list(self.bins)

    @property
    def whole(self) -> dict[str, Any]:
        """All of it as one bin."""
        found = _empty()
        for b in self.history:
            found = _added(found, b)
        return found


def _empty() -> dict[str, Any]:
    return {"events": 0, "seconds": 0.0, "clock": 0.0, "commits": 0, "classes": {}}


def _added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    found = {k: a[k] + b[k] for k in a if k != "classes"}
    classes: dict[str, int] = {}
    for part in (a["classes"], b["classes"]):
        for k, v in part.items():
            classes[str(k)] = classes.get(str(k), 0) + v
    return found | {"classes": classes}


def quantile(b: dict[str, Any], q: float) -> float | None:
    """Seconds that this share of events took at most, to a class's width (an eighth)."""
    counts = sorted((int(k), v) for k, v in b["classes"].items())
    left = q * sum(v for _, v in counts)
    for k, v in counts:
        left -= v
        if left <= 0:
            return LOWEST * 2 ** ((k + 1) / STEPS)
    return None

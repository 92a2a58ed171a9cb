"""How long each estimator trains, so that both data and compute can be equal."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kronline import Learner, disk
from kronline.lab.progress import Tracker
from kronline.lab.variance.cost import UNITS, costs

FILE = "terms.json"


@dataclass(frozen=True)
class Terms:
    """What is equal."""

    steps: int  # equal data
    seconds: dict[str, float]  # of a step, by estimator: all timed in turn
    flops: dict[str, float | None]

    @property
    def budget(self) -> float:
        """Equal compute, in seconds: what the dearest takes for its steps."""
        return self.steps * max(self.seconds.values())

    def length(self, estimator: str, most: float) -> int:
        """Steps until it has had both, unless that were too many."""
        # rounded: the same steps are asked for when it is started again
        needed = math.ceil(self.budget / self.seconds[estimator] * (1 - 1e-9))
        return max(self.steps, min(needed, int(most * self.steps)))


def agreed(path: Path, steps: int, learners: Mapping[str, Learner], lanes: int) -> Terms:
    """From the folder, if it was measured there before; else measured now."""
    file = path / FILE
    old: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if set(old) >= set(learners):
        old = {name: old[name] for name in learners}
    else:
        with Tracker({"timing": len(learners) * UNITS}) as tracker:
            found = costs(
                dict(learners), lanes, lambda name, by: tracker.update("timing", by, name)
            )
        old = {name: cost._asdict() for name, cost in found.items()}
        disk.write(file, json.dumps(old, indent=1) + "\n")
    seconds, flops = ({n: c[key] for n, c in old.items()} for key in ("seconds", "flops"))
    return Terms(steps, seconds, flops)

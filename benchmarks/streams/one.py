"""Progressive validation of one model on one stream: `one.py MODEL STREAM SEED FOLDER [SETTINGS]`.

Every event is predicted, then learnt from. The first one is not counted: nobody can know it.
Prints one line of JSON.
"""

import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from data import numeric, read
from models import MODELS, Event, kronline_model

LEAST = 1e-6  # of a probability, for the log loss


def evaluate(model: Any, stream: Any) -> dict[str, Any]:
    """Errors over all events but the first, over the last half, and the time per event."""
    numbers, classes = numeric(stream), stream.task == "classes"
    errors: list[tuple[float, float]] = []
    times: list[float] = []
    for (x, y), row in zip(stream.events, numbers, strict=True):
        e = Event(x, row, x[stream.key] if stream.key else None)
        start = time.perf_counter()
        guess = model.predict(e)
        model.learn(e, y)
        times.append(time.perf_counter() - start)
        if classes:
            label = max(guess, key=guess.get) if guess else None
            errors.append((label == y, -math.log(max(guess.get(y, 0.0), LEAST))))
        else:
            error = min(abs(guess - y), 1e100)
            errors.append((error, error**2))
    counted, half = errors[1:], errors[len(errors) // 2 :]

    def mean(rows: list[tuple[float, float]], i: int) -> float:
        return sum(r[i] for r in rows) / len(rows)

    found: dict[str, Any] = {"events": len(errors)}
    for where, rows in (("", counted), ("last half ", half)):
        if classes:
            found |= {where + "accuracy": mean(rows, 0), where + "log loss": mean(rows, 1)}
        else:
            found |= {where + "MAE": mean(rows, 0), where + "RMSE": math.sqrt(mean(rows, 1))}
    found["microseconds"] = 1e6 * statistics.median(times)
    found["seconds"] = sum(times)
    return found


def main() -> None:
    """From the command line."""
    name, data, seed, folder = sys.argv[1:5]
    settings = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    stream = read(Path(folder), data)
    if settings:
        model = kronline_model(stream, int(seed), **settings)
    else:
        model = MODELS[name].make(stream, int(seed))
    print(json.dumps(evaluate(model, stream)))


if __name__ == "__main__":
    main()

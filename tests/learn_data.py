"""Streams for the tests of `kronline learn`: a few machines, small enough for a small model."""

import json
import math
import random

SMALL = ["--set", "hidden=4", "--quiet"]


def machines(count, seed=0):
    """Events of three pumps."""
    rng = random.Random(seed)
    for t in range(count):
        pump = rng.choice("abc")
        speed = round(math.sin(t / 9 + ord(pump)), 4)
        valve = rng.choice(["open", "shut"])
        pressure = round(2 * speed + (valve == "open") + 0.1 * rng.gauss(0, 1), 4)
        state = "high" if pressure > 0.5 else "low"
        yield {"time": t, "pump": pump, "speed": speed, "valve": valve} | {
            "pressure": pressure,
            "state": state,
        }


def write_json(path, events):
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    return path


def write_csv(path, events):
    events = list(events)
    rows = [list(events[0]), *(e.values() for e in events)]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]

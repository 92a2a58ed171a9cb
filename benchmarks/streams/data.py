"""The streams, as lists of events: from installed packages, or generated. No download, no pickle.

`export` writes them as JSON, so that environments without these packages can read them.
"""

import ast
import gzip
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

GENERATED = 5_000  # values of each generated series
TRANSIENT = 64  # values that are left out at their start


class Stream(NamedTuple):
    """Events in their order.

    `task`: "series" (the target's own past, and the calendar), "regression" or "classes".
    `season`: events per season, which models that ask for one are told; 1: none.
    `key`: the feature that names the entity, None: there is one entity.
    """

    task: str
    events: list[tuple[dict[str, Any], Any]]
    season: int = 1
    key: str | None = None


def _file(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported."""
    return Path(str(metadata.distribution(package).locate_file(path)))


def _series(values: Any, season: int = 1) -> Stream:
    return Stream("series", [({}, float(v)) for v in np.asarray(values).ravel()], season)


def airline() -> Stream:
    """Monthly passengers; the month as a category."""
    from river import datasets

    rows = datasets.AirlinePassengers()
    return Stream("series", [({"month": str(x["month"].month)}, float(y)) for x, y in rows], 12)


def water_flow() -> Stream:
    """Hourly water flow; hour and weekday as categories."""
    from river import datasets

    rows = [
        ({"hour": str(x["Time"].hour), "weekday": str(x["Time"].weekday())}, float(y))
        for x, y in datasets.WaterFlow()
    ]
    return Stream("series", rows, 24)


def _river(name: str, task: str, key: str | None = None) -> Stream:
    from river import datasets

    as_y = bool if task == "classes" else float
    return Stream(task, [(dict(x), as_y(y)) for x, y in getattr(datasets, name)()], key=key)


def laser() -> Stream:
    """Intensities of a laser, of the Santa Fe competition."""
    return _series(np.load(_file("reservoirpy", "reservoirpy/datasets/santafe_laser.npy")))


def taylor() -> Stream:
    """Half-hourly demand for electricity: the one literal array in the package's module."""
    tree = ast.parse(_file("pmdarima", "pmdarima/datasets/taylor.py").read_text())
    lists = [ast.literal_eval(n) for n in ast.walk(tree) if isinstance(n, ast.List)]
    return _series(max((v for v in lists if v and not isinstance(v[0], str)), key=len), 48)


def sunspots() -> Stream:
    """Monthly numbers of sunspots."""
    with gzip.open(_file("pmdarima", "pmdarima/datasets/data/sunspots.txt.gz"), "rt") as f:
        return _series([float(v) for v in f.read().replace(",", " ").split()])


def henon() -> Stream:
    """x' = 1 − 1.4 x² + y, y' = 0.3 x, from 0.1 and 0."""
    x, y, out = 0.1, 0.0, []
    for _ in range(TRANSIENT + GENERATED):
        out.append(x)
        x, y = 1 - 1.4 * x**2 + y, 0.3 * x
    return _series(out[TRANSIENT:])


def mackey_glass() -> Stream:
    """x' = x + 0.2 x_τ/(1 + x_τ¹⁰) − 0.1 x, τ = 17, from a history of 1.2 + 0.2·U(0, 1)."""
    delay = 17
    out = list(1.2 + 0.2 * np.random.default_rng(0).random(delay + 1))
    while len(out) < delay + TRANSIENT + GENERATED:
        x, past = out[-1], out[-1 - delay]
        out.append(x + 0.2 * past / (1 + past**10) - 0.1 * x)
    return _series(out[delay + TRANSIENT :])


def lorenz() -> Stream:
    """x of the Lorenz system, Euler's method with dt = 0.01, every second value."""
    x, y, z, out = 1.0, 1.0, 20.0, []
    for _ in range(2 * (TRANSIENT + GENERATED)):
        out.append(x)
        dx, dy, dz = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
        x, y, z = x + 0.01 * dx, y + 0.01 * dy, z + 0.01 * dz
    return _series(out[::2][TRANSIENT:])


STREAMS: dict[str, Callable[[], Stream]] = {
    "AirlinePassengers": airline,
    "ChickWeights": lambda: _river("ChickWeights", "regression", "chick"),
    "TrumpApproval": lambda: _river("TrumpApproval", "regression"),
    "SP500": lambda: _river("SP500Stocks", "regression"),
    "WaterFlow": water_flow,
    "sunspots": sunspots,
    "taylor": taylor,
    "santafe_laser": laser,
    "Hénon": henon,
    "Mackey-Glass": mackey_glass,
    "Lorenz": lorenz,
    "Phishing": lambda: _river("Phishing", "classes"),
    "Shuttle": lambda: _river("Shuttle", "classes"),
}


def export(folder: Path) -> None:
    """All streams that are not there yet, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in STREAMS.items():
        if not (path := folder / f"{name}.json").exists():
            path.write_text(json.dumps(make()._asdict()))


def read(folder: Path, name: str) -> Stream:
    """A stream that `export` wrote."""
    return Stream(**json.loads((folder / f"{name}.json").read_text()))


def numeric(stream: Stream) -> list[dict[str, float]]:
    """The events' features as numbers: one flag per value of a category."""
    values: dict[str, set[str]] = {}
    for x, _ in stream.events:
        for k, v in x.items():
            if isinstance(v, str):
                values.setdefault(k, set()).add(v)
    flags = {k: sorted(v) for k, v in values.items()}
    found = []
    for x, _ in stream.events:
        row = {k: float(v) for k, v in x.items() if k not in flags}
        for k, names in flags.items():
            row |= {f"{k}={name}": float(x.get(k) == name) for name in names}
        found.append(row)
    return found

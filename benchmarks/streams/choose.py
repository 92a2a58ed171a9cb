"""What the regressor's parts without a network are worth, on streams that are in no table.

    python choose.py [NAME=VALUE ...]      settings of the regressor, curves=48 for instance
    python choose.py network=True          with the network

The defaults of least squares and of the mixture were chosen by this, not by the streams of the
table. The network is left out if nothing is said: its parts are then the anchor and the curved
part. Prints MAE over that of the last value: of the mixture, of the mixture as it is before it is
judged once more, of each part, and the geometric mean over the streams.
"""

import ast
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kronline import stream as ks

from data import Stream, _series

N = 3000  # events of a generated stream
PARTS = ("mean", "last", "anchor", "trend", "straight", "curved")

Values = list[float]


class Nothing:
    """In the network's place: predicts the anchor, and the curved part, once more."""

    lanes = 1

    def predict(self, x: np.ndarray, *_: Any) -> np.ndarray:
        """Zeros."""
        return np.zeros((len(x), 3), np.float32)

    def learn(self, *_: Any) -> None:
        """Nothing."""

    def grow(self, **_: Any) -> None:
        """Nothing."""


def logistic(noise: float = 0.0) -> Values:
    """x' = 3.9 x(1 − x), seen with noise."""
    rng, x, out = np.random.default_rng(1), 0.3, []
    for _ in range(N + 64):
        x = 3.9 * x * (1 - x)
        out.append(x + noise * rng.normal())
    return out[64:]


def ikeda() -> Values:
    """The first coordinate of Ikeda's map, u = 0.9."""
    x, y, out = 0.1, 0.1, []
    for _ in range(N + 64):
        t = 0.4 - 6 / (1 + x * x + y * y)
        c, s = math.cos(t), math.sin(t)
        x, y = 1 + 0.9 * (x * c - y * s), 0.9 * (x * s + y * c)
        out.append(x)
    return out[64:]


def rossler() -> Values:
    """x of Rössler's system (0.2, 0.2, 5.7), Euler's method, every tenth step of 0.02."""
    x, y, z, out = 1.0, 1.0, 0.0, []
    for _ in range(10 * (N + 64)):
        out.append(x)
        dx, dy, dz = -y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)
        x, y, z = x + 0.02 * dx, y + 0.02 * dy, z + 0.02 * dz
    return out[::10][64:]


def autoregressive() -> Values:
    """y' = 1.6 y − 0.8 y' + noise."""
    rng, a, b, out = np.random.default_rng(2), 0.0, 0.0, []
    for _ in range(N):
        a, b = 1.6 * a - 0.8 * b + rng.normal(), a
        out.append(a)
    return out


def walk() -> Values:
    """A random walk: nothing is better than the last value."""
    return np.random.default_rng(3).normal(size=N).cumsum().tolist()


def threshold() -> Values:
    """Two straight lines, by the sign of the last value, and noise."""
    rng, a, out = np.random.default_rng(4), 0.0, []
    for _ in range(N):
        a = (0.8 * a + 0.5 if a < 0 else -0.6 * a - 0.4) + 0.2 * rng.normal()
        out.append(a)
    return out


def season() -> Values:
    """A trend, two periods, and noise with heavy tails."""
    rng, t = np.random.default_rng(5), np.arange(N)
    waves = 3 * np.sin(2 * np.pi * t / 24) + 1.5 * np.sin(2 * np.pi * t / 168)
    return (10 + 0.003 * t + waves + 0.5 * rng.standard_t(3, size=N)).tolist()


def jumps() -> Values:
    """Mostly constant, with rare large jumps."""
    rng, level, out = np.random.default_rng(6), 0.0, []
    for _ in range(N):
        level += 5 * rng.normal() * (rng.random() < 0.02) + 0.02 * rng.normal()
        out.append(level)
    return out


def packaged(name: str) -> Values:
    """A short series of the package pmdarima, which is not imported."""
    from data import _file

    tree = ast.parse(_file("pmdarima", f"pmdarima/datasets/{name}.py").read_text())
    lists = [n for n in ast.walk(tree) if isinstance(n, ast.List)]
    found = [[e for e in n.elts if isinstance(e, ast.Constant)] for n in lists]
    return [float(e.value) for e in max(found, key=len)]  # type: ignore[arg-type]


def synthetic(name: str) -> Stream:
    """A generator of river with features."""
    from river.datasets import synth

    rows = getattr(synth, name)(seed=1).take(N)
    return Stream("regression", [(dict(x), float(y)) for x, y in rows])


SERIES: dict[str, Callable[[], Values]] = {
    "logistic": logistic,
    "logistic, noisy": lambda: logistic(0.02),
    "Ikeda": ikeda,
    "Rössler": rossler,
    "autoregressive": autoregressive,
    "walk": walk,
    "threshold": threshold,
    "season": season,
    "jumps": jumps,
} | {n: lambda n=n: packaged(n) for n in ("lynx", "heartrate", "wineind", "woolyrnq")}


def errors(stream: Stream, settings: dict[str, Any], network: bool) -> np.ndarray:
    """Absolute errors (events, 2 + parts): of the mixture judged twice, once, and of its parts."""
    series = stream.task == "series"
    model: Any = (ks.Forecaster if series else ks.Regressor)(**settings)
    if not network:
        model._network = Nothing()
    rows = []
    for x, y in stream.events:
        guess = model.predict_one(x)
        parts = model._seen.parts[0]
        once = parts @ model._experts.first.weights
        rows.append(np.abs(np.array([guess, once, *parts[: len(PARTS)]]) - y))
        model.learn_one(*((y, x) if series else (x, y)))
    return np.array(rows[1:])


def main() -> None:
    """From the command line."""
    settings = {k: ast.literal_eval(v) for k, v in (a.split("=", 1) for a in sys.argv[1:])}
    network = bool(settings.pop("network", False))
    streams = {name: _series(make()) for name, make in SERIES.items()}
    streams |= {name: synthetic(name) for name in ("Friedman", "Mv", "Planes2D")}
    print(f"{'MAE/last':18}" + "".join(f"{n:>9}" for n in ("mixture", "once", *PARTS)))
    logs = []
    for name, stream in streams.items():
        mean = errors(stream, settings, network).mean(0)
        logs.append(np.log(mean / mean[3]))
        print(f"{name:18}" + "".join(f"{v:9.4f}" for v in mean / mean[3]), flush=True)
    print(f"{'geometric mean':18}" + "".join(f"{v:9.4f}" for v in np.exp(np.mean(logs, 0))))


if __name__ == "__main__":
    main()

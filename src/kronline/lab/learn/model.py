"""The models of `kronline.stream` as the command uses them: one way to predict, one to learn."""

import inspect
import math
from pathlib import Path
from typing import Any, Protocol

from kronline import stream
from kronline.errors import UsageError

TASKS = {
    "regress": stream.Regressor,
    "classify": stream.Classifier,
    "forecast": stream.Forecaster,
    "anomaly": stream.AnomalyDetector,
}


class Model(Protocol):
    """A model and its task."""

    inner: Any

    def predict(self, x: dict[str, Any], key: str | None) -> dict[str, Any]:
        """What is written of an event; `prediction` or `score` is one of it."""

    def learn(self, x: dict[str, Any], y: Any, key: str | None) -> None:
        """Move on by an event; y: None if it is not known."""


def make(task: str, settings: dict[str, Any], level: float | None, horizon: int) -> Model:
    """A fresh model.

    Raises:
        UsageError: for settings that it does not have, or does not take.
    """
    cls = TASKS[task]
    known = [p for p in inspect.signature(cls).parameters if p != "self"]
    if odd := [name for name in settings if name not in known]:
        raise UsageError(
            f"--set {odd[0]}=... is no setting of {cls.__name__}; it has {', '.join(known)}"
        )
    try:
        inner = cls(**settings)
    except UsageError:
        raise
    except (ValueError, TypeError) as e:
        raise UsageError(f"--set: {e}") from e
    return _around(task, inner, level, horizon)


def load(path: Path, task: str, level: float | None, horizon: int) -> Model:
    """A model from a checkpoint."""
    return _around(task, stream.load(path), level, horizon)


def _around(task: str, inner: Any, level: float | None, horizon: int) -> Model:
    if task == "regress":
        return _Regress(inner, level)
    if task == "forecast":
        return _Forecast(inner, horizon)
    return _Classify(inner) if task == "classify" else _Anomaly(inner)


def _plain(value: Any) -> float | None:
    """A float that JSON can hold."""
    number = float(value)
    return number if math.isfinite(number) else None


class _Regress:
    def __init__(self, inner: Any, level: float | None):
        self.inner, self._level = inner, level

    def predict(self, x: dict[str, Any], key: str | None) -> dict[str, Any]:
        found = {"prediction": _plain(self.inner.predict_one(x, key=key))}
        if self._level is not None:
            low, high = self.inner.predict_interval_one(x, level=self._level, key=key)
            found |= {"low": _plain(low), "high": _plain(high)}
        return found

    def learn(self, x: dict[str, Any], y: Any, key: str | None) -> None:
        self.inner.learn_one(x, y, key=key)


class _Classify:
    def __init__(self, inner: Any):
        self.inner = inner

    def predict(self, x: dict[str, Any], key: str | None) -> dict[str, Any]:
        of = self.inner.predict_proba_one(x, key=key)
        if not of:
            return {"prediction": None, "probabilities": {}}
        best = max(of, key=of.__getitem__)  # the first of those that are alike
        named = {label(y): float(p) for y, p in of.items()}
        return {"prediction": best, "probabilities": named}

    def learn(self, x: dict[str, Any], y: Any, key: str | None) -> None:
        self.inner.learn_one(x, y, key=key)


class _Forecast:
    def __init__(self, inner: Any, horizon: int):
        self.inner, self._horizon = inner, horizon

    def predict(self, x: dict[str, Any], key: str | None) -> dict[str, Any]:
        path = [_plain(v) for v in self.inner.forecast(self._horizon, key=key)]
        return {"prediction": path[-1]} | ({"path": path} if len(path) > 1 else {})

    def learn(self, x: dict[str, Any], y: Any, key: str | None) -> None:
        self.inner.learn_one(y, key=key)


class _Anomaly:
    def __init__(self, inner: Any):
        self.inner = inner

    def predict(self, x: dict[str, Any], key: str | None) -> dict[str, Any]:
        return {"score": _plain(self.inner.score_one(x, key=key))}

    def learn(self, x: dict[str, Any], y: Any, key: str | None) -> None:
        self.inner.learn_one(x, key=key)


def label(y: Any) -> str:
    """A class as JSON has it for a name."""
    return {True: "true", False: "false"}[y] if isinstance(y, bool) else str(y)

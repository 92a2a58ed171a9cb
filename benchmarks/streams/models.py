"""Every model behind two verbs: `predict(x, key)` and `learn(x, y, key)`.

`x` of an `Event` has the raw features (kronline takes categories as they are) and the same as
numbers (all others). Each family is imported only where it is used: they have environments of their
own.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from data import Stream, numeric

LAGS = 12  # last targets that models with lags are given


class Event(NamedTuple):
    """What is known before the target comes."""

    raw: dict[str, Any]
    numbers: dict[str, float]
    key: Any


class Naive:
    """The last target, of the entity or of all; or the running mean."""

    def __init__(self, kind: str, classes: bool) -> None:
        self.kind, self.classes = kind, classes
        self.last: dict[Any, Any] = {}
        self.n, self.mean = 0, 0.0
        self.counts: dict[Any, int] = {}

    def predict(self, e: Event) -> Any:
        """A number, or probabilities."""
        if self.kind == "mean":
            if self.classes:
                return {k: v / self.n for k, v in self.counts.items()}
            return self.mean
        last = self.last.get(e.key if self.kind == "key" else None)
        if self.classes:
            return {} if last is None else {last: 1.0}
        return self.last.get(None, 0.0) if last is None else last

    def learn(self, e: Event, y: Any) -> None:
        """One event."""
        self.n += 1
        self.last[e.key] = self.last[None] = y
        if self.classes:
            self.counts[y] = self.counts.get(y, 0) + 1
        else:
            self.mean += (y - self.mean) / self.n


class Supervised:
    """A river-like regressor or classifier; on request with its entity's last targets as features.

    Args:
        model: the model.
        lags: how many of the last targets it is given; what is not there yet is the newest one.
        classes: whether targets are classes.
        scaled: whether the target is standardised by its running mean and variance.
    """

    def __init__(self, model: Any, lags: int, classes: bool, scaled: bool = False) -> None:
        self.model, self.lags, self.classes, self.scaled = model, lags, classes, scaled
        self.past: dict[Any, deque[float]] = {}
        self.n, self.mean, self.square = 0, 0.0, 0.0

    def predict(self, e: Event) -> Any:
        """A number, or probabilities."""
        if self.classes:
            return self.model.predict_proba_one(self._x(e))
        value = self.model.predict_one(self._x(e))
        value = float(value) if value is not None else 0.0
        if not math.isfinite(value):
            value = 0.0
        return self.mean + self._std * value if self.scaled else value

    def learn(self, e: Event, y: Any) -> None:
        """One event."""
        x = self._x(e)
        if self.scaled:
            self.n += 1
            before = y - self.mean
            self.mean += before / self.n
            self.square += before * (y - self.mean)
        self.model.learn_one(x, (y - self.mean) / self._std if self.scaled else y)
        if self.lags:
            self.past.setdefault(e.key, deque(maxlen=self.lags)).appendleft(float(y))

    @property
    def _std(self) -> float:
        return math.sqrt(self.square / self.n) if self.n and self.square > 0 else 1.0

    def _x(self, e: Event) -> dict[str, float]:
        x = dict(e.numbers)
        if self.lags:
            past = self.past.get(e.key) or [0.0]
            if self.scaled:
                past = [(v - self.mean) / self._std for v in past]
            for i in range(self.lags):
                x[f"lag {i + 1}"] = past[min(i, len(past) - 1)]
        return x


class Forecasting:
    """A river forecaster; the last value where it cannot forecast yet."""

    def __init__(self, model: Any, with_x: bool) -> None:
        self.model, self.with_x, self.last = model, with_x, 0.0

    def predict(self, e: Event) -> float:
        """One value ahead."""
        try:
            x = [e.numbers] if self.with_x and e.numbers else None
            value = float(self.model.forecast(horizon=1, xs=x)[0])
        except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
            return self.last
        return value if math.isfinite(value) else self.last

    def learn(self, e: Event, y: float) -> None:
        """One value."""
        self.model.learn_one(y=y, x=e.numbers if self.with_x and e.numbers else None)
        self.last = y


class Kronline:
    """A stream model of kronline, with its default settings unless some are given."""

    def __init__(self, model: Any, series: bool, classes: bool) -> None:
        self.model, self.series, self.classes = model, series, classes

    def predict(self, e: Event) -> Any:
        """A number, or probabilities."""
        if self.classes:
            return self.model.predict_proba_one(e.raw, key=e.key)
        return self.model.predict_one(e.raw, key=e.key)

    def learn(self, e: Event, y: Any) -> None:
        """One event."""
        if self.series:
            self.model.learn_one(y, e.raw or None, key=e.key)
        else:
            self.model.learn_one(e.raw, y, key=e.key)


def kronline_model(stream: Stream, seed: int, **settings: Any) -> Any:
    """Forecaster, Regressor or Classifier, by the task."""
    from kronline import stream as ks

    kinds = {"series": ks.Forecaster, "regression": ks.Regressor, "classes": ks.Classifier}
    made = kinds[stream.task](seed=seed, **settings)
    return Kronline(made, stream.task == "series", stream.task == "classes")


def _naive(kind: str, stream: Stream, seed: int) -> Any:
    return Naive(kind, stream.task == "classes")


def _river(kind: str, lags: int, stream: Stream, seed: int) -> Any:
    from river import forest, linear_model, neighbors, optim, preprocessing

    classes = stream.task == "classes"
    made: Any
    if kind == "forest":
        made = (forest.ARFClassifier if classes else forest.ARFRegressor)(seed=seed)
    elif kind == "kNN":
        scaler = preprocessing.StandardScaler()
        made = scaler | (neighbors.KNNClassifier() if classes else neighbors.KNNRegressor())
    elif classes:
        made = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    elif kind == "Bayesian":
        made = preprocessing.StandardScaler() | linear_model.BayesianLinearRegression()
    else:
        linear = linear_model.LinearRegression(optim.SGD(0.003), intercept_lr=0.1)
        made = preprocessing.StandardScaler() | linear
    return Supervised(made, lags, classes, scaled=kind in ("linear", "Bayesian") and not classes)


def _snarimax(difference: int, stream: Stream, seed: int) -> Any:
    from river import linear_model, optim, preprocessing, time_series

    season = {"m": stream.season, "sp": 2, "sq": 1} if stream.season > 1 else {}
    linear = linear_model.LinearRegression(optim.SGD(0.003), intercept_lr=0.1)
    made = time_series.SNARIMAX(
        p=LAGS,
        d=difference,
        q=2,
        **season,
        regressor=preprocessing.StandardScaler()
        | preprocessing.TargetStandardScaler(regressor=linear),
    )
    return Forecasting(made, with_x=True)


def _holt_winters(stream: Stream, seed: int) -> Any:
    from river import time_series

    season = {"gamma": 0.3, "seasonality": stream.season} if stream.season > 1 else {}
    return Forecasting(time_series.HoltWinters(alpha=0.5, beta=0.1, **season), with_x=False)


def _deep(kind: str, lags: int, stream: Stream, seed: int) -> Any:
    import torch
    from deep_river import classification, regression

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    classes = stream.task == "classes"
    features = len(numeric(stream)[0]) + lags
    common: dict[str, Any] = {"hidden_size": 64, "lr": 1e-3, "window_size": 10, "seed": seed}
    if classes:
        make = getattr(classification, f"{kind}Classifier")
        common |= {"n_init_classes": 2}
    else:
        make = getattr(regression, f"{kind}Regressor")
    from river import preprocessing

    made = make(n_features=features, optimizer_fn="adam", **common)
    return Supervised(preprocessing.StandardScaler() | made, lags, classes, scaled=not classes)


ALL, SERIES = ("series", "regression", "classes"), ("series",)
NAIVE = {"last": "last value / class", "key": "last value of the key", "mean": "running mean"}
RIVER = {"linear": "linear / logistic", "kNN": "kNN", "forest": "adaptive random forest"}


class Entry(NamedTuple):
    """A line of the table: which environment it needs, which tasks it takes, how it is made."""

    family: str  # "river", "deep" or "kronline"
    tasks: tuple[str, ...]
    random: bool
    make: Callable[[Stream, int], Any]


def _entries() -> dict[str, Entry]:
    found: dict[str, Entry] = {}

    def add(name: str, family: str, tasks: tuple[str, ...], make: Any, *given: Any) -> None:
        random = family in ("deep", "kronline") or "forest" in given
        found[name] = Entry(family, tasks, random, partial(make, *given))

    for kind, name in NAIVE.items():
        add(name, "river", ALL, _naive, kind)
    for d in (0, 1):
        add(f"SNARIMAX d={d}", "river", SERIES, _snarimax, d)
    add("Holt-Winters", "river", SERIES, _holt_winters)
    for kind, name in RIVER.items():
        add(name, "river", ALL[1:], _river, kind, 0)
        add(f"{name}, lags", "river", ALL, _river, kind, LAGS)
    add("Bayesian linear, lags", "river", ALL[:2], _river, "Bayesian", LAGS)
    for kind in ("LSTM", "RNN"):
        for lags in (1, LAGS):
            add(f"deep-river {kind}, {lags} lag" + "s" * (lags > 1), "deep", ALL, _deep, kind, lags)
    add("kronline", "kronline", ALL, kronline_model)
    return found


MODELS = _entries()

"""`kronline.stream.Regressor` for river."""

from typing import Any

import pandas as pd
from river import base

from kronline import stream
from kronline.river.around import Around, settings_of


@settings_of(stream.Regressor)
class Regressor(Around, base.MiniBatchRegressor):
    """A recurrent regressor that learns at every event, with credit beyond any window.

    Settings: those of `kronline.stream.Regressor`, and `key`: the name of the feature that says
    which sensor, user or machine an event is from.

    Example:
        >>> from kronline import river  # doctest: +SKIP
        >>> model = river.Regressor(key="sensor")  # doctest: +SKIP
    """

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Move on by one event, and learn from its target."""
        event, key = self._split(x)
        self._model.learn_one(event, y, key=key)

    def predict_one(self, x: dict[Any, Any]) -> float:
        """The target that is expected; the model does not move on."""
        event, key = self._split(x)
        return self._model.predict_one(event, key=key)

    def predict_interval_one(self, x: dict[Any, Any], level: float = 0.9) -> tuple[float, float]:
        """Where the target is expected with a probability of `level`."""
        event, key = self._split(x)
        return self._model.predict_interval_one(event, level, key=key)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Rows in their order, as a loop of `learn_one`."""
        for row, target in zip(X.to_dict("records"), y.tolist(), strict=True):
            self.learn_one(row, target)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """`predict_one` of every row."""
        events, keys = self._split_all(X.to_dict("records"))
        return pd.Series(self._model.predict_many(events, keys), index=X.index, dtype="float64")

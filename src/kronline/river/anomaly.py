"""`kronline.stream.AnomalyDetector` for river."""

from typing import Any

import pandas as pd
from river import base

from kronline import stream
from kronline.river.around import Around, settings_of


@settings_of(stream.AnomalyDetector)
class AnomalyDetector(Around, base.AnomalyDetector):
    """How surprising an event is, given all earlier ones, from 0 to 1.

    Settings: those of `kronline.stream.AnomalyDetector`, and `key`: the name of the feature that
    says which sensor, user or machine an event is from.

    Example:
        >>> from kronline import river  # doctest: +SKIP
        >>> model = river.AnomalyDetector()  # doctest: +SKIP
    """

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Move on by one event, and learn to expect it."""
        event, key = self._split(x)
        self._model.learn_one(event, key=key)

    def score_one(self, x: dict[Any, Any]) -> float:
        """The share of past surprises that were smaller."""
        event, key = self._split(x)
        return self._model.score_one(event, key=key)

    def learn_many(self, X: pd.DataFrame) -> None:
        """Rows in their order, as a loop of `learn_one`."""
        for row in X.to_dict("records"):
            self.learn_one(row)

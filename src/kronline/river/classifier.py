"""`kronline.stream.Classifier` for river."""

from typing import Any

import pandas as pd
from river import base

from kronline import stream
from kronline.river.around import Around, settings_of


@settings_of(stream.Classifier)
class Classifier(Around, base.MiniBatchClassifier):
    """A recurrent classifier that learns at every event; new classes may appear at any time.

    Settings: those of `kronline.stream.Classifier`, and `key`: the name of the feature that says
    which sensor, user or machine an event is from.

    Example:
        >>> from kronline import river  # doctest: +SKIP
        >>> model = river.Classifier()  # doctest: +SKIP
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Move on by one event, and learn from its class."""
        event, key = self._split(x)
        self._model.learn_one(event, y, key=key)

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of every class so far; empty before the first one."""
        event, key = self._split(x)
        return self._model.predict_proba_one(event, key=key)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Rows in their order, as a loop of `learn_one`."""
        for row, label in zip(X.to_dict("records"), y.tolist(), strict=True):
            self.learn_one(row, label)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """`predict_proba_one` of every row; a column per class."""
        events, keys = self._split_all(X.to_dict("records"))
        found = self._model.predict_proba_many(events, keys)
        return pd.DataFrame(found, index=X.index, dtype="float64")

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The most probable class of every row; None before the first one."""
        events, keys = self._split_all(X.to_dict("records"))
        found = self._model.predict_many(events, keys)
        return pd.Series(found, index=X.index, dtype="object")

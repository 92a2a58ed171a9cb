"""`kronline.stream.Forecaster` for river."""

from typing import Any

from river import time_series

from kronline import stream
from kronline.river.around import Around, settings_of


@settings_of(stream.Forecaster)
class Forecaster(Around, time_series.base.Forecaster):
    """A recurrent forecaster that learns at every value, free-running over a horizon.

    Settings: those of `kronline.stream.Forecaster`, and `key`: the name of the feature that says
    which series a value is of.

    Example:
        >>> from kronline import river  # doctest: +SKIP
        >>> model = river.Forecaster()  # doctest: +SKIP
    """

    def learn_one(self, y: float, x: dict[Any, Any] | None = None) -> None:
        """Move on by one value."""
        event, key = self._split(x)
        self._model.learn_one(y, event, key=key)

    def forecast(self, horizon: int, xs: list[dict[Any, Any]] | None = None) -> list[float]:
        """The next values; the key is that of the first of `xs`."""
        if xs is None:
            return self._model.forecast(horizon)
        events, keys = self._split_all(xs)
        return self._model.forecast(horizon, events, key=keys[0] if keys else None)

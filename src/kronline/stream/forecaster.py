"""The next values of a series, free-running over a horizon."""

from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np

from kronline.stream.features import Event
from kronline.stream.regressor import Regressor, number


class Forecaster(Regressor):
    """A series, one value at a time, with or without further features of each value.

    As `Regressor`, whose target is the value itself; `forecast` goes on with its own predictions in
    place of values.

    Example:
        >>> from kronline import stream
        >>> model = stream.Forecaster()
        >>> for t in range(20):
        ...     _ = model.learn_one(float(t))
        >>> len(model.forecast(3))
        3
    """

    def learn_one(  # type: ignore[override]
        self, y: float | None, x: Event | None = None, key: Hashable = None
    ) -> Self:
        """Move on by one value; a value that is missing is None.

        Args:
            y: the value.
            x: what else is known of it, before it comes.
            key: which series it is of.
        """
        event = self._features.read({} if x is None else x)
        return self._learn([event], [number(y)], [key])

    def forecast(
        self, horizon: int, xs: Sequence[Event] | None = None, key: Hashable = None
    ) -> list[float]:
        """The next values; the model does not move on.

        Args:
            horizon: how many.
            xs: what else is known of each of them.
            key: which series.
        """
        if horizon < 1:
            raise ValueError(f"horizon must be 1 or more, got {horizon!r}")
        if xs is not None and len(xs) < horizon:
            raise ValueError(f"needed what is known of {horizon} values, got {len(xs)}")
        events = [self._features.read({} if xs is None else xs[i]) for i in range(horizon)]
        lanes, new = self._found([key])
        simple, lane = self._simple, self.network.copy_of(lanes[0], bool(new[0]))
        past, found = simple.last(lanes, new), []  # goes on with predictions in place of values
        for event in events:
            inputs = self._inputs(*self._features.table([event]), past)
            raw = lane.move(inputs[0])
            rows = self._straight.rows(inputs), self._curved.rows(inputs)
            parts, _ = self._parts(raw[None], past, rows)
            found.append(float((parts @ self._experts.weights)[0]))
            past = np.concatenate([[found[-1:]], past[:, :-1]], 1)
        return found

    def predict_many(self, xs: Sequence[Event], keys: Any = None) -> list[float]:
        """The next value, with each of these as what is known of it."""
        return super().predict_many(xs, keys)

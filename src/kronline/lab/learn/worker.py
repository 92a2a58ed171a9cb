"""One line after the other: what is written of it, and what the model becomes.

All that happens here follows from the lines alone, so that lines of the journal, taken again, lead
to the same bytes.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from kronline.lab.learn import baselines, model, parse
from kronline.lab.learn.events import Event, Reader, Recent
from kronline.lab.learn.meter import Meter
from kronline.lab.learn.settings import Learn

EVENT, REJECTED, HEADER, BLANK = "event", "rejected", "header", "blank"


class Taken(NamedTuple):
    """What became of a line."""

    kind: str
    out: bytes  # the line that is written of it
    message: str = ""  # of one that was rejected


class Open(NamedTuple):
    """A prediction whose target has not come yet."""

    x: dict[str, Any]
    made: dict[str, Any]
    guesses: Any


class Worker:
    """The model, and all that it is surrounded by."""

    def __init__(self, settings: Learn, format: str):
        self.settings = settings
        as_text = [*settings.category]
        if settings.task == "classify" and settings.target is not None:
            as_text.append(settings.target)
        if settings.key is not None:
            as_text.append(settings.key)
        self.source = parse.Csv(as_text) if format == "csv" else parse.Json()
        self.reader = Reader(settings)
        self.meter = Meter()
        self.model: model.Model | None = None
        self.baseline: baselines.Baseline | None = None
        self.events = self.rejected = 0
        self._open = Recent()  # by key: [how many came, open predictions, oldest first]
        self._horizon = 0
        if settings.task is not None:
            self._begin(settings.task)

    def _begin(self, task: str, saved: Path | None = None) -> None:
        s = self.settings
        self._horizon = s.horizon if s.horizon is not None else int(task == "forecast")
        if saved is None:
            self.model = model.make(task, s.settings(), s.level, self._horizon)
        else:
            self.model = model.load(saved, task, s.level, self._horizon)
        self.baseline = baselines.of(task)

    # -- one line ----------------------------------------------------------------------------------

    def take(self, number: int, text: bytes, size: int) -> Taken:
        """A line, whatever it holds.

        Raises:
            Stopped: where the settings say so.
        """
        try:
            line = parse.decoded(text, size, self.settings.max_line, number)
            if not line.strip():
                return Taken(BLANK, b"")
            if isinstance(self.source, parse.Csv) and self.source.header is None:
                self._begin_csv(self.source, line)
                return Taken(HEADER, b"")
            found = self._event(number, self.reader.event(self.source.record(line)))
        except parse.Stopped:
            raise
        except parse.Bad as bad:
            if isinstance(self.source, parse.Csv) and self.source.header is None:
                raise parse.Stopped(bad.problem, bad.fix) from bad
            return self._rejected(number, text, size, bad)
        self.events += 1
        return Taken(EVENT, json.dumps(found).encode() + b"\n")

    def _begin_csv(self, source: parse.Csv, line: str) -> None:
        """The columns' names; without them no line can be read, so that this stops the stream."""
        s = self.settings
        try:
            names = source.names(line)
            for what in ("target", "key", "time"):
                name = getattr(s, what)
                if name is not None and name not in names:
                    raise parse.Bad(
                        f"there is no column {name!r}, the {what}",
                        f"choose among {', '.join(names)[:300]}, or say --format json",
                    )
        except parse.Bad as bad:
            raise parse.Stopped(
                f"the first line names the columns: {bad.problem}", bad.fix
            ) from bad
        source.header = names

    def _rejected(self, number: int, text: bytes, size: int, bad: parse.Bad) -> Taken:
        self.rejected += 1
        self.meter.rejected()
        found = {"line": number, "problem": bad.problem, "fix": bad.fix}
        found |= {"text": parse.kept(text), "bytes": size}
        message = f"line {number:,}: {bad}"
        return Taken(REJECTED, json.dumps(found).encode() + b"\n", message)

    def _event(self, number: int, event: Event) -> dict[str, Any]:
        """Predict and learn; what is written."""
        s, task = self.settings, self.reader.task
        assert task is not None
        if self.model is None:
            self._begin(task)
        found: dict[str, Any] = {"line": number}
        if s.time is not None:
            found["time"] = event.time
        if s.key is not None:
            found["key"] = event.key
        try:
            made = self._ahead(event, task) if self._horizon else self._now(event, task)
        except (ValueError, TypeError) as e:
            if not any(repr(name) in str(e) for name in (*event.x, s.target)):
                raise  # not of this event's values
            # the model names the feature, and is as it was
            raise parse.Bad(str(e), "correct the value, or leave the column out by --ignore") from e
        self.meter.event(event.x)
        return found | made

    def _now(self, event: Event, task: str) -> dict[str, Any]:
        """The event's own target, before it is seen; or how unusual the event is."""
        assert self.model is not None and self.baseline is not None
        made = self.model.predict(event.x, event.key)
        self.model.learn(event.x, event.y, event.key)
        if task == "anomaly":
            self.meter.score(made["score"] or 0.0, _odd(event.y))
            return made
        self._score(made, self.baseline.guess(event.key), event.y)
        self._learnt(event)
        return made | {"target": event.y}

    def _ahead(self, event: Event, task: str) -> dict[str, Any]:
        """The target so many events on; what was predicted for this one is learnt from now."""
        assert self.model is not None and self.baseline is not None
        came, open_ = self._open.get(event.key or "", (0, []))
        due = Open(*open_[0]) if len(open_) == self._horizon else None
        lane = event.key
        if task == "forecast":
            self.model.learn(event.x, event.y, lane)
        elif self._horizon > 1:  # events that are a horizon apart are a sequence of their own
            lane = f"{came % self._horizon} {event.key or ''}"
        x = dict(event.x)
        if task != "forecast":
            if due is not None:
                self.model.learn(due.x, event.y, lane)
            x[str(self.settings.target)] = str(event.y) if task == "classify" else event.y
            if event.y is None:
                x[str(self.settings.target)] = None
        if due is not None:
            self._score(due.made, due.guesses, event.y)
        self._learnt(event)
        made = self.model.predict(x, lane)
        kept = {} if task == "forecast" else x
        if due is not None:
            del open_[0]
        open_.append(Open(kept, made, self.baseline.guess(event.key)))
        self._open.put(event.key or "", (came + 1, open_))
        return made | {"ahead": self._horizon}

    def _score(self, made: dict[str, Any], guesses: Any, y: Any) -> None:
        """From the second target on, so that all guesses are scored on the same events."""
        if y is None or guesses is None:
            return
        p = made["prediction"]
        if isinstance(self.baseline, baselines.Classes):
            given = made["probabilities"].get(model.label(y), 0.0)
            self.meter.classes(y, p, given, tuple(guesses))
            return
        self.meter.numbers(y, float("inf") if p is None else p, tuple(guesses))
        if made.get("low") is not None and made.get("high") is not None:
            self.meter.interval(made["low"] <= y <= made["high"])

    def _learnt(self, event: Event) -> None:
        assert self.baseline is not None
        if event.y is not None:
            self.baseline.learn(event.y, event.key)
            self.meter.target(event.y)

    # -- checkpoints -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All but the model."""
        return {
            "events": self.events,
            "rejected": self.rejected,
            "header": self.source.header,
            "delimiter": getattr(self.source, "delimiter", None),
            "reader": self.reader.state(),
            "meter": self.meter.state(),
            "baseline": None if self.baseline is None else self.baseline.state(),
            "open": [[key, came, waiting] for key, (came, waiting) in self._open.items()],
        }

    def restore(self, state: dict[str, Any], saved: Path | None) -> None:
        """All of it, the model from the file."""
        self.events, self.rejected = state["events"], state["rejected"]
        if isinstance(self.source, parse.Csv):
            self.source.header, self.source.delimiter = state["header"], state["delimiter"]
        self.reader.restore(state["reader"])
        self.meter.restore(state["meter"])
        if saved is not None:
            self._begin(str(self.reader.task), saved)
        if self.baseline is not None and state["baseline"] is not None:
            self.baseline.restore(state["baseline"])
        self._open = Recent((key, (came, waiting)) for key, came, waiting in state["open"])


def _odd(y: Any) -> bool | None:
    """A label that says whether an event is unusual: true, 1, or a text that is none of these."""
    if y is None:
        return None
    if isinstance(y, str):
        return y.strip().lower() not in ("", "0", "no", "false", "normal", "ok", "none")
    return bool(y)

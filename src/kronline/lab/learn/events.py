"""Records as events: which column is what, of what type, and what is refused."""

import math
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kronline.lab.learn.parse import Bad, Record, Stopped, kind, shown
from kronline.lab.learn.settings import Learn

LARGEST = 1e100  # that a number may be, so that its square is finite
CLASSES = 1000  # that a target may have
KEYS = 10_000  # of which times, last values and open predictions are remembered
NUMBER, FLAG, TEXT = "a number", "true or false", "a text"


class Event(NamedTuple):
    """What the model is told."""

    key: str | None
    time: Any  # as it was given
    x: dict[str, Any]  # features
    y: Any  # the target; None: not known


class Recent(OrderedDict[str, Any]):
    """By key; the least recently used are forgotten beyond a limit."""

    def put(self, key: str, value: Any) -> None:
        """Remember, and forget the oldest if there are too many."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > KEYS:
            self.popitem(last=False)


class Reader:
    """Makes events of records; what it has learnt of the columns is part of the checkpoint."""

    def __init__(self, settings: Learn):
        self._s = settings
        self._apart = {n for n in (settings.key, settings.time) if n is not None}
        self._apart |= set(settings.ignore)
        if settings.target is not None:
            self._apart.add(settings.target)
        self._only = frozenset(settings.only)
        self._category = frozenset(settings.category)
        self.task: str | None = settings.task
        self.types: dict[str, str] = {}  # of columns, as they were first seen
        self.classes: dict[Any, None] = {}  # of the target, in the order of their coming
        self.times = Recent()  # of each key, the newest

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        found = {"task": self.task, "types": self.types, "classes": list(self.classes)}
        return found | {"times": list(self.times.items())}

    def restore(self, state: dict[str, Any]) -> None:
        """Of a checkpoint."""
        self.task, self.types = state["task"], dict(state["types"])
        self.classes = dict.fromkeys(state["classes"])
        self.times = Recent((k, v) for k, v in state["times"])

    def event(self, record: Record) -> Event:
        """The event of a record; nothing is remembered of one that is refused.

        Raises:
            Bad: for a record that cannot be used.
        """
        s = self._s
        new: dict[str, str] = {}
        key = self._key(record) if s.key is not None else None
        time, seconds = self._time(record, key) if s.time is not None else (None, None)
        x = {}
        # what others are in the future is not known, so that forecasts are of the target alone
        for name, value in record.items() if self.task != "forecast" else ():
            if name in self._apart or (self._only and name not in self._only):
                continue
            x[name] = self._value(name, value, new)
        if len(self.types) + len(new) > s.max_features:
            raise Bad(
                f"the line brings the number of columns to {len(self.types) + len(new):,}, more "
                f"than {s.max_features:,}",
                "name those that count by --only, or allow more by --max-features",
            )
        y = self._target(record, new) if s.target is not None else None
        if s.target is None and not x:
            raise Bad("the line has no feature", "give at least one column with a value")
        self.types |= new
        if seconds is not None:
            self.times.put(key or "", seconds)
        return Event(key, time, x, y)

    def _key(self, record: Record) -> str:
        name = str(self._s.key)
        value = record.get(name)
        if value is None or isinstance(value, list | dict) or _nan(value):
            raise Bad(
                f"the key {name!r} is {_absent(record, name)}",
                f"say in every line which one it is from, as a text or a number in {name!r}",
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # CSV and JSON have the same keys
        return _text(name, str(value))

    def _time(self, record: Record, key: str | None) -> tuple[Any, float]:
        name = str(self._s.time)
        value = record.get(name)
        fix = "write a number, or a date and time as in 2026-11-18T09:30:00"
        if isinstance(value, str):
            try:
                when = datetime.fromisoformat(value.strip())
                seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError, OSError) as e:
                raise Bad(f"the time {name!r} is {shown(value)}", fix) from e
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise Bad(f"the time {name!r} is {_absent(record, name)}", fix)
        else:
            seconds = self._finite(name, value, "")
        before = self.times.get(key or "")
        if before is not None and seconds < before:
            raise Bad(
                f"the time {name!r} goes back, to {shown(value)}"
                + (f", for the key {shown(key)}" if key is not None else ""),
                "sort the events of each key by time, or leave --time away",
            )
        return value, seconds

    def _target(self, record: Record, new: dict[str, str]) -> Any:
        s, name = self._s, str(self._s.target)
        if name not in record:
            raise Bad(
                f"there is no column {name!r}, the target",
                f"write {name!r} in every line, empty or null where it is not known yet",
            )
        y = self._value(name, record[name], new, target=True)
        if y is None:
            if self.task is None:
                raise Bad(
                    f"the first target {name!r} is not known, so that the task is not, either",
                    "say --task regress or --task classify",
                )
            return None
        if self.task is None:
            self.task = "regress" if type(y) in (int, float) else "classify"
            if s.level is not None and self.task != "regress":
                self.task = None
                raise Bad("--level is for numbers, and the target is none", "leave --level away")
        if self.task == "classify" and y not in self.classes:
            if len(self.classes) >= CLASSES:
                raise Bad(
                    f"the target {name!r} is {shown(y)}, one class more than {CLASSES:,}",
                    "is it a number, or an identity? correct it, or choose another target",
                )
            self.classes[y] = None
        if self.task in ("regress", "forecast") and type(y) not in (int, float):
            raise Bad(
                f"the target {name!r} is {shown(record[name])} and needs to be a number",
                "correct it, or say --task classify from the beginning",
            )
        return y

    def _value(self, name: str, value: Any, new: dict[str, str], target: bool = False) -> Any:
        """A value as the model takes it; None where it is missing."""
        if value is None:
            return None
        if isinstance(value, bool):
            got = FLAG
        elif isinstance(value, int | float):
            got = NUMBER
        elif isinstance(value, str):
            got = TEXT
        else:
            raise Bad(
                f"{name!r} is {kind(value)}",
                "write a number, true, false, a text or null; or leave it out by --ignore",
            )
        named = name in self._category or (target and self.task == "classify")
        if named and not (target and got == FLAG):
            value = _name(value)
            if value is None:
                return self._nan(name)
            got = TEXT
        want = self.types.get(name)
        if want is None:
            _text("a column's name", name)
            new[name] = got
        elif want != got:
            raise Bad(
                f"{name!r} is {shown(value)} and needs to be {want}, as it was before",
                f"correct it; if its values are names, say --category {name} from the beginning",
            )
        if got == NUMBER:
            number = self._finite(name, value, "missing")
            return None if math.isnan(number) else number
        return _text(name, value) if got == TEXT else value

    def _finite(self, name: str, value: int | float, otherwise: str) -> float:
        """A number; NaN stands for one that is missing, if it may be."""
        try:
            number = float(value)
        except OverflowError as e:
            raise Bad(f"{name!r} is a number of more than 308 digits", "write a smaller one") from e
        if abs(number) <= LARGEST:
            return number
        if math.isfinite(number):
            raise Bad(f"{name!r} is {number:g}, beyond {LARGEST:g}", "write it in a larger unit")
        if not otherwise:
            raise Bad(f"{name!r} is {number}", "write a finite number")
        self._nan(name)
        return math.nan

    def _nan(self, name: str) -> None:
        """By policy: refuse, stop, or take it as missing."""
        if self._s.on_nan == "skip":
            raise Bad(
                f"{name!r} is not a finite number, and --on-nan is skip",
                "leave it empty, or say --on-nan missing",
            )
        if self._s.on_nan == "stop":
            raise Stopped(
                f"{name!r} is not a finite number, and --on-nan is stop",
                "go on by the same command with --on-nan skip, or --on-nan missing",
            )


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _name(value: Any) -> str | None:
    """A category or class as a text, the same for CSV and JSON; None: NaN."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    return "true" if value is True else "false" if value is False else str(value)


def _text(name: str, value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as e:
            raise Bad(
                f"{name!r} holds half a character, \\ud800 for instance",
                "write whole characters: a pair of \\u escapes, or UTF-8",
            ) from e
    return value


def _absent(record: Record, name: str) -> str:
    return shown(record[name]) if name in record else "not there"

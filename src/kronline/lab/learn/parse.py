"""A line as a record: columns and their values. What cannot be used is refused, with the fix."""

import csv
import json
from collections.abc import Sequence
from typing import Any

from kronline.lab.learn.lines import KEPT

Record = dict[str, Any]  # column -> number, true or false, text, None

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-nan"})
DELIMITERS = ",;\t|"


class Bad(Exception):
    """A line that cannot be used: what is wrong, and how to fix it."""

    def __init__(self, problem: str, fix: str):
        super().__init__(f"{problem}; {fix}")
        self.problem, self.fix = problem, fix


class Stopped(Bad):
    """The same, where the user asked to stop at such a line."""


def decoded(text: bytes, size: int, limit: int, number: int) -> str:
    """The line's text."""
    if size > limit:
        raise Bad(
            f"the line has {size:,} bytes, more than {limit:,}",
            "split it, or allow longer ones by --max-line",
        )
    try:
        line = text.decode()
    except UnicodeDecodeError as e:
        raise Bad(
            f"the line is not UTF-8: byte {text[e.start]:#04x} at column {e.start + 1}",
            "convert the input, for instance by iconv -f LATIN1 -t UTF-8",
        ) from e
    return line.removeprefix("\ufeff") if number == 1 else line


class Json:
    """JSON lines: every line is an object."""

    header: None = None

    def record(self, line: str) -> Record:
        """One event."""
        try:
            found = json.loads(line)
        except json.JSONDecodeError as e:
            raise Bad(
                f"the line is broken JSON: {e.msg} at column {e.colno}",
                'write one object a line, {"name": 1.5}; CSV needs --format csv',
            ) from e
        except (ValueError, RecursionError) as e:  # a number of 5,000 digits; [[[[...
            raise Bad(
                f"the line is JSON that cannot be read: {str(e)[:100]}",
                "write smaller numbers, and nothing nested",
            ) from e
        if not isinstance(found, dict):
            raise Bad(
                f"the line is {_kind(found)} and not an object",
                'write names and values, {"name": 1.5}',
            )
        return found


class Csv:
    """CSV: the first line names the columns; texts that are numbers are numbers."""

    def __init__(self, as_text: Sequence[str] = ()):
        self.header: list[str] | None = None
        self.delimiter = ","
        self._as_text = frozenset(as_text)

    def names(self, line: str) -> list[str]:
        """Of the columns, which the first line has; it shows the delimiter, too."""
        counts = {d: line.count(d) for d in DELIMITERS}
        self.delimiter = max(DELIMITERS, key=lambda d: counts[d])
        names = [name.strip() for name in self._cells(line)]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice or "" in names:
            what = "a column without a name" if "" in names else f"{twice[0]!r} is there twice"
            raise Bad(what, "give each column a name of its own")
        return names

    def record(self, line: str) -> Record:
        """One event."""
        assert self.header is not None
        cells = self._cells(line)
        if len(cells) != len(self.header):
            raise Bad(
                f"the line has {len(cells)} cells where the first line has {len(self.header)}",
                f"give {len(self.header)}, separated by {self.delimiter!r}; quote a cell that "
                "holds one",
            )
        return {
            name: cell if name in self._as_text and cell else _value(cell)
            for name, cell in zip(self.header, cells, strict=True)
        }

    def _cells(self, line: str) -> list[str]:
        try:
            rows = list(csv.reader([line], delimiter=self.delimiter, strict=True))
        except csv.Error as e:
            raise Bad(
                f"the line is broken CSV: {e}",
                "close every quote in its own line, and write a quote inside quotes twice",
            ) from e
        return rows[0] if rows else [""]


def _value(cell: str) -> Any:
    try:
        return float(cell) if "_" not in cell else cell
    except ValueError:
        pass
    low = cell.strip().lower()
    if low in MISSING:
        return None
    if low in ("true", "false"):
        return low == "true"
    return cell


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def kind(value: Any) -> str:
    """What a value is, in words."""
    return _kind(value)


def shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def kept(text: bytes) -> str:
    """A line that is kept aside; bytes that are no UTF-8 as \\xff."""
    return text[:KEPT].decode(errors="backslashreplace")

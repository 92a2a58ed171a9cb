"""The journal: every line that is not in the model's checkpoints yet, and what was made of it.

SQLite in WAL mode, synchronous: what is committed survives a kill and a power failure. The table
`lines` has the lines and what was written of them; the one row of `place` says how far the input
has been read, and how far its predictions had been handed on before the last commit.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kronline.errors import UsageError
from kronline.lab.learn.lines import Line, Place
from kronline.lab.learn.worker import Taken

FILE = "journal.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS lines (
    line INTEGER PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL, size INTEGER NOT NULL,
    text BLOB NOT NULL, kind TEXT NOT NULL, out BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS place (
    id INTEGER PRIMARY KEY CHECK (id = 0), line INTEGER NOT NULL, offset INTEGER NOT NULL,
    head TEXT NOT NULL, last TEXT NOT NULL, size INTEGER NOT NULL, shown INTEGER NOT NULL
);
INSERT OR IGNORE INTO place VALUES (0, 0, 0, '', '', 0, 0);
"""


class Row(NamedTuple):
    """A line of the journal."""

    line: Line
    kind: str
    out: bytes


class Journal:
    """One stream's."""

    def __init__(self, folder: Path):
        self.path = folder / FILE
        self._waiting: list[tuple[int, int, int, int, bytes, str, bytes]] = []
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(SCHEMA)
            row = self._db.execute("SELECT line, offset, head, last, size, shown FROM place")
            *place, self.shown = row.fetchone()
        except sqlite3.DatabaseError as e:
            raise UsageError(f"the journal {self.path} cannot be used: {e}") from e
        self.place = Place(*place)

    def close(self) -> None:
        """Put the log back into the database, and let go of it."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    def tidy(self) -> None:
        """Close it, and leave it as a copy without gaps: the same bytes for the same rows."""
        beside = self.path.with_name(f".{self.path.name}.tidy")
        beside.unlink(missing_ok=True)
        self._db.execute("VACUUM INTO ?", (str(beside),))
        self.close()
        with closing(sqlite3.connect(beside, isolation_level=None)) as copy:
            copy.execute("PRAGMA schema_version = 1")  # it would count the copies
        with beside.open("rb") as f:
            os.fsync(f.fileno())
        if self.path.with_name(f"{self.path.name}-wal").exists():  # someone else looks at it
            beside.unlink()
        else:
            os.replace(beside, self.path)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, line: Line, taken: Taken) -> None:
        """To be committed with those that follow."""
        row = (line.number, line.start, line.end, line.size, line.text, taken.kind, taken.out)
        self._waiting.append(row)

    def commit(self, place: Place, shown: int) -> None:
        """All lines since the last commit, and the place behind them: they count from now on."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", self._waiting)
        self._put(place, shown)
        self._db.execute("COMMIT")
        self.place, self.shown = place, shown
        self._waiting.clear()

    def dropped(self, line: int, shown: int) -> None:
        """Lines up to this one are in a checkpoint, and in the one before: forget them here."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM lines WHERE line <= ?", (line,))
        self._put(self.place, shown)
        self._db.execute("COMMIT")
        self.shown = shown

    def _put(self, p: Place, shown: int) -> None:
        self._db.execute(
            "UPDATE place SET line = ?, offset = ?, head = ?, last = ?, size = ?, shown = ?",
            (p.line, p.offset, p.head, p.last, p.size, shown),
        )

    def rows(self, after: int) -> Iterator[Row]:
        """Committed lines behind this one, in order."""
        asked = "SELECT * FROM lines WHERE line > ? ORDER BY line LIMIT 1000"
        while page := self._db.execute(asked, (after,)).fetchall():  # older ones may go meanwhile
            for number, start, stop, size, text, kind, out in page:
                yield Row(Line(number, text, size, start, stop), kind, out)
            after = page[-1][0]

    def first(self) -> int | None:
        """The oldest line that is still here."""
        return self._db.execute("SELECT min(line) FROM lines").fetchone()[0]

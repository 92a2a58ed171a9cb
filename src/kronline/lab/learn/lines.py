"""Lines of a file or a pipe, one by one, with their places; no line is ever held beyond a limit."""

import hashlib
import os
import select
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kronline.errors import UsageError
from kronline.lab.learn.settings import PIPE

CHUNK = 1 << 16  # bytes a read
POLL = 0.1  # seconds between looks at a file that grows, or a pipe that is silent
HEAD = 64  # lines by which a stream is known again
KEPT = 1000  # bytes that are kept of a line that is too long


class Line(NamedTuple):
    """One line as it came, without its end."""

    number: int  # from 1
    text: bytes
    size: int  # bytes, its end not counted; more than len(text) if it was too long
    start: int  # its place in the input
    end: int  # the place behind it


@dataclass
class Place:
    """How far a stream has been read, and by what it is known again."""

    line: int = 0
    offset: int = 0  # bytes
    head: str = ""  # digest of the first lines
    last: str = ""  # digest of the last line
    size: int = 0  # bytes of the last line, with its end

    def moved(self, line: Line) -> "Place":
        """Behind this line."""
        last = hashlib.blake2b(line.text, digest_size=16).hexdigest()
        head = self.head
        if self.line < HEAD:
            head = hashlib.blake2b((head + last).encode(), digest_size=16).hexdigest()
        return Place(line.number, line.end, head, last, line.end - line.start)


class Source:
    """The input; `next` gives lines, None where there is none yet or none any more (`ended`)."""

    def __init__(self, path: Path, limit: int, follow: bool):
        self.path, self.limit, self.follow = path, limit, follow
        try:
            self._fd = os.dup(0) if path == PIPE else os.open(path, os.O_RDONLY)
        except OSError as e:
            raise UsageError(f"the input {path} could not be opened: {e.strerror}") from e
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISDIR(mode):
            os.close(self._fd)
            raise UsageError(f"the input {path} is a folder; a file of events is needed, or -")
        self.file = stat.S_ISREG(mode)
        self._buffer = b""
        self._at = 0  # of the buffer: where the next line begins
        self._searched = 0  # no end of line before here
        self._dropped = 0  # bytes of the line that were let go of, as it is too long
        self._kept = b""
        self.ended = False
        self.line, self.offset = 0, 0

    def close(self) -> None:
        """Done with it."""
        os.close(self._fd)

    def start(self, stop: Callable[[], bool]) -> bytes:
        """The first bytes, which are read again by `next`; waits until there are some."""
        while not (self._buffer or self.ended or stop()):
            self._more(POLL)
        return self._buffer

    def next(self, wait: float = 0.0) -> Line | None:
        """The next line, waiting so many seconds at most; None: not yet, or `ended`."""
        while True:
            found = self._buffer.find(b"\n", self._searched)
            if found >= 0:
                return self._line(found, 1)
            self._searched = len(self._buffer)
            if self._searched - self._at > self.limit:
                self._let_go()
            if self.ended or not self._more(wait):
                break
        rest = len(self._buffer) - self._at + self._dropped
        if self.ended and rest and not self.follow:  # a last line without its end
            return self._line(len(self._buffer), 0)
        return None

    def _line(self, found: int, ending: int) -> Line:
        piece = self._buffer[self._at : found]
        size = self._dropped + len(piece)
        start = self.offset
        self.line += 1
        self.offset += size + ending
        text = self._kept or piece
        if size > self.limit:
            text = text[: min(KEPT, self.limit)]
        elif text.endswith(b"\r"):
            text = text[:-1]
            size -= 1
        self._at = self._searched = found + ending
        self._dropped, self._kept = 0, b""
        return Line(self.line, text, size, start, self.offset)

    def _let_go(self) -> None:
        """Of all but the beginning of a line that is too long."""
        self._kept = self._kept or self._buffer[self._at : self._at + min(KEPT, self.limit)]
        self._dropped += len(self._buffer) - self._at
        self._buffer, self._at, self._searched = b"", 0, 0

    def _more(self, wait: float) -> bool:
        """Read on; whether anything came."""
        if not self.file and not select.select([self._fd], [], [], wait)[0]:
            return False
        data = os.read(self._fd, CHUNK)
        if not data:
            if not (self.file and self.follow):
                self.ended = True
                return False
            self._still_there()
            time.sleep(wait)
            return False
        self._buffer = self._buffer[self._at :] + data
        self._searched -= self._at
        self._at = 0
        return True

    def _still_there(self) -> None:
        here = os.fstat(self._fd)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise UsageError(f"{self.path} was moved, removed or replaced; what it held is learnt")
        if here.st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            raise UsageError(f"{self.path} became shorter while it was followed; append only")

    # -- back to a place ---------------------------------------------------------------------------

    def go_to(self, place: Place, stop: Callable[[], bool] = lambda: False) -> None:
        """Behind what is known already, if this is the same stream.

        Raises:
            UsageError: if it is another one.
        """
        seen = Place()
        known = place.line if not self.file else min(place.line, HEAD)
        while seen.line < known and not stop():
            line = self.next(POLL)
            if line is not None:
                seen = seen.moved(line)
            elif self.ended:
                raise self._other(place, f"it ends at line {seen.line:,}")
        if stop():
            return
        if seen.head != place.head:
            raise self._other(place, f"its first {min(known, HEAD)} lines are others")
        if self.file:
            self._jump(place)
        elif (seen.last, seen.offset) != (place.last, place.offset):
            raise self._other(place, f"its line {place.line:,} is another")

    def _jump(self, place: Place) -> None:
        if os.fstat(self._fd).st_size < place.offset:
            raise self._other(place, "it is shorter than what was read of it")
        self._buffer, self._at, self._searched = b"", 0, 0
        self._dropped, self._kept, self.ended = 0, b"", False
        if place.line:
            os.lseek(self._fd, place.offset - place.size, os.SEEK_SET)
            self.line, self.offset = place.line - 1, place.offset - place.size
            one = Source.next(self, 0.0)
            if one is None or Place().moved(one).last != place.last:
                raise self._other(place, f"its line {place.line:,} is another")
            # a last line that had no end then, and has one now, is the same line
            self.line = place.line

    def _other(self, place: Place, why: str) -> UsageError:
        hint = "give the same file again, or another folder: --model DIR"
        if not self.file:
            hint = "pipe the same lines again, or say --pipe live if only new ones come"
        return UsageError(
            f"{self.path} is not the stream that this model knows up to line {place.line:,}: "
            f"{why}; {hint}"
        )


def looks_like(start: bytes, path: Path) -> str:
    """The format, by the file's name or its first line: json or csv."""
    ending = path.suffix.lower()
    if ending in (".jsonl", ".json", ".ndjson"):
        return "json"
    if ending in (".csv", ".tsv", ".txt"):
        return "csv"
    return "json" if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"") else "csv"


def refuse_other_encodings(start: bytes, path: Path) -> None:
    """UTF-16 and compressed files: every line would be rejected, one by one."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UsageError(f"{path} is UTF-16 or UTF-32; UTF-8 is needed: iconv -t UTF-8")
    packers = ((b"\x1f\x8b\x08", "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"PK\3\4", "unzip -p"))
    for magic, way in packers:
        if start.startswith(magic):
            raise UsageError(f"{path} is compressed: {way} FILE | kronline learn - ...")

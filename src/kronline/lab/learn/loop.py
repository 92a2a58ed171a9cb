"""Line by line, from the input to the journal, the predictions and the checkpoints.

The order is what makes a kill harmless: lines are taken, committed to the journal together with
their predictions, and only then shown. A restart loads the last checkpoint, takes the journal's
lines behind it again, compares, and goes on behind the last one.
"""

import json
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kronline import disk
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab.learn import checkpoints, lines, settings, sinks, summary
from kronline.lab.learn.journal import FILE as JOURNAL
from kronline.lab.learn.journal import Journal, Row
from kronline.lab.learn.lines import POLL, Line, Place, Source
from kronline.lab.learn.parse import Stopped
from kronline.lab.learn.settings import PIPE, Learn
from kronline.lab.learn.timing import FILE as TIMING
from kronline.lab.learn.timing import Timing
from kronline.lab.learn.worker import BLANK, EVENT, REJECTED, Taken, Worker
from kronline.lab.runs import folder, lock
from kronline.lab.runs.loop import Stop, stopping
from kronline.lab.wording import plural

FILE = "stream.json"  # what has it is a stream's folder
ASIDE = "rejected.jsonl"
SAY_EVERY = 5.0  # seconds between lines of progress
SAID = 10  # rejected lines that are reported one by one
GROUP = 0.5  # seconds after which lines are committed, however few


class End(NamedTuple):
    """How it ended."""

    code: int
    message: str
    numbers: dict[str, Any]


def is_stream(path: Path) -> bool:
    """Whether the folder is one of `kronline learn`."""
    return (path / FILE).is_file()


def go(args: Learn) -> End:
    """Start or go on, until the input ends or a signal comes."""
    place = args.folder
    with closing(Source(args.input, args.max_line, args.follow)) as source:
        _ready(place)
        with folder.locked(place), stopping("this event") as stop:
            new = not (place / FILE).is_file()
            try:
                worker = _settle(args, place, source, stop)
                with closing(_Session(args, place, source, worker)) as session:
                    return session.run(stop)
            except UsageError:
                if new:
                    _undo(place)
                raise
            except BrokenPipeError:
                raise
            except (OSError, sqlite3.Error) as e:
                raise UsageError(
                    f"{place}: a file could not be written: {e}. Every line that was answered is "
                    "kept; make room, or the folder writable, and give the same command again"
                ) from e


def _undo(place: Path) -> None:
    """A folder that was made for a command that could not begin is taken away."""
    tables = (JOURNAL + end for end in ("", "-wal", "-shm"))
    names = (FILE, ASIDE, TIMING, *lock.FILES, *tables)
    if (place / JOURNAL).is_file():
        with closing(Journal(place)) as journal:
            begun = journal.place.line > 0
        if begun:
            return
    for name in names:
        (place / name).unlink(missing_ok=True)
    with suppress(OSError):
        place.rmdir()


def _ready(place: Path) -> None:
    """A folder that is a stream's, or empty."""
    others = place.is_dir() and any(f.name not in lock.FILES for f in place.iterdir())
    if place.exists() and not (place / FILE).is_file() and (not place.is_dir() or others):
        raise UsageError(f"{place} holds something else; name a new folder: --model DIR")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"the folder {place} could not be made: {e.strerror}") from e


def _settle(args: Learn, place: Path, source: Source, stop: Stop) -> Worker:
    """The settings are those of before, or are written down; a worker that has read nothing."""
    now = args.identity()
    if (place / FILE).is_file():
        try:
            known = json.loads((place / FILE).read_text())
            before, format = known["settings"], known["format"]
        except (ValueError, KeyError) as e:
            raise UsageError(f"{place / FILE} is damaged: {e}; begin anew: --model DIR") from e
        settings.same(before, now, place)
        if before != now:
            disk.write(place / FILE, json.dumps(known | {"settings": now}, indent=1) + "\n")
        return Worker(args, str(format))
    start = source.start(lambda: bool(stop.signal))
    lines.refuse_other_encodings(start, args.input)
    format = args.format or lines.looks_like(start, args.input)
    worker = Worker(args, format)  # before anything is written: its settings may be wrong
    about = {"settings": now, "format": format, "version": __version__}
    disk.write(place / FILE, json.dumps(about, indent=1) + "\n")
    return worker


def _sweep(place: Path) -> None:
    """Files that a kill left half written, or half taken away."""
    hidden = (*place.glob(".*"), *(place / checkpoints.FOLDER).glob(".*"))
    for file in (*hidden, *checkpoints.stray(place)):
        if file.is_file():
            file.unlink()


class _Session:
    """One process's work on a stream."""

    def __init__(self, args: Learn, place: Path, source: Source, worker: Worker):
        self.args, self.folder, self.source, self.worker = args, place, source, worker
        self.journal = Journal(place)
        self.timing = Timing.read(place)
        self.group = 1 if args.durable else args.commit
        self.said = self.before = 0
        self.tidy = False  # set at an end in order
        _sweep(place)
        self.point, trouble = checkpoints.newest(place)
        for n, why in trouble.items():
            print(f"kronline: {why}; going back to the one before", file=sys.stderr)
            checkpoints.discard(place, n)
        if self.point is not None and self.point.place.line > self.journal.place.line:
            raise UsageError(
                f"{place}: the journal ends at line {self.journal.place.line:,}, before the "
                f"checkpoint of line {self.point.place.line:,}; put both back as they were "
                "together, or begin anew: --model DIR"
            )
        out, aside = (0, 0) if self.point is None else (self.point.out, self.point.rejected)
        self.out = sinks.Printed() if args.out is None else sinks.File(args.out, out)
        self.aside = sinks.File(place / ASIDE, aside)
        self.place = Place()
        self._outs: list[Taken] = []

    def close(self) -> None:
        self.out.close()
        self.aside.close()
        if self.tidy:
            self.journal.tidy()
        else:
            self.journal.close()

    def run(self, stop: Stop) -> End:
        self._replay(stop)
        known = self.journal.place
        self.before = self.worker.events
        if not stop.signal and known.line:
            if self.args.input == PIPE and self.args.pipe == "live":
                self.source.line, self.source.offset = known.line, known.offset
            else:
                self.source.go_to(known, lambda: bool(stop.signal))
        ended = "" if stop.signal else self._live(stop)
        self._shown()
        if self.worker.source.header is not None or self.worker.events or self.worker.rejected:
            self._checkpoint()
        self.timing.write(self.folder)
        self.tidy = not self.args.keep_journal
        found = summary.numbers(self.args, self.folder, self.worker, self.timing, self.place)
        if ended:
            raise UsageError(ended)
        return self._end(stop, found)

    def _end(self, stop: Stop, found: dict[str, Any]) -> End:
        new = self.worker.events - self.before
        message = f"{plural(new, 'new event')}, {self.worker.events:,} in all"
        if self.worker.rejected:
            aside = plural(self.worker.rejected, "line")
            message += f"; {aside} rejected, see {self.folder / ASIDE}"
        if stop.signal and not self.args.follow:
            return End(128 + stop.signal, f"stopped: {message}; the same command goes on", found)
        none = not self.worker.events and self.worker.rejected
        return End(int(bool(none)), message, found)

    # -- what is known already ---------------------------------------------------------------------

    def _replay(self, stop: Stop) -> None:
        """The last checkpoint, and the journal's lines behind it once more."""
        if self.point is not None:
            try:
                self.worker.restore(self.point.worker, self.point.model)
            except (ValueError, KeyError, TypeError) as e:
                raise UsageError(
                    f"the checkpoint of {self.folder} was written by another version and cannot "
                    f"be read: {e}; begin anew: --model DIR"
                ) from e
            self.place = self.point.place
        first = self.journal.first()
        if self.point is None and first not in (None, 1):
            raise UsageError(
                f"{self.folder} has lost its checkpoints, and its journal begins at line {first:,} "
                "only; begin anew with another folder: --model DIR"
            )
        shown = self.journal.shown
        for row in self.journal.rows(self.place.line):
            if stop.signal:
                raise UsageError("stopped while the journal was being read again; nothing is lost")
            self._again(row, shown)
        self.out.flush()
        self.aside.flush()

    def _again(self, row: Row, shown: int) -> None:
        line = row.line
        taken = self.worker.take(line.number, line.text, line.size)
        if (taken.kind, taken.out) != (row.kind, row.out):
            raise UsageError(
                f"line {line.number:,} of the journal leads to another prediction now, "
                f"{taken.out.decode().strip()[:200]}, where it was "
                f"{row.out.decode().strip()[:200]}: another version of kronline or JAX, or another "
                "machine? Go on with the one that it was begun with, or begin anew: --model DIR"
            )
        self.place = self.place.moved(line)
        if taken.kind == EVENT and (self.out.again or line.number > shown):
            self.out.write(taken.out)
        elif taken.kind == REJECTED:
            self.aside.write(taken.out)
        if line.number % self.args.every == 0:
            self._checkpoint()

    # -- what is new -------------------------------------------------------------------------------

    def _live(self, stop: Stop) -> str:
        """Until the input ends or a signal comes; why it was stopped, if a line did that."""
        clock = said = grouped = time.perf_counter()
        take, timing, journal = self.worker.take, self.timing, self.journal
        while not stop.signal:
            line = self.source.next()
            now = time.perf_counter()
            if line is None:
                if len(journal):
                    self._commit()
                if self.source.ended:
                    break
                line = self.source.next(POLL)
                if line is None:
                    continue
                now = grouped = clock = time.perf_counter()  # waiting is no work
            try:
                taken = take(line.number, line.text, line.size)
            except Stopped as e:
                self._commit()
                return f"line {line.number:,} of {self.args.input}: {e}"
            after = time.perf_counter()
            if taken.kind == EVENT:
                timing.event(after - now, after - clock)
                clock = after
            self._took(line, taken)
            full = len(journal) >= self.group or after - grouped > GROUP
            due = line.number % self.args.every == 0
            if full or due:
                self._commit()
                if due:
                    self._checkpoint()
                    timing.write(self.folder)
                grouped = time.perf_counter()
            if after - said > SAY_EVERY and not self.args.quiet:
                said = after
                self._say()
        self._commit()
        return ""

    def _took(self, line: Line, taken: Taken) -> None:
        self.journal.add(line, taken)
        self.place = self.place.moved(line)
        if taken.kind != BLANK:
            self._outs.append(taken)

    def _commit(self) -> None:
        """Lines count from here on; then they are shown."""
        if not len(self.journal):
            return
        self.journal.commit(self.place, self.journal.place.line)
        self.timing.committed()
        self._show()

    def _show(self) -> None:
        for taken in self._outs:
            if taken.kind == EVENT:
                self.out.write(taken.out)
            elif taken.kind == REJECTED:
                self.aside.write(taken.out)
                self._reject(taken.message)
        self._outs.clear()
        self.out.flush()
        self.aside.flush()

    def _reject(self, message: str) -> None:
        self.said += 1
        if self.said <= SAID:
            print(f"kronline: {message}", file=sys.stderr, flush=True)
        if self.said == SAID:
            print(f"kronline: more of these: see {self.folder / ASIDE}", file=sys.stderr)

    def _shown(self) -> None:
        """At an end in order, all is shown."""
        if self.journal.shown != self.journal.place.line:
            self.journal.dropped(0, self.journal.place.line)

    def _checkpoint(self) -> None:
        """The model as it is now; then the journal forgets what two checkpoints have."""
        self.out.sync()
        self.aside.sync()
        checkpoints.write(self.folder, self.worker, self.place, self.out.bytes, self.aside.bytes)
        before = checkpoints.kept(self.folder, self.args.every, self.place.line)
        if not self.args.keep_journal:
            self.journal.dropped(before, max(self.journal.shown, self.place.line))

    def _say(self) -> None:
        found = summary.numbers(self.args, self.folder, self.worker, self.timing, self.place)
        print(f"kronline: {summary.line(found)}", file=sys.stderr, flush=True)

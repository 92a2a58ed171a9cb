"""Progress with an estimate of the time left: bars on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_EVERY = 5.0  # seconds between plain lines


def wide(columns: int = 110) -> Console:
    """A console for tables, which files and pipes take as wide as they are."""
    console = Console()
    return console if console.is_terminal else Console(width=max(columns, console.width))


class Tracker:
    """Several named jobs, each of so many units; written to stderr, safe to call from threads.

    Example:
        with Tracker({"kf": 1000, "uoro": 1000}) as tracker:
            tracker.update("kf", 10, "T = 3")
    """

    def __init__(
        self, totals: dict[str, int], done: dict[str, int] | None = None, *, quiet: bool = False
    ):
        """`done`: units that were done before now; `quiet`: write nothing."""
        self._totals = totals
        self._before = dict.fromkeys(totals, 0) | (done or {})
        self._done = dict(self._before)
        self._quiet = quiet
        self._notes = dict.fromkeys(totals, "")
        self._lock = threading.Lock()
        self._start = self._printed = time.monotonic()
        self._bars: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(elapsed_when_finished=False),
                console=Console(stderr=True),
            )
            self._ids = {
                n: self._bars.add_task(n, total=t, note="", completed=self._done[n])
                for n, t in totals.items()
            }

    def __enter__(self) -> "Tracker":
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars:
            self._bars.stop()

    def update(self, name: str, by: int, note: str = "", *, now: bool = False) -> None:
        """`by` more units of a job are done; `now`: say so, however short ago the last line was."""
        with self._lock:
            self._done[name] += by
            self._notes[name] = note
            if self._bars:
                self._bars.update(self._ids[name], advance=by, note=note)
            elif not self._quiet and (now or time.monotonic() - self._printed > PLAIN_EVERY):
                self._printed = time.monotonic()
                print(self._line(), file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line of its own, above the bars."""
        if not self._quiet:
            print(f"kronline: {text}", file=sys.stderr, flush=True)

    def _line(self) -> str:
        elapsed = time.monotonic() - self._start
        shares = {n: self._done[n] / t for n, t in self._totals.items()}
        here = sum(self._done.values()) - sum(self._before.values())
        todo = sum(self._totals.values()) - sum(self._done.values())
        left = f", about {span(elapsed * todo / here)} left" if here else ""
        parts = [
            f"{n} {100 * s:.0f} % {self._notes[n]}".rstrip()
            for n, s in shares.items()
            if s or self._notes[n]
        ]
        return f"{'; '.join(parts)} ({span(elapsed)}{left})"


def span(seconds: float) -> str:
    """A length of time, as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"

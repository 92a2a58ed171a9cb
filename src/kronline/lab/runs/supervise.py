"""Processes of one run on this machine: started, watched, and ended together.

Each gets its share of the cores. When one ends by a signal, the others are ended at once: they
would wait for it. Signals to this process are handed on to all. Of processes that are started one
by one, on several machines, each has such a parent, too: JAX's runtime aborts a process that has
lost the coordinator, and the parent says so.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kronline import processes
from kronline.lab.runs.folder import CONFIG
from kronline.lab.runs.split import BESIDE, ENVIRONMENT, PARENT, Place

LOOK = 0.05  # seconds between looks at the processes
END = 15  # seconds for the others to fail in the same way
FAILED = (1, 2, 130)  # exit codes of a process that may have left without the others


def run(argv: Sequence[str], places: Sequence[Place], run_folder: str = "") -> int:
    """Start processes of a command, and wait for them.

    Args:
        argv: the command, as each of them is given it.
        places: of the processes.
        run_folder: the run's, for what is said; empty: of a command that has none.

    Returns:
        the exit code: that of the processes; `processes.LOST` if one was killed.
    """
    children: list[subprocess.Popen[bytes]] = []
    with _handed_on(children):
        try:
            cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
            for i, place in enumerate(places):
                env = {BESIDE: "1"} if len(places) > 1 else {}
                children.append(_started(argv, place, share(cores, i, len(places)), env))
            return _waited(children, places, run_folder)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()


def _started(
    argv: Sequence[str], place: Place, cores: list[int], more: dict[str, str]
) -> subprocess.Popen[bytes]:
    told = {ENVIRONMENT[name]: str(value) for name, value in place._asdict().items()}
    words = [sys.executable, "-m", "kronline", *argv]
    env = os.environ | told | more | {PARENT: str(os.getpid())}
    child = subprocess.Popen(words, env=env, start_new_session=True)
    if cores:
        with suppress(OSError):  # it has ended already
            os.sched_setaffinity(child.pid, cores)
    return child


def share(cores: list[int], i: int, count: int) -> list[int]:
    """The cores of process i: as many for each, or one that several share."""
    if count == 1:
        return []  # all
    first, end = (len(cores) * j // count for j in (i, i + 1))
    return cores[first : max(end, first + 1)]


@contextmanager
def _handed_on(children: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """SIGINT and SIGTERM go to all processes, which stop at the end of their chunk."""

    def hand_on(number: int, _: Any) -> None:
        for child in children:
            with suppress(OSError):
                child.send_signal(number)

    before = {s: signal.signal(s, hand_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _waited(
    children: list[subprocess.Popen[bytes]], places: Sequence[Place], run_folder: str
) -> int:
    """Until all have ended, or one in a way that the others would not know of."""
    ends: float | None = None
    while True:
        codes = [child.poll() for child in children]
        for place, code in zip(places, codes, strict=True):
            if code is not None and code < 0:
                print(f"kronline: {_killed(place, code, run_folder)}", file=sys.stderr)
                return processes.LOST
        if None not in codes:
            return max(code for code in codes if code is not None)
        if processes.LOST in codes:
            return processes.LOST  # which has said why
        if failed := [code for code in codes if code in FAILED]:
            ends = ends or time.monotonic() + END
            if time.monotonic() > ends:
                return max(failed)
        time.sleep(LOOK)


def _killed(place: Place, code: int, run_folder: str) -> str:
    """What the end of a process by a signal means."""
    number = signal.Signals(-code)
    what = f"process {place.process} of {place.of} was ended by {number.name}"
    if number == signal.SIGABRT and place.process:
        what += (
            f": where JAX says so above, process 0, the coordinator at {place.coordinator}, ended, "
            "or cannot be reached"
        )
    begun = run_folder and Path(run_folder, CONFIG).is_file()
    again = f"go on with `kronline resume {run_folder}`" if begun else "start it again"
    return f"{what}; its others are ended, too; {again}"

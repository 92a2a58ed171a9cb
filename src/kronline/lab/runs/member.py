"""One run of a sweep, as a worker of a Dask cluster carries it out.

The worker starts a process for the run, in the run's folder, and waits for it. What the worker is
sent is an `Order`, plain text and numbers; what it sends back is how the process ended. A worker
that dies takes its process along: that reads from a pipe which only the worker holds open. Nothing
of JAX is loaded here, only in the process.
"""

import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from kronline.lab.runs import lock

LOOK = 0.25  # seconds between looks at the process
SHARED = 15.0  # seconds in which a file of another host has to be seen
LOG, ASKED = "log.txt", "asked.toml"  # what the process says; what was asked of it
STOPPED, REFUSED = "stopped", 2
# a member is one process, though the worker that starts it be one of many that Slurm has started
ALONE = {"KRONLINE_COORDINATOR": "none", "KRONLINE_PROCESS": "0", "KRONLINE_OF": "1"}


class Order(TypedDict):
    """What a worker is sent."""

    run: str  # the run's folder
    kind: str  # its task
    settings: str  # its configuration, as TOML
    sweep: str  # the folder of the sweep
    lease: str  # the sweep's hold of that folder: the run is stopped when it ends
    where: str  # the folder that relative paths start from
    given: dict[str, str]  # environment, where the worker has not its own
    shares: list[list[int]]  # cores of the workers, by number; empty: each as it was started


class Outcome(TypedDict):
    """What it sends back."""

    code: int  # with which the process ended
    host: str
    message: str  # its last line; "stopped" if the sweep ended


class Lease:
    """The sweep's hold of its folder, as seen from another host."""

    def __init__(self, sweep: Path, id: str):
        self._sweep, self._id = sweep, id
        self._seen, self._last, self._quiet = 0, time.monotonic(), 0.0

    def visible(self) -> bool:
        """Whether the sweep's folder is seen from here, after some time at the latest."""
        until = time.monotonic() + SHARED
        while lock.holder(self._sweep) is None and time.monotonic() < until:
            time.sleep(LOOK)
        return self._sweep.is_dir()

    def over(self) -> bool:
        """Whether the sweep has ended, wants to stop, or has given no sign of life for long."""
        found = lock.holder(self._sweep)
        if found is None or found.get("id") != self._id or found.get("stop"):
            return True
        now = time.monotonic()
        # by changes, since the clocks of hosts may differ; time in which we slept does not count
        self._quiet += min(now - self._last, 4 * LOOK)
        self._last = now
        try:
            seen = (self._sweep / lock.HOLDER).stat().st_mtime_ns
        except OSError:
            return True
        if seen != self._seen:
            self._seen, self._quiet = seen, 0.0
        return self._quiet > lock.STALE


def work(order: Order, worker: int | None = None) -> Outcome:
    """Carry out one run, in a worker.

    Args:
        order: what is asked for.
        worker: the number of this worker, to find its cores; by default its name.

    Returns:
        How the run's process ended.
    """
    run, lease = Path(order["run"]), Lease(Path(order["sweep"]), order["lease"])
    if not lease.visible():
        return _outcome(
            REFUSED,
            f"{order['sweep']} is not to be seen on {socket.gethostname()}: all hosts of a cluster "
            "need the folder of the sweep, by the same path, on a file system that they share",
        )
    while True:
        while lock.in_use(run):  # of a worker that was lost, and whose process has not ended yet
            if lease.over():
                return _outcome(0, STOPPED)
            time.sleep(LOOK)
        if lease.over():
            return _outcome(0, STOPPED)
        code, told = _process(order, run, lease, worker)
        if code == REFUSED and not told and lock.in_use(run):  # another was first
            continue
        if told and code in (128 + signal.SIGTERM, -signal.SIGTERM):
            return _outcome(0, STOPPED)
        return _outcome(code, _last_line(run / LOG))


def _outcome(code: int, message: str) -> Outcome:
    return {"code": code, "host": socket.gethostname(), "message": message}


def _process(order: Order, run: Path, lease: Lease, worker: int | None) -> tuple[int, bool]:
    """The exit code of a process for the run, and whether it was told to stop."""
    if all((run / name).is_file() for name in ("config.toml", "about.json")):
        words = ["resume", str(run)]
    else:
        run.mkdir(parents=True, exist_ok=True)
        (run / ASKED).write_text(order["settings"], encoding="utf-8")
        words = ["train", order["kind"], "--config", str(run / ASKED), "--out", str(run)]
    with (run / LOG).open("ab") as log:
        process = _started(words, order, log)
        told = False
        try:
            if order["shares"] and (cores := _cores(order["shares"], worker)):
                os.sched_setaffinity(process.pid, cores)  # before it has any threads
            while process.poll() is None:
                if not told and lease.over():
                    process.send_signal(signal.SIGTERM)  # once: a second costs its last chunk
                    told = True
                time.sleep(LOOK)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin:
                process.stdin.close()
    return process.returncode, told


def _started(words: Sequence[str], order: Order, log: BinaryIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "kronline.lab.runs.member", *words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        cwd=order["where"] if Path(order["where"]).is_dir() else None,
        env=order["given"] | os.environ | ALONE,
        start_new_session=True,
    )


def _cores(shares: list[list[int]], worker: int | None) -> list[int]:
    if worker is None:
        from distributed import get_worker  # noqa: PLC0415  in a worker it is loaded

        worker = int(get_worker().name)
    return shares[worker % len(shares)]


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


# -- in the process --------------------------------------------------------------------------------


def main(words: Sequence[str]) -> None:
    """The command `kronline`, which ends with the process that has started it."""
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    sys.argv[1:] = words
    runpy.run_module("kronline", run_name="__main__", alter_sys=True)


def _end_with(pipe: int) -> None:
    """Wait until nobody holds the other end of the pipe, then end, as if by SIGKILL."""
    while os.read(pipe, 1):
        pass
    os._exit(128 + 9)


def dask_setup(worker: Any) -> None:
    """In a worker of a local cluster: Ctrl-C at the terminal is for the sweep, which stops it."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Several runs at a time: a process for each, with its share of the cores, and their progress."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kronline import disk
from kronline.errors import UsageError
from kronline.lab import machine
from kronline.lab.progress import Tracker
from kronline.lab.runs import config, folder, loop
from kronline.lab.tasks import Task

LOOK = 0.25  # seconds between looks at the processes
FEW = 6  # runs up to which each has a line of its own


class Member(NamedTuple):
    """One of the runs."""

    path: Path
    settings: Task


@dataclass
class Working:
    """A process at work."""

    member: Member
    process: subprocess.Popen[bytes]
    log: BinaryIO
    told_to_stop: bool = False

    def stop(self) -> None:
        """Once: a second signal would cost it its last chunk."""
        if not self.told_to_stop and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.told_to_stop = True


def run(todo: list[Member], workers: int | None, stop: loop.Stop) -> list[dict[str, str]]:
    """Train all members; those that failed, and why."""
    waiting = [m for m in todo if not _done(m)]
    # by all members, done or not: what is begun on so many cores ends on as many, bit for bit
    shares = _shares(machine.cores() if workers is None else workers, len(todo))
    idle = list(range(len(shares)))
    at_work: dict[int, Working] = {}
    failed: list[dict[str, str]] = []
    totals, done = _progress(todo)
    with Tracker(totals, done) as tracker:
        while (waiting or at_work) and not (stop.signal and not at_work):
            while waiting and idle and not stop.signal:
                free = next((m for m in waiting if not folder.in_use(m.path)), None)
                if free is None:  # left to themselves by a sweep that was killed: wait for them
                    break
                waiting.remove(free)
                slot = idle.pop(0)
                at_work[slot] = _started(free, shares[slot])
            for slot, working in list(at_work.items()):
                if stop.signal:
                    working.stop()
                if working.process.poll() is not None:
                    failed += _ended(working)
                    del at_work[slot]
                    idle.append(slot)
            done = _shown(todo, tracker, done)
            time.sleep(LOOK)
    return failed


def _shares(workers: int, tasks: int) -> list[set[int] | None]:
    """The cores of each process: all of them, dealt out evenly."""
    if workers < 1:
        raise UsageError(f"workers must be >= 1, got {workers}")
    workers = max(1, min(workers, tasks))
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on this system: they share as they can
        return [None] * workers
    if workers >= len(cores):
        return [{cores[i % len(cores)]} for i in range(workers)]
    return [set(cores[i::workers]) for i in range(workers)]


def _started(member: Member, cores: set[int] | None) -> Working:
    """A process of its own for the run, on its cores."""
    path, settings = member
    me = [sys.executable, "-m", "kronline"]
    if folder.is_run(path):
        words = ["resume", str(path)]
    else:
        path.mkdir(parents=True, exist_ok=True)
        asked = path / "asked.toml"
        disk.write(asked, config.toml(settings, settings.kind))
        words = ["train", settings.kind, "--config", str(asked), "--out", str(path)]
    log = (path / "log.txt").open("ab")
    given = {
        # programs that differ in the seed alone are compiled once
        "JAX_COMPILATION_CACHE_DIR": str(path.parent / ".programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        # LAPACK's own threads wait for each other by spinning: on a shared core, most of the time
        "OPENBLAS_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [*me, *words], stdout=log, stderr=log, env=given | os.environ, start_new_session=True
    )
    if cores is not None:
        os.sched_setaffinity(process.pid, cores)  # before it has any threads
    return Working(member, process, log)


def _ended(working: Working) -> list[dict[str, str]]:
    """Why a process failed, if it did. One that diverged has not failed: it is a result."""
    working.log.close()
    code = working.process.returncode
    stopped = working.told_to_stop and code in (128 + signal.SIGTERM, -signal.SIGTERM)
    if stopped or code in (0, loop.DIVERGED):
        return []
    text = (working.member.path / "log.txt").read_text(errors="replace").strip()
    last = text.splitlines()[-1] if text else "no output"
    return [{"run": str(working.member.path), "code": str(code), "message": last}]


def _done(member: Member) -> bool:
    """Whether there is nothing left to do; a run of other settings in its place is refused."""
    if not folder.is_run(member.path):
        return False
    found = config.read(type(member.settings), member.path / folder.CONFIG)
    wanted = {f.name: getattr(member.settings, f.name) for f in fields(member.settings)}
    differ = [k for k, v in found.items() if wanted[k] != v and k not in config.NOT_KEPT]
    if differ:
        name = differ[0]
        raise UsageError(
            f"{member.path} holds a run of other settings: {name} is {found[name]!r} there, and "
            f"{wanted[name]!r} was asked for; choose another --out"
        )
    return folder.read(member.path).state in ("finished", "diverged")


# -- progress --------------------------------------------------------------------------------------


def _steps(member: Member) -> tuple[int, int]:
    """How many are done, of how many."""
    try:
        status = json.loads((member.path / folder.STATUS).read_text())
        about = json.loads((member.path / folder.ABOUT).read_text())
    except (OSError, ValueError):
        return 0, 1
    total = int(about["steps"])
    if status["state"] in ("finished", "diverged"):
        return total, total
    timing = member.path / folder.TIMING
    seen = folder.lines(timing)[-1:] if timing.exists() else []
    return (seen[0]["step"] if seen else 0), total


def _units(member: Member) -> int:
    done, total = _steps(member)
    return 1000 * done // total


def _job(todo: list[Member], member: Member) -> str:
    return member.path.name if len(todo) <= FEW else "sweep"


def _progress(todo: list[Member]) -> tuple[dict[str, int], dict[str, int]]:
    """Totals, and what was done before, in thousandths of a run."""
    totals: dict[str, int] = {}
    done: dict[str, int] = {}
    for m in todo:
        job = _job(todo, m)
        totals[job] = totals.get(job, 0) + 1000
        done[job] = done.get(job, 0) + _units(m)
    return totals, done


def _shown(todo: list[Member], tracker: Tracker, before: dict[str, int]) -> dict[str, int]:
    _, now = _progress(todo)
    for job, units in now.items():
        if units != before[job]:
            if len(todo) <= FEW:
                member = next(m for m in todo if m.path.name == job)
                note = _note(member)
            else:
                finished = sum(_units(m) == 1000 for m in todo)
                note = f"{finished} of {len(todo)} runs done"
            tracker.update(job, units - before[job], note)
    return now


def _note(member: Member) -> str:
    loss = member.settings.loss
    seen = [m for m in folder.lines(member.path / folder.METRICS)[-2:] if loss in m]
    return member.settings.note(seen[-1]) if seen else ""

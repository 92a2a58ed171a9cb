"""Several runs on a Dask cluster: who is sent what, what came back, and the progress of all."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from kronline.errors import UsageError
from kronline.lab.progress import Tracker
from kronline.lab.runs import cluster, config, folder, loop, member
from kronline.lab.runs.lock import Held
from kronline.lab.tasks import Task
from kronline.lab.wording import plural

LOOK = 0.25  # seconds between looks at the runs
COUNT = 2.0  # seconds between looks at the workers
FEW = 6  # runs up to which each has a line of its own
GIVE_UP = 2  # times that a run's workers were lost without its getting any further


class Member(NamedTuple):
    """One of the runs."""

    path: Path
    settings: Task


class Place(NamedTuple):
    """Where runs are carried out."""

    cluster: str | None = None  # the file or address of a scheduler; None: of this machine
    workers: int | None = None  # how many, on this machine; None: one per core


def run(todo: list[Member], place: Place, held: Held, stop: loop.Stop) -> list[dict[str, str]]:
    """Train all members; those that failed, and why.

    Args:
        todo: the runs, in the order in which they are to begin.
        place: where.
        held: the folder of all of them, which this process holds.
        stop: set by signals.
    """
    shares = cluster.shares(place.workers, len(todo))
    waiting = [m for m in todo if not _done(m)]
    if not waiting or stop.signal:
        return []
    view = _View(todo)
    with cluster.opened(place.cluster, min(len(shares), len(waiting))) as client, view.tracker:
        session = _Session(client, view, held, place, shares)
        for rank, m in enumerate(waiting):
            session.submit(m, rank)
        session.wait(stop)
    return session.failed


@dataclass
class _Session:
    """Orders that were sent, and what came back."""

    client: Any
    view: "_View"
    held: Held
    place: Place
    shares: list[list[int]]
    sent: dict[Any, tuple[Member, int]] = field(default_factory=dict)  # by their future
    lost: dict[Path, tuple[int, int]] = field(default_factory=dict)  # times, and the step then
    failed: list[dict[str, str]] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)
    counted: float = 0.0

    def submit(self, m: Member, rank: int) -> None:
        """Send an order, of plain text and numbers; `rank`: those of lower rank begin first."""
        out = self.held.path.resolve()
        order: member.Order = {
            "run": str(m.path.resolve()),
            "kind": m.settings.kind,
            "settings": config.toml(m.settings, m.settings.kind),
            "sweep": str(out),
            "lease": self.held.id,
            "where": str(Path.cwd()),
            "given": cluster.environment(out, self.place.cluster),
            "shares": [] if self.place.cluster else self.shares,
        }
        future = self.client.submit(member.work, order, pure=False, priority=-rank)
        self.sent[future] = (m, rank)

    def wait(self, stop: loop.Stop) -> None:
        """Until all runs have ended, or were stopped."""
        told = False
        while self.sent:
            if stop.signal and not told:
                self.held.tell(stop=stop.signal)  # the workers stop their runs
                told = True
            for future in [f for f in self.sent if f.done()]:
                self._ended(future, stop)
            self._count()
            if told and not self.workers:  # nobody is left to answer
                break
            self.view.show()
            time.sleep(LOOK)

    def _ended(self, future: Any, stop: loop.Stop) -> None:
        m, rank = self.sent.pop(future)
        if future.status == "finished":
            came: member.Outcome = future.result()
            if came["message"] == member.STOPPED and not came["code"]:
                if not stop.signal:  # it saw no sign of life of ours for long: a laptop was shut
                    self.submit(m, rank)
            elif came["code"] not in (0, loop.DIVERGED):  # to diverge is a result
                self._fail(m, str(came["code"]), came["message"], came["host"])
            return
        if future.status in ("cancelled", "lost"):
            raise UsageError(
                f"the Dask scheduler is gone; its runs stop with a checkpoint. When it is back, "
                f"the same command goes on with {self.held.path}"
            )
        error = future.exception()
        if type(error).__name__ != "KilledWorker":
            self._fail(m, "1", f"{type(error).__name__}: {error}")
        elif not stop.signal and self._may_go_on(m):
            self.submit(m, rank)
        elif not stop.signal:
            self._fail(m, "1", "its workers died again and again, and it got no further")

    def _may_go_on(self, m: Member) -> bool:
        step, _ = _steps(m)
        times, before = self.lost.get(m.path, (0, -1))
        times = 1 if step > before else times + 1
        self.lost[m.path] = (times, step)
        return times < GIVE_UP

    def _fail(self, m: Member, code: str, message: str, host: str = "") -> None:
        self.failed.append({"run": str(m.path), "code": code, "message": message})
        self.view.tracker.say(f"failed: {m.path.name}{host and f' on {host}'}: {message}")

    def _count(self) -> None:
        """Say which workers are gone, and if there are none."""
        if time.monotonic() - self.counted < COUNT:
            return
        first, self.counted = not self.counted, time.monotonic()
        try:
            now = set(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError):  # the scheduler is gone: its futures say so
            return
        say = self.view.tracker.say
        for gone in sorted(self.workers - now):
            say(f"worker {gone} is gone; its run goes on elsewhere, from its last checkpoint")
        if not now and (first or self.workers):
            say("the cluster has no worker now; waiting for one")
        elif first and self.place.cluster:
            say(f"{plural(len(now), 'worker')} at the start; others may join")
        self.workers = now


def _done(m: Member) -> bool:
    """Whether there is nothing left to do; a run of other settings in its place is refused."""
    if not folder.is_run(m.path):
        return False
    found = config.read(type(m.settings), m.path / folder.CONFIG)
    wanted = {f.name: getattr(m.settings, f.name) for f in fields(m.settings)}
    differ = [k for k, v in found.items() if wanted[k] != v and k not in config.NOT_KEPT]
    if differ:
        name = differ[0]
        raise UsageError(
            f"{m.path} holds a run of other settings: {name} is {found[name]!r} there, and "
            f"{wanted[name]!r} was asked for; choose another --out"
        )
    return folder.read(m.path).state in ("finished", "diverged")


# -- progress --------------------------------------------------------------------------------------


class _View:
    """The progress of all runs, as their files say it, in thousandths of a run."""

    def __init__(self, todo: Sequence[Member]):
        self.todo = todo
        self.units = {m.path: _units(m) for m in todo}
        totals: dict[str, int] = {}
        done: dict[str, int] = {}
        for m in todo:
            job = self._job(m)
            totals[job] = totals.get(job, 0) + 1000
            done[job] = done.get(job, 0) + self.units[m.path]
        self.tracker = Tracker(totals, done)

    def _job(self, m: Member) -> str:
        return m.path.name if len(self.todo) <= FEW else "sweep"

    def show(self) -> None:
        """What has changed since."""
        for m in self.todo:
            before = self.units[m.path]
            if before == 1000:
                continue
            self.units[m.path] = now = _units(m)
            if now != before:
                self.tracker.update(self._job(m), now - before, self._note(m))

    def _note(self, m: Member) -> str:
        if len(self.todo) > FEW:
            ended = sum(u == 1000 for u in self.units.values())
            return f"{ended} of {len(self.todo)} runs done"
        loss = m.settings.loss
        seen = [x for x in folder.lines(m.path / folder.METRICS)[-2:] if loss in x]
        return m.settings.note(seen[-1]) if seen else ""


def _steps(m: Member) -> tuple[int, int]:
    """How many are done, of how many."""
    try:
        status = json.loads((m.path / folder.STATUS).read_text())
        about = json.loads((m.path / folder.ABOUT).read_text())
    except (OSError, ValueError):
        return 0, 1
    total = int(about["steps"])
    if status["state"] in ("finished", "diverged"):
        return total, total
    timing = m.path / folder.TIMING
    seen = folder.lines(timing)[-1:] if timing.exists() else []
    return (seen[0]["step"] if seen else 0), total


def _units(m: Member) -> int:
    done, total = _steps(m)
    return 1000 * done // total

"""One process at a time works on a folder, on this host or on another that shares the folder.

Two files do it. `lock` is locked by the system (flock), which lets go of it at once when the
process ends, however it ends; but not every file system tells other hosts. So `holder.json` says
who holds the folder: host, pid, since when. Its holder touches it every `BEAT` seconds. On the host
of the holder the system's lock alone decides. Elsewhere a holder that has not been seen for `STALE`
seconds is gone, and the folder may be taken over; should it come back, it ends at once.
"""

import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from kronline.errors import UsageError

try:
    import fcntl
except ImportError:  # not on Windows: there a folder is not held against processes of this host
    fcntl = None  # type: ignore[assignment]

LOCK, HOLDER = "lock", "holder.json"
FILES = (LOCK, HOLDER)
BEAT = 10.0  # seconds between signs of life
STALE = 60.0  # seconds without one, after which a holder on another host is gone
SETTLE = 0.5  # seconds after a takeover in which another host may have done the same
PAUSE = 0.02  # seconds between two looks
LOOKS = 10  # at a lock that is taken: `in_use` holds it too, for a moment


@dataclass
class Held:
    """A folder that this process holds."""

    path: Path
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Of this holding, and of no other."""
        return str(self.record["id"])

    def tell(self, **more: Any) -> None:
        """Write something beside who holds the folder, for those who look at it."""
        self.record |= more
        _put(self.path / HOLDER, self.record, os.replace)


@contextmanager
def locked(path: Path) -> Iterator[Held]:
    """Hold a folder; whoever else holds it is named.

    Args:
        path: the folder.

    Yields:
        What is held.

    Raises:
        UsageError: if another process holds the folder.
    """
    with (path / LOCK).open("a+") as f:
        for again in range(LOOKS, -1, -1):
            if _flock(f, shared=False):
                break
            if not again:
                raise UsageError(_taken(path, holder(path)))
            time.sleep(PAUSE)
        held = Held(path, _myself())
        _claim(held)
        ended = threading.Event()
        beats = threading.Thread(target=_beat, args=(held, ended), daemon=True)
        beats.start()
        try:
            yield held
        finally:
            ended.set()
            beats.join()
            if (holder(path) or {}).get("id") == held.id:
                (path / HOLDER).unlink(missing_ok=True)


def in_use(path: Path) -> bool:
    """Whether a process works in the folder now, as far as this host can see."""
    if not (path / LOCK).exists():
        return False
    with (path / LOCK).open("r") as f:
        if not _flock(f, shared=True):
            return True
    record = holder(path)
    if record is None or _here(record):
        return False
    with suppress(OSError):
        return time.time() - (path / HOLDER).stat().st_mtime < STALE
    return False


def holder(path: Path) -> dict[str, Any] | None:
    """Who holds the folder, or held it when it was killed; None: nobody. Empty: not readable."""
    return _read(path / HOLDER)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        with file.open("rb") as f:  # opened, so that a network's cache is not asked
            return dict(json.load(f))
    except OSError:
        return None
    except (ValueError, TypeError):  # cut off, as the power was
        return {}


def _myself() -> dict[str, Any]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    who = {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid(), "since": since}
    return who | {"id": uuid.uuid4().hex}


def _boot() -> str:
    """Of the running system, where it has a name; so that a host is not taken for another."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _here(record: dict[str, Any]) -> bool:
    """Whether the holder is, or was, of this host: then the system's lock tells."""
    mine = _myself()
    return all(record.get(name) == mine[name] for name in ("host", "boot"))


def _claim(held: Held) -> None:
    """Put our name into the folder, if there is none, or none that counts."""
    file = held.path / HOLDER
    while not _put(file, held.record, os.link):
        found = holder(held.path)
        if found is None:  # it was just taken away
            continue
        if not _here(found) and _age(file) < STALE:
            raise UsageError(_taken(held.path, found))
        with _alone(held.path) as alone:  # the record is there at every moment
            if alone and (holder(held.path) or {}).get("id") == found.get("id"):
                _put(file, held.record, os.replace)
        time.sleep(SETTLE if alone and not _here(found) else PAUSE)
        if (holder(held.path) or {}).get("id") == held.id:
            return


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether nobody else, on any host, is about to take the folder over; for as long as it takes.

    A host may look at a record, be held up, and take over what is long another's: so it looks again
    when it is alone.
    """
    file = path / f".{HOLDER}.takeover"
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        if STALE <= _age(file) < float("inf"):  # whoever made it was killed
            file.unlink(missing_ok=True)
        yield False
        return
    try:
        yield True
    finally:
        file.unlink(missing_ok=True)


def _put(file: Path, record: dict[str, Any], place: Any) -> bool:
    """Write the whole file; `place` puts it there, os.link only if there is none."""
    beside = file.with_name(f".{file.name}.{record['id']}")
    beside.write_text(json.dumps(record) + "\n")
    try:
        place(beside, file)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if file.exists():
            return False
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)
    return True


def _age(file: Path) -> float:
    """Seconds since the last sign of life, by the file system's clock: hosts may differ in theirs.

    Infinite if the file is gone.
    """
    probe = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    probe.touch()
    try:
        with file.open("rb") as f:
            return probe.stat().st_mtime - os.fstat(f.fileno()).st_mtime
    except FileNotFoundError:
        return float("inf")
    finally:
        probe.unlink()


def _beat(held: Held, ended: threading.Event) -> None:
    """Give signs of life; end the process where another has taken the folder over."""
    while not ended.wait(BEAT):
        found = holder(held.path)
        if found is not None and found.get("id") != held.id:
            print(
                f"kronline: {held.path} was taken over by pid {found.get('pid')} on "
                f"{found.get('host')}, since this process gave no sign of life for {STALE:.0f} s; "
                "it ends",
                file=sys.stderr,
                flush=True,
            )
            os._exit(2)  # at once: not one more line may be written
        with suppress(OSError):  # a network that is away comes back
            if found is None:
                _put(held.path / HOLDER, held.record, os.link)
            os.utime(held.path / HOLDER)


def _taken(path: Path, found: dict[str, Any] | None) -> str:
    if not found:
        return f"another process works on {path}; wait for it, or stop it"
    who = f"pid {found.get('pid')} on {found.get('host')}, since {found.get('since')}"
    late = "" if _here(found) else f" (a host that is gone lets go after {STALE:.0f} s)"
    return f"another process ({who}) works on {path}; wait for it, or stop it{late}"


def _flock(f: TextIO, *, shared: bool) -> bool:
    """Whether the system's lock was free, and now is ours until the file is closed."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(f, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks of the system: the other file has to do
        return True
    return True

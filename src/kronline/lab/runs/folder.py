"""A run is a folder: what was asked for, where it stands, what was measured, and checkpoints.

config.toml      the resolved configuration, which `--config` takes again
about.json       version, commit, machine, data
status.json      running, stopped, finished or diverged; at which step
metrics.jsonl    what the seed determines: the same bytes, however often the run was killed
timing.jsonl     what it does not
checkpoints/  figures/  tensorboard/
lock             held by the process that works on the run; holder.json says who that is

Published runs are packed into one file; `packed` says which path stands for such a run.
"""

import json
import os
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kronline import disk
from kronline._version import __version__
from kronline.checkpoint import FOLDER
from kronline.errors import UsageError
from kronline.lab import machine
from kronline.lab.runs import lock, packed
from kronline.lab.runs.lock import in_use, locked  # noqa: F401  for those who use folders
from kronline.lab.tasks import TASKS

CONFIG, ABOUT, STATUS = "config.toml", "about.json", "status.json"
METRICS, TIMING, CHECKPOINTS = "metrics.jsonl", "timing.jsonl", FOLDER


@dataclass(frozen=True)
class Run:
    """A run as it lies on disk."""

    path: Path  # its folder; FILE.runs:NAME if it is packed
    kind: str  # a task's, or variance
    config: dict[str, Any]
    about: dict[str, Any]
    status: dict[str, Any]
    metrics: list[dict[str, Any]]
    timing: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Of the folder, or in the file that it is packed in."""
        return self.path.resolve().name.rpartition(f"{packed.SUFFIX}:")[2]

    @property
    def state(self) -> str:
        """running, stopped, finished, diverged; "killed" if no process works on it any more."""
        state = str(self.status.get("state", "stopped"))
        return "killed" if state == "running" and not in_use(self.path) else state


def create(path: Path, kind: str, config: str, about: dict[str, Any]) -> None:
    """Make a run's folder; one that holds a run already is refused."""
    if (path / CONFIG).exists():
        raise UsageError(
            f"{path} holds a run already: go on with it by `kronline resume {path}`, or choose "
            "another folder with --out"
        )
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; choose another folder with --out")
    common = {
        "kind": kind,
        "version": __version__,
        "commit": machine.commit(),
        "machine": machine.describe(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    whole = False
    try:
        path.mkdir(parents=True, exist_ok=True)
        disk.write(path / ABOUT, json.dumps(common | about, indent=1) + "\n")
        disk.write(path / STATUS, json.dumps({"state": "stopped", "step": 0}) + "\n")
        disk.write(path / CONFIG, config)  # last: what has it is a run
        whole = True
    except OSError as e:
        raise UsageError(f"the run's folder {path} could not be written: {e}") from e
    finally:
        if not whole:  # a full disk, or Ctrl-C
            discard(path)


def discard(path: Path) -> None:
    """Take a run away that has not one checkpoint, and the folder, if there is nothing else."""
    if any((path / CHECKPOINTS).glob("*")):
        return
    for name in (CONFIG, ABOUT, STATUS, METRICS, TIMING, *lock.FILES):
        (path / name).unlink(missing_ok=True)
    for made in (path / CHECKPOINTS, path):
        with suppress(OSError):
            made.rmdir()


def is_run(path: Path) -> bool:
    """Whether the folder holds a run, or the path names one that is packed."""
    return packed.has(path / CONFIG) and packed.has(path / ABOUT)


def read(path: Path | str) -> Run:
    """A run, with all that it has measured."""
    path = Path(path)
    if not is_run(path):
        if several := packed.members(path):
            raise UsageError(f"needed one run of {path}: name it, as {several[0]} for instance")
        raise UsageError(
            f"{path} is not a run: it needs a folder with {CONFIG} and {ABOUT}, as "
            "`kronline train` and `kronline variance` make it; `kronline list` shows them"
        )
    try:
        config = tomllib.loads(packed.text(path / CONFIG) or "")
        about, status = (json.loads(packed.text(path / name) or "") for name in (ABOUT, STATUS))
    except ValueError as e:
        raise UsageError(f"{path}: its {CONFIG}, {ABOUT} or {STATUS} is damaged: {e}") from e
    metrics, timing = lines(path / METRICS), lines(path / TIMING)
    if about["kind"] in TASKS:
        metrics = TASKS[about["kind"]].reread(metrics, config)
    return Run(path, about["kind"], config, about, status, metrics, timing)


def find(paths: Iterable[Path | str]) -> list[Run]:
    """Runs, and those inside folders and files: a sweep, FILE.runs, FILE.runs:PATTERN."""
    found: dict[Path, Path] = {}
    for given in paths:
        here = inside(Path(given))
        if not here:
            raise UsageError(f"{given} holds no run; `kronline list` shows the runs that there are")
        found |= {path.resolve(): path for path in here}
    return [read(path) for path in found.values()]


def inside(path: Path) -> list[Path]:
    """The run itself, or the runs in a folder or file, in the order of their names."""
    file = packed.split(path)
    if not path.exists() and not (file and file[0].exists()):
        near = path.with_name(path.name + packed.SUFFIX)
        hint = f"did you mean {near}?" if near.is_file() else "`kronline list` shows what there is"
        raise UsageError(f"{path if file is None else file[0]} does not exist; {hint}")
    if is_run(path):
        return [path]
    if file:
        return packed.members(path)
    folders = [f.parent for f in path.rglob(CONFIG) if is_run(f.parent)]
    files = [run for f in path.rglob(f"*{packed.SUFFIX}") for run in packed.members(f)]
    return sorted([*folders, *files])


def free(base: Path, name: str) -> Path:
    """base/name, or base/name-2, ...: the first that does not exist."""
    path, i = base / name, 1
    while path.exists():
        i += 1
        path = base / f"{name}-{i}"
    return path


# -- files -----------------------------------------------------------------------------------------


def set_status(path: Path, state: str, **more: Any) -> None:
    """Where the run stands."""
    disk.write(path / STATUS, json.dumps({"state": state} | more) + "\n")


def lines(path: Path) -> list[dict[str, Any]]:
    """A .jsonl file; a last line that was cut off by a kill is left out."""
    try:
        whole, _, _ = (packed.text(path) or "").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as e:
        raise UsageError(f"{path} is damaged: {e}") from e


class Lines:
    """A .jsonl file that grows; every line is on disk before `append` returns."""

    def __init__(self, path: Path, keep: int = 0):
        """Keep the first `keep` bytes of what is there, and go on behind them."""
        have = path.stat().st_size if path.exists() else 0
        if have < keep:
            raise UsageError(f"{path} is damaged: it needs at least {keep} bytes, got {have}")
        self._file = path.open("ab", buffering=0)  # a line that failed is not tried again
        self._file.truncate(keep)
        self._file.seek(keep)

    @classmethod
    def up_to(cls, path: Path, step: int) -> "Lines":
        """Keep the lines up to a step, and go on behind them."""
        kept = [json.dumps(line) + "\n" for line in lines(path) if line["step"] <= step]
        disk.write(path, "".join(kept))
        return cls(path, path.stat().st_size)

    def append(self, line: dict[str, Any]) -> int:
        """One more line; the file's size after it."""
        data = json.dumps(line).encode() + b"\n"
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Done."""
        self._file.close()

"""The model and all around it, as it was behind a line: whole files or none.

A checkpoint is two files: the model, and after it a JSON file with the rest, which names the
model's checksum. Without the second the first does not count. The newest two are kept, and the
journal has all lines behind the older one, so that one damaged file is not the end.
"""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from kronline import disk
from kronline.errors import UsageError
from kronline.lab.learn.lines import Place
from kronline.lab.learn.worker import Worker

FOLDER = "checkpoints"


class Point(NamedTuple):
    """A checkpoint that was read."""

    place: Place
    out: int  # bytes of predictions up to there
    rejected: int  # bytes of lines that were kept aside
    worker: dict[str, Any]
    model: Path | None


def write(folder: Path, worker: Worker, place: Place, out: int, rejected: int) -> None:
    """What there is behind this place; not again, if it is there."""
    base = folder / FOLDER
    about, file = _files(folder, place.line)
    if about.exists():
        return
    base.mkdir(exist_ok=True)
    checksum = None
    if worker.model is not None:
        worker.model.inner.save(file)
        checksum = _sha256(file)
    found = {"place": asdict(place), "out": out, "rejected": rejected, "model": checksum}
    body = json.dumps(found | {"worker": worker.state()})
    sha = hashlib.sha256(body.encode()).hexdigest()
    disk.write(about, f'{{"sha256": "{sha}"}}\n{body}\n')
    _flush(base)


def kept(folder: Path, every: int, line: int) -> int:
    """Take away all but this checkpoint and the regular one before; the line of that one, or 0."""
    before = max((n for n in lines(folder) if n < line and n % every == 0), default=0)
    for n in lines(folder):
        if n not in (before, line):
            discard(folder, n)
    return before


def lines(folder: Path) -> list[int]:
    """Of the checkpoints that there are, oldest first."""
    files = (folder / FOLDER).glob("line-*.json")
    return sorted(int(f.stem.removeprefix("line-")) for f in files)


def stray(folder: Path) -> list[Path]:
    """Models without the other half of their checkpoint: a kill came between the two."""
    files = (folder / FOLDER).glob("line-*.safetensors")
    return [f for f in files if not f.with_suffix(".json").exists()]


def newest(folder: Path) -> tuple[Point | None, dict[int, str]]:
    """The newest that is whole, and what is wrong with those that are not, by their lines."""
    trouble: dict[int, str] = {}
    for n in reversed(lines(folder)):
        try:
            return _read(folder, n), trouble
        except (OSError, ValueError, KeyError, TypeError) as e:
            trouble[n] = f"the checkpoint of line {n:,} is damaged: {e}"
    return None, trouble


def discard(folder: Path, n: int) -> None:
    """Take away one that is damaged."""
    for file in _files(folder, n):
        file.unlink(missing_ok=True)


def _read(folder: Path, n: int) -> Point:
    about, file = _files(folder, n)
    head, _, body = about.read_text().rstrip("\n").partition("\n")
    if json.loads(head)["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError(f"{about} does not match its checksum")
    found = json.loads(body)
    if found["model"] is not None and found["model"] != _sha256(file):
        raise ValueError(f"{file} does not match its checksum")
    model = None if found["model"] is None else file
    return Point(Place(**found["place"]), found["out"], found["rejected"], found["worker"], model)


def latest(folder: Path) -> Point:
    """Of a stream that is only looked at.

    Raises:
        UsageError: if there is none.
    """
    found, trouble = newest(folder)
    if found is None:
        why = "; ".join(trouble.values()) or "it has no checkpoint yet"
        raise UsageError(f"nothing can be shown of {folder}: {why}; run `kronline learn` on")
    return found


def _files(folder: Path, n: int) -> tuple[Path, Path]:
    base = folder / FOLDER / f"line-{n:012d}"
    return base.with_suffix(".json"), base.with_suffix(".safetensors")


def _sha256(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    """The names of files, too, survive a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

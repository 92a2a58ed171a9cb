"""A checkpoint of many processes: each writes its own lanes, process 0 the rest, and last.

    step-000000000150.1.part         the lanes of process 1,
    step-000000000150.2.part         of process 2,
    step-000000000150.safetensors    of process 0, and all that has no axis of lanes

The last file names the others by their checksums, so that it is whole if and only if all are: what
has no such file is no checkpoint. Any number of processes reads it, each the lanes that it needs.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kronline import disk

FORMAT = "kronline-part-1"
SUFFIX = ".part"


class Own(NamedTuple):
    """The lanes that one process has."""

    axes: dict[str, int]  # of lanes, by the name of the array; arrays without are left out
    lanes: slice


class Split(NamedTuple):
    """How lanes are split over files, as the last one says it."""

    axes: dict[str, int]
    lanes: list[list[int]]  # of each process: the first, and the one behind the last
    sha256: list[str | None]  # of each part; None: the file itself


def name(path: Path, process: int) -> Path:
    """The file of a process's lanes, for a checkpoint's path."""
    return path.with_suffix(f".{process}{SUFFIX}")


def write(path: Path, process: int, arrays: disk.Arrays) -> str:
    """The lanes of one process, other than 0; the checksum."""
    return disk.write_tree(name(path, process), arrays, {"format": FORMAT})


def read(path: Path, own: Own | None, *formats: str) -> tuple[dict[str, Any], disk.Arrays]:
    """Header and arrays of a checkpoint, in however many parts it is.

    Args:
        path: the file that names the others, or the only one.
        own: the lanes to read; None: all of them.
        *formats: of that file.

    Raises:
        ValueError: if one of the files is damaged, or of another format, or missing.
    """
    if (split := _split(path)) is None:  # one file, with all lanes
        cut = {} if own is None else {"keep": _cut(own.axes, own.lanes, 0)}
        return disk.read_tree(path, *formats, **cut)
    wanted = slice(0, split.lanes[-1][1]) if own is None else own.lanes
    found: list[disk.Arrays] = []
    for process, (first, end) in enumerate(split.lanes):
        keep = _cut(split.axes, slice(max(wanted.start, first), min(wanted.stop, end)), first)
        if process == 0:
            header, arrays = disk.read_tree(path, *formats, keep=keep)
            found.append({n: arrays.pop(n) for n in split.axes})
        elif max(wanted.start, first) < min(wanted.stop, end):
            file, sha256 = name(path, process), split.sha256[process]
            try:
                found.append(disk.read_tree(file, FORMAT, keep=keep, sha256=sha256)[1])
            except FileNotFoundError as e:
                raise ValueError(f"{path} is damaged: its part {file.name} is missing") from e
    for n, axis in split.axes.items():
        arrays[n] = np.concatenate([part[n] for part in found], axis)
    return header, arrays


def _split(path: Path) -> Split | None:
    """What a checkpoint says of its parts, not checked yet; None: it is one file, or damaged."""
    try:
        return Split(**disk.header(path)["split"])
    except (KeyError, TypeError, ValueError):
        return None


def _cut(axes: dict[str, int], lanes: slice, first: int) -> Any:
    """Keeps some lanes of an array that begins with the lane `first`; none where there are none."""
    start = max(lanes.start - first, 0)
    stop = max(lanes.stop - first, start)

    def keep(name: str, a: np.ndarray) -> np.ndarray:
        if name not in axes:
            return a
        return a[(*(slice(None),) * axes[name], slice(start, stop))].copy()

    return keep


def _others(path: Path) -> list[Path]:
    """Files of other processes' lanes, of this checkpoint."""
    return sorted(path.parent.glob(f"{path.stem}.*{SUFFIX}"))


def remove(path: Path) -> None:
    """A checkpoint and its parts; first the file without which they are none."""
    path.unlink(missing_ok=True)
    for file in _others(path):
        file.unlink(missing_ok=True)


def orphans(folder: Path, whole: Iterable[Path]) -> list[Path]:
    """Parts of checkpoints that were never finished."""
    known = {path.stem for path in whole}
    return [f for f in folder.glob(f"*{SUFFIX}") if f.name.split(".", 1)[0] not in known]

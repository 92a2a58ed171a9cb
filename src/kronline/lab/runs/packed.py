"""Many runs in one text file, NAME.runs, to be kept in a repository: it is only read.

Each file of each run follows a line with its name, as `head` and `tail` show several files:

    ==> kf_rtrl-seed0/config.toml <==
    cell = "RHN"
    ...
    ==> kf_rtrl-seed0/metrics.jsonl <==
    {"step": 1000, "bits": 4.41}
    ...

`NAME.runs:RUN` stands where the path of a run's folder could, and `NAME.runs:RUN/config.toml` for
one of its files; in RUN, `*`, `?` and `[...]` match as in a shell.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from kronline import disk
from kronline.errors import UsageError

SUFFIX = ".runs"
HEAD = re.compile(r"^==> (.*) <==\n", re.MULTILINE)
NAME = re.compile(r"[^/:\n]+")  # of a run, and of a file

Files = Mapping[str, str]  # text by name


def split(path: Path) -> tuple[Path, str] | None:
    """`NAME.runs:REST` as the file and the rest, which is "" without a colon; None for other paths.

    A folder that is called NAME.runs is a folder.
    """
    before, colon, rest = str(path).partition(f"{SUFFIX}:")
    if not colon and path.suffix != SUFFIX:
        return None
    file = Path(before + SUFFIX) if colon else path
    return None if file.is_dir() else (file, rest)


def member(file: Path, name: str) -> Path:
    """The path that stands for a run of the file."""
    return Path(f"{file}:{name}")


def members(path: Path) -> list[Path]:
    """The runs of `NAME.runs`, or of `NAME.runs:PATTERN`, in the order of their names."""
    found = split(path)
    if found is None:
        return []
    file, pattern = found
    chosen = (run for run in sorted(read(file)) if not pattern or fnmatchcase(run, pattern))
    return [member(file, run) for run in chosen]


def has(path: Path) -> bool:
    """Whether there is such a file of a run, in its folder or in a file of runs."""
    return path.is_file() if split(path) is None else text(path) is not None


def text(path: Path) -> str | None:
    """A file of a run, from its folder or from a file of runs; None if there is none."""
    found = split(path)
    if found is None:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    file, rest = found
    run, _, name = rest.replace("\\", "/").partition("/")
    return read(file).get(run, {}).get(name) if file.is_file() else None


def read(file: Path) -> dict[str, Files]:
    """The files of each run, by their names.

    Raises:
        UsageError: if it cannot be read, or is not such a file.
    """
    try:
        stat = file.stat()
        return _read(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the runs of {file} cannot be read: {e}") from e


@lru_cache(maxsize=4)
def _read(file: Path, _time: int, _size: int) -> dict[str, Files]:
    first, *parts = HEAD.split(file.read_bytes().decode())
    if first or not parts:
        raise UsageError(
            f"{file} is not a file of runs: needed a first line `==> RUN/FILE <==`, got "
            f"{first[:60]!r}"
        )
    runs: dict[str, dict[str, str]] = {}
    for path, content in zip(parts[::2], parts[1::2], strict=True):
        run, _, name = path.partition("/")
        if not NAME.fullmatch(run) or not NAME.fullmatch(name) or name in runs.get(run, {}):
            raise UsageError(f"{file} is damaged: needed one RUN/FILE each, got {path!r}")
        runs.setdefault(run, {})[name] = content
    return dict(runs)


def write(file: Path, runs: Mapping[str, Files]) -> None:
    """Runs in the order of their names, each one's files in the order that is given."""
    parts = []
    for run in sorted(runs):
        for name, content in runs[run].items():
            if not NAME.fullmatch(run) or not NAME.fullmatch(name):
                raise UsageError(f"{file}: names need to be without '/' and ':', got {run}/{name}")
            if HEAD.search(content) or (content and not content.endswith("\n")):
                raise UsageError(
                    f"{file}: {run}/{name} needs a newline at its end, and no line `==> ... <==`"
                )
            parts.append(f"==> {run}/{name} <==\n{content}")
    disk.write(file, "".join(parts))


def unpack(paths: Iterable[Path], out: Path) -> list[Path]:
    """Runs of such files as folders again; none may be there already."""
    places: dict[Path, Files] = {}
    for path in paths:
        found = split(path)
        if found is None:
            raise UsageError(f"{path} is a folder already; needed a file of runs, NAME{SUFFIX}")
        file, run = found
        if (out / run).exists() or out / run in places:
            raise UsageError(f"{out / run} is there already: choose another --out")
        places[out / run] = read(file)[run]
    for place, files in places.items():
        place.mkdir(parents=True)
        for name, content in files.items():
            disk.write(place / name, content)
    return list(places)

"""What is kept in the user's cache folder: the native kernel, and programs that JAX has compiled.

The commands keep programs that took long to compile, so that a run that is started again, or
resumed, need not wait for its compiler. JAX_COMPILATION_CACHE_DIR names another folder, and
JAX_ENABLE_COMPILATION_CACHE=0 keeps none. A folder that cannot be used is no error.
"""

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jaxlib

WORTH = 0.2  # seconds that compiling took: less is not worth a file
MOST = 300 * 10**6  # bytes, above which the oldest half is thrown away
TROUBLE = "Error {} persistent compilation cache entry"  # so begin JAX's warnings


def folder() -> Path:
    """The user's."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kronline"


def cpu() -> str:
    """What the CPU can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kinds = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    except OSError:
        kinds = {platform.processor()}
    return platform.machine() + "".join(sorted(kinds))


def keep_programs(cores: int) -> None:
    """From now on compiled programs are kept and found again, unless JAX was told otherwise.

    Args:
        cores: of this process, which programs are laid out for.
    """
    told: Any = jax.config
    if told.jax_compilation_cache_dir or not told.jax_enable_compilation_cache:
        return
    mark = hashlib.sha256(f"{jaxlib.__version__} {cores} {cpu()}".encode()).hexdigest()[:16]
    try:
        place = folder() / f"programs-{mark}"  # of this machine's kind, as the kernel is
        place.mkdir(parents=True, exist_ok=True)
        _thin(place)
    except (OSError, RuntimeError):  # no home, or not writable
        return
    if not os.access(place, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH)


def trouble(warning: str) -> bool:
    """Whether a warning is of kept programs: then they are compiled, and there is nothing to say.

    Where one cannot be read, all are thrown away: JAX replaces none that is there, be it damaged.
    """
    told: Any = jax.config
    place = Path(told.jax_compilation_cache_dir or "")
    if warning.startswith(TROUBLE.format("reading")) and place.parent == folder():
        _remove(place.iterdir())
    return warning.startswith((TROUBLE.format("reading"), TROUBLE.format("writing")))


def _thin(place: Path) -> None:
    """Keep the folder from growing for ever."""
    files = sorted((f.stat().st_mtime, f.stat().st_size, f) for f in place.iterdir())
    if sum(size for _, size, _ in files) > MOST:
        _remove(file for _, _, file in files[: -(-len(files) // 2)])


def _remove(files: Iterable[Path]) -> None:
    with suppress(OSError):  # another process was first
        for file in files:
            file.unlink(missing_ok=True)

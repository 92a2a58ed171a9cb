"""What this process runs on."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from kronline import native

CONTAINER = (  # where Linux says what a container may have
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def cores() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """The machine, for whoever reads a result later."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "device": device(),
        "memory_gb": _memory_gb(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "path": "native kernel" if native.status().active else "pure JAX",
    }


def device() -> str:
    """What JAX computes on: its platform, the kind, and how many of them."""
    found = jax.devices()
    kind = found[0].device_kind
    name = found[0].platform + ("" if kind.lower() == found[0].platform else f", {kind}")
    return name if len(found) == 1 else f"{name}, {len(found)} of them"


def commit() -> str | None:
    """The commit of this checkout, with a + behind it if files differ; None for a package."""
    here = Path(__file__).parent
    if not (here.parents[2] / ".git").exists():  # installed somewhere in another repository
        return None

    def git(*args: str) -> str:
        command = ["git", "-C", str(here), *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def memory() -> int | None:
    """Bytes that this process may have: the machine's, or fewer in a container. None: not known."""
    limits = [_installed(), *map(_limit, CONTAINER)]
    return min((n for n in limits if n is not None), default=None)


def _limit(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _installed() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _memory_gb() -> float | None:
    found = _installed()
    return None if found is None else round(found / 2**30, 1)

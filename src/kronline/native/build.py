"""Builds `kernel.cpp` on first use, and finds it again later."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jax
import jaxlib

SOURCE = Path(__file__).with_name("kernel.cpp")
TARGETS = ("kronline_merge", "kronline_rmm")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-ffp-contract=fast")
# the machine's own instructions, as the compiler at hand calls them; none if it knows neither
MACHINE = (("-march=native",), ("-mcpu=native",), ())
COMPILERS = ("g++", "c++", "clang++")


class KernelError(Exception):
    """The kernel cannot be had here; the message says why."""


@dataclass(frozen=True)
class Library:
    """A kernel that was built and registered with XLA."""

    path: Path
    compiler: str
    vector: str  # "AVX-512", "AVX2" or "plain"


@functools.cache
def library() -> Library:
    """The kernel, built if it was not yet.

    Raises:
        KernelError: without a compiler, or if it fails.
    """
    compiler = _compiler()
    path = _folder() / f"kernel-{_fingerprint(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as e:
        raise KernelError(f"the kernel at {path} cannot be loaded ({e}); remove it") from e
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(loaded, target))
        jax.ffi.register_ffi_target(target, handler, platform="cpu")
    loaded.kronline_vector.restype = ctypes.c_char_p
    return Library(path, compiler, loaded.kronline_vector().decode())


def _compiler() -> str:
    named = os.environ.get("CXX")
    for name in [named] if named else COMPILERS:
        if found := shutil.which(name):
            return found
    raise KernelError(
        f"no C++ compiler was found (looked for {named or ', '.join(COMPILERS)}); install one, or "
        "name it in CXX"
    )


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kronline"


def _fingerprint(compiler: str) -> str:
    """A library serves one source, jaxlib, compiler and kind of CPU."""
    version = _run([compiler, "--version"]).stdout
    parts = (SOURCE.read_text(), jaxlib.__version__, version, repr((FLAGS, MACHINE)), _cpu())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu() -> str:
    """What the CPU can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kinds = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    except OSError:
        kinds = {platform.processor()}
    return platform.machine() + "".join(sorted(kinds))


def _build(compiler: str, path: Path) -> None:
    """Into a file of its own first, so that another process never sees half a library."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so.tmp")
    except (OSError, RuntimeError) as e:
        raise KernelError(f"the kernel cannot be kept: {e}; set XDG_CACHE_HOME") from e
    os.close(handle)
    try:
        for machine in MACHINE:
            include = ("-isystem", jax.ffi.include_dir())
            done = _run([compiler, *FLAGS, *machine, *include, "-o", name, str(SOURCE)])
            if done.returncode == 0:
                os.replace(name, path)
                return
    finally:
        Path(name).unlink(missing_ok=True)
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise KernelError(f"{compiler} could not build the kernel: {last}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise KernelError(f"{command[0]} could not be run: {e}") from e

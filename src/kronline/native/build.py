"""Builds the kernel on first use, and finds it again later."""

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import jax
import jaxlib

from kronline import cache

SOURCE = Path(__file__).with_name("ffi.cpp")
TARGETS = (
    "kronline_merge_pair",
    "kronline_rmm",
    "kronline_merge_segment",
    "kronline_push_traces",
)
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-ffp-contract=fast")
# the machine's own instructions, as the compiler at hand calls them; none if it knows neither
MACHINE = (("-march=native",), ("-mcpu=native",), ())
COMPILERS = ("g++", "c++", "clang++")


class KernelError(Exception):
    """The kernel is not available here; the message says why."""


@dataclass(frozen=True)
class Library:
    """A kernel that was built and registered with XLA."""

    path: Path
    compiler: str
    vector: str  # "AVX-512", "AVX2" or "plain C++"


_lock = threading.Lock()


def library() -> Library | KernelError:
    """The kernel, built if need be; or why it is not available. Decided once per process."""
    with _lock:
        return _library()


@functools.cache
def _library() -> Library | KernelError:
    try:
        return _load()
    except KernelError as e:
        return e
    except (OSError, RuntimeError, AttributeError, UnicodeError) as e:
        return KernelError(f"{type(e).__name__}: {e}")


def _load() -> Library:
    compiler = _compiler()
    path = cache.folder() / f"kernel-{_fingerprint(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:  # the file is damaged: build it again
        _build(compiler, path)
        loaded = ctypes.CDLL(str(path))
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(loaded, target))
        jax.ffi.register_ffi_target(target, handler, platform="cpu")
    loaded.kronline_vector.restype = ctypes.c_char_p
    return Library(path, " ".join(compiler), loaded.kronline_vector().decode())


def _compiler() -> list[str]:
    """The compiler as a command; CXX may hold arguments, too."""
    named = os.environ.get("CXX", "").strip()
    for name in [named] if named else COMPILERS:
        first, *rest = shlex.split(name)
        if found := shutil.which(first):
            return [found, *rest]
    raise KernelError(
        f"no C++ compiler was found (looked for {named or ', '.join(COMPILERS)}); install one, or "
        "name it in CXX"
    )


def sources() -> list[str]:
    """The texts of all that is compiled: `ffi.cpp` and every header."""
    return [file.read_text() for file in [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]]


def _fingerprint(compiler: list[str]) -> str:
    """A hash of all that the library depends on: sources, jaxlib, compiler, kind of CPU."""
    version = _run([*compiler, "--version"]).stdout
    parts = (
        *sources(),
        jaxlib.__version__,
        version,
        repr((compiler, FLAGS, MACHINE)),
        cache.cpu(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _build(compiler: list[str], path: Path) -> None:
    """Compile to a temporary file, then rename: no other process sees half a library."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so.tmp")
    except (OSError, RuntimeError) as e:
        raise KernelError(f"the kernel cannot be kept: {e}; set XDG_CACHE_HOME") from e
    os.close(handle)
    print("kronline: building the native kernel, once", file=sys.stderr)
    include = ("-isystem", jax.ffi.include_dir())
    messages = []
    try:
        for machine in MACHINE:
            done = _run([*compiler, *FLAGS, *machine, *include, "-o", name, str(SOURCE)])
            if done.returncode == 0:
                ctypes.CDLL(name)  # only what can be loaded is kept
                os.replace(name, path)
                return
            messages += [line for line in done.stderr.splitlines() if "error" in line]
    finally:
        Path(name).unlink(missing_ok=True)
    reason = messages[0] if messages else f"exit code {done.returncode}"
    raise KernelError(f"{' '.join(compiler)} could not build the kernel: {reason}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise KernelError(f"{command[0]} could not be run: {e}") from e

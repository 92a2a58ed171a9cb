"""The kernel, loaded: one that the wheel brings, or one that is built on first use and kept."""

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib

from kronline import cache
from kronline.native import prebuilt, recipe
from kronline.native.recipe import KernelError

TARGETS = (
    "kronline_merge_pair",
    "kronline_rmm",
    "kronline_merge_segment",
    "kronline_mix",
    "kronline_push_traces",
    "kronline_push_traces_added",
)
# the machine's own instructions, as the compiler at hand calls them; none if it knows neither
MACHINE = (("-march=native",), ("-mcpu=native",), ())
OFF, ON, BUILD = ("0", "no", "off", "false"), ("", "1", "yes", "on", "true"), "build"


@dataclass(frozen=True)
class Library:
    """A kernel that was loaded and registered with XLA."""

    path: Path
    vector: str  # "AVX-512", "AVX2" or "plain C++"
    compiler: str  # that built it here; "" for one of the wheel's
    level: str  # of CPU that one of the wheel's is for; "" for one that was built here

    @property
    def origin(self) -> str:
        """Where it comes from."""
        return f"the wheel's, for {self.level}" if self.level else f"built by {self.compiler}"


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


def asked() -> str:
    """KRONLINE_NATIVE: 0, 1 (as without it), `build`, or the level of one of the wheel's."""
    return os.environ.get("KRONLINE_NATIVE", "").strip().lower()


def _load() -> Library:
    """The wheel's kernel, where there is one that fits; else one that is built here."""
    want = asked()
    names = [level.name for level in recipe.LEVELS]
    if want not in (*OFF, *ON, BUILD, *names):
        raise KernelError(f"KRONLINE_NATIVE={want} is none of 0, 1, {BUILD}, {', '.join(names)}")
    refused = ""
    if want in names or (want != BUILD and prebuilt.there()):
        try:
            return _prebuilt(want if want in names else "")
        except (KernelError, OSError, RuntimeError, AttributeError) as e:
            refused = str(e).strip().partition("\n")[0]
            if want in names:
                raise KernelError(refused) from e
    try:
        return _built_here()
    except KernelError as e:
        raise KernelError(f"{refused}; {e}" if refused else str(e)) from e


def _prebuilt(named: str) -> Library:
    """One of the wheel's: made from exactly the sources that are here, for this jaxlib."""
    if _numbers(jaxlib.__version__) < _numbers(recipe.JAXLIB):
        needed = f"needs jaxlib {recipe.JAXLIB} or newer, this is {jaxlib.__version__}"
        raise KernelError(f"the wheel's kernel {needed}")
    level, path = prebuilt.choose(named)
    loaded = ctypes.CDLL(str(path))
    if _text(loaded.kronline_origin) != recipe.origin(level):
        raise KernelError(f"{path} was built from other sources than those beside it")
    return _registered(loaded, path, level=level.name)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _built_here() -> Library:
    compiler = recipe.find_compiler()
    path = cache.folder() / f"kernel-{_fingerprint(compiler)}.so"
    if not path.exists():
        _build(compiler, path)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:  # the file is damaged: build it again
        _build(compiler, path)
        loaded = ctypes.CDLL(str(path))
    return _registered(loaded, path, compiler=" ".join(compiler))


def _registered(loaded: ctypes.CDLL, path: Path, *, compiler: str = "", level: str = "") -> Library:
    """XLA refuses a kernel whose version of the FFI it does not know, with a RuntimeError."""
    jax.devices("cpu")  # before there is one, targets are only noted, and refused when it is made
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(loaded, target))
        jax.ffi.register_ffi_target(target, handler, platform="cpu")
    return Library(path, _text(loaded.kronline_vector), compiler, level)


def _text(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return str(function().decode())


def _fingerprint(compiler: list[str]) -> str:
    """A hash of all that the library depends on: sources, jaxlib, compiler, kind of CPU."""
    version = _run([*compiler, "--version"]).stdout
    parts = (
        *recipe.sources(),
        jaxlib.__version__,
        version,
        repr((compiler, recipe.FLAGS, MACHINE)),
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
            flags = (*recipe.FLAGS, *machine, *include)
            done = _run([*compiler, *flags, "-o", name, str(recipe.SOURCE)])
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

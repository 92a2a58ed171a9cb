"""What the kernel is made of, how it is compiled, and which CPU runs which kernel of a wheel.

`hatch_build.py` loads this file alone, so it imports nothing that is not in Python itself.
"""

import hashlib
import os
import platform
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("ffi.cpp")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-ffp-contract=fast")
COMPILERS = ("g++", "c++", "clang++")

# A wheel's kernels depend on libc, libm and libgcc_s only, whatever libstdc++ there is.
WHEEL_FLAGS = (
    *FLAGS,
    "-ffunction-sections",
    "-fdata-sections",
    "-static-libstdc++",
    "-Wl,--gc-sections",
    "-Wl,--exclude-libs,ALL",
    "-Wl,--strip-all",
)
# Their headers: XLA promises that older versions of its FFI are supported for a year at least, so
# the oldest jaxlib that kronline takes.
JAXLIB = "0.10.0"


class KernelError(Exception):
    """The kernel is not available here; the message says why."""


@dataclass(frozen=True)
class Level:
    """A kind of CPU that a wheel has a kernel for."""

    name: str  # as compilers know it: -march=name
    machine: str  # as the system calls it
    needs: frozenset[str]  # of what /proc/cpuinfo calls flags or Features


_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}

LEVELS = (  # of each machine the best one first
    Level("x86-64-v4", "x86_64", _V4),
    Level("x86-64-v3", "x86_64", _V3),
    Level("x86-64-v2", "x86_64", _V2),
    Level("armv8-a", "aarch64", frozenset({"asimd", "fp"})),
)


def find_compiler() -> list[str]:
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


def origin(level: Level) -> str:
    """A hash of what a wheel's kernel is made of, which is compiled into it."""
    parts = (*sources(), repr((WHEEL_FLAGS, JAXLIB, level.name)))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def wheel_command(compiler: list[str], level: Level, headers: Path, out: Path) -> list[str]:
    """The command that compiles a wheel's kernel."""
    mark = f'-DKRONLINE_ORIGIN="{origin(level)}"'
    include = ("-isystem", str(headers))
    flags = (*WHEEL_FLAGS, f"-march={level.name}", mark, *include)
    return [*compiler, *flags, "-o", str(out), str(SOURCE)]


def wheel_name(level: Level) -> str:
    """Of the file, in the folder `prebuilt` beside this one."""
    return f"kernel-{level.name}.so"


def features(cpuinfo: str) -> frozenset[str]:
    """What all CPUs can do, from the text of /proc/cpuinfo."""
    lines = [line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line]
    cpus = [set(value.split()) for name, value in lines if name.strip() in ("flags", "Features")]
    return frozenset(set.intersection(*cpus)) if cpus else frozenset()


def this_cpu() -> tuple[str, frozenset[str]]:
    """The machine, and what its CPUs can do; nothing where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    return platform.machine(), features(text)


def levels(machine: str, has: frozenset[str]) -> list[Level]:
    """Those that a CPU runs, the best first."""
    return [level for level in LEVELS if level.machine == machine and level.needs <= has]

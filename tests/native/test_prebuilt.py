"""The wheel's kernels: which one a CPU takes, and what happens where none fits."""

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import jaxlib
import pytest

from kronline.native import build, prebuilt, recipe

ROOT = Path(__file__).parents[2]

# as Linux names them: a Core 2, a Nehalem, a Haswell and a Skylake server
CORE2 = "fpu sse sse2 ht pni monitor ssse3 cx16 xtpr pdcm sse4_1 lahf_lm"
NEHALEM = CORE2 + " sse4_2 popcnt aes"
HASWELL = NEHALEM + " fma movbe xsave avx f16c rdrand abm bmi1 avx2 smep bmi2"
SKYLAKE = HASWELL + " avx512f avx512dq avx512cd avx512bw avx512vl"
GRAVITON = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics"


def cpuinfo(*cpus, name="flags"):
    return "\n\n".join(f"processor\t: {i}\n{name}\t\t: {cpu}" for i, cpu in enumerate(cpus))


@pytest.mark.parametrize(
    ("machine", "text", "want"),
    [
        ("x86_64", cpuinfo(CORE2), None),
        ("x86_64", cpuinfo(NEHALEM), "x86-64-v2"),
        ("x86_64", cpuinfo(HASWELL), "x86-64-v3"),
        ("x86_64", cpuinfo(HASWELL.replace(" fma", "")), "x86-64-v2"),
        ("x86_64", cpuinfo(SKYLAKE, SKYLAKE), "x86-64-v4"),
        ("x86_64", cpuinfo(SKYLAKE.replace(" avx512vl", "")), "x86-64-v3"),
        ("x86_64", cpuinfo(SKYLAKE, HASWELL), "x86-64-v3"),  # a thread may move to any core
        ("x86_64", "", None),
        ("aarch64", cpuinfo(GRAVITON, name="Features"), "armv8-a"),
        ("riscv64", cpuinfo("rv64imafdc", name="isa"), None),
    ],
)
def test_the_best_kernel_that_a_cpu_runs(machine, text, want):
    runs = recipe.levels(machine, recipe.features(text))
    assert (runs[0].name if runs else None) == want


def test_this_cpu_is_seen_as_the_compiler_sees_it():
    """Against gcc's own idea of `native`, where there is one."""
    gcc = shutil.which("g++")
    if not gcc or platform.machine() != "x86_64":
        pytest.skip("needs g++ on x86-64")
    command = [gcc, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "__SSE4_2__" not in macros:
        pytest.skip("this g++ does not know this CPU")
    best = recipe.levels(*recipe.this_cpu())[0].name
    assert (best == "x86-64-v4") == ("__AVX512VL__ 1" in macros and "__AVX512BW__ 1" in macros)
    assert (best >= "x86-64-v3") == ("__AVX2__ 1" in macros and "__FMA__ 1" in macros)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The folder `prebuilt` of a wheel with one kernel, compiled without optimisation."""
    runs = recipe.levels(*recipe.this_cpu())
    try:
        compiler = recipe.find_compiler()
    except recipe.KernelError as e:
        pytest.skip(str(e))
    if not runs:
        pytest.skip("no wheel has a kernel for this CPU")
    folder = tmp_path_factory.mktemp("prebuilt")
    file, headers = folder / recipe.wheel_name(runs[-1]), Path(jax.ffi.include_dir())
    subprocess.run([*recipe.wheel_command(compiler, runs[-1], headers, file), "-O0"], check=True)
    return folder


@pytest.fixture
def installed(wheel, monkeypatch):
    """This process has that folder, and no compiler."""
    monkeypatch.setattr(prebuilt, "FOLDER", wheel)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("KRONLINE_NATIVE", raising=False)
    return wheel


def refused():
    with pytest.raises(recipe.KernelError) as e:
        build._load()
    assert "\n" not in str(e.value)
    return str(e.value)


def test_without_a_compiler_the_wheels_kernel_is_used(wheel, tmp_path):
    """In a process of its own: XLA takes one kernel a process."""
    program = (
        "import pathlib, sys; from kronline.native import build, prebuilt, status\n"
        "prebuilt.FOLDER = pathlib.Path(sys.argv[1])\n"
        "print(status()); print(build.library().level)\n"
        "from kronline import verify, LSTM, kf_rtrl; print(verify(LSTM(1, 2), kf_rtrl()).ok)"
    )
    env = {**os.environ, "CXX": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("KRONLINE_NATIVE", None)
    command = [sys.executable, "-c", program, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    (file,) = wheel.iterdir()
    level = file.stem.removeprefix("kernel-")
    said, named, ok = done.stdout.splitlines()
    assert "active=True" in said and f"the wheel's, for {level}" in said
    assert (named, ok) == (level, "True")
    assert "building" not in done.stderr and not list(tmp_path.glob("*/kernel-*"))


def test_a_cpu_that_is_too_old_or_not_known(installed, monkeypatch):
    monkeypatch.setattr(recipe, "this_cpu", lambda: ("x86_64", recipe.features(cpuinfo(CORE2))))
    why = refused()
    assert "this CPU (x86_64, without popcnt sse4_2) runs none of the wheel's kernels" in why
    assert "no C++ compiler was found (looked for no-such-compiler)" in why
    monkeypatch.setattr(recipe, "this_cpu", lambda: ("riscv64", frozenset()))
    assert "this CPU (riscv64, features not known) runs none" in refused()


def test_an_old_jaxlib(installed, monkeypatch):
    monkeypatch.setattr(jaxlib, "__version__", "0.9.2")
    needed = f"the wheel's kernel needs jaxlib {recipe.JAXLIB} or newer, this is 0.9.2; no C++"
    assert refused().startswith(needed)


HANDLER = """
#include "xla/ffi/api/ffi.h"
extern "C" const char* kronline_origin() { return KRONLINE_ORIGIN; }
XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_merge_pair, [] { return xla::ffi::Error::Success(); },
                              xla::ffi::Ffi::Bind());
"""


def test_a_jaxlib_whose_ffi_is_another_one(installed, monkeypatch, tmp_path):
    """A handler that was compiled with headers of a version that XLA does not know."""
    headers = shutil.copytree(Path(jax.ffi.include_dir()) / "xla", tmp_path / "xla").parent
    c_api = headers / "xla/ffi/api/c_api.h"
    other = c_api.read_text().replace("XLA_FFI_API_MAJOR 0", "XLA_FFI_API_MAJOR 9")
    assert other != c_api.read_text()
    c_api.write_text(other)
    (tmp_path / "ffi.cpp").write_text(HANDLER)
    (file,) = installed.iterdir()
    (level,) = (x for x in recipe.LEVELS if recipe.wheel_name(x) == file.name)
    monkeypatch.setattr(recipe, "SOURCE", tmp_path / "ffi.cpp")
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    monkeypatch.delenv("CXX")
    out = tmp_path / file.name
    command = recipe.wheel_command(recipe.find_compiler(), level, headers, out)
    subprocess.run([*command, "-O0"], check=True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    why = refused()
    assert "API version" in why and "no C++ compiler" in why


def test_a_kernel_of_other_sources(installed, monkeypatch, tmp_path):
    here = shutil.copytree(recipe.SOURCE.parent, tmp_path / "native")
    monkeypatch.setattr(recipe, "SOURCE", here / "ffi.cpp")
    (here / "gemm.h").write_text((here / "gemm.h").read_text() + "// changed\n")
    assert "was built from other sources than those beside it; no C++ compiler" in refused()


def test_a_damaged_kernel(installed, monkeypatch, tmp_path):
    (file,) = installed.iterdir()
    (tmp_path / file.name).write_bytes(b"not a library")
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    assert "no C++ compiler" in refused()


def test_a_kernel_that_is_asked_for(installed, monkeypatch):
    """A level that is not there is an error; `build` takes none of the wheel's."""
    monkeypatch.setenv("KRONLINE_NATIVE", "armv8-a" if os.uname().machine == "x86_64" else "build")
    assert ("runs none of the wheel's kernels" in refused()) == (os.uname().machine == "x86_64")
    monkeypatch.setenv("KRONLINE_NATIVE", "build")
    assert refused().startswith("no C++ compiler was found")
    monkeypatch.setenv("KRONLINE_NATIVE", "fast")
    assert refused().startswith("KRONLINE_NATIVE=fast is none of 0, 1, build, x86-64-v4,")


def test_the_oldest_jaxlib_is_the_one_that_is_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest,) = (d.removeprefix("jax>=") for d in project["dependencies"] if d.startswith("jax>="))
    assert build._numbers(recipe.JAXLIB)[:2] == build._numbers(oldest)[:2]

"""Builds the wheel: a pure one, or one with the kernel compiled for several kinds of CPU.

    python -m build --wheel                        # py3-none-any: built on first use
    KRONLINE_WHEEL=x86_64 python -m build --wheel  # py3-none-manylinux_2_XX_x86_64
    KRONLINE_WHEEL=aarch64 CXX=aarch64-linux-gnu-g++ python -m build --wheel
    KRONLINE_WHEEL=x86-64-v3 python -m build --wheel  # one kernel only: for trying it out

XX is the newest glibc whose symbols the kernels need: that of the machine that builds, or older.
An editable installation has no compiled kernels: sources change there.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = "src/kronline/native"


class KernelHook(BuildHookInterface):
    """Compiles the kernels of the machine that KRONLINE_WHEEL names, and puts them in the wheel."""

    def dependencies(self) -> list[str]:
        """Where XLA's headers come from."""
        return [f"jaxlib=={self._recipe().JAXLIB}"] if self._wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is to be pure, or only points at the sources."""
        wanted = self._wanted()
        if not wanted or version == "editable":
            return
        recipe = self._recipe()
        levels = [level for level in recipe.LEVELS if wanted in (level.machine, level.name)]
        if not levels:
            known = [
                *dict.fromkeys(x.machine for x in recipe.LEVELS),
                *(x.name for x in recipe.LEVELS),
            ]
            raise SystemExit(f"KRONLINE_WHEEL={wanted} is none of {', '.join(known)}")
        compiler, headers = recipe.find_compiler(), _headers()
        self.folder = tempfile.TemporaryDirectory()

        def compiled(level: Any) -> Path:
            print(f"kronline: compiling the kernel for {level.name}", file=sys.stderr)
            file = Path(self.folder.name) / recipe.wheel_name(level)
            subprocess.run(recipe.wheel_command(compiler, level, headers, file), check=True)
            return file

        needs = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for file in pool.map(compiled, levels):
                build_data["force_include"][str(file)] = f"kronline/native/prebuilt/{file.name}"
                needs += [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes())]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_{max(needs)}_{levels[0].machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clean up."""
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _wanted(self) -> str:
        return os.environ.get("KRONLINE_WHEEL", "").strip()

    def _recipe(self) -> ModuleType:
        """The package's own `recipe.py`, without the package, which needs JAX."""
        spec = importlib.util.spec_from_file_location(
            "kronline_recipe", Path(self.root) / NATIVE / "recipe.py"
        )
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look there
        spec.loader.exec_module(module)
        return module


def _headers() -> Path:
    found = importlib.util.find_spec("jaxlib")
    if found is None or found.origin is None:
        raise SystemExit("XLA's headers come with jaxlib, which is not installed")
    return Path(found.origin).parent / "include"

"""The laboratory uses only public names of the library, and public names clash with no package."""

import ast
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kronline

SOURCE = Path(kronline.__file__).parent
LAB = sorted((SOURCE / "lab").rglob("*.py"))


def imports(file):
    """(module, name) of all that is imported from the library."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kronline"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((a.name, None) for a in node.names if a.name.startswith("kronline"))


def public(module, name):
    """Whether a name may be used outside of the library."""
    if module == "kronline._version":  # which takes no time to load
        return True
    if module == "kronline" and any((SOURCE / f"{name}{end}").exists() for end in ("", ".py")):
        return True  # a module or a package
    if module.count(".") > 1:
        return False  # a room of a package
    package = importlib.import_module(module)
    return name in getattr(package, "__all__", [n for n in vars(package) if n[0] != "_"])


def test_the_laboratory_uses_public_names_only():
    wrong = [
        f"{file.relative_to(SOURCE)}: from {module} import {name}"
        for file in LAB
        for module, name in imports(file)
        if not module.startswith("kronline.lab") and not public(module, name)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_public_name_is_there_and_none_is_a_package():
    for name in kronline.__all__:
        assert getattr(kronline, name) is not None
        # `kronline.x` would be the package, or the name, depending on what was imported first
        if not inspect.ismodule(getattr(kronline, name)):
            assert not (SOURCE / name).exists()
            assert not (SOURCE / f"{name}.py").exists()


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("traces/nothing.py", "from kronline.cells import RHN", "A trace never sees a cell"),
        ("learner/state.py", "from kronline.lab import progress", "the laboratory on top"),
        ("lab/tasks/copy.py", "from kronline.lab.runs import folder", "Inside the laboratory"),
        ("verifier/report.py", "import rich", "needs nothing of the laboratory"),
    ],
)
def test_a_wrong_import_is_found(file, line, contract, tmp_path):
    """By `make lint`, which calls the same program with the same contracts."""
    lint = Path(sys.executable).with_name("lint-imports")
    shutil.copytree(SOURCE, tmp_path / "kronline", ignore=shutil.ignore_patterns("__pycache__"))
    wrong = tmp_path / "kronline" / file
    wrong.write_text(f"{wrong.read_text()}\n{line}  # noqa\n")
    words = [lint, "--config", SOURCE.parents[1] / "pyproject.toml", "--no-cache"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [row for row in done.stdout.splitlines() if row.endswith("BROKEN")]
    assert len(broken) >= 1 and any(contract in row for row in broken), done.stdout

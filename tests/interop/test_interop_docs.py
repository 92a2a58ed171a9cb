"""The examples in the docstrings of interop and deploy, and on docs/interop.md, with real packages.

tests/docs/test_doctests.py runs those that need none of them.
"""

import doctest
import importlib
import re
from pathlib import Path

import frameworks
import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    f"kronline.{package}.{file.stem}"
    for package in ("interop", "deploy")
    for file in sorted((ROOT / "src" / "kronline" / package).glob("*.py"))
    if file.stem != "__init__"
]
PAGE = (ROOT / "docs" / "interop.md").read_text()


@pytest.mark.parametrize("module", MODULES)
def test_examples(module):
    pytest.importorskip("onnx")
    assert frameworks.torch
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed


def test_the_page(tmp_path, monkeypatch):
    """Its Python, from top to bottom, as one program."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 3
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/interop.md", "exec"), names)

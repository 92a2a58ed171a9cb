"""The examples work, are as short as promised, and the verifier takes them."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import kronline as kl

ROOT = Path(__file__).parents[2]


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def lines(thing):
    """Lines of code, without blank ones and comments."""
    return len([s for s in inspect.getsource(thing).splitlines() if s.strip().strip("#")])


def test_a_cell_of_ones_own():
    own = example("own_cell")
    assert lines(own.MinimalGated) <= 15
    assert kl.verify(own.MinimalGated(2, 2), kl.kf_rtrl()).ok


def test_a_trace_of_ones_own():
    own = example("own_trace")
    assert lines(own.Averaged) <= 40
    assert kl.verify(kl.LSTM(1, 2), own.estimator()).ok


def blocks(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


def test_the_code_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks("README.md"):
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["out"].loss.shape == (500, 8)


def test_the_readmes_cell_and_first_program_are_short():
    first, cell = blocks("README.md")[:2]
    assert len([s for s in first.splitlines() if s.strip()]) <= 12
    assert "UnitCell" in cell
    assert len([s for s in cell.splitlines() if s.strip()]) <= 15


def test_the_skeletons_are_right():
    scope = {}
    for block in blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), scope)
    assert kl.verify(scope["MyCell"](2, 2), kl.kf_rtrl()).ok
    assert kl.verify(kl.Tanh(2, 2), kl.Online(scope["MyTrace"]())).ok

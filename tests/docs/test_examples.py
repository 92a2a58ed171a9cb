"""The examples work, are as short as promised, and the verifier takes them."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_the_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), scope)
    assert scope["out"].loss.shape == (500, 8)


def test_the_code_about_streams_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks("docs/streams.md"):
        exec(compile(block, "streams.md", "exec"), scope)
    assert scope["same"].events == 100


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_first_cell_and_the_first_program_are_short():
    first, cell = blocks("docs/library.md")[:2]
    assert len([s for s in first.splitlines() if s.strip()]) <= 12
    assert "UnitCell" in cell
    assert len([s for s in cell.splitlines() if s.strip()]) <= 15


def test_the_skeletons_are_right():
    scope = {}
    for block in blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), scope)
    assert kl.verify(scope["MyCell"](2, 2), kl.kf_rtrl()).ok
    assert kl.verify(kl.Tanh(2, 2), kl.Online(scope["MyTrace"]())).ok


def test_the_fault_of_one_machine_is_found(tmp_path, monkeypatch):
    machines = example("machines")
    monkeypatch.setattr(sys, "argv", ["machines.py", str(tmp_path / "machines.png")])
    machine, event, odd = machines.main()
    assert machine == machines.BROKEN and odd == 1
    assert machines.FAULT <= event < machines.FAULT + 50
    assert (tmp_path / "machines.png").stat().st_size > 10_000

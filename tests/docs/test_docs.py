"""The pages say what the files in results/ say, and every file that they name is there."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

from kronline.lab.runs import folder, packed

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "results").glob("*.md"))
FILES = sorted((ROOT / "results").rglob("*.runs"))


def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["tables"] = module
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_results_say():
    made = tables()
    assert made.main(["--check"]) == 0
    used = {name for page in made.PAGES for _, name, _, _ in made.MARK.findall(page.read_text())}
    assert used == set(made.TABLES)


def test_a_page_that_is_wrong_is_found(tmp_path, monkeypatch, capsys):
    made = tables()
    page = Path(shutil.copy(ROOT / "docs" / "speed.md", tmp_path))
    monkeypatch.setattr(made, "PAGES", (page,))
    monkeypatch.setattr(made, "HOME", tmp_path)
    right = page.read_text()
    wrong = re.sub(r"(RHN, n = 256, 32 lanes \| )[\d.]+", r"\g<1>9.99", right)
    assert wrong != right
    page.write_text(wrong)
    assert made.main(["--check"]) == 1
    assert page.read_text() == wrong
    assert made.main([]) == 0
    assert page.read_text() == right


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_linked_is_there(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_results_are_small_and_name_no_machine():
    files = [f for f in (ROOT / "results").rglob("*") if f.is_file()]
    assert len(files) < 100 and sum(f.stat().st_size for f in files) < 5_000_000
    for file in files:
        assert file.stat().st_size < 1_000_000
        found = re.search(r"(?<![\w.])/(?:tmp|home|root|work|Users)/", file.read_text())
        assert not found, file


def test_every_run_says_where_it_comes_from():
    runs = [run for file in FILES for run in folder.find([file])]
    assert len(runs) > 200
    for run in runs:
        assert run.about["commit"] and run.about["machine"]["cpu"], run.path
        assert isinstance(run.config["seed"], int), run.path


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_unpacked_and_packed_again_a_file_is_the_same(file, tmp_path):
    runs = packed.unpack(packed.members(file), tmp_path)
    files = {run.name: list(packed.read(file)[run.name]) for run in runs}
    again = {run.name: {f: (run / f).read_text() for f in files[run.name]} for run in runs}
    packed.write(tmp_path / "again.runs", again)
    assert (tmp_path / "again.runs").read_bytes() == file.read_bytes()


def test_the_snippet_that_reads_a_file_does(monkeypatch):
    monkeypatch.chdir(ROOT)
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "results/README.md").read_text(), re.S)
    names: dict = {}
    exec(snippet, names)
    want = folder.find(["results/ptb.runs:kf_rtrl-rate0.001-seed0"])[0]
    assert names["metrics"] == want.metrics and want.metrics
    assert len(names["files"]) == sum(
        len(f) for f in packed.read(Path("results/ptb.runs")).values()
    )

"""The pages say what the files in results/ say, and every file that they name is there."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


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
    page = Path(shutil.copy(ROOT / "README.md", tmp_path))
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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_is_linked_is_there(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_results_are_small_and_name_no_machine():
    files = [f for f in (ROOT / "results").rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 5_000_000
    for file in files:
        if file.suffix in (".json", ".jsonl", ".toml", ".md", ".csv"):
            found = re.search(r"(?<![\w.])/(?:tmp|home|root|work|Users)/", file.read_text())
            assert not found, file


def test_every_run_says_where_it_comes_from():
    runs = [f.parent for f in (ROOT / "results").rglob("config.toml")]
    assert runs
    for run in runs:
        about = (run / "about.json").read_text()
        assert '"commit"' in about and '"cpu"' in about and '"machine"' in about, run
        assert re.search(r"^seed = \d+", (run / "config.toml").read_text(), re.MULTILINE), run

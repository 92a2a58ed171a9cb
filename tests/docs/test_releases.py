"""The workflows call what is there; the changelog, the version and the tag must agree."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from kronline._version import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def commands():
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            yield from (step["run"] for step in job.get("steps", []) if "run" in step)


def test_workflows_call_targets_and_scripts_that_exist():
    text = "\n".join(commands())
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = {word for line in re.findall(r"\bmake ([\w -]+)", text) for word in line.split()}
    assert called and called <= set(targets)
    scripts = set(re.findall(r"\.ci/\w+\.py", text))
    assert len(scripts) >= 4
    assert [s for s in scripts if not (ROOT / s).is_file()] == []


def check(tag, *words):
    command = [sys.executable, ROOT / ".ci/release_check.py", tag, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tag_that_is_not_the_version():
    done = check("v99.0.0")
    assert done.returncode == 1
    assert f"the tag is v99.0.0, the version in _version.py is {__version__}" in done.stderr


def test_a_version_needs_a_dated_entry_in_the_changelog():
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        from release_check import notes  # noqa: PLC0415  a script, not a package
    finally:
        sys.path.pop(0)
    text = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n- New.\n\n"
    text += "## [1.1.0] - x\n\n- Old.\n"
    assert notes(text, "1.2.0") == "- New."
    assert notes(text, "1.1.0") == notes(text, "1.3.0") == ""
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__

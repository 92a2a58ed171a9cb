"""No public name is missing from the site's reference, and none is there twice."""

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md"))
NAMED = [f"kronline{name}" for name in ("", ".stream", ".river", ".interop", ".deploy")]
BLOCK = re.compile(r"```\{public\} ([\w.]+)\n(?::members:\n\n)?(.*?)```", re.DOTALL)


def documented(text):
    """The names that a page's `public` blocks hold, with their modules."""
    return [f"{module}.{name}" for module, names in BLOCK.findall(text) for name in names.split()]


def public(module):
    """What a module offers, but for modules and the version, which are text on the page."""
    things = importlib.import_module(module)
    names = [n for n in things.__all__ if not inspect.ismodule(getattr(things, n))]
    return {f"{module}.{name}" for name in names} - {"kronline.__version__"}


MODULES = ["kronline", *(f"kronline.{m}" for m in ("stream", "river", "interop", "deploy"))]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_its_place(module):
    found = Counter(name for page in PAGES for name in documented(page.read_text()))
    assert {n for n in found if n.rpartition(".")[0] == module} == public(module)
    assert max(found.values()) == 1


def test_modules_and_the_version_have_theirs():
    text = "".join(page.read_text() for page in PAGES)
    assert "```{modules}\n```" in text and "`kronline.__version__`" in text


def test_a_missing_name_is_found():
    text = "```{public} kronline\n:members:\n\nLearner Tanh\n```\n"
    text += "```{public} kronline.stream\nload\n```"
    assert documented(text) == ["kronline.Learner", "kronline.Tanh", "kronline.stream.load"]
    assert "kronline.RHN" in public("kronline") - set(documented(text))

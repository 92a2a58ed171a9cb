"""The page on the architecture is true: files and functions that it names are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kronline"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
HOPS = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`((?:[\w]+/)*\w+\.pyi?|\w+(?:/\w+)*/)`", PAGE)))


def defined(tree, names):
    """Whether a class or function of this dotted name is in a module."""
    first, *rest = names
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == first:
            return not rest or defined(node, rest)
    return False


def test_a_dozen_hops_at_most():
    assert [int(number) for number, _, _ in HOPS] == list(range(1, len(HOPS) + 1))
    assert 8 <= len(HOPS) <= 12


@pytest.mark.parametrize(("file", "function"), [hop[1:] for hop in HOPS])
def test_every_hop_is_a_function(file, function):
    assert defined(ast.parse((SOURCE / file).read_text()), function.split("."))


@pytest.mark.parametrize("path", NAMED)
def test_every_file_is_there(path):
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def drawn(side):
    """The layers of the page's drawing, lowest last: the library's on the left."""
    block = re.search(r"```\nlibrary.*?\n(.*?)```", PAGE, re.DOTALL).group(1)
    lines = [line[:56] if side == "library" else line[56:] for line in block.splitlines()]
    parts = [re.match(r"\s*(\w+(?: \| \w+)*)", line) for line in lines]
    return [tuple(part.group(1).split(" | ")) for part in parts if part]


@pytest.mark.parametrize(("side", "prefix"), [("library", "kronline."), ("lab", "kronline.lab.")])
def test_the_layers_are_those_that_are_checked(side, prefix):
    text = (ROOT / "pyproject.toml").read_text()
    contracts = re.findall(r"layers = \[(.*?)\]", text, re.DOTALL)
    layers = contracts[0 if side == "library" else 1]
    wanted = [
        tuple(name.removeprefix(prefix) for name in line.split(" | "))
        for line in re.findall(r'"([^"]+)"', layers)
    ]
    left_out = (
        {"lab", "river"},
        {"_version"},
        {"start"},
        {"progress", "machine", "wording", "about"},
    )
    assert drawn(side) == [layer for layer in wanted if set(layer) not in left_out]

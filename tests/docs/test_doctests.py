"""The examples in the library's docstrings are run, and public names are documented."""

import dataclasses
import doctest
import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import kronline as kl

SOURCE = Path(kl.__file__).parent
MODULES = sorted(
    ".".join(("kronline", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )
    for file in SOURCE.rglob("*.py")
    if "lab" not in file.parts and file.name != "__main__.py"
)
PUBLIC = [name for name in kl.__all__ if not inspect.ismodule(getattr(kl, name))]
PUBLIC.remove("__version__")
FRAMEWORKS = {n: n for n in ("torch", "flax", "equinox", "onnx")} | {"export": "flatbuffers"}
REGULARISERS = ["row_norm", "spectral", "activation", "noise"]
PARTS = [getattr(kl, name) for name in PUBLIC] + [getattr(kl.regularise, n) for n in REGULARISERS]
PARTS += [getattr(part, n) for part in (kl.interop, kl.deploy) for n in part.__all__]


def found(module):
    """The examples of a module, each found where it is defined."""
    tests = doctest.DocTestFinder().find(importlib.import_module(module))
    return [test for test in tests if test.examples]


def missing(test):
    """The frameworks that an example imports, and that are not installed."""
    words = re.findall(r"^(?:import|from) (.+)", "".join(e.source for e in test.examples), re.M)
    named = {name for line in words for name in re.findall(r"\w+", line)}
    return [name for name in named & {*FRAMEWORKS} if find_spec(FRAMEWORKS[name]) is None]


@pytest.mark.parametrize("module", [m for m in MODULES if found(m)])
def test_examples_give_what_they_say(module):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in found(module):
        if missing(test):
            continue  # `make interop` has what it needs
        assert runner.run(test).failed == 0, test.name


def settings(thing):
    """What a caller may give: parameters of a function, fields of a dataclass."""
    if inspect.isclass(thing):
        return [f for f in dataclasses.fields(thing) if f.init] if _is_config(thing) else []
    return list(inspect.signature(thing).parameters)


def _is_config(thing):
    return dataclasses.is_dataclass(thing) and not inspect.isabstract(thing)


@pytest.mark.parametrize("thing", PARTS, ids=lambda t: t.__name__)
def test_public_names_are_documented(thing):
    text = inspect.getdoc(thing)
    assert text and len(text.splitlines()[0]) < 100
    assert "Example" in text and ">>>" in text
    assert "Args:" in text or not settings(thing)
    assert "Returns:" in text or inspect.isclass(thing) or thing is kl.save
    order = [text.find(part) for part in ("Args:", "Returns:", "Example", "Reference")]
    there = [at for at in order if at >= 0]
    assert there == sorted(there), "the order is Args, Returns, Example, Reference"


def test_a_wrong_example_is_found():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(test, out=lambda _: None).failed == 1

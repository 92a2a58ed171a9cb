"""The directives `public` and `modules`: names with their docstrings, each in its place.

```{public} kronline
:members:

Learner State
```
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


class Public(SphinxDirective):
    """Classes and functions of a module, in the given order; `:members:` with their methods."""

    has_content = True
    required_arguments = 1
    option_spec = {"members": directives.flag}  # noqa: RUF012  Sphinx's form

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        module = importlib.import_module(self.arguments[0])
        text = []
        for name in " ".join(self.content).split():
            kind = "class" if isinstance(getattr(module, name), type) else "function"
            text += [f".. auto{kind}:: {module.__name__}.{name}"]
            if kind == "class" and "members" in self.options:
                text += ["   :members:", "   :inherited-members: object,ABC,Base,Generic"]
            text += [""]
        return parsed(self, text)


class Modules(SphinxDirective):
    """Public modules of `import kronline` that no `public` block names, with all that they have."""

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        kronline = importlib.import_module("kronline")
        pages = Path(self.get_source_info()[0]).parent.glob("*.md")
        named = set(re.findall(r"{public} kronline\.(\w+)", "".join(p.read_text() for p in pages)))
        things = {n: getattr(kronline, n) for n in kronline.__all__ if n not in named}
        text = []
        for name in sorted(name for name, thing in things.items() if inspect.ismodule(thing)):
            text += [f".. rubric:: kronline.{name}", "", f".. automodule:: kronline.{name}"]
            text += ["   :members:", ""]
        return parsed(self, text)


def parsed(directive: SphinxDirective, text: list[str]) -> list[nodes.Node]:
    """What reStructuredText says, inside of a page in Markdown."""
    box = nodes.Element()
    box.document = directive.state.document
    lines = ["````{eval-rst}", *text, "````"]
    source = StringList(lines, source=directive.get_source_info()[0])
    directive.state.nested_parse(source, directive.content_offset, box)
    return list(box.children)


def bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """`|θ|` outside of backticks is a size, and no substitution of reStructuredText."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "`".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("public", Public)
    app.add_directive("modules", Modules)
    app.connect("autodoc-process-docstring", bars, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}

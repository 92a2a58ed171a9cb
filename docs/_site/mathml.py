"""Formulas as MathML, which browsers draw themselves: no script, no font, no other server."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util.math import get_node_equation_number


def formula(tex: str, display: str) -> str:
    """A formula as a `<math>` element.

    Args:
        tex: LaTeX, without dollars.
        display: "inline" or "block".

    Returns:
        the element, as text.
    """
    return str(convert(tex, display=display))


def inline(self: Any, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(self.starttag(node, "span", "", CLASS="math"))
    self.body.append(formula(node.astext(), "inline") + "</span>")
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """A formula of its own, with a number if it has a label."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(formula(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, which browsers draw themselves: no script, and no other server.

How indices, roots and primes are placed, a browser reads from the table MATH of a font, which many
machines have in none. So the site brings STIX Two Math along, cut down to what formulas need.
"""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util.math import get_node_equation_number

# what browsers would draw otherwise: a prime as an index, a hat as wide as a letter, and spaces
# around what is no operator
BETTER = {
    r"<mi>&#x02032;</mi>": '<mo class="prime" lspace="0" rspace="0">&#x02032;</mo>',
    r"<mo>&#x0005E;</mo>": '<mo stretchy="false">&#x002C6;</mo>',
    r"<mo>(&#x0002F;|/)</mo>": '<mo lspace="0" rspace="0" stretchy="false">/</mo>',
    r"<mo>(&#x02202;|∂)</mo>": "<mi>&#x02202;</mi>",
    r"<mi>(&#x027E[89];)</mi>": r'<mo stretchy="false">\1</mo>',
}
# Latin, Greek, accents, punctuation, letters, arrows, operators, brackets, letters for mathematics
KEPT = ("20-7e a0-ff 2c6-2dd 300-33f 370-3ff 2010-205f 2100-22ff 2308-230b 23d0-23e1 25a0-25ff "
        "2713 27e6-27ef 2a00-2aff 1d400-1d49b 1d538-1d56b 1d6a4-1d7ff")  # fmt: skip


def formula(tex: str, display: str) -> str:
    """A formula as a `<math>` element.

    Args:
        tex: LaTeX, without dollars.
        display: "inline" or "block".

    Returns:
        the element, as text.
    """
    made = str(convert(tex, display=display))
    for found, better in BETTER.items():
        made = re.sub(found, better, made)
    return made


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


def font(app: Any, error: Exception | None) -> None:
    """STIX Two Math, which comes with ziamath (SIL Open Font License), into the site."""
    if error or app.builder.format != "html":
        return
    from fontTools import subset  # noqa: PLC0415  of matplotlib; slow to import

    whole = str(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf")
    static = Path(app.outdir) / "_static" / "math.woff"
    codes = ",".join(KEPT.split())
    features = "--layout-features=ssty,dtls,mark,mkmk,ccmp"
    keep = ["--flavor=woff", "--no-hinting", "--name-IDs=*", features]
    subset.main([whole, f"--unicodes={codes}", f"--output-file={static}", *keep])


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("build-finished", font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

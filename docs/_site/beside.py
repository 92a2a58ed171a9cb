"""What lies beside the pages: links to folders and files of the repository, and the front door."""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

FRONT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>kronline</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">kronline</a></html>
"""


def named(app: Any, doctree: nodes.document) -> None:
    """A link to something in the repository that is no page becomes its text, without a link."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("reftype") != "myst":
            continue
        place = app.srcdir if node.get("refdomain") == "doc" else here
        target = Path(place) / str(node["reftarget"]).split("#", maxsplit=1)[0]
        page = node.get("refdomain") == "doc" and node["reftarget"] in app.env.found_docs
        if not page and (target.is_dir() or target.with_suffix(".md").is_file()):
            node.replace_self(node.children)


def more(app: Any, name: str, source: list[str]) -> None:
    """`{more}` in a list of pages: those of the same folder that the text does not name."""
    if "\n{more}\n" in source[0]:
        folder = Path(app.env.doc2path(name)).parent
        pages = sorted(f.stem for f in folder.glob("*.md"))
        listed = {word.strip("<>") for word in source[0].split()} | {Path(name).name}
        source[0] = source[0].replace("{more}", "\n".join(p for p in pages if p not in listed))


def front(app: Any, error: Exception | None) -> None:
    """The pages are in docs/, as in the repository: the site's own index leads there."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(FRONT)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", named)
    app.connect("source-read", more)
    app.connect("build-finished", front)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

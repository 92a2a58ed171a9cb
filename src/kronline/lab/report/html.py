"""HTML from parts: whatever is not made here is escaped."""

import base64
import re
from collections.abc import Sequence
from html import escape
from typing import Any

_VOID = frozenset({"meta", "img", "source", "br"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(part: Any) -> Html:
    """A part as HTML: as it is if it was made here, escaped otherwise."""
    return part if isinstance(part, Html) else Html(escape(str(part)))


def join(*parts: Any) -> Html:
    """Parts one after another."""
    return Html("".join(text(p) for p in parts if p is not None))


def tag(name: str, /, *parts: Any, **attributes: Any) -> Html:
    """An element; `_class` and the like lose their underline, None leaves an attribute out."""
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*parts)}</{name}>")


def prose(sentences: str) -> Html:
    """Sentences whose names and numbers stay on one line: KF-RTRL, T = 3, 2.0 ± 0.1."""
    kept = re.sub(r"(?<=[\w.]) ([=±]) (?=[\d.])", "\u00a0\\1\u00a0", sentences)
    return Html(re.sub(r"\b[A-Z]+(?:-[A-Z0-9]+)+\b", r'<span class="nb">\g<0></span>', text(kept)))


def table(
    caption: Any,
    head: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    words: Sequence[int] = (0,),
    fits: bool = False,
) -> Html:
    """A table in a box of its own, which scrolls where the page is narrow.

    Args:
        caption: what it shows.
        head: of the columns.
        rows: the first cell of each names it.
        words: columns that hold words and not numbers.
        fits: a table of words, which breaks its lines instead of being scrolled.
    """

    def kind(i: int) -> str | None:
        return None if i in words else "n"

    def row(cells: Sequence[Any]) -> Html:
        first = tag("th", cells[0], scope="row")
        return tag("tr", first, *(tag("td", c, _class=kind(i)) for i, c in enumerate(cells) if i))

    top = [tag("th", h, scope="col", _class=kind(i)) for i, h in enumerate(head)]
    inside = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *top)),
        tag("tbody", *map(row, rows)),
        _class="fits" if fits else None,
    )
    return tag("div", inside, _class="scroll", tabindex="0", role="group", aria_label=caption)


def picture(light: str, dark: str, alt: str) -> Html:
    """An SVG image in two versions, inside the page."""
    sources = [
        "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
        for svg in (light, dark)
    ]
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', light)
    width, height = (round(float(n) * 4 / 3) for n in size.groups()) if size else (None, None)
    at_night = "screen and (prefers-color-scheme: dark)"
    return tag(
        "picture",
        tag("source", srcset=sources[1], media=at_night),
        tag("img", src=sources[0], alt=alt, width=width, height=height),
    )

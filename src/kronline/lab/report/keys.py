"""The little lines beside names in tables, drawn as the curves are."""

from kronline.lab.report.html import Html, tag
from kronline.lab.report.style import DARK, LIGHT, Look

# the markers of style.MARKERS in a box of 30 x 10
_SHAPES = {
    "o": "M15 2a3 3 0 1 0 .01 0z",
    "s": "M12 2h6v6h-6z",
    "^": "M15 1l4 7.5h-8z",
    "D": "M15 1l4 4-4 4-4-4z",
    "v": "M15 9l4-7.5h-8z",
    "P": "M14 1h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
    "X": "M11 3l2-2 2 2 2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2z",
    "p": "M15 1l4 3-1.5 5h-5l-1.5-5z",
}


def named(label: str, look: Look | None) -> Html:
    """A label behind its line and marker."""
    if look is None:
        return tag("span", label, _class="named")
    dashes = None if look.dash == "-" else " ".join(f"{2 * d:g}" for d in look.dash[1])
    line = tag("path", d="M0 5h30", stroke="currentColor", stroke_width=2, stroke_dasharray=dashes)
    shape = tag("path", d=_SHAPES[look.marker], fill="currentColor")
    key = tag(
        "svg", line, shape, _class=f"key k{look.index}", viewBox="0 0 30 10", aria_hidden="true"
    )
    return tag("span", key, label, _class="named")


def css(found: dict[str, Look]) -> str:
    """The colours of the lines, by day and by night."""
    used = sorted({look.index for look in found.values()})

    def rules(style: object) -> str:
        return "".join(f".k{i}{{color:{Look(i).colour(style)}}}" for i in used)  # type: ignore[arg-type]

    return f"{rules(LIGHT)}@media screen and (prefers-color-scheme:dark){{{rules(DARK)}}}"

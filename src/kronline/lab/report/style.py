"""How curves look: colours, dashes and markers, on light and on dark ground.

Colours after Okabe and Ito, told apart by colour-blind readers, shifted until each has a contrast
of at least 3 with its ground; dashes and markers differ as well, for print in black and white.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Style:
    """One ground, and what is drawn on it."""

    name: str
    paper: str  # the ground
    ink: str
    muted: str  # axes, notes
    grid: str
    colours: tuple[str, ...]


LIGHT = Style(
    "light",
    paper="#fdfcf9",
    ink="#1f2328",
    muted="#5c6066",
    grid="#e4e2dc",
    colours=(
        "#0a66ab",
        "#c8500a",
        "#5f6368",
        "#00806b",
        "#a8487f",
        "#8a6a00",
        "#5b4fc4",
        "#3d7a1f",
    ),
)
DARK = Style(
    "dark",
    paper="#15181c",
    ink="#e8e6e1",
    muted="#a3a7ad",
    grid="#2c3137",
    colours=(
        "#6cb8f2",
        "#ff9a5c",
        "#b4b8bd",
        "#43c9ad",
        "#ec92c2",
        "#e0bd3f",
        "#aaa2ff",
        "#9bd675",
    ),
)
PRINT = Style("print", "#ffffff", "#000000", "#444444", "#dddddd", LIGHT.colours)

DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (7, 1.6, 1.2, 1.6)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


@dataclass(frozen=True)
class Look:
    """One curve's; the same number everywhere on a page."""

    index: int

    def colour(self, style: Style) -> str:
        """On this ground."""
        return style.colours[self.index % len(style.colours)]

    @property
    def dash(self) -> Any:
        """As matplotlib takes it."""
        return DASHES[(self.index + self.index // len(MARKERS)) % len(DASHES)]

    @property
    def marker(self) -> str:
        """As matplotlib takes it."""
        return MARKERS[self.index % len(MARKERS)]


HOME = {"KF-RTRL": 0, "UORO": 1, "UORO-AVG": 3, "TBPTT": 2}  # the same colour in every figure


def looks(*figures: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """A look for every label, the same in all figures, and no two alike in one figure.

    Args:
        *figures: (method, label) of the curves in each. A method's own look goes to its first
            label, if that is free.
    """
    drawn = [list(dict.fromkeys(curves)) for curves in figures]
    drawn_labels = [{label for _, label in curves} for curves in drawn]
    out: dict[str, Look] = {}

    def taken(label: str) -> set[Look]:
        beside = [names for names in drawn_labels if label in names]
        return {out[other] for names in beside for other in names if other in out}

    every = dict.fromkeys(pair for curves in drawn for pair in curves)
    for method, label in every:
        family = max((f for f in HOME if method.startswith(f)), key=len, default="")
        if family and label not in out and Look(HOME[family]) not in taken(label):
            out[label] = Look(HOME[family])
    spare = [i for i in range(len(every) + len(HOME)) if i not in HOME.values()]
    for _, label in every:
        if label not in out:
            out[label] = next(Look(i) for i in spare if Look(i) not in taken(label))
    return out


@contextmanager
def using(style: Style, size: float, outlines: bool = True) -> Iterator[None]:
    """Matplotlib's settings for this ground.

    Args:
        style: the ground.
        size: of the font, in points.
        outlines: SVG with letters as outlines, the same on every machine; else as text.
    """
    import matplotlib as mpl  # noqa: PLC0415  looks are needed without it, and it takes a second

    settings: Any = {  # of rcParams
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
        "font.size": size,
        "axes.titlesize": size,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": size,
        "axes.labelcolor": style.muted,
        "axes.edgecolor": style.muted,
        "axes.linewidth": 0.8,
        "axes.facecolor": style.paper,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": style.grid,
        "grid.linewidth": 0.8,
        "axes.axisbelow": True,
        "xtick.color": style.muted,
        "ytick.color": style.muted,
        "ytick.left": False,
        "text.color": style.ink,
        "legend.frameon": False,
        "legend.fontsize": size,
        "legend.handlelength": 2.6,
        "figure.facecolor": style.paper,
        "savefig.facecolor": style.paper,
        "svg.fonttype": "path" if outlines else "none",
        "svg.hashsalt": "kronline",  # the same bytes for the same numbers
        "pdf.fonttype": 42,  # TrueType, as publishers ask for
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name may hold any letter
        yield

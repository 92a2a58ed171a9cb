"""Which rows are timed, and which of them in turn, so many rounds."""

from dataclasses import dataclass
from typing import Literal

from kronline.lab.bench.work import DIAGONAL, Row

GRID = tuple((n, lanes) for n in (32, 64, 128, 256, 512) for lanes in (1, 16, 32, 64, 256))
SIZES = (32, 64, 128, 256)  # for the growth in n
EARLY, LATE = 1_000, 100_000  # for the growth in t
OTHERS = ("UORO", "UORO-AVG", "RTRL", "TBPTT-25", "forward")


@dataclass(frozen=True)
class Turns:
    """Rows that are timed in turn, what the machine can do just before each."""

    title: str
    rows: tuple[Row, ...]
    rounds: int
    seconds: float = 0.15  # of one timing
    show: bool = True  # in the table; the others only serve a figure below it
    limit: Literal["matmul", "copy_by_all"] = "matmul"  # what the machine can do


def kf(cell: str, n: int, lanes: int, rounds: int) -> Turns:
    """KF-RTRL on every path."""
    paths = ("fast", "jax", "plain")
    rows = tuple(Row("KF-RTRL", path, cell, n, lanes) for path in paths)
    return Turns(f"KF-RTRL {cell} {n}x{lanes}", rows, rounds)


def others(n: int, lanes: int, rounds: int) -> Turns:
    """The methods that KF-RTRL is compared with, and TBPTT by hand."""
    rows = [Row(method, "fast", "RHN", n, lanes) for method in OTHERS]
    rows.insert(4, Row("TBPTT-25", "plain", "RHN", n, lanes))
    return Turns(f"other methods {n}x{lanes}", tuple(rows), rounds)


def growth(method: str, rounds: int) -> Turns:
    """In n, at 16 lanes."""
    rows = tuple(Row(method, "fast", "RHN", n, 16) for n in SIZES)
    return Turns(f"{method}, growth in n", rows, rounds, show=False)


def in_time(rounds: int) -> Turns:
    """In t: the same work early and late in a stream."""
    rows = tuple(Row("KF-RTRL", "fast", "RHN", 64, 4, start=t) for t in (EARLY, LATE))
    return Turns("KF-RTRL, growth in t", rows, rounds, seconds=0.06, show=False)


BEYOND = ("kf_tbptt(25, pairs=1)", "kf_tbptt(25, pairs=8)")


def beside(methods: tuple[str, ...], cell: str, n: int, lanes: int, rounds: int) -> Turns:
    """KF-RTRL, and methods by their names, in turn: for ratios."""
    rows = [Row(method, "fast", cell, n, lanes) for method in ("KF-RTRL", *methods)]
    return Turns(f"beside KF-RTRL {cell} {n}x{lanes}", tuple(rows), rounds, seconds=0.2)


WIDTHS = (64, 128, 256, 512, 1024)  # of diagonal cells


def exact(cell: str, n: int = 256, lanes: int = 32, rounds: int = 7) -> Turns:
    """Exact RTRL on a diagonal cell beside TBPTT: its limit is one pass over the traces."""
    rows = tuple(Row(method, "fast", cell, n, lanes) for method in ("RTRL", "TBPTT-25"))
    return Turns(f"exact traces, {cell} {n}x{lanes}", rows, rounds, 0.2, limit="copy_by_all")


def exact_growth(cell: str, widths: tuple[int, ...] = WIDTHS, lanes: int = 32) -> Turns:
    """The same in n."""
    rows = tuple(Row("RTRL", "fast", cell, n, lanes) for n in widths)
    return Turns(f"exact traces, {cell}, growth", rows, 5, show=False, limit="copy_by_all")


def diagonal() -> list[Turns]:
    """The section of diagonal cells."""
    return [turns for cell in DIAGONAL for turns in (exact_growth(cell), exact(cell))]


ONE_LANE = (Row("KF-RTRL", "fast", "RHN", 64, 1), Row("KF-RTRL", "step", "RHN", 64, 1))


def whole(quick: bool, full: bool) -> list[Turns]:
    """The whole plan."""
    if quick:
        return [kf("RHN", 128, 64, 3), kf("RHN", 64, 64, 3)]
    one_lane = Turns("KF-RTRL, one lane", ONE_LANE, 7)
    if full:
        grid = [kf(cell, n, lanes, 3) for n, lanes in GRID for cell in ("RHN", "LSTM")]
        grid += [others(n, lanes, 3) for n, lanes in GRID]
    else:
        grid = [
            kf("RHN", 256, 32, 7),
            kf("RHN", 128, 64, 9),
            kf("RHN", 64, 64, 11),
            kf("LSTM", 128, 32, 9),
            others(64, 64, 7),
            beside(BEYOND, "RHN", 128, 32, 9),
            beside(BEYOND, "RHN", 256, 32, 7),
            beside(BEYOND, "LSTM", 128, 32, 7),
            beside(("ok(1)", "ok(4)"), "RHN", 64, 64, 7),
        ]
    grown = [growth("KF-RTRL", 5), growth("UORO", 5), in_time(15)]
    return [*grid, *diagonal(), one_lane, *grown]

"""`kronline report` and `kronline plot`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from kronline.errors import UsageError
from kronline.lab.analysis import beside
from kronline.lab.analysis.beside import Beside
from kronline.lab.analysis.groups import grouped
from kronline.lab.learn import is_stream
from kronline.lab.runs import folder
from kronline.lab.tasks import TASKS


@dataclass(frozen=True)
class Report:
    """Write one HTML page: the paper's figures and table, with these runs in them.

    Runs that differ in the seed alone are one curve, with its mean and deviation; of several
    learning rates the best is shown, and all are listed. The page holds everything that it needs.
    Of a folder of `kronline learn` it shows errors, noise, drift and latency over events.

    Try:
        kronline report runs/copy-kf-rtrl-n64-seed0 runs/copy-tbptt-5-n64-seed1
        kronline report runs --out report.html
        kronline report results/copy.runs --beside results/published/copy.csv
        kronline report 'results/ptb.runs:tbptt*' results/lstm
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # runs; folders that hold some; FILE.runs:PATTERN
    out: Path = Path("report.html")  # the page
    beside: tuple[Path, ...] = ()  # CSV files, curves of others: label,run,step,T (or valid, ...)
    json: bool = False  # print one JSON object: where the page is, and its numbers


@dataclass(frozen=True)
class Plot:
    """Draw runs as a figure fit for a paper.

    What is drawn follows from the runs: what their task measures on the way, T of the copy task for
    instance, or the cosine of a variance run; several kinds become several panels.

    Try:
        kronline plot runs/copy --out copy.pdf
        kronline plot runs/copy --x seconds --width 3.3 --out copy.png
        kronline plot results/regularisers.runs --over regulariser --out regularisers.png
        kronline plot runs/copy --beside theirs.csv --out both.png
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # runs; folders that hold some; FILE.runs:PATTERN
    out: Path = Path("plot.png")  # .png, .svg or .pdf
    x: Literal["steps", "seconds"] = "steps"  # over data time, or over compute time
    width: float | None = None  # inches; 3.3 is a column, 6.8 a page (default: 3.4 a panel)
    beside: tuple[Path, ...] = ()  # CSV files, curves of others: label,run,step,T (or valid, ...)
    over: str | None = None  # instead of curves, what came of each value of this setting


def main(args: Report | Plot) -> int:
    """Either of them."""
    return report(args) if isinstance(args, Report) else plot(args)


def report(args: Report) -> int:
    """Write the page, and say where it is."""
    from kronline.lab.report import page  # noqa: PLC0415  matplotlib takes a second
    from kronline.lab.report.findings import Findings  # noqa: PLC0415

    if streams := [path for path in args.runs if is_stream(path)]:
        return _stream(args, streams)
    runs = folder.find(_given(args.runs))
    path = page.write(runs, args.out, _needed(beside.read(args.beside), runs))
    if args.json:
        print(json.dumps({"page": str(path)} | Findings.of(runs).numbers()))
    else:
        print(f"{path}: a report of {len(runs)} runs")
    return 0


def _stream(args: Report, streams: list[Path]) -> int:
    """The page of one stream."""
    from kronline.lab.report import stream_page  # noqa: PLC0415  matplotlib takes a second

    if len(args.runs) > 1 or args.beside:
        raise UsageError(
            f"{streams[0]} is a stream of `kronline learn`: its page holds nothing else; give one "
            "folder, and no --beside"
        )
    path = stream_page.write(streams[0], args.out)
    print(json.dumps({"page": str(path)}) if args.json else f"{path}: a report of a stream")
    return 0


def plot(args: Plot) -> int:
    """Draw, and say where it is."""
    from kronline.lab.report import figures, over  # noqa: PLC0415  matplotlib takes a second
    from kronline.lab.report.findings import Findings  # noqa: PLC0415

    kinds = (".png", ".svg", ".pdf")
    if args.out.suffix.lower() not in kinds:
        raise UsageError(f"out must end in one of {', '.join(kinds)}, got {str(args.out)!r}")
    if not args.out.parent.is_dir():
        raise UsageError(f"out needs an existing folder, got {str(args.out.parent)!r}")
    if args.width is not None and not 1 <= args.width <= 40:
        raise UsageError(f"width must be between 1 and 40 inches, got {args.width}")
    runs = folder.find(_given(args.runs))
    others = _needed(beside.read(args.beside), runs)
    if others and (args.over is not None or args.x == "seconds"):
        raise UsageError("--beside needs --x steps, and no --over: others' compute is not known")
    if args.over is not None:
        found = sorted({run.kind for run in runs})
        if len(found) > 1 or found[0] not in TASKS:
            known = " or of ".join(TASKS)
            raise UsageError(f"over needs runs of {known}, got {' and '.join(found)}")
        groups = grouped(runs, TASKS[found[0]])
        over.draw(groups, args.over, args.out, args.width or 6.8)
        print(f"{args.out}: {len(runs)} runs over {args.over}")
        return 0
    panels = figures.panels_of(Findings.of(runs, others), args.x)
    if not panels:
        raise UsageError(
            f"nothing is measured over {args.x} in these runs yet, so there is nothing to draw"
        )
    figures.for_paper(panels, args.out, args.width or 3.4 * min(2, len(panels)))
    print(f"{args.out}: {len(panels)} panel{'s' * (len(panels) > 1)} of {len(runs)} runs")
    return 0


def _needed(others: list[Beside], runs: list[folder.Run]) -> list[Beside]:
    """Each belongs to runs that are there."""
    kinds = {run.kind for run in runs}
    for b in others:
        if b.kind not in kinds:
            raise UsageError(
                f"--beside gives {b.label!r}, curves of {b.kind}, and there is no run of {b.kind} "
                f"to draw them beside: these are runs of {' and '.join(sorted(kinds))}"
            )
    return others


def _given(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    if not paths:
        raise UsageError("needed at least one run, or a folder that holds some; `kronline list`")
    return paths

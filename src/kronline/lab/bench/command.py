"""`kronline bench`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from kronline import spec
from kronline.errors import UsageError
from kronline.lab.bench import baseline, equal, plan, result, run
from kronline.lab.progress import Tracker


@dataclass(frozen=True)
class Bench:
    """Time a whole training step beside the machine's own matmul rate.

    KF-RTRL on its fast path, in pure JAX and written the straightforward way; the methods it is
    compared with; exact traces of diagonal cells, beside the copy rate; how the cost grows. Rows
    are timed in turn, the machine's rate just before each; all figures are medians. Leave the
    machine alone meanwhile. About 10 minutes.

    Try:
        kronline bench --quick
        kronline bench --diagonal
        kronline bench --estimators "kf_tbptt(25, pairs=8)" "ok(4)" --hidden 64
        kronline bench --json > before.json
        kronline bench --compare before.json
    """

    quick: bool = False  # two sizes, under 40 seconds
    full: bool = False  # all sizes: n 32 to 512, 1 to 256 lanes; an hour or more
    diagonal: bool = False  # exact traces of LRU, RTU and ELSTM beside TBPTT-25; two minutes
    estimators: tuple[str, ...] = ()  # time just these, beside KF-RTRL
    cell: Literal["RHN", "LSTM"] = "RHN"  # for --estimators
    hidden: int = 128  # for --estimators
    lanes: int = 32  # for --estimators
    json: bool = False  # print one JSON object instead of tables
    save: Path | None = None  # write the JSON object to this file, too
    compare: Path | None = None  # an older JSON result, to be compared with as ratios
    check: bool = False  # time nothing: compare the gradients of the fast paths with float64's
    show_baseline: bool = False  # print the straightforward version, and stop

    def __post_init__(self) -> None:
        chosen = bool(self.estimators)
        modes = (self.quick, self.full, self.diagonal, self.check, self.show_baseline, chosen)
        if sum(modes) > 1:
            raise UsageError(
                "choose one of --quick, --full, --diagonal, --estimators, --check and "
                "--show-baseline"
            )
        if min(self.hidden, self.lanes) < 1:
            raise UsageError(f"needed hidden and lanes >= 1, got {self.hidden} and {self.lanes}")
        for name in self.estimators:
            spec.given(name, "estimator")
        if self.save is not None and not self.save.parent.is_dir():
            raise UsageError(f"--save needs an existing folder, got {self.save.parent}")


def main(args: Bench) -> int:
    """Run what was asked for."""
    if args.show_baseline:
        print(Path(baseline.__file__).read_text(), end="")
        return 0
    if args.check:
        return equal.main(args.json)
    old = result.load(args.compare) if args.compare else None
    todo = run.planned(args.quick, args.full, args.diagonal)
    if args.estimators:
        todo = [plan.beside(args.estimators, args.cell, args.hidden, args.lanes, 9)]
    with Tracker({"bench": run.units(todo)}) as tracker:
        new = run.measure(todo, lambda units, what: tracker.update("bench", units, what))
    if old is not None:
        new["compared"] = result.compared(new, old)
    if args.save:
        args.save.write_text(json.dumps(new, indent=1) + "\n")
    if args.json:
        print(json.dumps(new))
    else:
        console = Console()
        result.show(new, Console(width=max(console.width, 112)))
    return 0

"""The demo: the copy task learnt three ways, side by side, in about two minutes on two cores."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kronline.errors import UsageError
from kronline.lab.cli import sweep
from kronline.lab.runs import config, folder, grid
from kronline.lab.runs.train import RUNS
from kronline.lab.tasks.copy import CopyTask

NAME = "demo"
SWEEP = grid.sweep_of(CopyTask)
METHODS = ("kf_rtrl", "uoro", "tbptt(5)")
RATES = (10**-3,)  # the best of the paper's grid for each of them, at this size


@dataclass(frozen=True)
class Demo:
    """The copy task with its curriculum: an RHN trained by KF-RTRL, UORO and TBPTT, side by side.

    Read a binary string, then write it out again, as many steps later as it has bits, plus one.
    The curriculum's T grows whenever the error falls below the threshold; strings of T - 5 to T
    bits are trained, shorter ones are no longer drawn, and are forgotten. TBPTT-5 sees no gradient
    over more than 4 steps, and its T soon stops; UORO has no such limit, but drowns in noise;
    KF-RTRL's T comes furthest. Next to T stands the share of bits right over the trained lengths.
    It ends with a page of curves and tables. The same as `kronline sweep copy --preset laptop` with
    these methods, one learning rate and one seed, and `kronline report`.

    Try:
        kronline demo
        kronline demo --steps 50000 --seed 1
    """

    steps: int | None = None  # of every method: equal data (default: as the preset has it)
    hidden: int | None = None  # units
    lanes: int | None = None  # streams at a time
    seed: int = 0  # of weights, noise and data: the same seed gives the same runs
    out: Path | None = None  # a folder for the runs and the page (default: a new one in runs/)
    json: bool = False  # print one JSON object instead of tables


def main(demo: Demo) -> int:
    """Run, then report."""
    given = {name: getattr(demo, name) for name in ("steps", "hidden", "lanes")}
    preset = {k: v for k, (v, _) in config.of_preset(SWEEP, SWEEP.presets, "laptop").items()}
    values: dict[str, Any] = preset | {k: v for k, v in given.items() if v is not None}
    steps = int(values["steps"])
    if steps < preset["steps"]:  # as many points, however short
        values |= {"log_every": max(1, steps // 100), "save_every": max(1, steps // 10)}
    values |= {"preset": "laptop", "json": demo.json}
    values |= {"estimators": METHODS, "rates": RATES, "seeds": (demo.seed,)}
    settings = config.make(SWEEP, values)
    out = demo.out or _place(config.toml(settings, SWEEP.presets))
    code, result = sweep.carry_out(replace(settings, out=out))
    if result is None:
        return code
    from kronline.lab.report import page  # noqa: PLC0415  matplotlib takes a second

    made = page.write(folder.find([out]), out / "report.html")
    if demo.json:
        print(json.dumps(result | {"page": str(made)}))
        return code
    sweep.show(result, out)
    print(f"The report: {made}")
    return code


def _place(wanted: str) -> Path:
    """An unfinished demo of these settings to go on with, or a new folder."""
    if RUNS.exists() and not RUNS.is_dir():
        raise UsageError(f"{RUNS} must be a folder, not a file; or choose one by --out")
    before = [f for f in sorted(RUNS.glob(f"{NAME}*/{grid.FILE}")) if f.is_file()]
    same = [f.parent for f in before if f.read_text(encoding="utf-8") == wanted]
    unfinished = [p for p in same if not (p / sweep.RESULT).exists()]
    if unfinished:
        print(f"kronline: going on with {unfinished[0]}", file=sys.stderr)
        return unfinished[0]
    return folder.free(RUNS, NAME)

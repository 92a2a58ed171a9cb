"""Installs a wheel where there is no compiler, and sees that its kernels are used.

    python .ci/wheel_check.py dist/kronline-0.1.0-py3-none-manylinux_2_34_x86_64.whl
    python .ci/wheel_check.py dist/kronline-0.1.0-py3-none-manylinux_2_34_x86_64.whl --bench 5

A fresh environment, whose PATH has nothing but itself: each kernel that this CPU runs is loaded and
proven (`kronline verify`), the best one without being asked for, the others by name. Without them
pure JAX is used, and `kronline info` says why.

With `--bench` the wheel's kernel is timed beside one that this machine's compiler builds, in turn,
so many times, by the rows of `kronline bench --quick` that it works on: the median of the ratios of
two runs that follow each other, of their fractions of the matmul rate, may differ from 1 by a
tenth. It needs a machine that does nothing else, and more turns where that is not to be had.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROVE = ("verify", "--cell", "LSTM(1, 2)", "--estimator", "kf_rtrl()", "--json")


def main() -> None:
    """Install, check, say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--bench", type=int, default=0, metavar="TIMES")
    args = parser.parse_args()
    wheel = args.wheel.resolve()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        pip = [place / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
        limits = ["-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, "-q", *limits, f"{wheel}[lab]"], check=True, cwd=place)
        print(f"installed in {time.monotonic() - began:.0f} s", flush=True)
        check(place)
        if args.bench:
            compare(place, args.bench)
    print(f"{wheel.name} holds: {time.monotonic() - began:.0f} s")


def check(place: Path) -> None:
    """All that must hold in this environment."""
    best = native(place)
    levels = native_levels(place)
    assert levels and f"for {levels[0]}" in best, f"the best kernel is for {levels[0]}, got: {best}"
    for level in levels:
        found = native(place, KRONLINE_NATIVE=level)
        assert f"the wheel's, for {level}" in found, found
        report = json.loads(kronline(place, *PROVE, KRONLINE_NATIVE=level).stdout)
        assert report["ok"], report
        print(f"{level}: {found}; {len(report['checks'])} checks hold", flush=True)
    done = kronline(place, "info", "--json", KRONLINE_NATIVE="build")
    found = json.loads(done.stdout)
    assert found["path"] == "pure JAX" and "no C++ compiler was found" in found["reason"], found
    print(f"without them: {found['path']}, {found['reason']}")


TIMED = """
import json
from dataclasses import replace
from kronline.lab.bench import plan, run
quick = [replace(turns, rows=turns.rows[:1]) for turns in plan.whole(quick=True, full=False)]
print(json.dumps(run.measure(quick, lambda *note: None)))
"""


def compare(place: Path, times: int) -> None:
    """The fraction of the matmul rate, with the wheel's kernel and with one that is built here."""
    ratios: dict[tuple[Any, ...], list[float]] = {}
    for turn in range(times):
        theirs, ours = (fractions(place, built=built) for built in (False, True))
        for what in ours:
            ratios.setdefault(what, []).append(theirs[what] / ours[what])
        now = ", ".join(f"{found[-1]:.3f}" for found in ratios.values())
        print(f"turn {turn + 1} of {times}: the wheel's over the one built here: {now}", flush=True)
    apart = []
    for what, found in ratios.items():
        ratio = statistics.median(found)
        print(*what, f"ratio {ratio:.3f} ({min(found):.3f} to {max(found):.3f})")
        apart.append(abs(ratio - 1))
    assert apart and max(apart) <= 0.1, f"they differ by {max(apart):.0%}"


def fractions(place: Path, *, built: bool) -> dict[tuple[Any, ...], float]:
    """Of the matmul rate, by what is timed."""
    env = {"KRONLINE_NATIVE": "build"} if built else {}
    path = {"PATH": f"{place}/venv/bin:{os.environ['PATH']}"} if built else {}
    done = run(place, place / "venv/bin/python", "-c", TIMED, **env, **path)
    result = json.loads(done.stdout)
    reason = result["machine"]["native_reason"]
    assert result["machine"]["native"] and ("the wheel's" in reason) != built, reason
    of = ("method", "cell", "hidden", "lanes")
    rows = [row for row in result["rows"] if row["path"] == "fast"]
    return {tuple(row[name] for name in of): row["fraction_of_matmul"] for row in rows}


def native(place: Path, **env: str) -> str:
    """Which kernel `kronline info` names; it must be one of the wheel's."""
    found = json.loads(kronline(place, "info", "--json", **env).stdout)
    assert found["path"] == "native kernel", f"{found['path']}: {found['reason']}"
    assert "prebuilt" in found["kernel"], found["kernel"]
    return found["reason"]


def native_levels(place: Path) -> list[str]:
    """Those of the wheel that this CPU runs, the best first, as the installed package says."""
    code = "from kronline.native import prebuilt as p, recipe as r; "
    code += "runs = r.levels(*r.this_cpu()); "
    code += "print(*[x.name for x in runs if (p.FOLDER / r.wheel_name(x)).exists()])"
    return run(place, place / "venv/bin/python", "-c", code).stdout.split()


def kronline(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The installed command."""
    return run(place, place / "venv/bin/kronline", *words, **env)


def run(place: Path, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command that finds nothing but this environment, in a folder that holds no checkout."""
    known = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    around = {"PATH": str(place / "venv/bin"), "HOME": str(place), **known, **env}
    done = subprocess.run(words, env=around, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done


if __name__ == "__main__":
    main()

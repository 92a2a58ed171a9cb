"""Installs a wheel where there is no compiler, and sees that its kernels are used.

    python .ci/wheel_check.py dist/kronline-0.1.0-py3-none-manylinux_2_34_x86_64.whl
    python .ci/wheel_check.py dist/kronline-0.1.0-py3-none-manylinux_2_34_x86_64.whl --bench 5

A fresh environment, whose PATH has nothing but itself: each kernel that this CPU runs is loaded and
proven (`kronline verify`), the best one without being asked for, the others by name. Without them
pure JAX is used, and `kronline info` says why.

With `--bench` the wheel's kernel is timed beside one that this machine's compiler builds, in turn,
so many times, by `kronline bench --quick`: the medians of their fractions of the matmul rate may
differ by a tenth. That takes two minutes a time, and a machine that does nothing else.
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


def compare(place: Path, times: int) -> None:
    """The fraction of the matmul rate, with the wheel's kernel and with one that is built here."""
    ways = {"the wheel's": {}, "built here": {"KRONLINE_NATIVE": "build"}}
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for way in [*ways] * times:
        here = {"PATH": f"{place}/venv/bin:{os.environ['PATH']}"} if ways[way] else {}
        result = json.loads(
            kronline(place, "bench", "--quick", "--json", **ways[way], **here).stdout
        )
        assert result["machine"]["native"], result["machine"]["native_reason"]
        for row in result["rows"]:
            if row["path"] == "fast":
                what = (row["method"], row["cell"], row["hidden"], row["lanes"])
                found.setdefault(what, {}).setdefault(way, []).append(row["fraction_of_matmul"])
        print(f"{way}: {result['machine']['native_reason']}", flush=True)
    apart = []
    for what, both in found.items():
        theirs, ours = (statistics.median(both[way]) for way in ways)
        print(*what, f"the wheel's {theirs:.3f}, built here {ours:.3f}, ratio {theirs / ours:.3f}")
        apart.append(abs(theirs / ours - 1))
    assert apart and max(apart) <= 0.1, f"they differ by {max(apart):.0%}"


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

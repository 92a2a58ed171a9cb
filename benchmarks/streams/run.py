"""All models on all streams, each pair in a process of its own; goes on where it was stopped.

    python run.py [--deep PYTHON] [--kronline PYTHON] [--seeds 3] [--models NAME...]

Results go to `runs/streams/results.jsonl` as they come, then to `results/streams.json` and `.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import table
from data import STREAMS, export, read
from models import MODELS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLOW = {"Shuttle"}  # one seed each


def done(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """What was measured before; a line that was cut off is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["model"], row["data"], row["seed"]] = row
    return found


def commit() -> str:
    """Of the repository, with a + if files differ from it."""
    named = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(named, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    """Its processor and how many of them."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def measure(python: str, model: str, data: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run; what went wrong, if it did."""
    env = dict(os.environ, PYTHONPATH=str(ROOT / "src"), OMP_NUM_THREADS="1")
    call = [python, str(HERE / "one.py"), model, data, str(seed), str(folder)]
    got = subprocess.run(call, capture_output=True, text=True, env=env, check=False)
    if got.returncode:
        return {"error": got.stderr.strip().splitlines()[-1][:300] if got.stderr else "?"}
    return json.loads(got.stdout.strip().splitlines()[-1])


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", help="Python of the environment with deep-river")
    parser.add_argument("--kronline", help="Python of the environment with kronline")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--data", nargs="*", default=list(STREAMS))
    parser.add_argument("--out", type=Path, default=ROOT / "runs/streams")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--again", nargs="*", default=[], help="models to measure once more")
    args = parser.parse_args()
    pythons = {"river": sys.executable, "deep": args.deep, "kronline": args.kronline}
    path = args.out / "results.jsonl"
    export(args.out / "data")
    tasks = {name: read(args.out / "data", name).task for name in args.data}
    known, here = done(path), {"commit": commit(), "machine": machine()}
    for seed in range(args.seeds):
        for model in args.models:
            entry = MODELS[model]
            python = pythons[entry.family]
            for data in args.data:
                skip = tasks[data] not in entry.tasks or (seed and not entry.random)
                if not python or skip or (seed and data in SLOW):
                    continue
                if (model, data, seed) in known and model not in args.again:
                    continue
                row = {"model": model, "data": data, "seed": seed, "task": tasks[data]} | here
                row |= measure(python, model, data, seed, args.out / "data")
                row["at"] = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
                known[model, data, seed] = row
                with path.open("a") as f:
                    f.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    table.write(list(known.values()), args.results)


if __name__ == "__main__":
    main()

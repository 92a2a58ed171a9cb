"""Kill the workers of a sweep by SIGKILL, and compare its members with those of an undisturbed one.

    python tests/sweep_kills.py --members 12 --kills 3

Both sweeps run on a local Dask cluster of two workers. A worker is killed when its member has
written a checkpoint that no kill has followed yet.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kills import KRONLINE, newest, same
from kronline.lab.runs import lock
from running import kill_worker


def sweep(out, members, steps):
    size = ["--hidden", 16, "--lanes", 5, "--log-every", 50, "--save-every", 50, "--steps", steps]
    grid = ["--estimators", "kf_rtrl", "--rates", 0.01, 0.001, "--seeds", *range(members // 2)]
    words = [*KRONLINE, "sweep", "copy", *size, *grid, "--workers", 2, "--out", out]
    return list(map(str, words))


def torture(members, kills, steps, place, seed=0):
    """Both sweeps; what differs, and how many kills there were."""
    rng = random.Random(seed)
    calm, broken = place / "calm", place / "broken"
    with (place / "log").open("wb") as log:
        subprocess.run(sweep(calm, members, steps), stdout=log, stderr=log, check=True)
        print("the undisturbed sweep is done", flush=True)
        process = subprocess.Popen(sweep(broken, members, steps), stdout=log, stderr=log)
        done, hit = 0, set()
        while process.poll() is None and done < kills:
            runs = [r for r in broken.glob("*") if newest(r) and r not in hit and lock.in_use(r)]
            if runs:
                time.sleep(rng.uniform(0, 0.3))
                run = rng.choice(runs)
                if lock.in_use(run) and (found := lock.holder(run)):
                    worker = kill_worker(found["pid"])
                    hit.add(run)
                    done += 1
                    print(f"kill {done}: worker {worker}, {run.name} at {newest(run)}", flush=True)
            time.sleep(0.01)
        code = process.wait()
    names = sorted(r.name for r in calm.glob("*") if newest(r))
    differ = {n: d for n in names if (d := same(calm / n, broken / n))}
    return {"members": len(names), "kills": done, "code": code, "differ": differ}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=12)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    where = Path(tempfile.mkdtemp())
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(where / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    result = torture(args.members, args.kills, args.steps, where)
    print(result)
    shutil.rmtree(where)
    sys.exit(bool(result["differ"]) or result["kills"] < args.kills or result["code"])

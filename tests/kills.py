"""Kill a run by SIGKILL many times, at random moments, and compare its end with an unbroken run's.

    python tests/kills.py copy --kills 30
    python tests/kills.py text --kills 30

Every second kill waits until a checkpoint is being written; it counts as such only if the
half-written file was left behind.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KRONLINE = [sys.executable, "-m", "kronline"]
RUNS = {
    "copy": ["copy", "--hidden", "48", "--lanes", "16"],
    "text": ["text", "--hidden", "48", "--lanes", "16", "--valid-every", "400"],
}
EVERY = 100  # steps a chunk, and a checkpoint after each


def train(kind, out, steps):
    often = ["--log-every", str(EVERY), "--save-every", str(EVERY), "--steps", str(steps)]
    return [*KRONLINE, "train", *RUNS[kind], *often, "--out", str(out)]


def half_written(run):
    """The files that a checkpoint is written to before it is moved to its place."""
    try:
        return [f.name for f in os.scandir(run / "checkpoints") if f.name.startswith(".")]
    except FileNotFoundError:
        return []


def whole(run):
    return len(list((run / "checkpoints").glob("step-*"))) if run.exists() else 0


def life(command, run, log, while_writing, rng):
    """Start, kill; whether a checkpoint was half-written, and whether the run ended before that."""
    process = subprocess.Popen(command, stdout=log, stderr=log)
    # at least one checkpoint has to get through, or a run never ends
    before = newest(run)
    while process.poll() is None and newest(run) == before:
        time.sleep(0.001)
    if while_writing:
        time.sleep(rng.uniform(0, 0.1))
        while process.poll() is None and not half_written(run):
            pass
    else:
        time.sleep(rng.uniform(0, 0.3))
    process.send_signal(signal.SIGKILL)
    process.wait()
    return bool(half_written(run)), process.returncode != -signal.SIGKILL


def newest(run):
    names = [f.name for f in (run / "checkpoints").glob("step-*.safetensors")]
    return max(names, default="")


def same(a, b):
    """Names of files that differ between two runs."""
    last = newest(a)
    files = ["metrics.jsonl", "config.toml", f"checkpoints/{last}"]
    return [f for f in files if (a / f).read_bytes() != (b / f).read_bytes()]


def torture(kind, kills, folder, seed=0):
    """Both runs; what happened."""
    rng = random.Random(seed)
    unbroken, broken = folder / "unbroken", folder / "broken"
    steps = EVERY * (12 + 8 * kills)
    with (folder / "log").open("wb") as log:
        subprocess.run(train(kind, unbroken, steps), stdout=log, stderr=log, check=True)
        done = writing = 0
        while done < kills:
            want = writing < kills // 2 and (done - writing >= kills - kills // 2 or done % 2 == 0)
            start = not (broken / "config.toml").exists()
            resume = [*KRONLINE, "resume", str(broken)]
            command = train(kind, broken, steps) if start else resume
            half, ended = life(command, broken, log, want, rng)
            if ended:
                raise AssertionError(f"the run ended after {done} kills; give it more steps")
            if want and not half:
                continue  # it had just been moved to its place: try again
            done, writing = done + 1, writing + want
            print(f"kill {done}: {'while writing' if half else 'between'} ", newest(broken))
        subprocess.run([*KRONLINE, "resume", str(broken)], stdout=log, stderr=log, check=True)
    return {"kills": done, "while_writing": writing, "differ": same(unbroken, broken)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(RUNS))
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    where = Path(tempfile.mkdtemp())
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(where / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    result = torture(args.kind, args.kills, where, args.seed)
    print(result)
    shutil.rmtree(where)
    sys.exit(bool(result["differ"]))

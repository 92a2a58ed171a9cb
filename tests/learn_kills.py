"""Kill `kronline learn` by SIGKILL many times, and compare its end with an unbroken run's.

    python tests/learn_kills.py --kills 200

Of three kills one is inside a commit, one inside a checkpoint or a commit, one at any moment. Each
counts as inside only if the process had begun and not ended it when it died (`learn_child.py`).
"""

import argparse
import json
import math
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHILD = Path(__file__).with_name("learn_child.py")
PATIENCE = 120  # seconds for a process to say anything


def events(path, count, seed=0):
    """Three machines, two features, a target; a broken line now and then."""
    rng = random.Random(seed)
    with path.open("w") as f:
        for t in range(count):
            key = rng.choice("abc")
            s = math.sin(t / 20 + ord(key))
            x = {"machine": key, "speed": s, "valve": rng.choice(["open", "shut"])}
            x["pressure"] = round(2 * s + (x["valve"] == "open") + 0.1 * rng.gauss(0, 1), 4)
            f.write(json.dumps(x) + "\n" if t % 97 else '{"machine": "a", "speed": \n')


def command(folder, data, name, every, group, more=()):
    return [
        *("learn", str(data), "--target", "pressure", "--key", "machine", "--quiet"),
        *("--model", str(folder / name), "--out", str(folder / f"{name}.jsonl")),
        *("--every", str(every), "--commit", str(group), *more),
    ]


def drained(fd, into):
    while select.select([fd], [], [], 0)[0] and (data := os.read(fd, 4096)):
        into += data


def life(words, log, want, rng):
    """Start, kill; the marks that were seen, and whether it ended by itself before that."""
    out, inn = os.pipe()
    env = os.environ | {"KRONLINE_MARKS": str(inn)}
    process = subprocess.Popen(
        [sys.executable, str(CHILD), *words], env=env, stdout=log, stderr=log, pass_fds=(inn,)
    )
    os.close(inn)
    marks = bytearray()
    mark = {"commit": b"c", "checkpoint": b"k"}.get(want)
    wait = (
        rng.randint(1, 3) if want == "checkpoint" else rng.randint(2, 6)
    )  # marks of this kind, so that every life comes further
    seen, until = 0, time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        if not select.select([out], [], [], 0.05)[0]:
            continue
        data = os.read(out, 1 if mark else 4096)
        marks += data
        seen += data.count(mark) if mark else len(data)
        if seen >= wait and (not mark or data == mark):
            break
    # a commit takes a millisecond, a checkpoint ten
    time.sleep({"commit": 0.0005, "checkpoint": 0.01}.get(want, 0.3) * rng.random())
    process.send_signal(signal.SIGKILL)
    process.wait()
    drained(out, marks)
    os.close(out)
    return bytes(marks), process.returncode != -signal.SIGKILL


def inside(marks):
    """What the process was in the middle of."""
    if marks.count(b"k") > marks.count(b"K"):
        return "checkpoint"
    return "commit" if marks.count(b"c") > marks.count(b"C") else ""


def dump(folder):
    """The journal as SQL, and whether SQLite finds it whole."""
    db = sqlite3.connect(folder / "journal.sqlite")
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return "\n".join(db.iterdump())
    finally:
        db.close()


def differ(folder, a, b):
    """Names of what differs between two streams: checkpoints, journal, predictions, rejected."""
    one, two = folder / a, folder / b
    odd = []
    names = [sorted(f.name for f in (p / "checkpoints").iterdir()) for p in (one, two)]
    if names[0] != names[1]:
        odd.append(f"checkpoints: {names}")
    files = [f"checkpoints/{n}" for n in names[0] if n in names[1]]
    files += ["rejected.jsonl", "journal.sqlite"]
    odd += [f for f in files if (one / f).read_bytes() != (two / f).read_bytes()]
    if (folder / f"{a}.jsonl").read_bytes() != (folder / f"{b}.jsonl").read_bytes():
        odd.append("predictions")
    if dump(one) != dump(two):
        odd.append("journal")
    return odd


def torture(kills, folder, seed=0, every=100, group=8, more=(), say=print):
    """Both runs; what happened."""
    rng = random.Random(seed)
    data = folder / "data.jsonl"
    events(data, every * (10 + 8 * kills))
    done, where, tries = 0, {"commit": 0, "checkpoint": 0, "": 0}, 0
    with (folder / "log").open("wb") as log:
        words = command(folder, data, "unbroken", every, group, more)
        whole = [sys.executable, "-m", "kronline", *words]
        subprocess.run(whole, stdout=log, stderr=log, check=True)
        words = command(folder, data, "broken", every, group, more)
        while done < kills:
            tries += 1
            want = ("commit", "checkpoint", "")[done % 3]
            marks, ended = life(words, log, want, rng)
            if ended:
                raise AssertionError(f"it ended after {done} kills; see {folder / 'log'}")
            got = inside(marks)
            if want and got != want and tries < 3 * kills:
                continue  # it had just ended: try again
            done += 1
            where[got] += 1
            say(f"kill {done}: {f'inside a {got}' if got else 'between'}, {len(marks)} marks")
        last = [sys.executable, "-m", "kronline", *words]
        subprocess.run(last, stdout=log, stderr=log, check=True)
    return {
        "kills": done,
        "inside": where,
        "lives": tries,
        "differ": differ(folder, "unbroken", "broken"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    result = torture(args.kills, place, args.seed)
    print(result)
    if result["differ"]:
        sys.exit(f"see {place}")
    shutil.rmtree(place)

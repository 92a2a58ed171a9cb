"""Ten million events in one process: do time and memory per event stay what they were?

    python benchmarks/streams/endless.py         # `kronline learn` from a pipe, event by event
    python benchmarks/streams/endless.py --many  # `learn_many` of 1,000 keys
        [--events 10000000] [--set hidden=8 ...]

Ten features and default settings, if no others are given. Every block is of 10,000 events. A line
per hundredth of all: the time of a processor that the process took per event, and its memory. At
the end the old process and a young one are given blocks in turns, so that what else the machine
does counts for both alike. Needs Linux (/proc).
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BLOCK, KEYS = 10_000, 1_000
TURNS = 15  # of the comparison at the end
YOUNG = 10  # blocks that a process has behind it at the start of all comparisons


def events() -> list[dict[str, Any]]:
    """A block: eight numbers, a flag and a category, and the target `y`."""
    rng = random.Random(0)
    found = []
    for t in range(BLOCK):
        x: dict[str, Any] = {f"x{i}": math.sin(t * (i + 1) / 50) + rng.random() for i in range(8)}
        x |= {"on": t % 7 < 3, "kind": "abc"[t % 3]}
        found.append(x | {"y": x["x0"] * x["on"] + math.sin(t / 9) + 0.1 * rng.gauss(0, 1)})
    return found


class Child:
    """A process that learns from blocks of events, and answers when it is done with one."""

    def __init__(self, words: Sequence[str], block: bytes, answers: int) -> None:
        self.block, self.answers = block, answers
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tick = 1 / os.sysconf("SC_CLK_TCK")

    def block_seconds(self) -> float:
        """One block; the processor's seconds that it took."""
        inn, out = self.process.stdin, self.process.stdout
        assert inn is not None and out is not None
        before = self.cpu()
        writer = threading.Thread(target=lambda: (inn.write(self.block), inn.flush()))
        writer.start()
        for _ in range(self.answers):
            if not out.readline():
                raise SystemExit("the process ended before its time")
        writer.join()
        return self.cpu() - before

    def cpu(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return self.tick * (int(fields[11]) + int(fields[12]))

    def megabytes(self) -> float:
        """Of memory that it holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(v.split()[1]) for v in lines if v.startswith("VmRSS")) / 1024

    def end(self) -> None:
        """No more events."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def many(settings: Sequence[str]) -> None:
    """The process of `--many`: a line of input is a block, predicted and learnt from."""
    from kronline import stream
    from kronline.lab.learn.settings import value

    given = {k: value(v) for k, _, v in (s.partition("=") for s in settings)}
    model, block, keys = stream.Regressor(**given), events(), range(KEYS)
    ys = [e.pop("y") for e in block]
    for _ in sys.stdin:
        for at in range(0, BLOCK, KEYS):
            rows = slice(at, at + KEYS)
            model.predict_many(block[rows], keys)
            model.learn_many(block[rows], ys[rows], keys)
        print(model.events, flush=True)


def started(args: argparse.Namespace, folder: Path) -> Child:
    """A process, with its first blocks behind it."""
    more = ["--set", *args.set] if args.set else []
    if args.many:
        words = [sys.executable, __file__, "--child", *more]
        child = Child(words, b"\n", 1)
    else:
        words = [sys.executable, "-m", "kronline", "learn", "-", "--target", "y", "--quiet"]
        words += ["--format", "json", "--model", str(folder), *more]
        lines = b"".join(json.dumps(e).encode() + b"\n" for e in events())
        child = Child(words, lines, BLOCK)
    for _ in range(YOUNG):
        child.block_seconds()
    return child


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--set", nargs="+", default=[])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return many(args.set)
    per_event = 1e6 / BLOCK
    with tempfile.TemporaryDirectory() as place:
        old = started(args, Path(place, "old"))
        first, blocks = old.megabytes(), args.events // BLOCK
        spent: list[float] = []
        for done in range(YOUNG, blocks):
            spent.append(old.block_seconds())
            if (done + 1) % max(blocks // 100, 1) == 0:
                us = statistics.median(spent[-max(blocks // 100, 1) :]) * per_event
                size = old.megabytes()
                print(f"{(done + 1) * BLOCK:,} events, {us:.0f} µs, {size:.1f} MB", flush=True)
        last = old.megabytes()
        young = started(args, Path(place, "young"))
        turns = [(young.block_seconds(), old.block_seconds()) for _ in range(TURNS)]
        young.end()
        old.end()
    a, b = (statistics.median(side) * per_event for side in zip(*turns, strict=True))
    tenth = max(len(spent) // 10, 1)
    found = {
        "by": "learn_many, 1,000 keys" if args.many else "kronline learn, one event at a time",
        "settings": args.set,
        "events": (blocks + TURNS) * BLOCK,
        "MB at the start": round(first, 1),
        "MB at the end": round(last, 1),
        "µs of the first tenth": round(statistics.median(spent[:tenth]) * per_event, 1),
        "µs of the last tenth": round(statistics.median(spent[-tenth:]) * per_event, 1),
        "in turns, µs of a young process": round(a, 1),
        "in turns, µs of the old one": round(b, 1),
        "old over young": round(statistics.median(o / y for y, o in turns), 4),
    }
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()

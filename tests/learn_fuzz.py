"""Streams that are broken in every way, through `kronline learn`.

    python tests/learn_fuzz.py --count 10000

Each is a stream of JSON lines or CSV, to many lines of which things are done that happen to files:
bytes that flip, go or come, lines that are cut, doubled or swapped, values of other types, columns
that come and go, other encodings. Whatever comes of it: no crash, no hang, each line that is not
blank is either predicted or kept aside with its number and the fix, and given again nothing
changes. `count` is of lines that were changed.
"""

import argparse
import contextlib
import io
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kronline.errors import UsageError
from kronline.lab.learn import Learn, go
from learn_data import machines

PATIENCE = 300  # seconds
VALUES = [
    *("NaN", "Infinity", "-Infinity", "1e999", "null", "true", '"x"', '""', "[]", "{}", "[[1]]"),
    *("1" * 400, "9" * 5000, "-0", "1e-320", '"\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', "0x1"),
    *('"2026-01-01"', '"a,b"', '"é"', "1_000", '"nan"', '"1.5"', "1E100", "1.7e308", "+1", "01"),
]
NAMES = ["pressure", "speed", "pump", "time", "state", "valve", "new", "", "last class", "a=b"]


def base(rng, count):
    """A stream that is fine, as lines of bytes, and its format."""
    events = list(machines(count, rng.randrange(1000)))
    if rng.random() < 0.5:
        return [json.dumps(e).encode() for e in events], "json"
    rows = [list(events[0]), *(list(e.values()) for e in events)]
    return [",".join(map(str, row)).encode() for row in rows], "csv"


def mutated(rng, lines, format):
    """One thing that happens to files; a CSV file keeps its first line, most of the time."""
    first = 1 if format == "csv" and rng.random() < 0.95 else 0
    at = rng.randrange(min(first, len(lines) - 1), len(lines))
    line = lines[at]
    kind = rng.choice(["flip", "cut", "grow", "value", "value", "name", "double", "swap", "encode"])
    kind = rng.choice([kind, kind, kind, "huge", "blank", "cells", "csv text", "drop"])
    if kind == "flip" and line:
        i = rng.randrange(len(line))
        line = line[:i] + bytes([rng.randrange(256)]) + line[i + 1 :]
    elif kind == "cut":
        line = line[: rng.randrange(len(line) + 1)]
    elif kind == "grow":
        i = rng.randrange(len(line) + 1)
        line = line[:i] + bytes(rng.randrange(256) for _ in range(rng.randrange(9))) + line[i:]
    elif kind in ("value", "name") and format == "json":
        line = _in_json(rng, line, kind)
    elif kind in ("value", "cells", "csv text"):
        cells = line.split(b",")
        i = rng.randrange(len(cells))
        cells[i] = (
            rng.choice(VALUES).encode() if kind == "value" else rng.choice([b'"', b"", b"x,"])
        )
        line = b",".join(cells)
    elif kind == "double":
        lines.insert(at, line)
    elif kind == "swap":
        other = rng.randrange(min(first, len(lines) - 1), len(lines))
        lines[at] = lines[other]
        at = other
    elif kind == "encode":
        line = line.decode("latin1").encode(rng.choice(["utf-16", "utf-16-be", "utf-7", "cp037"]))
    elif kind == "huge":
        line = line + b" " * rng.choice([100, 3000, 200_000])
    elif kind == "blank":
        line = rng.choice([b"", b" ", b"\t\r", b"\xef\xbb\xbf"])
    if kind == "drop" and len(lines) > 1:
        del lines[at]
    else:
        lines[at] = line


def _in_json(rng, line, kind):
    try:
        record = json.loads(line)
        assert isinstance(record, dict)
    except (ValueError, AssertionError):
        return line
    name = rng.choice([*record, *NAMES])
    if kind == "name" and name in record and rng.random() < 0.5:
        del record[name]
    mark = "@@here@@"
    record[name] = mark
    return json.dumps(record).replace(f'"{mark}"', rng.choice(VALUES)).encode()


def settings(rng, file, model, format):
    """A command for it."""
    more = {}
    if rng.random() < 0.5:
        more["key"] = "pump"
    if rng.random() < 0.4:
        more["time"] = "time"
    task = rng.choice([None, "regress", "classify", "forecast", "anomaly"])
    target = "state" if task == "classify" else rng.choice(["pressure", "pressure", "state"])
    if task in ("regress", "forecast"):
        target = "pressure"
    if task not in ("forecast", "anomaly") and rng.random() < 0.3:
        more["horizon"] = rng.choice([1, 2])
    if task == "anomaly":
        target = None
    words = {
        "on_nan": rng.choice(["missing", "skip", "stop"]),
        "max_line": rng.choice([2000, 10**6]),
    }
    return Learn(
        file, target=target, task=task, format=format, model=model, out=model.with_suffix(".out"),
        every=rng.choice([30, 10**6]), commit=rng.choice([1, 16, 256]), quiet=True,
        max_features=16, set=("hidden=2", "max_keys=4"), **more, **words,
    )  # fmt: skip


def one(seed, folder, changes):
    """A stream; what came of its lines. Raises AssertionError where it should not have."""
    rng = random.Random(seed)
    lines, format = base(rng, changes + 2)
    for _ in range(changes):
        mutated(rng, lines, format)
    end = rng.choice([b"\n", b"\n", b"\r\n"])
    data = end.join(lines) + (end if rng.random() < 0.8 else b"")
    file, model = folder / "data", folder / "model"
    file.write_bytes(data)
    args = settings(rng, file, model, format)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            go(args)
        except UsageError as e:
            # the settings or the columns' names, or what is to stop it: nothing else stops a stream
            told = str(e)
            assert "line " in told or "UTF-16" in told or "compressed" in told, told
            assert ";" in told or ":" in told, told
            return Counter(stopped=1)
        before = files(args)
        seen = accounted(data, format, args)
        go(args)
        assert files(args) == before
    return seen


def files(args):
    names = sorted(f.name for f in (args.folder / "checkpoints").glob("*"))
    kept = [args.out.read_bytes(), (args.folder / "rejected.jsonl").read_bytes()]
    return names, kept, (args.folder / "journal.sqlite").read_bytes()


def accounted(data, format, args):
    """Each line that is not blank, or is too long to tell, is predicted or kept aside, once."""
    found = [json.loads(line) for line in args.out.read_text().splitlines()]
    aside = [json.loads(x) for x in (args.folder / "rejected.jsonl").read_text().splitlines()]
    assert all(a["problem"] and a["fix"] for a in aside), aside
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    full = []
    for number, line in enumerate(lines, 1):
        text = line.decode(errors="replace")
        text = text.removeprefix("\ufeff") if number == 1 else text
        if text.strip() or len(line) > args.max_line:
            full.append(number)
    if format == "csv":
        full = full[1:]
    assert sorted([f["line"] for f in found] + [a["line"] for a in aside]) == full
    for f in found:
        assert "prediction" in f or "score" in f, f
    return Counter(streams=1, predicted=len(found), rejected=len(aside))


def many(streams, changes, first=0):
    """So many streams with so many changes; what came of them."""
    seen = Counter()
    for seed in range(first, first + streams):
        folder = Path(tempfile.mkdtemp())
        signal.signal(signal.SIGALRM, _hangs)
        signal.alarm(PATIENCE)
        try:
            seen += one(seed, folder, changes)
        except BaseException:
            print(f"seed {seed}, in {folder}:", file=sys.stderr)
            raise
        finally:
            signal.alarm(0)
        shutil.rmtree(folder)
    return seen


def _hangs(*_):
    raise AssertionError(f"no answer for {PATIENCE} seconds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=250, help="in a stream")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(dict(many(-(-args.count // args.changes), args.changes, args.seed)))

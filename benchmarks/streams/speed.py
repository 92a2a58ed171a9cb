"""Time per event, in one run: a learner's step beside `run`, a regressor's event, many keys.

    python benchmarks/streams/speed.py [--events 100000] [--deep .venv-deep/bin/python]
        [--out results/streams-speed.json]

One lane, n = 64. `--deep` names the Python of an environment with deep-river, which is timed on the
same events, in the same run. Percentiles are of single events. On a shared machine the 5th is
nearer to what the work takes than the median; both are printed. `load` is the machine's, over its
cores.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import kronline as kl
from kronline import stream

KEYS = 1000


def microseconds(call: Callable[[int], Any], count: int) -> np.ndarray:
    """Of each of so many calls."""
    times = np.empty(count)
    for i in range(count):
        start = time.perf_counter()
        call(i)
        times[i] = time.perf_counter() - start
    return 1e6 * times


def shown(times: np.ndarray) -> dict[str, float]:
    """5th percentile, median, 99th percentile."""
    names = ("p5", "median", "p99")
    values = np.percentile(times, (5, 50, 99))
    return {n: round(float(v), 1) for n, v in zip(names, values, strict=True)}


def steps(events: int) -> dict[str, Any]:
    """KF-RTRL on an RHN: a step of a live learner, and a step inside `run`, in turn."""
    learner = kl.Learner(kl.RHN(64, 10), kl.linear(1), kl.kf_rtrl(), optax.adam(1e-3))
    state = learner.init(jax.random.key(0))
    live = learner.live(state)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(1000, 1, n)).astype(np.float32) for n in (10, 1))
    learner.run(state, x, y)
    one, inside = [], []
    for _ in range(max(events // 1000, 1)):
        one.append(microseconds(lambda i: live.step(x[i], y[i]), 1000))
        start = time.perf_counter()
        state, out = learner.run(state, x, y)
        out.loss.block_until_ready()
        inside.append(1e3 * (time.perf_counter() - start))  # µs per step
    a, b = shown(np.concatenate(one)), shown(np.array(inside))
    times = {k: round(a[k] / b[k], 2) for k in ("p5", "median")}
    return {"step": a, "inside run": b, "step / inside run": times}


def events_of(count: int) -> tuple[list[dict[str, float]], list[float]]:
    """Ten features, and a target that is a sum of them."""
    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(count, 10)), rng.normal(size=10)
    xs = [{f"f{i}": float(v) for i, v in enumerate(row)} for row in rows]
    return xs, (rows @ w + rng.normal(size=count)).tolist()


def one_key(events: int, settings: dict[str, Any]) -> dict[str, Any]:
    """`predict_one` and `learn_one`, and the process's memory after a tenth and at the end."""
    xs, ys = events_of(1000)
    model = stream.Regressor(**settings)

    def call(i: int) -> None:
        model.predict_one(xs[i % 1000])
        model.learn_one(xs[i % 1000], ys[i % 1000])

    microseconds(call, 200)
    tenth = max(events // 10, 1)
    first = microseconds(call, tenth)
    before = peak()
    times = np.concatenate([first, microseconds(call, events - tenth)])
    return shown(times) | {"MiB after a tenth": before, "MiB at the end": peak()}


def many_keys(rounds: int) -> dict[str, Any]:
    """`learn_many` of an event of each of 1,000 keys, per event."""
    xs, ys = events_of(KEYS)
    model, keys = stream.Regressor(), list(range(KEYS))
    for _ in range(3):
        model.learn_many(xs, ys, keys)
    times = microseconds(lambda _: model.learn_many(xs, ys, keys), rounds)
    return shown(times / KEYS)


def learn_only(events: int) -> dict[str, Any]:
    """`learn_one` of one key, for comparison with many."""
    xs, ys = events_of(1000)
    model = stream.Regressor()
    microseconds(lambda i: model.learn_one(xs[i % 1000], ys[i % 1000]), 200)
    return shown(
        microseconds(lambda i: model.learn_one(xs[i % 1000], ys[i % 1000]), min(events, 3000))
    )


def deep_river(python: str, own: dict[str, float]) -> dict[str, Any]:
    """deep-river's regressors, and how many times as long as ours they take."""
    words = [python, str(Path(__file__).with_name("speed_deep.py"))]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    for times in found.values():
        times["over ours"] = round(times["median"] / own["median"], 1)
    return found


def load() -> float:
    """The machine's, over its cores, in the last minute."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)


def where() -> dict[str, Any]:
    """The commit, and the machine."""
    words = ["git", "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((x[13:] for x in info.read_text().splitlines() if "model name" in x), cpu)
    return {
        "commit": commit,
        "cpu": cpu.strip(": "),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }


def peak() -> float:
    """The most memory that the process has had, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--deep", help="the Python of an environment with deep-river")
    parser.add_argument("--out", type=Path, help="where the result is written, too")
    args = parser.parse_args()
    found: dict[str, Any] = where() | {"events": args.events, "load": load()}
    found["one lane, n = 64, KF-RTRL"] = steps(min(args.events, 5000))
    print(json.dumps(found), flush=True)
    found["learn_one, one key"] = one = learn_only(args.events)
    found["learn_many, 1,000 keys"] = many = many_keys(20)
    found["one key / 1,000 keys"] = {k: round(one[k] / many[k], 1) for k in ("p5", "median")}
    print(json.dumps(found), flush=True)
    found["predict_one + learn_one"] = event = one_key(args.events, {})
    if args.deep:
        found["beside"] = deep_river(args.deep, event)
    settings = {"cell": "RHN", "estimator": "kf_rtrl()"}
    found["the same, RHN by KF-RTRL"] = one_key(min(args.events, 10_000), settings)
    found["load at the end"] = load()
    text = json.dumps(found, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

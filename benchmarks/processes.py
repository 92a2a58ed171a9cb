"""How a run over processes grows: measured for 1, 2 and 4, and simulated for 2 to 1,024.

    python benchmarks/processes.py --estimator kf_rtrl
    python benchmarks/processes.py --estimator "kf_tbptt(25, pairs=8)" --save processes.json

Every process has one core: its threads, XLA's and the native kernel's, are pinned to it. All groups
of processes are there at the same time, and are timed in turn, round after round, while the others
wait; with two cores the four processes share them, two on each. A round is some updates of the
whole training step, on random symbols. Two processes without any sum between them show what the
machine itself can do: cores share caches, memory and heat. `--urgent` is for a machine with other
work on it: while it is timed a group has real-time priority (which takes the right to it), a core
that the group does not use runs an empty loop, and after each round the others get as much time.

The simulation, and what it assumes:

- each process has its lanes, as many as those of the group of two; so lanes grow with processes;
- the time of its own work is drawn from the measured times of updates of one process with so many
  lanes, independently for each process and update: an update waits for the slowest of them;
- the sum is a ring's: 2 (P - 1) messages, one behind the other, each of 1/P of the gradient:
  `t = 2 (P - 1) (latency + bytes / (P bandwidth))`. Where all get the factors of all lanes instead,
  because it is less (`lanes/over.py`), these are P - 1 messages, each of one process's factors.
  Latency and bandwidth are fitted to measured sums of two and four processes over loopback; for
  10 and 100 Gbit/s they are what is written here;
- every process has a core and a full-duplex link of its own, switches are never the limit.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

LATENCY = 30e-6  # seconds from process to process, of TCP over a data centre's Ethernet
LINKS = {"10 Gbit/s": 10e9 / 8, "100 Gbit/s": 100e9 / 8}
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 22)  # bytes of sums that are timed
MANY = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DRAWS = 400  # updates that are simulated
SMALL = 0.05  # a share of the time that is
LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(flush=True)
while True: pass
"""


# -- one process -----------------------------------------------------------------------------------


def worker(args: argparse.Namespace) -> None:
    """Compile, then time what is asked for on standard input."""
    os.sched_setaffinity(0, {args.core})
    import jax  # noqa: PLC0415  after the threads are pinned
    import numpy as np  # noqa: PLC0415
    import optax  # noqa: PLC0415

    import kronline as kl  # noqa: PLC0415
    from kronline import spec  # noqa: PLC0415
    from kronline.cache import keep_programs  # noqa: PLC0415

    keep_programs(1)
    answers, _ = os.fdopen(os.dup(1), "w"), os.dup2(2, 1)  # what gloo says is no answer
    jax.config.update("jax_num_cpu_devices", 1)
    if args.of > 1:
        kl.processes.start(args.coordinator, args.worker, args.of)
    layout = kl.Shard() if args.of > 1 else kl.Vmap()
    estimator = spec.given(args.estimator, "estimator")
    learner = kl.Learner(
        kl.RHN(args.hidden, 4), kl.softmax(4), estimator, optax.adam(1e-3), layout, donate=True
    )
    state = learner.init(jax.random.key(0), args.lanes)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (args.steps, args.lanes)).astype(np.int32)
    if isinstance(layout, kl.Shard):
        x = layout.join(x[:, layout.mine(args.lanes)], axis=1)
    program = jax.jit(learner.run, donate_argnums=0).lower(state, x, x).compile()
    parameters = sum(a.size for a in jax.tree.leaves(state.params))
    gathered = re.search(r"f32\[\d+,(\d+)\]\S* all-gather\(.*shard_map", program.as_text() or "")
    ready = {"parameters": parameters, "factors": gathered and int(gathered[1])}

    def steps() -> float:
        nonlocal state
        begin = time.perf_counter()
        state, out = program(state, x, x)
        jax.block_until_ready(out.loss)
        return time.perf_counter() - begin

    def sums(size: int) -> float:
        """Seconds per sum of so many bytes over the processes."""
        assert isinstance(layout, kl.Shard)
        times, split = 20, layout.sharding(0)
        data = layout.join(np.ones((1, size // 4), np.float32))

        def one(a: Any) -> Any:
            def again(a: Any, _: Any) -> Any:
                return jax.lax.psum(a, "lanes") / args.of, None

            return jax.lax.scan(again, a, None, times)[0]

        spec_ = split.spec
        f = jax.jit(
            jax.shard_map(one, mesh=layout.mesh(), in_specs=spec_, out_specs=spec_, check_vma=False)
        )
        found = []
        for _ in range(4):
            begin = time.perf_counter()
            jax.block_until_ready(f(data))
            found.append((time.perf_counter() - begin) / times)
        return min(found[1:])

    steps()
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        what, *more = line.split()
        found = steps() if what == "steps" else sums(int(more[0]))
        print(json.dumps(found), file=answers, flush=True)
    if args.of > 1:
        kl.processes.stop()


# -- groups of processes ---------------------------------------------------------------------------


class Group:
    """So many processes, which are asked all at once."""

    def __init__(
        self, args: argparse.Namespace, count: int, lanes: int, steps: int, apart: bool = False
    ):
        """`apart`: each is a program of its own, with so many lanes."""
        from kronline.lab.runs.split import here  # noqa: PLC0415

        cores = sorted(os.sched_getaffinity(0))
        address = here(1)[0].coordinator
        self.lanes, self.steps, self.members = lanes, steps, []
        self.urgent, self.free = args.urgent, cores[count:]
        for i in range(count):
            place = (0, 1) if apart else (i, count)
            words = [sys.executable, __file__, "--worker", place[0], "--of", place[1]]
            words += ["--lanes", lanes]
            words += ["--coordinator", address, "--core", cores[i % len(cores)], "--steps", steps]
            words += ["--hidden", args.hidden, "--estimator", args.estimator]
            self.members.append(
                subprocess.Popen(
                    [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )

    def answers(self) -> list[Any]:
        """One of each process."""
        lines = [m.stdout.readline() for m in self.members if m.stdout]
        if not all(lines):
            raise SystemExit("a process has ended: see what it says above")
        return [json.loads(line) for line in lines]

    def ask(self, what: str) -> float:
        """The time that the slowest takes."""
        begin = time.perf_counter()
        with self.alone():
            for m in self.members:
                assert m.stdin
                m.stdin.write(what + "\n")
                m.stdin.flush()
            slowest = max(self.answers())
        if self.urgent:
            time.sleep(time.perf_counter() - begin)
        return slowest

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With `--urgent`, nothing else runs on any core, if it has no such priority itself."""
        loops = [
            subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE)
            for core in (self.free if self.urgent else [])
        ]
        try:
            for loop in loops:
                assert loop.stdout
                loop.stdout.readline()
            if self.urgent:
                self._priority(os.SCHED_FIFO, 1)
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))  # to ask all at once
            yield
        finally:
            if self.urgent:
                self._priority(os.SCHED_OTHER, 0)
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            for loop in loops:
                loop.kill()
                loop.wait()

    def _priority(self, policy: int, level: int) -> None:
        for m in self.members:
            for thread in Path(f"/proc/{m.pid}/task").iterdir():
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(level))

    def end(self) -> None:
        """The input ends, and so do they."""
        for m in self.members:
            assert m.stdin
            m.stdin.close()
        for m in self.members:
            m.wait()


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """The times of all groups, and of sums."""
    span = 25 if "25" in args.estimator else 1
    steps = max(span, args.steps // span * span)
    half = args.lanes // 2
    groups = {
        "1": Group(args, 1, args.lanes, steps),
        "2": Group(args, 2, args.lanes, steps),
        "4": Group(args, 4, args.lanes, steps),
        "apart": Group(args, 2, half, steps, apart=True),  # two cores at work, without any sum
        "own": Group(args, 1, half, span),  # the work of one process of two, update by update
    }
    ready = {name: group.answers()[0] for name, group in groups.items()}
    print("all processes are there; timing", file=sys.stderr, flush=True)
    times: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(args.rounds):
        for name, group in groups.items():
            for _ in range(steps // span if name == "own" else 1):
                times[name].append(group.ask("steps") / group.steps * span)
    sums = {name: {size: groups[name].ask(f"sum {size}") for size in SIZES} for name in ("2", "4")}
    for group in groups.values():
        group.end()
    return {
        "estimator": args.estimator,
        "hidden": args.hidden,
        "lanes": args.lanes,
        "steps_per_update": span,
        "bytes": 4 * ready["1"]["parameters"],
        "factors": 4 * (ready["2"]["factors"] or 0),  # bytes of two processes' each; 0: sums
        "update": times,
        "sum": sums,
    }


# -- the simulation --------------------------------------------------------------------------------


def ring(count: int, size: float, latency: float, bandwidth: float) -> float:
    """Seconds of a sum by a ring."""
    return 2 * (count - 1) * (latency + size / (count * bandwidth))


def message(found: dict[str, Any], count: int, latency: float, bandwidth: float) -> float:
    """Seconds of the sum of gradients: by factors, where the library takes these."""
    factors = found.get("factors", 0)
    if factors and count * factors < 2 * found["bytes"]:
        return (count - 1) * (latency + factors / bandwidth)
    return ring(count, found["bytes"], latency, bandwidth)


def fitted(found: dict[str, Any]) -> tuple[float, float]:
    """Latency and bandwidth of loopback, by least squares of relative errors."""
    import numpy as np  # noqa: PLC0415

    rows = [(int(p), int(size), t) for p, of in found["sum"].items() for size, t in of.items()]
    A = np.array([[2 * (p - 1) / t, 2 * (p - 1) * size / p / t] for p, size, t in rows])
    latency, inverse = np.linalg.lstsq(A, np.ones(len(rows)), rcond=None)[0]
    return float(max(latency, 1e-6)), float(1 / inverse)


def simulated(found: dict[str, Any], count: int, latency: float, bandwidth: float) -> float:
    """Seconds of an update with so many processes, the mean over draws."""
    import numpy as np  # noqa: PLC0415

    rng, own = np.random.default_rng(0), np.array(found["update"]["own"])
    slowest = rng.choice(own, (DRAWS, count)).max(1).mean()
    return float(slowest + message(found, count, latency, bandwidth))


def told(found: dict[str, Any]) -> str:
    """All of it as text."""
    now = {name: median(times) for name, times in found["update"].items()}
    one = found["update"]["1"]

    def ratio(name: str) -> str:
        each = [a / b for a, b in zip(one, found["update"][name], strict=True)]
        return f"{median(each):.2f} times as fast ({min(each):.2f} to {max(each):.2f} by round)"

    latency, bandwidth = fitted(found)
    size, own = found["bytes"], now["own"]
    loopback = {p: 1e3 * simulated(found, p, latency, bandwidth) for p in (2, 4)}
    title = f"{found['estimator']}, RHN n = {found['hidden']}, {found['lanes']} lanes"
    out = [
        title,
        f"  one process: {1e3 * now['1']:.2f} ms per update",
        f"  two processes: {1e3 * now['2']:.2f} ms, {ratio('2')}",
        f"  two apart, each with half of the lanes, no sums: {1e3 * now['apart']:.2f} ms, "
        f"{ratio('apart')}: what these two cores can do",
        f"  four processes on the same two cores: {1e3 * now['4']:.2f} ms, {ratio('4')}",
        f"  {found.get('factors') or size:,} bytes per update are sent by each of two processes",
        f"  loopback, by sums of 2 and 4: {1e6 * latency:.0f} µs, {bandwidth / 1e9:.2f} GB/s",
        f"  simulated over loopback: two {loopback[2]:.2f} ms, four {loopback[4]:.2f} ms",
        "  processes: share of the time in sums, and how many times the lanes per second of one",
    ]
    for name, link in LINKS.items():
        cells = []
        for p in MANY:
            t = simulated(found, p, LATENCY, link)
            share = message(found, p, LATENCY, link) / t
            cells.append(f"{p}: {100 * share:.1f} %, {p * own / t:.0f}x")
        out.append(f"  {name}: " + "; ".join(cells))
        # 2 bytes / bandwidth <= 5 % of the work on so many lanes, and of the sum itself
        lanes = 2 * size / link / (own / (found["lanes"] // 2)) * (1 - SMALL) / SMALL
        out.append(
            f"  sums of many are below 5 % from {max(1, math.ceil(lanes))} lanes per process"
        )
    return "\n".join(out)


def main() -> None:
    """Measure and tell; or one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--estimator", default="kf_rtrl")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lanes", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--urgent", action="store_true", help="other work on the machine waits")
    parser.add_argument("--save", type=Path, help="keep what was measured, as JSON")
    parser.add_argument("--load", type=Path, help="tell of such a file, and measure nothing")
    for name in ("--worker", "--of", "--core"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        worker(args)
        return
    found = json.loads(args.load.read_text()) if args.load else measured(args)
    if args.save:
        args.save.write_text(json.dumps(found, indent=1) + "\n")
    print(told(found))


if __name__ == "__main__":
    main()

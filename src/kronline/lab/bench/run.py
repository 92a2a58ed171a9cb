"""Runs the plan: rows in turn, in processes of their own, the machine's rate before each."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from statistics import median
from typing import Any

import jax
import numpy as np

from kronline import native
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab.bench import exact
from kronline.lab.bench.machine import REST, Machine
from kronline.lab.bench.plan import EARLY, LATE, ONE_LANE, SIZES, Turns, diagonal, whole
from kronline.lab.bench.work import Row
from kronline.lab.bench.worker import Acts, message
from kronline.lab.machine import commit, describe

LONGEST = 20.0  # seconds per step beyond which a row is skipped
Note = Callable[[int, str], None]  # units done, what is going on


class Worker:
    """A process that builds and times rows."""

    def __init__(self, kind: str):
        call = f"from kronline.lab.bench.worker import main; main({kind!r})"
        command = [sys.executable, "-c", call]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def send(self, do: str, row: Row | None = None, value: Any = None) -> None:
        """A command; its answer is to be received later."""
        assert self._process.stdin is not None
        command = {"do": do, "row": asdict(row) if row else None, "value": value}
        try:
            print(json.dumps(command), file=self._process.stdin, flush=True)
        except OSError as e:
            raise RuntimeError(f"the process is gone ({e})") from e

    def receive(self) -> Any:
        """The answer to the oldest command.

        Raises:
            RuntimeError: with the worker's message.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"the process ended with {code} (out of memory?)")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def ask(self, do: str, row: Row | None = None, value: Any = None) -> Any:
        """A command and its answer."""
        self.send(do, row, value)
        return self.receive()

    @property
    def alive(self) -> bool:
        """Whether it can be sent commands."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Here(Worker):
    """The same in this process: a TPU belongs to one process, and a GPU's memory does."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._act = Acts(machine or Machine())
        self._answers: deque[Any] = deque()

    def send(self, do: str, row: Row | None = None, value: Any = None) -> None:
        """Carried out at once; its answer is kept."""
        try:
            self._answers.append(self._act(do, row, value))
        except Exception as e:
            self._answers.append(RuntimeError(message(e)))

    def receive(self) -> Any:
        """The answer to the oldest command."""
        answer = self._answers.popleft()
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    @property
    def alive(self) -> bool:
        """For as long as we are."""
        return True

    def stop(self) -> None:
        """There is nothing to end."""


class Bench:
    """One run: workers, and what they measured."""

    def __init__(self, machine: Worker, note: Note):
        self._machine, self._note = machine, note
        self._workers: dict[str, Worker] = {}
        self.rates: dict[str, list[float]] = {}
        self.copies: list[float] = []
        self.times: dict[Row, list[float]] = {}
        self.rates_at: dict[Row, list[dict[str, float]]] = {}
        self.copies_by_all: list[float] = []
        self.bytes: dict[Row, float | None] = {}
        self.trace_bytes: dict[Row, int] = {}
        self.bare: list[float] = []
        self.skipped: list[dict[str, Any]] = []

    def worker(self, row: Row) -> Worker:
        """The process that the row belongs to; a new one if the last one died."""
        if isinstance(self._machine, Here):
            return self._machine
        kind = "jax" if row.path == "jax" else "default"
        if kind not in self._workers or not self._workers[kind].alive:
            self._workers[kind] = Worker(kind)
        return self._workers[kind]

    def stop(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.stop()

    def skip(self, row: Row, reason: str) -> None:
        """List the row as skipped."""
        self.skipped.append({**asdict(row), "reason": reason})

    def time(self, turns: Turns) -> None:
        """Build all rows, then time them in turn."""
        rows = self._built(turns)
        for _ in range(turns.rounds):
            for row in (row for row in rows if not self.lost(row)):
                rate = self._rate(turns)
                time.sleep(REST)
                try:
                    self.times.setdefault(row, []).append(self.worker(row).ask("time", row))
                except RuntimeError as e:
                    self.skip(row, str(e))
                    continue
                self.rates_at.setdefault(row, []).append(rate)
                if row == ONE_LANE[0]:
                    self.bare.append(self._machine.ask("bare", value=row.hidden))
                    time.sleep(REST)
            self.copies.append(self._machine.ask("copy"))
            self._note(len(turns.rows), turns.title)
        for row in (row for row in rows if not self.lost(row)):
            with suppress(RuntimeError):
                self.worker(row).ask("drop", row)

    def _rate(self, turns: Turns) -> dict[str, float]:
        """What the machine can do now, of that which limits these rows."""
        if turns.limit == "copy_by_all":
            rate = {"copy_by_all": self._machine.ask("copy_by_all")}
            self.copies_by_all += rate.values()
            if any(self.rates.values()):
                return rate
        products = self._machine.ask("matmul")
        for name, value in products.items():
            self.rates.setdefault(name, []).append(value)
        return rate if turns.limit == "copy_by_all" else products

    def lost(self, row: Row) -> bool:
        """Whether it was skipped, be it in the middle."""
        return any(asdict(row).items() <= s.items() for s in self.skipped)

    def _built(self, turns: Turns) -> list[Row]:
        """Workers build at the same time, each one row after another."""
        waiting, rows = [], []
        skipped = len(self.skipped)
        free = free_bytes()
        for row in turns.rows:
            if row.bytes > 0.7 * free:
                need = f"about {row.bytes / 1e9:.1f} GB"
                self.skip(row, f"needs {need}, {free / 1e9:.1f} GB are left for it")
            elif row.guess > LONGEST:
                self.skip(row, f"would take about {row.guess:.0f} s per step")
            else:
                worker = self.worker(row)
                worker.send("build", row, turns.seconds)
                waiting.append((row, worker))
                free -= row.bytes  # all rows of these are held at once
        self._note(len(self.skipped) - skipped, turns.title)
        for row, worker in waiting:
            try:
                answer = worker.receive()
                self.bytes[row] = answer["bytes_per_lane"]
                self.trace_bytes[row] = answer["trace_bytes"]
                rows.append(row)
            except RuntimeError as e:
                self.skip(row, str(e))
            self._note(1, f"{turns.title}: compiling")
        return rows


def free_bytes() -> float:
    """Memory that is free, as far as the system or the device tells."""
    if jax.default_backend() != "cpu" and (stats := jax.devices()[0].memory_stats()):
        return float(stats["bytes_limit"] - stats["bytes_in_use"])
    try:
        with open("/proc/meminfo") as f:
            for line in f:
                if line.startswith("MemAvailable"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    return 8e9


def units(plan: list[Turns]) -> int:
    """How many rows are built or timed."""
    return sum(len(g.rows) * (g.rounds + 1) for g in plan)


@contextmanager
def running(note: Note, machine: Worker | None = None) -> Iterator[Bench]:
    """A bench whose processes end with it; `machine`: what measures it, by default as it needs."""
    with ExitStack() as stack:
        if machine is None:
            machine = Worker("machine") if jax.default_backend() == "cpu" else Here()
        stack.callback(machine.stop)
        bench = Bench(machine, note)
        stack.callback(bench.stop)
        yield bench


def planned(quick: bool, full: bool, only_diagonal: bool = False) -> list[Turns]:
    """What there is to do here."""
    return diagonal() if only_diagonal else whole(quick, full)


def measure(plan: list[Turns], note: Note, machine_by: Worker | None = None) -> dict[str, Any]:
    """The whole result, as it is printed by --json."""
    with running(note, machine_by) as bench:
        for turns in plan:
            bench.time(turns)
    if not bench.times:
        reasons = sorted({s["reason"] for s in bench.skipped})
        raise UsageError(f"nothing could be timed: {'; '.join(reasons)}")
    best = max(bench.rates, key=lambda name: median(bench.rates[name]))
    done = [row for turns in plan if turns.show for row in turns.rows if row in bench.times]
    shown = list(dict.fromkeys(row for row in done if not bench.lost(row)))
    return {
        "matmul_gflops": round(median(bench.rates[best]), 1),
        "matmul_by": best,
        "copy_gbytes_per_s": round(median(bench.copies), 2),
        "rows": [_line(bench, row, best) for row in shown],
        "beside": _beside(bench, plan),
        "exact": exact.found(bench, plan),
        "growth": _growth(bench),
        "skipped": bench.skipped,
        "one_lane": _one_lane(bench),
        "machine": machine(),
    }


def _us(bench: Bench, row: Row) -> float:
    return 1e6 * median(bench.times[row])


def _line(bench: Bench, row: Row, best: str) -> dict[str, Any]:
    gflops = fraction = None
    if row.flops is not None:
        pairs = zip(bench.times[row], bench.rates_at[row], strict=True)
        # each timing beside the machine's rate just before it
        fraction = round(median(1e-9 * row.flops / t / rate[best] for t, rate in pairs), 3)
        gflops = round(1e-3 * row.flops / _us(bench, row), 1)
    line = asdict(row)
    del line["start"]
    memory = bench.bytes[row]
    return {
        **line,
        "us_per_step": round(_us(bench, row), 2),
        "gflops": gflops,
        "fraction_of_matmul": fraction,
        "fraction_of_copy": exact.share(bench, row),
        "bytes_per_lane": None if memory is None else round(memory),
    }


def _beside(bench: Bench, plan: list[Turns]) -> list[dict[str, Any]]:
    """Every method's time over KF-RTRL's, where both were timed in turn: medians of ratios."""
    out = []
    for turns in plan:
        if not turns.title.startswith("beside"):
            continue
        first, *others = turns.rows
        for row in others:
            if first in bench.times and row in bench.times:
                mine, its = (bench.times[r][-turns.rounds :] for r in (row, first))
                pairs = zip(mine, its, strict=False)
                line = {name: getattr(row, name) for name in ("method", "cell", "hidden", "lanes")}
                out.append(line | {"over_kf_rtrl": round(median(a / b for a, b in pairs), 3)})
    return out


def _growth(bench: Bench) -> dict[str, Any]:
    """Exponents in n, fitted to logarithms, and the ratio of late to early."""
    out: dict[str, Any] = {}
    for method in ("KF-RTRL", "UORO"):
        rows = [Row(method, "fast", "RHN", n, 16) for n in SIZES]
        if all(row in bench.times for row in rows):
            us = [_us(bench, row) for row in rows]
            exponent = np.polyfit(np.log(SIZES), np.log(us), 1)[0]
            out[method] = {
                "hidden": list(SIZES),
                "lanes": 16,
                "us_per_step": [round(t, 1) for t in us],
                "exponent_in_n": round(float(exponent), 3),
            }
    early, late = (Row("KF-RTRL", "fast", "RHN", 64, 4, start=t) for t in (EARLY, LATE))
    if early in bench.times and late in bench.times:
        pairs = zip(bench.times[late], bench.times[early], strict=False)
        out["in_time"] = {
            "steps": [EARLY, LATE],
            "us_per_step": [round(_us(bench, r), 2) for r in (early, late)],
            "late_over_early": round(median(a / b for a, b in pairs), 4),
        }
    return out


def _one_lane(bench: Bench) -> dict[str, float] | None:
    """An online step of one lane, beside its bare H·A by numpy."""
    if any(row not in bench.times for row in ONE_LANE) or not bench.bare:
        return None
    names = ("run_us_per_step", "step_call_us")
    times = {name: round(_us(bench, row), 2) for name, row in zip(names, ONE_LANE, strict=True)}
    return {"hidden": ONE_LANE[0].hidden, "numpy_HA_us": round(median(bench.bare), 2), **times}


def machine() -> dict[str, Any]:
    """What it was measured on."""
    path = native.status()
    return describe() | {
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "numpy": np.__version__,
        "kronline": __version__,
        "commit": commit(),
        "native": path.active,
        "native_reason": path.reason,
    }

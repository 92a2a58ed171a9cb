"""A process that builds and times rows when it is told to: JSON lines in, JSON lines out.

The kind says how the process is set up: "default", "jax" (no native kernel, one CPU device
per core) or "machine" (numpy and JAX as they come).
"""

import json
import os
import sys
from typing import Any, TextIO

import jax

from kronline import native
from kronline.lab.bench.machine import Machine, seconds
from kronline.lab.bench.work import Row, Timed, build
from kronline.lab.machine import cores


class Acts:
    """What a process does when it is told to."""

    def __init__(self, machine: Machine | None = None):
        self._machine = machine
        self._ready: dict[Row, Timed] = {}

    def __call__(self, what: str, row: Row | None, value: Any) -> Any:
        """Carry it out; the answer."""
        ready = self._ready
        if what == "build" and row is not None:
            ready[row] = build(row, value)
            timed = ready[row]
            return {"bytes_per_lane": timed.bytes_per_lane, "trace_bytes": timed.trace_bytes}
        if what == "time" and row is not None:
            ready[row].rewind()
            return seconds(ready[row].run) / ready[row].steps
        if what == "drop" and row is not None:
            return ready.pop(row, None) is not None
        machine = self._machine
        assert machine is not None
        if what == "bare":
            return machine.bare(value)
        known = {"matmul": machine.matmul, "copy": machine.copy, "copy_by_all": machine.copy_by_all}
        return known[what]()


def message(error: Exception) -> str:
    """One line of an error, for the list of rows that were skipped."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def serve(kind: str, commands: TextIO, answers: TextIO) -> None:
    """Until the commands end."""
    act = Acts(Machine() if kind == "machine" else None)
    for line in commands:
        command = json.loads(line)
        row = Row(**command["row"]) if command.get("row") else None
        try:
            answer = {"ok": act(command["do"], row, command.get("value"))}
        except Exception as e:  # told to the parent, which lists the row as skipped
            answer = {"error": message(e)}
        print(json.dumps(answer), file=answers, flush=True)


def main(kind: str) -> None:
    """The process."""
    # what libraries print must not get between the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if kind == "jax":
        jax.config.update("jax_num_cpu_devices", cores())
    with native.use(kind != "jax"):
        serve(kind, sys.stdin, answers)

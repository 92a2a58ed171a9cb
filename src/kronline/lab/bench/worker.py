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


def serve(kind: str, commands: TextIO, answers: TextIO) -> None:
    """Until the commands end."""
    machine = Machine() if kind == "machine" else None
    ready: dict[Row, Timed] = {}

    def act(what: str, row: Row | None, value: Any) -> Any:
        if what == "build" and row is not None:
            ready[row] = build(row, value)
            return {"bytes_per_lane": ready[row].bytes_per_lane}
        if what == "time" and row is not None:
            ready[row].rewind()
            return seconds(ready[row].run) / ready[row].steps
        if what == "drop" and row is not None:
            return ready.pop(row, None) is not None
        assert machine is not None
        return (
            {"matmul": machine.matmul, "copy": machine.copy}[what]()
            if what != "bare"
            else (machine.bare(value))
        )

    for line in commands:
        command = json.loads(line)
        row = Row(**command["row"]) if command.get("row") else None
        try:
            answer = {"ok": act(command["do"], row, command.get("value"))}
        except Exception as e:  # told to the parent, which lists the row as skipped
            answer = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:300]}
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

"""Commands for the tests of runs: in this process where that is as good, else in one of their own.

Both compile in the same way, so that their runs can be compared byte by byte.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kronline.lab.runs import folder
from kronline.lab.start import main

LANES = 13  # divides by no usual number of cores, so that lanes are never split over devices
SMALL = ["--hidden", "8", "--lanes", str(LANES), "--log-every", "20", "--save-every", "20"]


def command(*args):
    """The exit code of a command, run in this process."""
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in args])
    return end.value.code


def process(*args, **kwargs):
    """A process of its own."""
    words = [sys.executable, "-m", "kronline", *map(str, args)]
    return subprocess.Popen(words, **kwargs)


STEPS = {"copy": 200, "text": 1000}


def words(kind, book, *more):
    """The arguments of a run; all of its checkpoints are kept."""
    own = ["--data", book, "--valid-every", 100] if kind == "text" else []
    return [kind, *SMALL, "--keep", 1000, "--steps", STEPS[kind], *own, *more]


def killed(run, to, step):
    """The run, as if it had been killed some time after it wrote the checkpoint of a step."""
    shutil.copytree(run, to)
    shutil.rmtree(to / "figures")
    for file in (to / "checkpoints").iterdir():
        if step_of(file.name) > step:
            file.unlink()
    folder.set_status(to, "running", step=step, steps=STEPS[run.name], message="")
    return to


def step_of(name):
    """Of a checkpoint's file name."""
    return int(name.removeprefix("step-").removesuffix(".safetensors"))


def status(run):
    """Where a run says that it stands."""
    return json.loads((run / "status.json").read_text())


def kill_worker(pid):
    """End the Dask worker that has started the process of a member, by SIGKILL; its pid."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    assert b"spawn_main" in command, command  # a process that a nanny has started
    os.kill(parent, signal.SIGKILL)
    return parent

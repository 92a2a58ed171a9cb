"""Runs of many processes, for tests: started as a user starts them, and found in /proc."""

import os
import subprocess
import sys
import time
from pathlib import Path

from kronline.lab.runs.split import free_port

TRAIN = ["copy", "--hidden", "8", "--lanes", "8", "--log-every", "5", "--save-every", "10"]
# seconds, for a machine that is busy; and proxies that answer nobody are no trouble
PATIENT = {
    "KRONLINE_PATIENCE": "60",
    "KRONLINE_START": "120",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
}
SOON = {"KRONLINE_PATIENCE": "8"}  # where a process is to be found missing


def started(*words, **env):
    """A command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kronline", *map(str, words)],
        env=os.environ | PATIENT | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def programs(code, of, patience=60):
    """So many processes of a program that is no command: they have joined when `code` begins."""
    head = "import sys, time; from kronline import processes; process = int(sys.argv[1])\n"
    head += f"processes.start(sys.argv[2], process, {of}, patience={patience})\n"
    address = f"127.0.0.1:{free_port()}"
    return [
        subprocess.Popen(
            [sys.executable, "-u", "-c", head + code, str(i), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(of)
    ]


def ended(process, timeout=300):
    """The exit code of a command, and what it said."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out + err


def run(*words, **env):
    """A command, to its end."""
    code, said = ended(started(*words, **env))
    assert code == 0, said
    return said


def member(parent, number):
    """The pid of one of the processes that a command has started."""
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while True:
        assert parent.poll() is None, parent.communicate()
        for pid in map(int, children.read_text().split()):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if f"KRONLINE_PROCESS={number}".encode() in environ:
                return pid
        time.sleep(0.01)


def until(parent, true):
    """Wait until something holds, for as long as the command runs."""
    while not true():
        assert parent.poll() is None, parent.communicate()
        time.sleep(0.0005)


def lines(folder):
    """How many lines of metrics there are."""
    file = Path(folder) / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def checkpoints(folder):
    """The names in a run's folder of checkpoints."""
    place = Path(folder) / "checkpoints"
    return sorted(f.name for f in place.iterdir()) if place.is_dir() else []

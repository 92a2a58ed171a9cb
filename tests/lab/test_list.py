"""`kronline list`: several folders, on terminals of any width."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios

import pytest

from running import command


def on_a_terminal(columns, *args):
    """What a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    words = [sys.executable, "-m", "kronline", *map(str, args)]
    with subprocess.Popen(words, stdout=theirs, stdin=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # so ends a terminal on Linux
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[\d;]*m", "", seen.decode()).replace("\r\n", "\n")


@pytest.fixture
def place(unbroken, tmp_path, monkeypatch):
    for kind, run in unbroken.items():
        (tmp_path / kind).mkdir()
        shutil.copytree(run, tmp_path / kind / f"{kind}-kf-rtrl-n8-seed0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_runs_of_several_folders(place, capsys):
    copy, text = "copy/copy-kf-rtrl-n8-seed0", "text/text-kf-rtrl-n8-seed0"
    for folders, runs in (
        (("copy",), [copy]),
        (("text", "copy"), [text, copy]),
        (("copy", copy, "copy/../copy"), [copy]),  # each once
    ):
        assert command("list", *folders, "--json") == 0
        assert [r["run"] for r in json.loads(capsys.readouterr().out)["runs"]] == runs
    assert command("list", "copy", "nowhere") == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    assert command("list") == 0
    assert "no runs in runs" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 60, 79])
def test_a_narrow_terminal(place, columns):
    seen = on_a_terminal(columns, "list", "copy", "text")
    lines = seen.splitlines()
    assert max(map(len, lines)) <= columns
    words = seen.replace(",", " ").split()
    for whole in ("copy/copy-kf-rtrl-n8-seed0", "text/text-kf-rtrl-n8-seed0", "finished", "100"):
        assert whole in words  # and not cut in two
    said = " ".join(seen.split())
    assert "copy, RHN 8, kf_rtrl, finished, 100 %, T 1, " in said
    assert "text, RHN 8, kf_rtrl, finished, 100 %, valid " in said


def test_a_wide_terminal_has_a_table(place):
    seen = on_a_terminal(120, "list", "copy", "text")
    head, *_ = (line for line in seen.splitlines() if "estimator" in line)
    assert "solved" in head and "valid" in head
    assert sum("kf_rtrl" in line for line in seen.splitlines()) == 2

"""Runs: whatever happens to one on the way, it ends as the unbroken one does, byte by byte."""

import json
import shutil
import signal
import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open

from kills import newest, same, torture
from kronline.checkpoint import read
from kronline.errors import UsageError
from kronline.lab.analysis.numbers import summary
from kronline.lab.runs import config, folder, loop
from kronline.lab.tasks.copy import BEYOND, CopyTask
from kronline.lab.tasks.strings import Copy
from kronline.lab.tasks.text import TextTask
from running import LANES, STEPS, command, killed, process, status, step_of, words


def state_in_list(run, capsys):
    capsys.readouterr()
    assert command("list", run.parent, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    return next(r["state"] for r in rows if r["run"] == str(run))


# -- what a run is ---------------------------------------------------------------------------------


def test_a_run_is_a_folder(unbroken, book, capsys):
    for kind, run in unbroken.items():
        assert command("train", *words(kind, book), "--print-config") == 0
        assert (run / "config.toml").read_text() == capsys.readouterr().out
        about = json.loads((run / "about.json").read_text())
        assert {"kind", "version", "commit", "machine", "started", "parameters"} <= set(about)
        assert status(run)["state"] == "finished"
        assert status(run)["step"] == STEPS[kind]
        lines = folder.lines(run / "metrics.jsonl")
        steps = [*range(20, STEPS[kind] + 1, 20)]
        assert [m["step"] for m in lines] == [*steps, STEPS[kind]]  # and a closing line
        assert [t["step"] for t in folder.lines(run / "timing.jsonl")] == steps
        assert all(np.isfinite(m["bits"]) and m["gradient"] > 0 for m in lines[:-1])
        assert (run / "figures" / "curve.png").read_bytes().startswith(b"\x89PNG")
    text = folder.lines(unbroken["text"] / "metrics.jsonl")
    seen = {m["step"]: m["valid"] for m in text[:-1] if "valid" in m}
    assert list(seen) == list(range(100, 1001, 100))
    best = min(seen, key=seen.get)
    assert (text[-1]["valid"], text[-1]["valid_step"]) == (seen[best], best)
    assert text[-1]["test"] < 6
    copy = folder.lines(unbroken["copy"] / "metrics.jsonl")
    T, right = copy[-2]["T"], copy[-1]["right"]
    assert len(right) == T + BEYOND
    assert copy[-1] == {"step": STEPS["copy"], "right": right} | Copy().closing(right, T)
    assert folder.read(unbroken["copy"]).metrics == copy
    told = summary(folder.read(unbroken["copy"]))
    assert {"T": T, "right_trained": copy[-1]["right_trained"]}.items() <= told.items()


def test_checkpoints_are_safetensors(unbroken):
    for kind, run in unbroken.items():
        file = run / "checkpoints" / newest(run)
        with safe_open(file, framework="numpy") as f:
            header = json.loads(f.metadata()["kronline"])
            names = set(f.keys())
        assert (header["format"], header["at"]) == ("kronline-2", "training.learner")
        assert header["step"] == STEPS[kind]
        # parameters, optimiser, states, traces, keys, and the position in the data
        for part in ("params.cell", "opt", "s", "memory", "key", "clock"):
            assert any(n.startswith(f"training.learner.{part}") for n in names)
        assert {"training.task.key", "training.task.at"} <= names
        assert any(n.startswith("best.params") for n in names) == (kind == "text")


def test_the_seed_determines_all(unbroken, book, tmp_path):
    run = unbroken["copy"]
    assert command("train", *words("copy", book), "--out", tmp_path / "again") == 0
    assert same(run, tmp_path / "again") == []
    assert command("train", *words("copy", book), "--seed", 1, "--out", tmp_path / "other") == 0
    assert set(same(run, tmp_path / "other")) == {
        "metrics.jsonl",
        "config.toml",
        f"checkpoints/{newest(run)}",
    }


def test_a_run_is_not_overwritten(unbroken, book, tmp_path, capsys):
    before = (unbroken["copy"] / "metrics.jsonl").read_bytes()
    assert command("train", *words("copy", book), "--out", unbroken["copy"]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (unbroken["copy"] / "metrics.jsonl").read_bytes() == before
    (tmp_path / "file").touch()
    assert command("train", *words("copy", book), "--out", tmp_path / "file") == 2
    assert "is a file" in capsys.readouterr().err
    assert command("resume", tmp_path) == 2
    assert "is not a run" in capsys.readouterr().err


def test_to_resume_a_finished_run_is_harmless(unbroken, tmp_path, capsys):
    run = shutil.copytree(unbroken["text"], tmp_path / "run")
    before = {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in run.rglob("*") if f.is_file()}
    assert command("resume", run, "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"
    for file, was in before.items():
        if file.name != "curve.png":
            assert (file.read_bytes(), file.stat().st_mtime_ns) == was


def bytes_of(run):
    return {f: f.read_bytes() for f in run.rglob("*") if f.is_file() and f.name != "lock"}


@pytest.mark.parametrize(
    ("kind", "first"), [("copy", 100), ("text", 500), ("text", 510)], ids=["copy", "text", "odd"]
)
def test_a_run_goes_on_beyond_its_end(kind, first, unbroken, book, tmp_path, capsys):
    run = tmp_path / "run"  # 510 is within a chunk of 20: it goes on from 500
    assert command("train", *words(kind, book), "--steps", first, "--out", run) == 0
    (tmp_path / "other.txt").write_text("another text " * 400)
    wrong = [
        (["--steps", first], f"must be more than {run} has, {first}, got {first}"),
        (["--steps", first + 90, "--data", tmp_path / "other.txt"], ""),
        (["--steps", first + 90, "--data", tmp_path / "none.txt"], ""),
    ]
    before = bytes_of(run)
    for args, message in wrong:
        assert command("resume", run, *args) == 2
        assert message in capsys.readouterr().err
        assert bytes_of(run) == before
    moved = ["--data", shutil.copy(book, tmp_path / "moved.txt")] if kind == "text" else []
    assert command("resume", run, "--steps", STEPS[kind], *moved) == 0
    assert same(unbroken[kind], run) == []
    about = json.loads((run / "about.json").read_text())
    assert (about["steps"], about["lengthened"]) == (STEPS[kind], [first])
    assert status(run)["steps"] == STEPS[kind]


def test_runs_that_cannot_be_longer(unbroken, book, tmp_path, capsys):
    run = tmp_path / "linear"
    given = words("copy", book, "--steps", 20, "--schedule", "linear", "--out", run)
    assert command("train", *given) == 0
    odd = tmp_path / "odd"
    given = words("copy", book, "--steps", 30, "--keep", 1, "--out", odd)
    assert command("train", *given) == 0
    member = shutil.copytree(unbroken["copy"], tmp_path / "sweep" / "member")
    (tmp_path / "sweep" / "sweep.toml").touch()
    for path, message in (
        (run, "needs a run with --schedule constant"),
        (odd, "no checkpoint before that"),
        (member, "is one of a sweep"),
        (tmp_path / "sweep", "is a sweep, and has several"),
    ):
        before = bytes_of(path)
        assert command("resume", path, "--steps", 4000) == 2
        assert message in capsys.readouterr().err
        assert bytes_of(path) == before


# -- signals, kills, a second process --------------------------------------------------------------


def caught(process_, run, before):
    """Halt a process as soon as it has written one more checkpoint."""
    while newest(run) == before:
        assert process_.poll() is None, "it ended too early"
        time.sleep(0.001)
    process_.send_signal(signal.SIGSTOP)


def ended(process_, number):
    """Send a signal, let the process go on, and wait for its end."""
    process_.send_signal(number)
    process_.send_signal(signal.SIGCONT)
    return process_.wait(300)


def check_stopped(run):
    """There is a checkpoint of the very step that the run stopped at."""
    now = status(run)
    assert now["state"] == "stopped"
    assert step_of(newest(run)) == now["step"] < now["steps"]
    assert folder.lines(run / "metrics.jsonl")[-1]["step"] == now["step"]


def test_the_life_of_a_run(unbroken, book, tmp_path, capsys):
    run = tmp_path / "run"
    with (tmp_path / "log").open("wb") as log:
        first = process("train", *words("text", book), "--out", run, stdout=log, stderr=log)
        caught(first, run, "")
        assert state_in_list(run, capsys) == "running"
        files = {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
        assert command("resume", run) == 2
        assert f"another process (pid {first.pid} on " in capsys.readouterr().err
        assert {f: f.read_bytes() for f in run.rglob("*") if f.is_file()} == files
        assert ended(first, signal.SIGTERM) == 143
        check_stopped(run)
        assert state_in_list(run, capsys) == "stopped"
        for number, code, state in (
            (signal.SIGINT, 130, "stopped"),
            (signal.SIGKILL, -9, "killed"),
        ):
            before = newest(run)
            other = process("resume", run, stdout=log, stderr=log)
            caught(other, run, before)
            assert ended(other, number) == code
            assert state_in_list(run, capsys) == state
            if state == "stopped":
                check_stopped(run)
    assert command("resume", run) == 0
    assert state_in_list(run, capsys) == "finished"
    assert same(unbroken["text"], run) == []
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("kind", ["copy", "text"])
def test_three_kills(kind, tmp_path):
    result = torture(kind, 3, tmp_path)
    assert result == {"kills": 3, "while_writing": 1, "differ": []}


class Look(loop.Stop):
    """A signal that comes just before the loop looks for it for the n-th time."""

    def __init__(self, n):
        self.n = n

    @property
    def signal(self):
        self.n -= 1
        return 0 if self.n > 0 else signal.SIGINT


def started(settings, path):
    exp = settings.build()
    folder.create(path, settings.kind, config.toml(settings, settings.kind), {"steps": exp.steps})
    return exp


VARIANTS = [
    CopyTask(
        cell="LSTM",
        optimiser="sgd(momentum=0.9)",
        rate=0.1,
        clip=0.5,
        schedule="cosine",
        update_every=4,
    ),
    CopyTask(estimator="tbptt(7)", optimiser="adamw", schedule="linear", delay="paper"),
    TextTask(cell="GRU", estimator="uoro(copies=2)", valid_every=60, epochs=0.02),
]


@pytest.mark.parametrize("settings", VARIANTS, ids=["lstm", "tbptt", "uoro"])
def test_stopped_at_any_moment(settings, book, tmp_path):
    given = {"hidden": 8, "lanes": LANES, "log_every": 20, "save_every": 60, "seed": 5}
    given |= {"steps": 200} if settings.kind == "copy" else {"data": str(book)}
    settings = replace(settings, **given)
    exp = started(settings, tmp_path / "a")
    assert loop.go(tmp_path / "a", settings, exp, quiet=True).state == "finished"
    started(settings, tmp_path / "b")
    looks, steps = 1, []
    while status(tmp_path / "b")["state"] != "finished":
        end = loop._Session(tmp_path / "b", settings, exp).run(Look(looks), quiet=True)
        looks += 1
        steps.append(end.step)
        assert step_of(newest(tmp_path / "b")) == end.step if end.step else looks <= 3
        if end.state == "stopped":
            assert (end.signal, status(tmp_path / "b")["step"]) == (signal.SIGINT, end.step)
    assert len(set(steps)) > 3
    assert same(tmp_path / "a", tmp_path / "b") == []
    # every update took one step of the schedule
    span = exp.learner.estimator.span
    assert exp.steps % span == 0
    if settings.schedule != "constant":
        updates = exp.steps // (settings.update_every or span)
        _, arrays = read(tmp_path / "a" / "checkpoints" / newest(tmp_path / "a"))
        counts = {int(a) for name, a in arrays.items() if name.endswith("count")}
        assert updates in counts


def test_a_look_at_the_lock_does_not_take_it(tmp_path):
    """`kronline list` must not make a run that starts at that moment fail."""
    (tmp_path / "lock").touch()
    done = threading.Event()

    def look():
        while not done.is_set():
            folder.in_use(tmp_path)

    others = [threading.Thread(target=look) for _ in range(2)]
    for t in others:
        t.start()
    try:
        for _ in range(100):
            with folder.locked(tmp_path):
                pass
    finally:
        done.set()
        for t in others:
            t.join()
    with folder.locked(tmp_path):
        assert folder.in_use(tmp_path)
        with pytest.raises(UsageError, match="another process"), folder.locked(tmp_path):
            pass
    assert not folder.in_use(tmp_path)


# -- TensorBoard -----------------------------------------------------------------------------------


def scalars(folder_):
    """What TensorBoard shows: (name, step) -> value; a start at a step purges what is behind it."""
    from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415

    shown, starts = {}, []
    for file in sorted(folder_.iterdir()):
        data = file.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            if event.HasField("session_log"):
                starts.append(event.step)
                shown = {(n, s): v for (n, s), v in shown.items() if s < event.step}
            for value in event.summary.value:
                assert (value.tag, event.step) not in shown
                shown[value.tag, event.step] = value.simple_value
    return shown, starts


def test_the_tensorboard_log_shows_the_metrics(unbroken, book, tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra kronline[tensorboard] is not installed")
    first = tmp_path / "copy"
    assert command("train", *words("copy", book), "--tensorboard", "--out", first) == 0
    run = killed(first, tmp_path / "run", 100)
    time.sleep(1.1)  # its files are called by the second
    assert command("resume", run) == 0
    metrics = {
        (name, m["step"]): value
        for m in folder.lines(run / "metrics.jsonl")
        for name, value in m.items()
        if name not in ("step", "right")
    }
    assert len(metrics) == 4 * 10 + 2  # and right_trained and solved at the end
    for path, expected in ((first, [1]), (run, [1, 101])):
        shown, starts = scalars(path / "tensorboard")
        assert starts == expected
        assert shown == {k: pytest.approx(v, rel=1e-6) for k, v in metrics.items()}
    assert "tensorboard = true" in (run / "config.toml").read_text()
    assert same(unbroken["copy"], run) == ["config.toml"]  # the log changes nothing

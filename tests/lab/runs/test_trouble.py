"""What goes wrong with runs: damage, other texts, explosions, full disks. Nothing is lost."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from test_cache import kronline as trained_with_cache

from kills import newest, same
from kronline import disk
from kronline.lab.runs import checkpoint, folder, loop
from kronline.lab.runs import training as train
from kronline.lab.tasks.copy import CopyTask
from running import LANES, SMALL, command, killed, process, status, step_of, words

# -- damage ----------------------------------------------------------------------------------------


def damage(file, how):
    data = bytearray(file.read_bytes())
    if how == "flip":
        data[-9] ^= 4
    file.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "flip": data}[how])


@pytest.mark.parametrize("how", ["cut", "flip", "empty"])
def test_a_damaged_newest_checkpoint(how, unbroken, tmp_path, capsys):
    run = killed(unbroken["copy"], tmp_path / "run", 100)
    file = run / "checkpoints" / newest(run)
    damage(file, how)
    assert command("resume", run) == 0
    err = capsys.readouterr().err
    assert "warning" in err
    assert f"{file} is damaged" in err
    assert "the one before it" in err
    assert file.with_suffix(".damaged").exists()
    assert same(unbroken["copy"], run) == []
    timed = [t["step"] for t in folder.lines(run / "timing.jsonl")]
    assert timed == list(range(20, 201, 20))


@pytest.mark.parametrize("kind", ["copy", "text"])
def test_all_checkpoints_damaged_or_none_there(kind, unbroken, tmp_path, capsys):
    run = killed(unbroken[kind], tmp_path / "run", 100)
    for file in (run / "checkpoints").iterdir():
        damage(file, "cut") if kind == "copy" else file.unlink()
    assert command("resume", run) == 0
    assert capsys.readouterr().err.count("is damaged") == (5 if kind == "copy" else 0)
    assert same(unbroken[kind], run) == []


def test_every_byte_of_a_checkpoint_counts(tmp_path):
    file = tmp_path / "a"
    tree = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": jax.random.key(7)}
    header = {"format": "it", "step": 120, "metrics": 4711, "best_step": 0}
    disk.write_tree(file, tree, header)
    whole = file.read_bytes()
    read_ = disk.read_tree(file, "it")
    assert read_[0].items() >= header.items()
    for i in range(len(whole)):
        data = bytearray(whole)
        data[i] ^= 1 << 5 * i % 8
        file.write_bytes(data)
        with pytest.raises(ValueError, match=r"damaged|format"):
            disk.read_tree(file, "it")
    for n in range(0, len(whole), 7):
        file.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="damaged"):
            disk.read_tree(file, "it")


def test_a_changed_configuration_is_not_taken_for_damage(unbroken, tmp_path, capsys):
    run = killed(unbroken["copy"], tmp_path / "run", 100)
    file = run / "config.toml"
    file.write_text(file.read_text().replace("hidden = 8", "hidden = 9"))
    before = sorted(f.name for f in (run / "checkpoints").iterdir())
    metrics = (run / "metrics.jsonl").read_bytes()
    assert command("resume", run) == 2
    assert "was its config.toml changed" in capsys.readouterr().err
    assert sorted(f.name for f in (run / "checkpoints").iterdir()) == before
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_lost_metrics_are_noticed(unbroken, tmp_path, capsys):
    run = killed(unbroken["copy"], tmp_path / "run", 100)
    (run / "metrics.jsonl").write_bytes(b"")
    assert command("resume", run) == 2
    assert "metrics.jsonl is damaged" in capsys.readouterr().err
    (run / "about.json").write_text("{")
    assert command("resume", run) == 2
    assert "is damaged" in capsys.readouterr().err


def test_another_machine_is_warned_of(unbroken, tmp_path, capsys):
    run = killed(unbroken["copy"], tmp_path / "run", 180)
    about = json.loads((run / "about.json").read_text())
    about["machine"]["cores"] = 999
    (run / "about.json").write_text(json.dumps(about | {"version": "0.0"}))
    assert command("resume", run) == 0
    err = capsys.readouterr().err
    assert "began with version '0.0'" in err
    assert "began with cores 999" in err
    assert "may not end bit for bit" in err


def test_another_text_is_refused_and_a_moved_one_found(unbroken, tmp_path, capsys):
    run = killed(unbroken["text"], tmp_path / "run", 900)
    text = read_data(run)
    file = run / "config.toml"
    own = file.read_text()
    file.write_text(own.replace(str(text), str(tmp_path / "moved.txt")))
    assert command("resume", run) == 2
    assert "no file or folder" in capsys.readouterr().err
    (tmp_path / "moved.txt").write_text(text.read_text()[:-1] + "x")
    before = (run / "metrics.jsonl").read_bytes()
    assert command("resume", run) == 2
    assert "not the one that it began with" in capsys.readouterr().err
    assert (run / "metrics.jsonl").read_bytes() == before
    assert command("resume", run, "--data", text) == 0
    file.write_text(own)
    assert same(unbroken["text"], run) == []
    copy = killed(unbroken["copy"], tmp_path / "copy", 100)
    assert command("resume", copy, "--data", text) == 2
    assert "--data is for runs that read a file" in capsys.readouterr().err


def read_data(run):
    return type(run)(folder.read(run).config["data"])


# -- numbers that explode --------------------------------------------------------------------------


def first_problem(settings, point):
    """Segment by segment from a checkpoint, 20 steps: a loss or norm, or updates, not finite."""
    exp = settings.build()
    learner, k = exp.learner, exp.learner.estimator.span
    state, stream = point.saved.training
    _, seg = exp.stream.batch(stream, (), 20)
    before = int(state.skipped)
    for t in range(0, 20, k):
        now = slice(t, t + k)
        x, y, reset = (np.asarray(a)[now] for a in (seg.x, seg.y, seg.reset))
        state, out = learner.run(state, x, y, reset=reset, norms=True)
        if not np.isfinite(out.loss.mean(1)).all():
            return f"step {point.step + t + 1}: the loss is"
        if not np.isfinite(out.norm).all():
            return f"step {point.step + t + k}: the gradient's norm is"
    skipped = int(state.skipped) - before
    assert skipped > 0
    what = "an update was" if skipped == 1 else f"{skipped} updates were"
    return f"steps {point.step + 1} to {point.step + 20}: {what} not finite"


@pytest.mark.parametrize(
    ("estimator", "momentum"), [("kf_rtrl", 2.0), ("tbptt(5)", 4.0), ("uoro", 1.5)]
)
def test_a_run_that_diverges(estimator, momentum, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(loop, "ABSURD", np.inf)  # on to the first that is not a number
    run = tmp_path / "run"
    optimiser = f"sgd(momentum={momentum})"  # which doubles the weights' speed at every update
    args = ["--estimator", estimator, "--optimiser", optimiser, "--rate", "0.01"]
    assert command("train", "copy", *SMALL, *args, "--steps", 1000, "--out", run) == 3
    out = capsys.readouterr().out
    message = status(run)["message"]
    assert message in out
    assert status(run)["state"] == "diverged"
    settings = CopyTask(
        hidden=8, lanes=LANES, estimator=estimator, optimiser=optimiser, rate=0.01, steps=1000
    )
    exp = settings.build()

    def begin():
        return train.start(exp.learner, exp.stream, jax.random.key(0), LANES)

    point = checkpoint.newest(run, checkpoint.shapes(begin, False))
    assert point.step == step_of(newest(run)) > 0
    assert f"The last good checkpoint is of step {point.step}" in message
    assert checkpoint.not_finite(point.saved) is None
    assert message.startswith(first_problem(settings, point))
    metrics = (run / "metrics.jsonl").read_bytes()
    assert b"NaN" not in metrics
    assert b"Infinity" not in metrics
    assert command("resume", run) == 3  # the same again
    assert status(run)["message"] == message
    assert (run / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("kind", ["copy", "text"])
def test_a_loss_that_is_finite_and_absurd(kind, book, tmp_path, capsys):
    run = tmp_path / "run"
    args = [*words(kind, book), "--estimator", "tbptt(5)", "--rate", "1e6"]
    assert command("train", *args, "--out", run) == 3
    message = status(run)["message"]
    assert status(run)["state"] == "diverged"
    assert message in capsys.readouterr().out
    symbols = 4 if kind == "copy" else len(folder.read(run).about["symbols"])
    assert re.match(r"steps [\d,]+ to [\d,]+: the mean loss is [\d,]+ bits/char, more", message)
    assert f"100 times that of guessing ({np.log2(symbols):.1f}). The last good chec" in message
    assert message.endswith("Try a lower --rate, --clip 1, or another --seed")
    written = [m["bits"] for m in folder.lines(run / "metrics.jsonl")]
    assert all(bits < 100 * np.log2(symbols) for bits in written)
    metrics = (run / "metrics.jsonl").read_bytes()
    assert command("resume", run) == 3  # the same again
    assert status(run)["message"] == message
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_what_is_absurd():
    assert loop._absurd(np.array([0, 400.0]), 2.0, 20) is None
    assert loop._absurd(np.array([0, 402.0]), 2.0, 20).startswith("steps 21 to 22: ")


def test_the_first_bad_step_is_named():
    nan, fine = np.nan, np.ones(12)
    assert loop._problem(fine, np.ones(12), 100) is None
    assert loop._problem(fine, np.ones(3), 100) is None
    for each in (1, 4):
        for i in range(12):
            bits, norm = fine.copy(), np.ones(12 // each)
            bits[i:] = nan
            assert loop._problem(bits, norm, 1000) == f"step {1001 + i:,}: the loss is nan"
            norm[i // each :] = np.inf  # in the same segment: the loss came first
            assert loop._problem(bits, norm, 1000) == f"step {1001 + i:,}: the loss is nan"
            if each == 1 and i:  # the gradient before the loss
                norm[i - 1] = np.inf
                got = loop._problem(bits, norm, 1000)
                assert got == f"step {1000 + i:,}: the gradient's norm is inf"
    got = loop._problem(fine, np.array([1, nan, nan]), 0)
    assert got == "step 8: the gradient's norm is nan"


# -- too large -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words_",
    [
        "train copy --hidden 1000000",
        "train copy --hidden 1000000 --estimator snap(1)",
        "train text --lanes 4000 --hidden 9000",
        "sweep copy --hidden 1000000",
        "compare copy --hidden 1000000",
        "variance --hidden 1000000 --experiment time",
        "demo --hidden 1000000",
        "bench --estimators kf_rtrl --hidden 1000000",
    ],
)
def test_what_cannot_fit_is_refused_before_there_is_a_folder(words_, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(*words_.split()) == 2
    err = capsys.readouterr().err.splitlines()
    said = [line for line in err if line.startswith("kronline: ")]
    assert len(said) == 1 and said == err[-1:]
    assert re.search(r"(at least|fit|needs) .*\d[.\d]* (T|G|Ti)B", said[0])
    assert list(tmp_path.iterdir()) == []


def test_memory_that_runs_out_later_leaves_no_folder(tmp_path):
    large = ["--hidden", 8000, "--lanes", 16, "--steps", 1]
    run = process("train", "copy", *large, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    limit = 8 * 10**9  # less than one array of it takes
    resource.prlimit(run.pid, resource.RLIMIT_AS, (limit, limit))
    err = run.communicate()[1]
    assert run.returncode == 2, err
    last = err.splitlines()[-1]
    assert last.startswith("kronline: ") and "memory" in last and "--hidden" in last
    assert "Traceback" not in err
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert not (tmp_path / "runs" / "copy-kf-rtrl-n8000-seed0").exists()


def test_a_folder_with_a_checkpoint_is_never_discarded(unbroken, tmp_path):
    run = killed(unbroken["copy"], tmp_path / "run", 100)
    before = sorted(run.rglob("*"))
    folder.discard(run)
    assert sorted(run.rglob("*")) == before
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    (run / "mine.txt").touch()
    folder.discard(run)
    assert [p.name for p in run.iterdir()] == ["mine.txt"]


# -- Ctrl-C ----------------------------------------------------------------------------------------


def loads_jax(pid, run, seconds):
    """After Python's own start, before the command's."""
    return "jaxlib" in Path(f"/proc/{pid}/maps").read_text()


def is_built(pid, run, seconds):
    return loads_jax(pid, run, seconds) and seconds > 1.5


def is_made(pid, run, seconds):
    return (run / "config.toml").exists()


def is_compiled(pid, run, seconds):
    return "compiling" in run.with_suffix(".log").read_text()


def has_trained(pid, run, seconds):
    return (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0


MOMENTS = (loads_jax, is_built, is_made, is_compiled, has_trained)


def test_ctrl_c_while_it_starts(tmp_path):
    begin, waiting = time.monotonic(), {}
    for when in MOMENTS:
        run = tmp_path / when.__name__
        words_ = ["train", "copy", *SMALL, "--steps", 10**6, "--out", run]
        with run.with_suffix(".log").open("w") as log:
            waiting[when] = process(*words_, stdout=log, stderr=log)
    ended = {}
    while waiting:
        for when, p in list(waiting.items()):
            assert p.poll() is None, f"{when.__name__}: it ended too early"
            if when(p.pid, tmp_path / when.__name__, time.monotonic() - begin):
                p.send_signal(signal.SIGINT)
                ended[when] = waiting.pop(when)
        time.sleep(0.002)
    for when, p in ended.items():
        assert p.wait(300) == 130
        run = tmp_path / when.__name__
        said = run.with_suffix(".log").read_text()
        assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
        if not run.exists():
            assert said == "kronline: interrupted\n"
            continue
        assert "interrupted" in said or "stopping when" in said
        assert folder.read(run).state == "stopped"
        replaced(run / "config.toml", "steps = 1000000", f"steps = {status(run)['step'] + 20}")
        assert command("resume", run) == 0
    assert not (tmp_path / "loads_jax").exists()
    assert all((tmp_path / when.__name__).exists() for when in MOMENTS[2:])


def replaced(file, old, new):
    file.write_text(file.read_text().replace(old, new))


def test_only_the_command_watches_for_ctrl_c():
    see = "import signal, kronline; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", see], capture_output=True, text=True, check=True)
    assert done.stdout == "default_int_handler\n"


# -- disks -----------------------------------------------------------------------------------------


class Disk:
    """A small disk of its own."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def mount(self, *options):
        words_ = ["mount", "-t", "tmpfs", *options, "none", str(self.path)]
        return subprocess.run(words_, capture_output=True, check=False).returncode == 0

    def leave(self, pages):
        """Fill it up, but for so many pages of 4 kB."""
        filler = self.path / "filler"
        filler.unlink(missing_ok=True)
        room = os.statvfs(self.path).f_bavail
        filler.write_bytes(bytes(4096 * (room - pages)))

    def make_room(self):
        (self.path / "filler").unlink()


@pytest.fixture
def small_disk(tmp_path):
    made = Disk(tmp_path / "disk")
    if os.geteuid() != 0 or not made.mount("-o", "size=1m"):
        pytest.skip("a small disk can be mounted by root only")
    yield made
    subprocess.run(["umount", str(made.path)], check=True)


def test_a_full_disk(small_disk, unbroken, book, capsys):
    run = small_disk.path / "run"
    small_disk.leave(1)  # not even its configuration
    assert command("train", *words("copy", book), "--out", run) == 2
    err = capsys.readouterr().err
    assert "could not be written" in err
    assert "No space left" in err
    assert not folder.is_run(run)
    starts = []
    for pages in (6, 9, 14, 19):  # metrics, then checkpoints
        small_disk.leave(pages)
        train_ = ["train", *words("copy", book), "--out", run]
        assert command(*(["resume", run] if folder.is_run(run) else train_)) == 2
        err = capsys.readouterr().err
        assert "could not be written" in err
        assert "No space left" in err
        assert f"kronline resume {run}" in err
        assert "Traceback" not in err
        starts.append(step_of(newest(run)) if newest(run) else 0)
        assert not list((run / "checkpoints").glob(".*")) if newest(run) else True
    assert starts[0] == 0
    assert 0 < starts[-2] < starts[-1] < 200
    small_disk.make_room()
    assert command("resume", run) == 0
    assert "damaged" not in capsys.readouterr().err
    assert same(unbroken["copy"], run) == []


def test_a_full_disk_for_compiled_programs(small_disk, tmp_path):
    (small_disk.path / "kronline").mkdir()
    small_disk.leave(2)
    kept_by_nobody = {"KRONLINE_NATIVE": "0"}  # the kernel would have been, in the same folder
    assert not trained_with_cache(small_disk.path, tmp_path / "run", **kept_by_nobody)


def test_a_read_only_folder(unbroken, book, tmp_path, capsys, request):
    place = Disk(tmp_path / "disk")
    if os.geteuid() == 0:  # whom permissions do not stop
        if not place.mount():
            pytest.skip("root, who may not mount: nothing is read-only to root")
        request.addfinalizer(lambda: subprocess.run(["umount", str(place.path)], check=True))
    run = killed(unbroken["copy"], place.path / "run", 100)
    before = {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
    if os.geteuid() == 0:
        assert place.mount("-o", "remount,ro")
    else:
        for p in (place.path, run, *run.rglob("*")):
            p.chmod(0o555 if p.is_dir() else 0o444)
    for args in (["resume", run], ["train", *words("copy", book), "--out", place.path / "new"]):
        assert command(*args) == 2
        err = capsys.readouterr().err
        assert re.search("Read-only|Permission denied", err)
        assert str(args[-1]) in err
        assert "Traceback" not in err
    assert {f: f.read_bytes() for f in run.rglob("*") if f.is_file()} == before
    if os.geteuid() == 0:
        assert place.mount("-o", "remount,rw")
    else:
        for p in (place.path, run, *run.rglob("*")):
            p.chmod(0o755 if p.is_dir() else 0o644)
    assert command("resume", run) == 0
    assert same(unbroken["copy"], run) == []

"""One run over many processes: the same run, however lanes are split; and what if one is lost."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kronline import processes
from kronline.checkpoint import parts
from kronline.errors import UsageError
from kronline.lab.runs import folder, split, supervise
from many import SOON, TRAIN, checkpoints, ended, lines, member, programs, run, started, until
from running import command

STEPS = 100
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and /proc")


def bits(path):
    """Step -> loss, of the lines of training."""
    return {m["step"]: m["bits"] for m in folder.read(path).metrics if "bits" in m}


def same(a, b, rtol=3e-6):
    """Equal to rounding: 7 digits are written, and 100 updates of rounded sums lie between."""
    a, b = bits(a), bits(b)
    assert list(a) == list(b)
    np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=rtol)


def test_text_goes_on_with_another_number_of_processes(tmp_path, book):
    """1 -> 2 -> 4 -> 1, without a jump."""
    words = ["train", "text", *TRAIN[1:], "--data", book, "--estimator", "uoro", "--keep", 100]
    words += ["--valid-every", 50, "--reset", 0.05]
    whole, broken = tmp_path / "whole", tmp_path / "parts"
    assert command(*words, "--steps", STEPS, "--out", whole) == 0
    assert command(*words, "--steps", 20, "--out", broken) == 0
    run("resume", broken, "--steps", 45, "--processes", 2)
    said = run("resume", broken, "--steps", 70, "--processes", 4)
    assert "began with processes 1 and goes on with 4" in said
    assert command("resume", broken, "--steps", STEPS) == 0
    same(whole, broken)
    last = [folder.read(path).metrics[-1] for path in (whole, broken)]
    assert last[1] == pytest.approx(last[0], rel=1e-5)
    for step in (40, 70, 100):  # written by 2, 4 and 1
        same_arrays(*(saved(path, step) for path in (whole, broken)))
    check_damaged_parts(saved(broken, 70), tmp_path)


def saved(path, step):
    """The checkpoint of a step."""
    return path / f"checkpoints/step-{step:012d}.safetensors"


def same_arrays(*paths):
    """States, traces, data and clocks of all lanes; the trace has all noise."""
    one, other = [parts.read(path, None, "kronline-2")[1] for path in paths]
    assert set(other) == set(one)
    for name, a in one.items():
        if not name.startswith("training"):
            continue  # what was best in validation, which is made at every end, too
        if a.dtype.kind == "f":
            np.testing.assert_allclose(other[name], a, rtol=1e-3, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(other[name], a, err_msg=name)


def check_damaged_parts(path, place):
    """A checkpoint with a part that is damaged, another's or missing is damaged."""
    there = place / path.name
    for file in path.parent.glob(f"{path.stem}.*"):
        (place / file.name).write_bytes(file.read_bytes())
    whole = parts.read(there, None, "kronline-2")[1]
    name, own = "training.learner.s", parts.Own({"training.learner.s": 0}, slice(1, 3))
    np.testing.assert_array_equal(parts.read(there, own, "kronline-2")[1][name], whole[name][1:3])
    part = parts.name(there, 2)
    kept = part.read_bytes()
    part.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert len(parts.read(there, own, "kronline-2")[1][name]) == 2  # of other parts
    with pytest.raises(ValueError, match=r"2\.part is damaged"):
        parts.read(there, None, "kronline-2")
    part.write_bytes((place / parts.name(there, 3).name).read_bytes())
    with pytest.raises(ValueError, match="not the part that belongs"):
        parts.read(there, None, "kronline-2")
    part.unlink()
    with pytest.raises(ValueError, match=r"part .*2\.part is missing"):
        parts.read(there, None, "kronline-2")
    there.unlink()
    assert len(parts.orphans(place, [])) == 2  # and 2 was taken away
    parts.remove(there)
    assert not list(place.glob("step*"))


def test_a_lost_process_ends_the_others_and_the_run_goes_on(tmp_path):
    """A kill in the middle and one in the middle of a checkpoint: the run is as if undisturbed."""
    one, two, path = (tmp_path / name for name in ("1", "2", "run"))
    words = ["train", *TRAIN, "--steps", STEPS, "--estimator", "kf_rtrl"]
    assert command(*words, "--out", one) == 0
    said = run(*words, "--processes", 2, "--out", two, "--json")
    *_, last = [line for line in said.splitlines() if line.startswith("{")]
    assert json.loads(last)["state"] == "finished"
    same(one, two)
    same_arrays(saved(one, STEPS), saved(two, STEPS))
    assert folder.read(two).about["processes"] == 2
    names = [f"step-000000000100.{end}" for end in ("1.part", "safetensors")]
    assert checkpoints(two)[-2:] == names
    # the same settings, so that any number of processes goes on with it
    assert len({(p / "config.toml").read_bytes() for p in (one, two)}) == 1

    # by flags and by the environment
    address = f"127.0.0.1:{split.free_port()}"
    first = started(
        *words, "--out", path, "--coordinator", address, "--process", 0, "--of", 2, **SOON
    )
    env = {"KRONLINE_COORDINATOR": address, "KRONLINE_PROCESS": "1", "KRONLINE_OF": "2"}
    second = started(*words, "--out", path, **env, **SOON)
    until(first, lambda: lines(path) >= 3)
    os.kill(member(second, 1), signal.SIGKILL)
    code, said = ended(first, 60)
    assert code == processes.LOST
    assert "process 1 of 2 ended, or has not given a sign of life for 8 s; process 0 ends" in said
    assert f"go on with `kronline resume {path}`" in said
    code, said = ended(second, 60)
    assert code == processes.LOST
    assert "process 1 of 2 was ended by SIGKILL; its others are ended, too; go on with" in said

    parent = started("resume", path, "--processes", 2)
    zero, known = member(parent, 0), set(checkpoints(path))

    def half():  # a part is there, and the file that makes it a checkpoint is not
        new = set(checkpoints(path)) - known
        known.update(n for n in new if n.endswith("safetensors"))
        return any(n.endswith(".part") and f"{n.split('.')[0]}.safetensors" not in new for n in new)

    until(parent, half)
    os.kill(zero, signal.SIGKILL)
    code, said = ended(parent, 60)
    assert code == processes.LOST
    assert "process 0 of 2 was ended by SIGKILL" in said
    assert f"`kronline resume {path}`" in said

    run("resume", path, "--processes", 2)
    # byte for byte as if nothing had happened
    for name in ("metrics.jsonl", *(f"checkpoints/{n}" for n in checkpoints(two))):
        assert (path / name).read_bytes() == (two / name).read_bytes(), name


def test_a_signal_stops_all_at_the_end_of_a_chunk(tmp_path):
    path = tmp_path / "run"
    parent = started("train", *TRAIN, "--steps", 100_000, "--processes", 2, "--out", path)
    until(parent, lambda: lines(path) >= 2)
    parent.send_signal(signal.SIGTERM)
    code, said = ended(parent, 60)
    assert code == 128 + signal.SIGTERM
    assert said.count("stopping when this chunk can be saved") == 1
    step = folder.read(path).status["step"]
    assert step > 0 and f"step-{step:012d}.1.part" in checkpoints(path)


def test_who_waited_for_what():
    """Each of two processes comes alone: to ports of which the other knows nothing."""
    code = "import sys; from kronline import processes as p; p.start(sys.argv[1], {}, 2, timeout=4)"
    address = [f"127.0.0.1:{split.free_port()}" for _ in "01"]
    alone = [
        subprocess.Popen(
            [sys.executable, "-c", code.format(i), address[i]], stderr=subprocess.PIPE, text=True
        )
        for i in (0, 1)
    ]
    for i, what in enumerate(("process 1 to come to", "process 0, the coordinator at")):
        _, said = alone[i].communicate(timeout=100)
        assert alone[i].returncode == 2
        assert f"process {i} of 2 waited 4 s for {what} {address[i]}" in said


def test_who_has_finished_is_not_lost():
    """The last act of two processes, with the first held up while the other takes leave."""
    code = """
leave = processes.meet
def late():
    leave()  # both have finished; now the other leaves, and this one still watches
    time.sleep(0 if process else 3)
processes.meet = late
processes.stop()
"""
    assert [ended(p) for p in programs(code, 2)] == [(0, ""), (0, "")]


@pytest.mark.parametrize("which", [0, 1])
def test_a_process_that_ends_or_hangs_is_named(which):
    """Process 0, which has the coordinator, is killed; process 1 is stopped."""
    code = "print('here')\nwhile True: processes.meet(); time.sleep(0.05)"
    both = programs(code, 2, patience=5)
    try:
        for p in both:
            assert p.stdout.readline() == "here\n"
        both[which].send_signal(signal.SIGSTOP if which else signal.SIGKILL)
        code, said = ended(both[1 - which], 60)
    finally:
        for p in both:
            p.kill()
    if which:
        end = "ended, or has not given a sign of life for 5 s; process 0 ends"
        assert (code, said) == (processes.LOST, f"\nkronline: process 1 of 2 {end}\n")
    else:  # JAX's runtime may be first, and say it in its own way
        ours = code == processes.LOST and "process 0 of 2 ended" in said
        assert ours or (code == -signal.SIGABRT and "coordination service" in said), said


def test_the_example_of_many_processes(capfd):
    """The same `Learner` code in one process and in two: the same losses."""
    file = Path(__file__).parents[3] / "examples/many_processes.py"
    address = f"127.0.0.1:{split.free_port()}"
    words = [[sys.executable, file, address, str(i), "2"] for i in (0, 1)]
    pipes = [subprocess.Popen(w, stdout=subprocess.PIPE, text=True) for w in words]
    runpy.run_path(str(file))["main"](address, 0, 1)
    said = ["".join(p.communicate(timeout=200)[0] for p in pipes), capfd.readouterr().out]
    assert all(p.returncode == 0 for p in pipes), said
    means, lanes = [], []
    for text, of in zip(said, (2, 1), strict=True):
        found = re.findall(r"mean loss ([\d.]+)", text)
        assert len(found) == of
        means.append(float(found[0]))
        rows = re.findall(r"^\[.*\]$", text, re.MULTILINE)
        lanes.append([v for row in rows for v in json.loads(row)])
    assert len(lanes[1]) == 8
    np.testing.assert_allclose(means[0], means[1], atol=2e-5)
    np.testing.assert_allclose(lanes[0], lanes[1], atol=2e-4)


def test_all_noise_patterns_over_two_processes():
    """`kronline verify` on the path of lanes that are split."""
    said = run("verify", "--split", "--processes", 2, "--json")
    found, _ = json.JSONDecoder().raw_decode(said)
    assert found["ok"] and len(found["checks"]) == 6
    assert all("2 devices of 2 process(es)" in c["name"] for c in found["checks"])


PLACES = [
    ({}, {}, None),
    ({"coordinator": "h:1", "process": 1, "of": 3}, {}, ("h:1", 1, 3)),
    ({"process": 2}, {"KRONLINE_COORDINATOR": "h:1", "KRONLINE_OF": "3"}, ("h:1", 2, 3)),
    ({"coordinator": "h:1", "process": 0, "of": 1}, {}, None),
    (
        {},
        {
            "SLURM_JOB_ID": "4097",
            "SLURM_STEP_NODELIST": "node[07-09]",
            "SLURM_NTASKS": "3",
            "SLURM_PROCID": "2",
            "SLURM_LOCALID": "0",
        },
        ("node07:61441", 2, 3),
    ),
    (
        {},
        {
            "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.1,10.1.0.1:34911",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        },
        ("10.0.0.1:61441", 1, 2),
    ),
]


@pytest.mark.parametrize(("flags", "env", "place"), PLACES)
def test_the_place_among_others(monkeypatch, flags, env, place):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert split.place(split.Split(**flags)) == place


def test_what_is_wrong_with_a_place_is_said(monkeypatch):
    with pytest.raises(UsageError, match=r"got no --coordinator .*, --of"):
        split.place(split.Split(process=1))
    with pytest.raises(UsageError, match="numbers"):
        monkeypatch.setenv("KRONLINE_PROCESS", "first")
        split.place(split.Split(coordinator="h:1", of=2))
    monkeypatch.delenv("KRONLINE_PROCESS")
    with pytest.raises(UsageError, match="HOST:PORT"):
        processes.start("8476", 0, 2)
    with pytest.raises(UsageError, match=r"one of 0\.\.1, got 2"):
        processes.start("127.0.0.1:8476", 2, 2)
    with pytest.raises(UsageError, match="0 to 1, got 2"):
        split.place(split.Split(coordinator="h:1", process=2, of=2))
    with pytest.raises(UsageError, match="processes must be >= 1, got 0"):
        split.places(split.Split(processes=0))


@pytest.mark.parametrize(("cores", "count"), [([0, 1], 2), ([3, 5, 7, 9, 11], 2), ([0, 1], 4)])
def test_cores_are_shared_out(cores, count):
    shares = [supervise.share(cores, i, count) for i in range(count)]
    assert all(shares) and {c for s in shares for c in s} == set(cores)
    assert len(cores) < count or sum(map(len, shares)) == len(cores)

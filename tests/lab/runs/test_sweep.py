"""Sweeps: the grid is trained once, whatever interrupts it, and summed up as the rule says."""

import json
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from kills import newest, same
from kronline.errors import UsageError
from kronline.lab.analysis.sweep import results
from kronline.lab.runs import cluster, config, folder, lock
from kronline.lab.runs.grid import members, sweep_of
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.text import TextTask
from running import SMALL, command, kill_worker, process, status, step_of

CopySweep = sweep_of(CopyTask)
TextSweep = sweep_of(TextTask)

RATES = (0.03, 0.003)
METHODS = {"kf_rtrl": "KF-RTRL", "tbptt(5)": "TBPTT-5"}
STEPS = 800


def words(out, estimators=tuple(METHODS), rates=RATES, seeds=(0, 1)):
    # the curriculum grows soon, so that there is something to compare
    easy = ["--threshold", 0.45, "--restart", 0.7, "--smoothing", 0.98]
    grid = ["--estimators", *estimators, "--rates", *rates, "--seeds", *seeds, "--workers", 2]
    return ["sweep", "copy", *SMALL, *easy, "--steps", STEPS, *grid, "--out", out, "--json"]


def runs_in(out):
    return {p.parent.name: p.parent for p in sorted(out.glob("*/config.toml"))}


def at_work(out):
    """Members of which a process has written a checkpoint, and has not ended."""
    return [r for r in runs_in(out).values() if newest(r) and folder.in_use(r)]


def caught(first, out):
    """Members that are at work; their processes do not go on until they are let."""
    while not (found := at_work(out)):
        assert first.poll() is None, (out.parent / "log").read_text()
        time.sleep(0.001)
    pids = [lock.holder(run)["pid"] for run in found]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return found, pids


def swept(place):
    """A sweep with a worker killed, then stopped by SIGTERM, and started again.

    What it printed at the end, what was stopped, and the member that lost its worker.
    """
    out = place / "it"
    with (out.parent / "log").open("wb") as log:
        first = process(*words(out), stdout=log, stderr=log)
        found, pids = caught(first, out)
        killed, before = found[0], newest(found[0])
        kill_worker(pids[0])
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        while newest(killed) == before:  # another goes on with it
            assert first.poll() is None, (out.parent / "log").read_text()
            time.sleep(0.001)
        assert (killed / "log.txt").read_text().count("compiling") >= 2
        _, pids = caught(first, out)
        first.send_signal(signal.SIGTERM)
        time.sleep(1)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        assert first.wait(300) == 143
    stopped = {}
    for name, run in runs_in(out).items():
        now = status(run)
        stopped[name] = now["state"]
        assert not folder.in_use(run)
        if now["step"]:
            assert step_of(newest(run)) == now["step"]
    with (out.parent / "result").open("wb") as result, (out.parent / "log").open("ab") as log:
        again = process("resume", out, "--json", stdout=result, stderr=log)
        assert again.wait(600) == 0, (out.parent / "log").read_text()
    said = (out.parent / "log").read_text()
    assert "the scheduler listens at tls://127.0.0.1:" in said
    assert "is gone; its run goes on elsewhere, from its last checkpoint" in said
    return out, stopped, killed.name, json.loads((out.parent / "result").read_text())


def check_a_signal_stops_the_members_with_checkpoints(swept):
    out, stopped, _, _ = swept
    assert set(stopped.values()) <= {"stopped", "finished"}
    assert "stopped" in stopped.values(), "no member was caught at work"
    assert len(stopped) < 8  # and no others were begun
    for run in runs_in(out).values():
        steps = [m["step"] for m in folder.lines(run / "metrics.jsonl")]
        assert steps == [*range(20, STEPS + 1, 20), STEPS]


def check_the_members_are_the_runs_that_train_makes(swept, tmp_path):
    """Also that which was stopped on the way, and that whose worker was killed."""
    out, stopped, killed, _ = swept
    name = next(n for n, state in stopped.items() if state == "stopped")
    for each in {name, killed}:
        settings = ["--config", out / each / "config.toml", "--out", tmp_path / each]
        assert command("train", "copy", *settings) == 0
        assert same(out / each, tmp_path / each) == []


def check_the_numbers_are_those_of_the_members(swept):
    out, _, _, result = swept
    assert json.loads((out / "sweep.json").read_text()) == result
    members = [folder.read(r) for r in runs_in(out).values()]
    assert len(members) == 8
    assert {m.state for m in members} == {"finished"}
    seen = set()
    for row in result["tried"]:
        estimator = next(e for e, label in METHODS.items() if row["method"].startswith(label))
        own = [
            m
            for m in members
            if (m.config["estimator"], m.config["rate"]) == (estimator, row["rate"])
        ]
        assert sorted(row["seeds"]) == sorted(m.config["seed"] for m in own) == [0, 1]
        for name in ("T", "right_trained", "solved"):
            values = [[x[name] for x in m.metrics if name in x][-1] for m in own]
            assert row[name]["mean"] == pytest.approx(np.mean(values))
            assert row[name]["std"] == pytest.approx(np.std(values, ddof=1))
            assert row[name]["n"] == 2
        seen.add((estimator, row["rate"]))
    assert seen == {(e, r) for e in METHODS for r in RATES}
    assert result["failed"] == []


def arrival(run):
    T = [(x["step"], x["T"]) for x in run.metrics if "T" in x]
    return next(step for step, t in T if t == T[-1][1]) if T[-1][1] > 1 else 0


def check_the_rate_is_picked_by_the_rule(swept):
    out, _, _, result = swept
    members = [folder.read(r) for r in runs_in(out).values()]
    assert len(result["best"]) == 2
    for best, estimator in zip(result["best"], METHODS, strict=True):
        assert best["method"] == METHODS[estimator]

        def rank(rate, estimator=estimator):
            own = [
                m for m in members if (m.config["estimator"], m.config["rate"]) == (estimator, rate)
            ]
            T = np.mean([max(x.get("T", 0) for x in m.metrics) for m in own])
            return -T, np.mean([arrival(m) for m in own])

        assert best["rate"] == min(RATES, key=rank)
        assert rank(RATES[0]) != rank(RATES[1])  # there was a choice
    assert [r for r in result["tried"] if r["picked"]] == result["best"]


def files(out):
    return {
        f: (f.read_bytes(), f.stat().st_mtime_ns)
        for f in out.rglob("*")
        if f.is_file() and f.parent != out and ".programs" not in f.parts
    }


def check_started_again_it_trains_what_is_new_only(swept, capsys):
    out, _, _, result = swept
    before = files(out)
    capsys.readouterr()
    assert command(*words(out)) == 0
    assert json.loads(capsys.readouterr().out) == result
    assert files(out) == before
    assert command(*words(out, ["kf_rtrl"], [RATES[0]], (0, 1, 2))) == 0
    now = json.loads(capsys.readouterr().out)
    assert [r["seeds"] for r in now["tried"]] == [[0, 1, 2]]
    after = files(out)
    assert {f: after[f] for f in before} == before
    new = {f.relative_to(out).parts[0] for f in set(after) - set(before)}
    assert new == {"kf_rtrl-rate0.03-seed2"}


def check_a_member_of_other_settings_is_refused(swept, capsys):
    out, _, _, _ = swept
    before = files(out)
    assert command(*words(out), "--max-length", "32") == 2
    err = capsys.readouterr().err
    assert "max_length is 64 there, and 32 was asked for" in err
    with folder.locked(out):
        assert command(*words(out)) == 2
    assert "another process" in capsys.readouterr().err
    assert files(out) == before


def test_a_sweep_from_its_start_to_its_end(tmp_path, capsys):
    """One test, so that the sweep is made once, however many workers pytest has."""
    done = swept(tmp_path)
    check_a_signal_stops_the_members_with_checkpoints(done)
    check_the_members_are_the_runs_that_train_makes(done, tmp_path)
    check_the_numbers_are_those_of_the_members(done)
    check_the_rate_is_picked_by_the_rule(done)
    check_started_again_it_trains_what_is_new_only(done, capsys)
    check_a_member_of_other_settings_is_refused(done, capsys)


def test_what_fails_or_diverges_is_reported(tmp_path, capsys, monkeypatch):
    own, out = tmp_path / "own.py", tmp_path / "it"
    own.write_text("from kronline import RHN\nimport sys\nif sys.argv[0] != 'x': 1 / 0\n")
    monkeypatch.setattr("sys.argv", ["x"])  # fine for the sweep, not for its members
    args = ["--cell", f"{own}:RHN", "--steps", 40, "--optimiser", "sgd", "--estimators", "kf_rtrl"]
    words_ = ["sweep", "copy", *SMALL, *args, "--seeds", 0, "--out", out, "--rates", 0.1]
    assert command(*words_) == 1
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "ZeroDivisionError" in shown
    # mended, it is tried again; and another rate diverges
    own.write_text("from kronline import RHN\n")
    assert command(*words_, 1e30, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    states = {r["rate"]: r["states"] for r in result["tried"]}
    assert states == {0.1: ["finished"], 1e30: ["diverged"]}
    assert [b["rate"] for b in result["best"]] == [0.1]
    assert result["failed"] == []
    before = files(out)
    assert command(*words_, 1e30) == 0  # to diverge is a result: not again
    shown = capsys.readouterr().out
    assert "1 diverged" in shown
    assert "10⁻¹ *" in shown
    assert files(out) == before


# -- the rule, on runs made up for it --------------------------------------------------------------


def made_up(place, rate, seed, T, state="finished", valid=()):
    kind = "text" if valid else "copy"
    path = place / f"{kind}-{rate}-{seed}"
    text = f'estimator = "uoro"\nrate = {rate}\nseed = {seed}\n'
    folder.create(path, kind, text, {})
    folder.set_status(path, state, step=100)
    lines = [{"step": 10 * (i + 1), "T": t} for i, t in enumerate(T)]
    lines += [{"step": 10 * (i + 1), "valid": v} for i, v in enumerate(valid)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return path


def picked(kind, *paths):
    result = results(TASKS[kind], list(paths))
    assert len(result["best"]) == 1
    return result["best"][0]["rate"]


def test_the_rule_for_copy(tmp_path):
    def runs(place, *given):
        return [made_up(tmp_path / place, *g) for g in given]

    # the highest mean T: 3.5 over 3, though a seed of the other reached 4 first
    a = runs(
        "a", (0.1, 0, [3, 3, 3]), (0.1, 1, [3, 4, 4]), (0.2, 0, [4, 4, 4]), (0.2, 1, [2, 2, 2])
    )
    assert picked("copy", *a) == 0.1
    # of equals the earlier
    b = runs("b", (0.1, 0, [1, 1, 3]), (0.2, 0, [1, 3, 3]), (0.3, 0, [2, 2, 3]))
    assert picked("copy", *b) == 0.2
    # diverged: last, however far it came, and though another seed of it is fine
    c = runs("c", (0.1, 0, [1, 2, 2]), (0.2, 0, [9, 9], "diverged"), (0.2, 1, [9, 9, 9]))
    assert picked("copy", *c) == 0.1
    # unless all diverged
    d = runs("d", (0.1, 0, [1, 2], "diverged"), (0.2, 0, [9, 9], "diverged"))
    assert picked("copy", *d) == 0.2
    # or there was nothing else
    assert picked("copy", *runs("e", (0.1, 0, [], "diverged"))) == 0.1


def test_the_rule_for_text(tmp_path):
    def runs(place, *given):
        return [made_up(tmp_path / place, g[0], g[1], [], g[3], g[2]) for g in given]

    fine = "finished"
    # the lowest mean of the best: (2.0 + 2.4) / 2 against (2.1 + 2.2) / 2
    a = runs("a", (0.1, 0, [2, 3], fine), (0.1, 1, [2.4], fine), (0.2, 0, [3, 2.1], fine))
    a += runs("a", (0.2, 1, [2.2, 9], fine))
    assert picked("text", *a) == 0.2
    b = runs("b", (0.1, 0, [3.0], fine), (0.2, 0, [1.0], "diverged"), (0.2, 1, [1.0], fine))
    assert picked("text", *b) == 0.1


# -- the grid --------------------------------------------------------------------------------------


def test_the_papers_grid(tmp_path):
    found = members(CopySweep(preset="paper"), tmp_path)
    assert len(found) == 3 * 4 * 5
    assert len({m.path for m in found}) == 60
    assert {m.settings.rate for m in found} == {10**-2.5, 10**-3.0, 10**-3.5, 10**-4.0}
    assert {m.settings.estimator for m in found[:12]} == {"kf_rtrl", "uoro", "tbptt(25)"}
    assert {m.settings.seed for m in found[:12]} == {0}  # the first results compare all methods
    assert {m.settings.preset for m in found} == {"paper"}


def test_more_axes(tmp_path):
    base = CopySweep(estimators=("kf_rtrl",), rates=(0.1,), seeds=(0, 0))
    vary = ("hidden=8,16", "cell=RHN,LSTM", "clip=1,none")
    found = members(replace(base, vary=vary), tmp_path)
    assert len(found) == 8  # the seed that is named twice is trained once
    got = {(m.settings.hidden, m.settings.cell, m.settings.clip) for m in found}
    assert got == {(h, c, k) for h in (8, 16) for c in ("RHN", "LSTM") for k in (1.0, None)}
    for wrong, message in [
        ("hidden", "SETTING=VALUE"),
        ("seed=1,2", "flags of their own"),
        ("hiden=1", "did you mean 'hidden'"),
        ("hidden=large", "hidden needs int"),
    ]:
        with pytest.raises(UsageError, match=message):
            members(replace(base, vary=(wrong,)), tmp_path)
    with pytest.raises(UsageError, match="rates needs at least one"):
        members(replace(base, rates=()), tmp_path)
    close = replace(base, rates=(0.1, 0.10001))
    with pytest.raises(UsageError, match=r"names of their own: kf_rtrl-rate0\.1-seed0"):
        members(close, tmp_path)


def test_cores_are_dealt_out():
    cores = sorted(os.sched_getaffinity(0))
    assert cluster.shares(1, 5) == [cores]
    assert cluster.shares(len(cores), 99) == [[c] for c in cores]
    assert len(cluster.shares(3 * len(cores), 99)) == 3 * len(cores)
    assert cluster.shares(7, 1) == [cores]
    with pytest.raises(UsageError, match="workers must be >= 1, got 0"):
        cluster.shares(0, 1)


def test_a_text_sweep_is_known_from_a_copy_sweep(tmp_path, capsys):
    """Even if its data is called like a setting of the other."""
    sweep_ = TextSweep(data="threshold.txt", estimators=("uoro",), rates=(0.1,), seeds=(0,))
    (tmp_path / "sweep.toml").write_text(config.toml(sweep_, "text"))
    assert command("resume", tmp_path) == 2
    assert "no file or folder 'threshold.txt'" in capsys.readouterr().err

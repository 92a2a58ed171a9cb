"""`kronline learn`, from files and pipes to predictions, and what goes wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from kronline import stream
from kronline.lab.learn import checkpoints, journal
from kronline.lab.runs import folder
from learn_data import SMALL, lines_of, machines, write_csv, write_json
from running import command, process

COUNT = 120


@pytest.fixture
def data(tmp_path):
    return write_json(tmp_path / "pumps.jsonl", machines(COUNT))


def learn(data, *words, **where):
    """The exit code, the folder and the predictions."""
    base = data.parent
    out = base / f"{where.get('name', 'one')}.jsonl"
    model = base / where.get("name", "one")
    code = command("learn", data, "--model", model, "--out", out, *SMALL, *words)
    return code, model, lines_of(out) if out.exists() else []


def by_hand(events, make=stream.Regressor, key="pump"):
    """What the model's own two lines come to."""
    model = make(hidden=4)
    apart = (key, "time", "pressure")
    for e in events:
        x = {k: v for k, v in e.items() if k not in apart}
        yield model.predict_one(x, key=e[key])
        model.learn_one(x, e["pressure"], key=e[key])


def test_predictions_are_the_models_own(data, capsys):
    words = ("--target", "pressure", "--key", "pump", "--time", "time", "--json")
    code, model, found = learn(data, *words)
    assert code == 0
    want = list(by_hand(machines(COUNT)))
    assert [f["prediction"] for f in found] == want
    assert [f["target"] for f in found] == [e["pressure"] for e in machines(COUNT)]
    assert [f["line"] for f in found] == list(range(1, COUNT + 1))
    numbers = json.loads(capsys.readouterr().out)
    errors = [abs(f["prediction"] - f["target"]) for f in found[1:]]
    assert numbers["error"] == pytest.approx(sum(errors) / len(errors))
    assert numbers["events"] == COUNT and numbers["task"] == "regress"
    last, mean = guesses([e["pressure"] for e in machines(COUNT)], [f["key"] for f in found])
    assert numbers["last_value"] == pytest.approx(last)
    assert numbers["running_mean"] == pytest.approx(mean)
    saved = stream.load(next(iter(sorted((model / "checkpoints").glob("*.safetensors")))))
    assert saved.events == COUNT


def guesses(ys, keys):
    """Mean absolute errors of the last value and the mean of the same key."""
    last, mean = [], []
    for i in range(1, len(ys)):
        same = [y for y, k in zip(ys[:i], keys[:i], strict=True) if k == keys[i]] or ys[:i]
        last.append(abs(same[-1] - ys[i]))
        mean.append(abs(sum(same) / len(same) - ys[i]))
    return sum(last) / len(last), sum(mean) / len(mean)


def test_csv_is_the_same_stream(data):
    table = write_csv(data.parent / "pumps.csv", machines(COUNT))
    words = ("--target", "pressure", "--key", "pump", "--time", "time")
    one = learn(data, *words)[2]
    two = learn(table, *words, name="two")[2]
    assert [f["prediction"] for f in one] == [f["prediction"] for f in two]
    assert [f["line"] for f in two] == list(range(2, COUNT + 2))


def test_a_pipe_is_answered_line_by_line(data, tmp_path):
    words = ["learn", "-", "--target", "pressure", "--model", tmp_path / "m", *SMALL]
    p = process(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = data.read_bytes().splitlines(keepends=True)
    for i, line in enumerate(lines[:5]):  # each is answered before the next one is sent
        p.stdin.write(line)
        p.stdin.flush()
        assert json.loads(p.stdout.readline())["line"] == i + 1
    p.send_signal(signal.SIGTERM)
    assert p.wait(60) == 128 + signal.SIGTERM
    assert b"the same command goes on" in p.stderr.read()
    # the same lines again, and more: the first five are known
    again = subprocess.run(
        [sys.executable, "-m", "kronline", *map(str, words)],
        input=b"".join(lines), capture_output=True, check=True,
    )  # fmt: skip
    found = [json.loads(line)["line"] for line in again.stdout.splitlines()]
    assert found == list(range(6, COUNT + 1))
    # other lines: refused, unless they are said to be new ones
    for pipe, code in (("replay", 2), ("live", 0)):
        other = subprocess.run(
            [sys.executable, "-m", "kronline", *map(str, words), "--pipe", pipe],
            input=lines[3], capture_output=True, check=False,
        )  # fmt: skip
        assert other.returncode == code, other.stderr
    assert json.loads(other.stdout)["line"] == COUNT + 1
    assert b"--pipe live" in subprocess.run(
        [sys.executable, "-m", "kronline", *map(str, words)],
        input=lines[3] * (COUNT + 5), capture_output=True, check=False,
    ).stderr  # fmt: skip


def test_a_file_is_followed_until_a_signal(data, tmp_path):
    out = tmp_path / "o"
    words = ("--target", "pressure", "--model", tmp_path / "m", "--out", out, "--follow")
    p = process("learn", data, *words, *SMALL, stderr=subprocess.PIPE)
    until(lambda: out.exists() and len(lines_of(out)) == COUNT)
    with data.open("a") as f:
        f.write(json.dumps(next(machines(1))) + "\n" + '{"half')
    until(lambda: len(lines_of(out)) == COUNT + 1)
    with pytest.raises(SystemExit):
        command_refused("learn", data, *words, *SMALL)
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 0
    assert not folder.in_use(tmp_path / "m")


def command_refused(*words):
    """Two processes on one folder."""
    done = subprocess.run(
        [sys.executable, "-m", "kronline", *map(str, words)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "another process (pid" in done.stderr and done.returncode == 2
    raise SystemExit


def until(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# -- the other tasks -------------------------------------------------------------------------------


def test_one_event_ahead(data, capsys):
    words = ("--target", "pressure", "--key", "pump", "--only", "speed", "--horizon", "1", "--json")
    _, _, found = learn(data, *words)
    numbers = json.loads(capsys.readouterr().out)
    model, before, want, errors = stream.Regressor(hidden=4), {}, [], []
    for e in machines(COUNT):
        key, y = e["pump"], e["pressure"]
        if key in before:
            model.learn_one(before[key][0], y, key=key)
            errors.append(abs(before[key][1] - y))
        x = {"speed": e["speed"], "pressure": y}
        want.append(model.predict_one(x, key=key))
        before[key] = (x, want[-1])
    assert [f["prediction"] for f in found] == want
    assert numbers["error"] == pytest.approx(sum(errors) / len(errors))
    assert numbers["scored"] == COUNT - 3


def test_further_ahead_each_target_meets_its_own_prediction(data, capsys):
    words = ("--target", "pressure", "--key", "pump", "--horizon", "3", "--json")
    for task in ("regress", "forecast"):
        _, _, found = learn(data, *words, "--task", task, name=task)
        numbers = json.loads(capsys.readouterr().out)
        of = {k: [f for f in found if f["key"] == k] for k in "abc"}
        ys = {k: [e["pressure"] for e in machines(COUNT) if e["pump"] == k] for k in "abc"}
        errors = [
            abs(f["prediction"] - y) for k in "abc" for f, y in zip(of[k], ys[k][3:], strict=False)
        ]
        last = [abs(a - b) for k in "abc" for a, b in zip(ys[k], ys[k][3:], strict=False)]
        assert numbers["error"] == pytest.approx(sum(errors) / len(errors))
        assert numbers["last_value"] == pytest.approx(sum(last) / len(last))
        assert found[0]["ahead"] == 3
        assert ("path" in found[0]) == (task == "forecast")


def test_classes(data, capsys):
    _, _, found = learn(data, "--target", "state", "--ignore", "time", "--json")
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["task"] == "classify" and found[0]["prediction"] is None
    assert sum(found[-1]["probabilities"].values()) == pytest.approx(1)
    wrong = [f["prediction"] != f["target"] for f in found[1:]]
    assert numbers["error"] == pytest.approx(sum(wrong) / len(wrong))
    ys = [f["target"] for f in found]
    stay = [a != b for a, b in pairwise(ys)]
    assert numbers["last_class"] == pytest.approx(sum(stay) / len(stay))
    assert 0 < numbers["commonest_class"] < 1


def test_what_is_unusual(tmp_path, capsys):
    events = [e | {"odd": i == 110} for i, e in enumerate(machines(COUNT))]
    events[110]["speed"] = 50.0
    data = write_json(tmp_path / "x.jsonl", events)
    words = ("--task", "anomaly", "--target", "odd", "--only", "speed", "--json")
    _, _, found = learn(data, *words)
    numbers = json.loads(capsys.readouterr().out)
    assert found[110]["score"] == max(f["score"] for f in found[20:])
    assert numbers["score_of_odd"] == found[110]["score"] > 0.95
    assert numbers["score_of_others"] < 0.8


def test_intervals(data, capsys):
    _, _, found = learn(data, "--target", "pressure", "--level", "0.8", "--json")
    numbers = json.loads(capsys.readouterr().out)
    asked = [f for f in found[1:] if f["low"] is not None]
    inside = [f["low"] <= f["target"] <= f["high"] for f in asked]
    assert numbers["inside_interval"] == pytest.approx(sum(inside) / len(inside))


def test_events_without_a_target_move_on_and_teach_nothing(tmp_path):
    events = [e if i % 3 else e | {"pressure": None} for i, e in enumerate(machines(40))]
    data = write_json(tmp_path / "x.jsonl", events)
    words = ("--target", "pressure", "--key", "pump", "--time", "time", "--task", "regress")
    _, _, found = learn(data, *words)
    assert [f["prediction"] for f in found] == list(by_hand(events))


# -- going on --------------------------------------------------------------------------------------


def test_a_file_that_has_grown_is_gone_on_with(tmp_path):
    data = write_json(tmp_path / "x.jsonl", machines(50))
    words = ("--target", "pressure", "--key", "pump", "--time", "time", "--every", "40")
    learn(data, *words)
    write_json(data, machines(COUNT))
    code, model, found = learn(data, *words)
    assert code == 0
    assert [f["prediction"] for f in found] == list(by_hand(machines(COUNT)))
    assert learn(data, *words)[2] == found  # nothing new
    assert checkpoints.lines(model) == [80, COUNT]


def test_old_lines_leave_the_journal_unless_they_are_to_stay(data):
    for more, first in (((), 101), (("--keep-journal",), 1)):
        name = f"m{first}"
        words = ("--target", "pressure", "--every", "10", "--commit", "3", *more)
        _, model, _ = learn(data, *words, name=name)
        log = journal.Journal(model)
        rows = list(log.rows(0))
        log.close()
        assert [r.line.number for r in rows] == list(range(first + 10 * (not more), COUNT + 1))
        assert log.place.line == log.shown == COUNT


def test_a_damaged_checkpoint_is_not_the_end(data, capsys):
    words = ("--target", "pressure", "--every", "50")
    _, model, found = learn(data, *words)
    newest = sorted((model / "checkpoints").glob("*.safetensors"))[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-10])
    capsys.readouterr()
    assert learn(data, *words)[2] == found
    assert "line 120 is damaged" in capsys.readouterr().err
    assert newest.read_bytes() == whole


def test_another_prediction_than_the_journals_is_found(data, capsys):
    words = ("--target", "pressure", "--every", "50")
    _, model, _ = learn(data, *words)
    for file in (model / "checkpoints").glob("line-000000000120.*"):
        file.unlink()
    log = journal.Journal(model)
    log._db.execute("UPDATE lines SET out = CAST(replace(out, '1', '2') AS BLOB) WHERE line = 110")
    log.close()
    assert learn(data, *words)[0] == 2
    assert "line 110 of the journal leads to another prediction" in capsys.readouterr().err


def test_predictions_that_were_lost_or_added_to_are_put_right(data):
    words = ("--target", "pressure", "--every", "50")
    _, model, found = learn(data, *words)
    for file in (model / "checkpoints").glob("line-000000000120.*"):
        file.unlink()
    out = data.parent / "one.jsonl"
    whole = out.read_bytes()
    for text in (whole[:-100], whole + b"more"):  # as killed before or while they were written
        out.write_bytes(text)
        assert learn(data, *words)[2] == found and out.read_bytes() == whole
        for file in (model / "checkpoints").glob("line-000000000120.*"):
            file.unlink()
    out.write_bytes(whole[: whole.index(b"\n") + 1])
    assert learn(data, *words)[0] == 2


def test_other_settings_and_other_files_are_refused(data, capsys, tmp_path):
    words = ("--target", "pressure", "--key", "pump")
    learn(data, *words)
    for more, why in (
        (("--horizon", "1"), "horizon was None and is 1"),
        (("--set", "hidden=8"), "set was \\['hidden=4'\\] and is \\['hidden=8'\\]"),
        (("--ignore", "speed"), "ignore was"),
    ):
        assert learn(data, *words, *more)[0] == 2
        error = capsys.readouterr().err
        assert re.search(why, error) and "--model DIR" in error
    assert learn(data, *words, "--durable", "--commit", "9")[0] == 0  # these may differ
    write_json(data, machines(COUNT, seed=1))
    assert learn(data, *words)[0] == 2
    assert "is not the stream that this model knows" in capsys.readouterr().err


def test_one_commit_an_event(data):
    _, model, _ = learn(data, "--target", "pressure", "--durable")
    whole = json.loads((model / "timing.json").read_text())
    commits = sum(b["commits"] for b in [*whole["bins"], whole["open"]])
    assert commits == COUNT


# -- what goes wrong -------------------------------------------------------------------------------


def test_bad_lines_are_kept_aside_and_the_rest_is_as_without_them(data, capsys):
    good = data.read_bytes().splitlines(keepends=True)
    bad = [b'{"pressure": \n', b"\xff\xfe\xfd\n", b'{"pressure": "high", "pump": "a"}\n', b"[1]\n"]
    mixed = data.parent / "mixed.jsonl"
    mixed.write_bytes(b"".join([*good[:10], *bad, b"\n", *good[10:]]))
    words = ("--target", "pressure", "--key", "pump", "--every", "20")
    want = learn(data, *words)[2]
    code, model, found = learn(mixed, *words, name="two")
    assert code == 0
    assert [f["prediction"] for f in found] == [f["prediction"] for f in want]
    aside = lines_of(model / "rejected.jsonl")
    assert [a["line"] for a in aside] == [11, 12, 13, 14]
    assert all(a["problem"] and a["fix"] and a["bytes"] for a in aside)
    error = capsys.readouterr().err
    assert all(f"kronline: line {n}: " in error for n in (11, 12, 13, 14))
    assert "4 lines rejected" in error


def test_stopping_at_nan_and_going_on(tmp_path, capsys):
    lines = [json.dumps(e) for e in machines(30)]
    lines[20] = lines[20].replace('"speed": ', '"speed": NaN, "was": ')
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    words = ("--target", "pressure", "--on-nan")
    assert learn(tmp_path / "x.jsonl", *words, "stop")[0] == 2
    assert "line 21 of" in (error := capsys.readouterr().err) and "--on-nan skip" in error
    code, _, found = learn(tmp_path / "x.jsonl", *words, "skip")
    assert code == 0 and len(found) == 29
    assert learn(tmp_path / "x.jsonl", *words, "missing")[0] == 2


WRONG = [
    (["{data}"], "target is needed"),
    (["{data}", "--target", "y", "--task", "forecast", "--horizon", "0"], "horizon must be >= 1"),
    (["{data}", "--target", "pump", "--key", "pump"], "need a column each"),
    (["{data}", "--target", "pressure", "--set", "hiden=4"], "hiden=... is no setting of"),
    (["{data}", "--target", "pressure", "--set", "hidden"], "set needs NAME=VALUE"),
    (["{data}", "--target", "pressure", "--set", "rate=-1"], "rate must be positive"),
    (["{data}", "--target", "pressure", "--every", "0"], "every must be >= 1"),
    (["{data}", "--target", "pressure", "--level", "2"], "level must be between"),
    (["{data}", "--target", "pressure", "--out", "no/such/file"], "existing folder"),
    (["nothing.csv", "--target", "y"], "nothing.csv could not be opened"),
    ([".", "--target", "y"], "is a folder"),
    (["{table}", "--target", "presure"], "no column 'presure', the target; choose among time"),
    (["-", "--target", "y", "--follow"], "a pipe is followed anyway"),
    (["{data}", "--target", "pressure", "--model", "{busy}"], "holds something else"),
    (["{wide}", "--target", "pressure"], "UTF-16"),
    (["{packed}", "--target", "pressure"], "zcat"),
]


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_wrong_commands_are_explained(words, why, data, capsys, monkeypatch):
    base = data.parent
    monkeypatch.chdir(base)
    (base / "busy").mkdir()
    (base / "busy" / "letter.txt").write_text("dear")
    (base / "wide.csv").write_text("a,b\n", encoding="utf-16")
    (base / "x.gz").write_bytes(b"\x1f\x8b\x08rest")
    places = {"data": data, "table": write_csv(base / "t.csv", machines(9)), "busy": base / "busy"}
    places |= {"wide": base / "wide.csv", "packed": base / "x.gz"}
    assert command("learn", *(w.format(**places) for w in words), "--quiet") == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not (base / "streams").exists() or not list((base / "streams").iterdir())


def test_nothing_but_bad_lines_is_an_error_of_its_own(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text("x\n" * 30)
    code, model, found = learn(tmp_path / "x.jsonl", "--target", "y")
    assert code == 1 and not found
    assert len(lines_of(model / "rejected.jsonl")) == 30
    assert "more of these" in capsys.readouterr().err


def test_an_empty_stream_is_one(tmp_path):
    (tmp_path / "x.jsonl").write_text("")
    assert learn(tmp_path / "x.jsonl", "--target", "y")[0] == 0


def test_a_reader_that_has_seen_enough(data, tmp_path):
    words = ["learn", str(data), "--target", "pressure", "--model", str(tmp_path / "m"), *SMALL]
    p = process(*words, "--commit", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.readline()
    p.stdout.close()
    assert p.wait(60) == 141
    assert p.stderr.read() == b""
    # what was answered is not answered again, but for the last commit
    again = subprocess.run(
        [sys.executable, "-m", "kronline", *words], capture_output=True, check=True
    )
    lines = [json.loads(line)["line"] for line in again.stdout.splitlines()]
    assert lines == list(range(lines[0], COUNT + 1)) and lines[0] > 1


def test_a_full_disk_loses_nothing(data, tmp_path):
    """A limit on the size of files stands for it."""
    words = ["--target", "pressure", "--model", str(tmp_path / "m"), "--every", "20", *SMALL]
    limit = f"ulimit -f 60; exec {sys.executable} -m kronline learn {data} {' '.join(words)}"
    env = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0"}
    small = subprocess.run(["bash", "-c", limit], capture_output=True, check=False, env=env)
    assert small.returncode != 0
    code = command("learn", data, *words)
    assert code == 0

"""Runs packed into one file: nothing is lost, and all that reads runs reads them."""

import json
import tomllib

import pytest
from test_cli import code

from kronline.errors import UsageError
from kronline.lab.runs import folder, packed

CONFIG = 'preset = ""  # why: "==> no head <=="\nhidden = 4\nestimator = "kf_rtrl"\nseed = {}\n'


def files(seed):
    """Of a run; what is odd about them is allowed."""
    return {
        "config.toml": CONFIG.format(seed),
        "about.json": json.dumps({"kind": "copy", "what": "é \u2028 ==> a <=="}, indent=1) + "\n",
        "status.json": '{"state": "finished", "step": 20, "steps": 20}\n',
        "metrics.jsonl": f'{{"step": 10, "T": {seed}}}\n{{"step": 20, "T": NaN}}\n',
        "timing.jsonl": "",
        "table.md": " ==> indented <==\n==>  <== \n\n",
    }


RUNS = {"kf-seed1": files(1), "kf-seed0": files(0), "uoro-seed0": files(0)}


@pytest.fixture
def file(tmp_path):
    packed.write(tmp_path / "some.runs", RUNS)
    return tmp_path / "some.runs"


def test_nothing_is_lost(file, tmp_path):
    assert packed.read(file) == RUNS
    assert code("publish", "--unpack", str(file), "--out", str(tmp_path / "apart")) == 0
    for run, texts in RUNS.items():
        got = {f.name: f.read_bytes() for f in (tmp_path / "apart" / run).iterdir()}
        assert got == {name: text.encode() for name, text in texts.items()}
    assert code("publish", "--unpack", str(file), "--out", str(tmp_path / "apart")) == 2


def test_a_packed_run_is_read_as_its_folder_is(file, tmp_path):
    packed.unpack(packed.members(file), tmp_path / "apart")
    for name in RUNS:
        a, b = folder.read(f"{file}:{name}"), folder.read(tmp_path / "apart" / name)
        for what in ("name", "kind", "config", "about", "state"):
            assert getattr(a, what) == getattr(b, what)
        assert repr((a.metrics, a.timing)) == repr((b.metrics, b.timing)) and len(a.metrics) == 2


def test_a_packed_run_can_be_trained_again(file, capsys):
    assert code("train", "copy", "--config", f"{file}:kf-seed1/config.toml", "--print-config") == 0
    again = tomllib.loads(capsys.readouterr().out)
    assert again.items() >= {"hidden": 4, "estimator": "kf_rtrl", "seed": 1}.items()
    assert code("train", "copy", "--config", f"{file}:kf-seed2/config.toml") == 2
    assert "cannot be read: there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["kf-seed0", "kf-seed1", "uoro-seed0"]),
        (":kf-seed0", ["kf-seed0"]),
        (":kf*", ["kf-seed0", "kf-seed1"]),
        (":*seed[!1]", ["kf-seed0", "uoro-seed0"]),
    ],
)
def test_some_can_be_chosen(file, pattern, names, capsys):
    assert [run.name for run in folder.find([f"{file}{pattern}"])] == names
    assert code("list", f"{file}{pattern}", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [row["run"] for row in listed] == [f"{file}:{name}" for name in names]


def test_folders_may_hold_both(file, tmp_path):
    packed.unpack([packed.member(file, "kf-seed0")], tmp_path / "apart")
    both = folder.find([tmp_path, f"{file}:kf*"])  # each once
    assert [run.path.relative_to(tmp_path).as_posix() for run in both] == [
        "apart/kf-seed0",
        "some.runs:kf-seed0",
        "some.runs:kf-seed1",
        "some.runs:uoro-seed0",
    ]


def test_a_file_that_was_changed_is_read_again(file):
    assert folder.read(f"{file}:kf-seed0").config["seed"] == 0
    packed.write(file, {"kf-seed0": files(7)})
    assert [run.config["seed"] for run in folder.find([file])] == [7]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("some.runs:rtrl*", "some.runs:rtrl* holds no run"),
        ("some", "did you mean"),
        ("none.runs:kf*", "none.runs does not exist"),
        ("other.runs", "not a file of runs: needed a first line `==> RUN/FILE <==`, got 'hello"),
        ("bytes.runs", "the runs of"),
        ("twice.runs", "is damaged: needed one RUN/FILE each, got 'a/b'"),
        ("up.runs", "is damaged: needed one RUN/FILE each, got '../a/b'"),
        ("empty.runs", "not a file of runs"),
        ("half.runs", "is damaged"),
    ],
)
def test_wrong_input_is_explained(file, tmp_path, given, said, capsys):
    (tmp_path / "other.runs").write_text("hello\n==> a/b <==\n")
    (tmp_path / "bytes.runs").write_bytes(b"==> a/b <==\n\xff\n")
    (tmp_path / "twice.runs").write_text("==> a/b <==\n==> a/b <==\n")
    (tmp_path / "up.runs").write_text("==> ../a/b <==\n")
    (tmp_path / "empty.runs").write_text("")
    packed.write(tmp_path / "half.runs", {"a": files(0) | {"status.json": "{\n"}})
    assert code("report", str(tmp_path / given), "--out", str(tmp_path / "page.html")) == 2
    assert said in capsys.readouterr().err


def test_one_run_is_needed_where_it_is_not_several(file, capsys):
    assert code("resume", str(file)) == 2
    assert f"needed one run of {file}: name it, as {file}:kf-seed0" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["a/b", "a:b", "", "a\nb"])
def test_names_that_could_not_be_read_again_are_refused(tmp_path, run):
    with pytest.raises(UsageError, match="names need"):
        packed.write(tmp_path / "x.runs", {run: files(0)})
    assert not (tmp_path / "x.runs").exists()


@pytest.mark.parametrize("text", ["no newline", "a\n==> b/c <==\n", "==> x <==\n"])
def test_texts_that_could_not_be_read_again_are_refused(tmp_path, text):
    with pytest.raises(UsageError, match="needs a newline at its end"):
        packed.write(tmp_path / "x.runs", {"a": {"table.md": text}})


def test_a_folder_is_not_unpacked(file, tmp_path, capsys):
    packed.unpack([packed.member(file, "kf-seed0")], tmp_path)
    given = ["publish", "--unpack", str(tmp_path / "kf-seed0"), "--out", str(tmp_path / "b")]
    assert code(*given) == 2
    assert "is a folder already; needed a file of runs" in capsys.readouterr().err

"""Configurations: which value wins, what is written down, and what is refused."""

import dataclasses
import re
import tomllib

import pytest

from kronline import softmax
from kronline.errors import UsageError
from kronline.lab import progress
from kronline.lab.runs import config, loop
from kronline.lab.runs.grid import sweep_of
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.text import TextTask
from running import SMALL, command

CopySweep = sweep_of(CopyTask)
TextSweep = sweep_of(TextTask)

ODD = 'a "b" # no comment \\ \t \n é 😀 \x7f \x01 '


def printed(capsys, *args):
    """What `--print-config` says."""
    assert command(*args, "--print-config") == 0
    text = capsys.readouterr().out
    return tomllib.loads(text), text


@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_the_flag_wins_over_the_file_over_the_preset_over_the_default(
    verb, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text('preset = "paper"\nlanes = 3\nhidden = 5\nclip = 2\n')
    got, _ = printed(capsys, verb, "copy")
    assert (got["threshold"], got["lanes"], got["hidden"], got["keep"]) == (0.15, 16, 128, 2)
    got, _ = printed(capsys, verb, "copy", "--preset", "laptop")
    assert (got["threshold"], got["lanes"], got["hidden"], got["keep"]) == (0.1, 8, 64, 2)
    words = ["--preset=laptop", "--config", "my.toml", "--hidden", "7"]
    got, _ = printed(capsys, verb, "copy", *words)
    assert (got["threshold"], got["lanes"], got["hidden"], got["keep"]) == (0.1, 3, 7, 2)
    assert got["preset"] == "laptop"
    assert got["clip"] == 2.0
    got, _ = printed(
        capsys, verb, "copy", "--config=my.toml", "--clip", "none"
    )  # the file's preset
    assert (got["preset"], got["lanes"], got["steps"]) == ("paper", 3, 1_000_000)
    assert got["clip"] == "none"
    assert [p.name for p in tmp_path.iterdir()] == ["my.toml"]  # printing makes no run


def test_none_is_said_alike_in_files_and_flags(tmp_path, capsys):
    (tmp_path / "my.toml").write_text('data = "none"\nsteps = "none"\nclip = 1\nupdate_every = 4\n')
    got, text = printed(
        capsys, "train", "text", "--config", tmp_path / "my.toml", "--update-every", "none"
    )
    assert (got["data"], got["steps"], got["clip"]) == ("none", "none", 1.0)
    read = config.make(TextTask, config.checked(TextTask, text, ""))
    assert (read.data, read.steps, read.update_every) == (None, None, None)
    got, _ = printed(capsys, "train", "text", "--estimator", "none")  # not a setting that may be
    assert got["estimator"] == "none"


@pytest.mark.parametrize(
    "given",
    [
        CopyTask(),
        CopyTask(
            cell=ODD, estimator="#", optimiser='"', rate=0.1 + 0.2, clip=1 / 3, seed=2**32 - 1
        ),
        CopyTask(
            rate=5e-324, clip=1.7976931348623157e308, threshold=1e-7, restart=1e16, steps=10**9
        ),
        CopyTask(preset="paper", cell="x#y", lanes=3, tensorboard=True, update_every=4),
        TextTask(data=ODD, epochs=1e-05, reset=0.0),
        TextTask(preset="laptop", data=None, steps=7),
        CopySweep(estimators=("uoro(copies=4)", ODD), rates=(0.1, 1e-300), vary=("hidden=8,16",)),
        TextSweep(preset="paper", seeds=(3,), workers=None),
    ],
)
def test_what_is_written_is_read_back_exactly(given):
    kind = given.kind
    text = config.toml(given, kind)
    again = config.make(type(given), config.checked(type(given), text, "the text"))
    assert again == given
    assert config.toml(again, kind) == text
    assert set(tomllib.loads(text)) == {
        f.name for f in dataclasses.fields(given) if f.name not in config.NOT_KEPT
    }


def test_what_cannot_be_written_is_refused(capsys):
    assert command("train", "text", "--data", "caf\udce9.txt", "--print-config") == 2
    assert "is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hiden = 4", "no setting 'hiden'; did you mean 'hidden'?"),
        ("clipp = 4", "did you mean 'clip'?"),
        ("zzz = 4", "no setting 'zzz'; known are preset, cell, hidden"),
        ('config = "other.toml"', "no setting 'config'"),
        ("[train]\nhidden = 4", "no setting 'train'"),
        ('hidden = "8"', "hidden needs int, got '8'"),
        ("hidden = 8.5", "hidden needs int, got 8.5"),
        ("hidden = true", "hidden needs int, got True"),
        ('rate = "fast"', "rate needs float, got 'fast'"),
        ("rate = true", "rate needs float, got True"),
        ("tensorboard = 1", "tensorboard needs bool, got 1"),
        ('clip = "some"', "clip needs float, got 'some'"),
        ("cell = 3", "cell needs str, got 3"),
        ('delay = "long"', "delay must be one of ('short', 'paper'), got 'long'"),
        ("hidden 4", "is not TOML"),
        ('preset = "laptp"', "did you mean 'laptop'?"),
        ("hidden = 0", "hidden must be >= 1, got 0"),
        ("rate = 0", "rate must be a positive number"),
        ("rate = nan", "rate must be a positive number"),
        ("rate = inf", "rate must be a positive number"),
        ("clip = 0", "clip must be a positive number or none"),
        ("seed = -1", "seed must be between 0"),
        ("steps = 0", "steps must be >= 1"),
        ("max_length = 0", "max_length must be >= 1"),
    ],
)
def test_wrong_files_are_explained(text, message, tmp_path, capsys):
    file = tmp_path / "my.toml"
    file.write_text(text)
    assert command("train", "copy", "--config", file, "--out", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_wrong_files_of_sweeps_and_texts():
    for cls, text, message in [
        (CopySweep, "rates = 0.1", "rates needs a list, got 0.1"),
        (CopySweep, "seeds = [0.5]", "seeds needs int, got 0.5"),
        (CopySweep, "seed = [0.5]", "seed needs int"),
        (TextTask, "threshold = 0.1", "there is no setting 'threshold'"),
        (TextTask, "data = 3", "data needs str, got 3"),
    ]:
        with pytest.raises(UsageError) as e:
            config.checked(cls, text, "it")
        assert message in str(e.value)
    for wrong in ({"reset": 2.0}, {"epochs": 0.0}, {"valid_every": 0}, {"steps": -1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            config.make(TextTask, wrong)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'cell = "\xe9"')
    for file in ("none.toml", "latin.toml", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            config.read(CopyTask, tmp_path / file)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hiden", "4"], "--hidden"),
        (["--delay", "long"], "paper"),
        (["--rate", "fast"], "rate"),
        (["--preset", "papr"], "did you mean 'paper'?"),
        (["--cell", "RNH"], "did you mean 'RHN'?"),
        (["--estimator", "kf_rtl"], "did you mean 'kf_rtrl'?"),
        (["--optimiser", "adm"], "did you mean 'adam'?"),
        (["--update-every", "3", "--estimator", "tbptt(5)"], "multiple"),
        (["--schedule", "sine"], "cosine"),
    ],
)
def test_wrong_flags_are_explained_and_leave_no_run(args, message, tmp_path, capsys):
    assert command("train", "copy", *args, "--out", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


# -- presets ---------------------------------------------------------------------------------------

ALL = sorted(f.name for f in config.PRESETS.iterdir() if f.name.endswith(".toml"))


def test_there_is_a_paper_and_a_laptop_preset_for_each_kind():
    for kind in TASKS:
        assert {"laptop", "paper"} <= set(config.presets(kind))


@pytest.mark.parametrize("file", ALL)
def test_every_value_of_a_preset_has_a_reason_beside_it(file):
    text = (config.PRESETS / file).read_text(encoding="utf-8")
    reasons = config.comments(text)
    assert set(reasons) == set(tomllib.loads(text))
    assert all(len(reason) > 3 for reason in reasons.values())


@pytest.mark.parametrize(("kind", "cls"), TASKS.items())
def test_every_preset_loads_and_builds(kind, cls):
    for name in config.presets(kind):
        made = config.start(cls, kind, ["--preset", name])
        for key, (value, reason) in config.of_preset(cls, kind, name).items():
            assert getattr(made, key) == value
            assert reason
        network = made.network(50)
        assert made.learner(network, softmax(50), 1000).cell.hidden == made.hidden


def test_the_papers_presets_are_the_papers():
    for cls in (CopyTask, TextTask):
        made = config.start(cls, cls.kind, ["--preset", "paper"])
        assert (made.cell, made.hidden, made.lanes, made.optimiser) == ("RHN", 256, 256, "adam")
    copy = config.start(CopyTask, "copy", ["--preset", "paper"])
    assert (copy.threshold, copy.spread) == (0.15, 5)
    assert config.start(TextTask, "text", ["--preset", "paper"]).reset == 0.01
    assert CopySweep().rates == TextSweep().rates == (10**-2.5, 10**-3.0, 10**-3.5, 10**-4.0)
    assert CopySweep().seeds == (0, 1, 2, 3, 4)


def test_reasons_stand_only_beside_the_presets_own_values(capsys):
    words = ["train", "copy", "--preset", "laptop", "--hidden", "32", "--rate", "0.001"]
    _, text = printed(capsys, *words)
    lines = {line.partition(" = ")[0]: line for line in text.splitlines()}
    assert lines["hidden"] == "hidden = 32"
    assert lines["keep"] == "keep = 2"  # not in the preset
    preset = config.of_preset(CopyTask, "copy", "laptop")
    assert lines["rate"] == f"rate = 0.001  # {preset['rate'][1]}"  # given, and the same
    for name, (_, reason) in preset.items():
        assert lines[name].endswith(f"  # {reason}") == (name != "hidden")
    _, plain = printed(capsys, "train", "copy")
    assert "#" not in plain


def test_comments_are_told_from_strings():
    text = 'a = "x # y"  # why # so\nb = 3\nc = "#"\nd = 1 # "quoted"\n# e = 5  # not a setting\n'
    assert config.comments(text) == {"a": "why # so", "d": '"quoted"'}


def test_a_preset_says_how_long_it_takes_unless_its_sizes_are_changed():
    for kind, cls in TASKS.items():
        for preset in config.presets(kind):
            told = config.told(config.start(cls, kind, ["--preset", preset]), kind)
            assert re.search("seconds|minutes|hours|day", told)
    paper = config.start(CopyTask, "copy", ["--preset", "paper"])
    assert config.told(dataclasses.replace(paper, seed=3, rate=0.1), "copy")
    assert config.told(dataclasses.replace(paper, hidden=8), "copy") is None
    assert config.told(CopyTask(), "copy") is None


def test_a_long_run_says_how_long_it_takes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("train", "copy", *SMALL, "--steps", 60) == 0
    assert "this takes" not in capsys.readouterr().err
    monkeypatch.setattr(loop, "LONG", 0)
    assert command("train", "copy", "--preset", "laptop", *SMALL, "--steps", 60) == 0
    said = capsys.readouterr().err
    assert len(re.findall(r"kronline: this takes about \d+ s, by its first 20 steps; ", said)) == 1
    assert "preset laptop" not in said
    assert [progress.span(s) for s in (5, 600, 9000, 10**6)] == [
        "5 s",
        "10 min",
        "2.5 h",
        "12 days",
    ]

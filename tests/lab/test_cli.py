"""The command line, as a user meets it."""

import contextlib
import dataclasses
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kronline as kl
from kronline import spec
from kronline.lab import about, cli
from kronline.lab.cli import demo
from kronline.lab.start import main

PNG = b"\x89PNG"


def kronline(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "kronline", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def code(*args):
    """The exit code of a command, run in this process."""
    with pytest.raises(SystemExit) as end:
        main(args)
    return end.value.code


def test_what_draws_nothing_does_not_wait_for_matplotlib():
    see = "import sys, kronline.lab.cli; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", see], check=False).returncode == 0


def test_the_demo_trains_and_reports(tmp_path, monkeypatch, capsys):
    args = ["demo", "--steps", "400", "--hidden", "8", "--json"]
    done = kronline(*args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [m["method"] for m in result["best"]] == ["KF-RTRL", "UORO", "TBPTT-5"]
    assert result["failed"] == []
    place = tmp_path / "runs" / "demo"
    members = [p.parent for p in place.glob("*/metrics.jsonl")]
    assert len(members) == 3
    for run in members:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [m["step"] for m in lines if "T" in m][-1] >= 400
        assert len(lines) >= 80
        assert (run / "figures" / "curve.png").read_bytes().startswith(PNG)
    page = (tmp_path / result["page"]).read_text()
    assert page.lower().startswith("<!doctype html>")
    assert all(name in page for name in ("KF-RTRL", "UORO", "TBPTT-5"))
    # a demo that was interrupted goes on; here all of it was trained
    monkeypatch.chdir(tmp_path)
    (place / "sweep.json").unlink()
    before = {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in members}
    assert code(*args) == 0
    assert "going on with runs/demo" in capsys.readouterr().err
    assert {run: (run / "metrics.jsonl").stat().st_mtime_ns for run in members} == before
    (place / "sweep.json").unlink()
    assert demo._place("other settings").name == "demo-2"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["demo", "--steps", "0"], "steps must be >= 1"),
        (["verify", "--all", "--cell", "RHN(2, 2)"], "--all"),
        (["demo", "--out", __file__], "File exists"),
        (["verify", "--cell", "RNH(2, 2)"], "did you mean 'RHN'"),
        (["verify", "--estimator", "kf_rtrl(windw=1)"], "windw"),
        (["verify", "--estimator", "1 +"], "NAME(arguments)"),
        (["verify", "--cell", "nowhere.py:Cell"], "could not be read"),
        (["verify", "--cell", "RHN(2)"], "inputs"),
        (["verify", "--cell", "RHN(9, 2)", "--estimator", "uoro"], "smaller cell"),
    ],
)
def test_wrong_input_is_explained(args, message, capsys):
    assert code(*args) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_unknown_commands_and_options(capsys):
    assert code("--help") == 0
    assert "verify" in capsys.readouterr().out
    assert code("verfy") == 2
    assert code("verify", "--jsn") == 2
    assert "--json" in capsys.readouterr().err
    assert kronline("--version").stdout.strip() == f"kronline {kl.__version__}"


EVERY = [(name,) for name in cli.PLAIN]
EVERY += [(verb, name) for verb, (_, kinds, _) in cli.VERBS.items() for name in kinds]


def shown(*args):
    """What a command prints, as a terminal has it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
        main(args)
    assert not end.value.code
    out.seek(0)
    return out.read()


def entries(*words):
    """Options and positional arguments, each with its help; without defaults."""
    found = []
    for line in shown(*words, "--help").splitlines():
        text = line[2:].rstrip(" │") if line.startswith("│ ") else ""
        if text and not text.startswith(" "):
            found.append(text)
        elif text:
            found[-1] += f"\n{text}"
    for entry in found:
        name, help_, *_ = (*re.split(r"\s{2,}|\n", entry, maxsplit=1), "")
        help_ = " ".join(help_.split())
        assert "default: None" not in help_  # that says nothing
        yield name, re.sub(r"\(default: .*|\(required\)", "", help_).strip()


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_option_has_a_help(words):
    found = dict(entries(*words))
    assert len(found) > 1
    without = [name for name, text in found.items() if not re.search(r"\w+ \w+|\w{4,}", text)]
    assert without == []
    fields = {f.name for f in dataclasses.fields(cli.command_of(words))}
    named = [name for name, text in found.items() if text in fields and name.isupper()]
    assert named == []  # a positional argument, with nothing but its own name for a help


def test_a_command_that_there_is_not(capsys):
    assert code("trian", "copy") == code("zzz") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("no command 'trian'; did you mean train? `kronline --help` lists them")
    assert second.endswith("no command 'zzz'; `kronline --help` lists them")


@pytest.mark.parametrize("words", [*EVERY, ("train",), ()], ids=" ".join)
def test_errors_point_to_the_commands_own_help(words, capsys):
    assert code(*words, "--no-such-option") == 2
    err = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert " ".join(["kronline", *words, "--help"]) in err
    assert words == () or "kronline --help" not in err


def test_the_help_names_version_and_completion(tmp_path):
    text = shown("--help")
    assert "--version" in text
    assert "`kronline --tyro-print-completion bash`" in text
    script = tmp_path / "kronline"
    script.write_text(shown("--tyro-print-completion", "bash"))
    for given, wanted in (
        (["kronline", "tr"], "train"),
        (["kronline", "resume", "--st"], "--steps"),
    ):
        see = f"""
        source {script}
        COMP_WORDS=({" ".join(given)}); COMP_CWORD={len(given) - 1}
        COMP_LINE="{" ".join(given)}"; COMP_POINT=${{#COMP_LINE}}
        function=$(complete -p kronline | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $function kronline "{given[-1]}" "{given[-2]}"
        echo "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "-c", see], capture_output=True, text=True, check=True)
        assert wanted in done.stdout.split(), done.stdout + done.stderr


@pytest.mark.parametrize("shell", about.SHELLS)
def test_completion_is_there_for_the_shells_that_are_named(shell):
    assert "kronline" in shown(about.COMPLETION, shell)
    page = (Path(__file__).parents[2] / "docs/experiments.md").read_text()
    named = re.search(rf"`kronline {about.COMPLETION} (\w+)[^`]*`\s+\(or (\w+), or (\w+),", page)
    assert named.groups() == about.SHELLS
    first, *others = about.SHELLS
    assert f"`kronline {about.COMPLETION} {first}` (or {', or '.join(others)})" in about.ABOUT
    assert ", ".join(about.SHELLS) in shown("--help")


@pytest.mark.parametrize("words", [["tcsh"], ["power"], []])
def test_completion_for_another_shell_is_refused(words, capsys):
    assert code(about.COMPLETION, *words) == 2
    err = capsys.readouterr().err
    assert "needs one of bash, zsh, fish" in err
    assert "Traceback" not in err


HALVED = """
from dataclasses import dataclass
import kronline as kl

@dataclass(frozen=True)
class Halved(kl.Stepwise):
    inner: kl.KF = kl.KF()

    def init(self, structure):
        return self.inner.init(structure)

    def step_draws(self, structure):
        return self.inner.step_draws(structure)

    def step(self, memory, lin, noise):
        return self.inner.step(memory, lin, noise)

    def pull(self, memory, delta):
        return self.inner.pull(memory, 0.5 * delta)

    def reset(self, memory, flag):
        return self.inner.reset(memory, flag)

estimator = kl.Online(Halved())
"""


def test_a_failed_proof_exits_with_1(tmp_path, capsys):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(HALVED)
    assert code("verify", "--cell", "Tanh(2, 2)", "--estimator", f"{wrong}:estimator") == 1
    assert "FAILS" in capsys.readouterr().out


def test_names_mean_what_they_say():
    assert spec.given("kf_rtrl", "estimator") == kl.kf_rtrl()
    assert spec.given("uoro(copies=3, window=1)", "estimator") == kl.uoro(3, 1)
    assert spec.given("DeepRHN(2, 3, depth=4)", "cell") == kl.DeepRHN(2, 3, 4)
    own = Path(__file__).parents[2] / "examples" / "own_cell.py"
    cell = spec.given(f"{own}:MinimalGated(2, inputs=3)", "cell")
    assert (cell.hidden, cell.inputs) == (2, 3)
    trace = own.with_name("own_trace.py")
    assert spec.given(f"{trace}:estimator", "estimator").window == 1
    with pytest.raises(ValueError, match="NAME"):
        spec.given("__import__('os').system('true')", "estimator")

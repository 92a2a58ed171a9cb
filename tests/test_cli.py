"""The command line, as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kronline as kl
from kronline import names
from kronline.cli import main

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


def test_the_demo_draws_and_reports(tmp_path):
    done = kronline("demo", "--steps", "400", "--hidden", "8", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    curves = {c["method"]: c for c in result["curves"]}
    assert list(curves) == ["KF-RTRL", "UORO", "TBPTT-5"]
    for c in curves.values():
        assert c["steps"][-1] >= 400
        assert len(c["T"]) == len(c["bits_per_char"]) == len(c["steps"])
    assert (tmp_path / result["figure"]).read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["demo", "--steps", "0"], "steps must be >= 1"),
        (["verify", "--all", "--cell", "RHN(2, 2)"], "--all"),
        (["demo", "--out", "no/such/folder/a.png"], "existing folder"),
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


def test_a_failed_proof_exits_with_1(capsys):
    assert code("verify", "--cell", "Tanh(2, 2)", "--estimator", "tbptt(2)") == 1
    assert "FAILS" in capsys.readouterr().out


def test_names_mean_what_they_say():
    assert names.parse("kf_rtrl", names.ESTIMATORS, "estimator") == kl.kf_rtrl()
    assert names.parse("uoro(copies=3, window=1)", names.ESTIMATORS, "") == kl.uoro(3, 1)
    assert names.parse("DeepRHN(2, 3, depth=4)", names.CELLS, "cell") == kl.DeepRHN(2, 3, 4)
    own = Path(__file__).parent.parent / "examples" / "own_cell.py"
    cell = names.parse(f"{own}:MinimalGated(2, inputs=3)", names.CELLS, "cell")
    assert (cell.hidden, cell.inputs) == (2, 3)
    trace = own.with_name("own_trace.py")
    assert names.parse(f"{trace}:estimator", names.ESTIMATORS, "estimator").window == 1
    with pytest.raises(ValueError, match="NAME"):
        names.parse("__import__('os').system('true')", names.ESTIMATORS, "estimator")

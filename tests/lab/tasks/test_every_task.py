"""What holds for every registered task: all commands work on it, no other file knows its name."""

import ast
import json
import shutil
from pathlib import Path

import pytest

from kills import same
from kronline.lab import tasks as home
from kronline.lab.analysis.numbers import KNOWN, number, summary
from kronline.lab.runs import config, folder
from kronline.lab.tasks import TASKS
from kronline.lab.variance import cost
from running import command, step_of

LAB = Path(home.__file__).parent.parent
STEPS = 40
TINY = ["--hidden", 4, "--lanes", 3, "--steps", STEPS, "--log-every", 10, "--save-every", 20]
METHODS = ["--estimators", "kf_rtrl", "tbptt(2)", "--rates", 1e-3, "--seeds", 0]


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
    """A finished run; not to be changed."""
    out = tmp_path_factory.mktemp("train") / "run"
    assert command("train", task.kind, *TINY, "--keep", 9, "--monitor", "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def swept(task, tmp_path_factory):
    """A finished sweep, its runs in processes of their own."""
    out = tmp_path_factory.mktemp("sweep") / "runs"
    assert command("sweep", task.kind, *TINY, *METHODS, "--workers", 2, "--out", out) == 0
    return out


# -- what a task says ------------------------------------------------------------------------------


def test_no_other_file_knows_a_task_by_its_name():
    """The bench copies memory, and calls that copy; streams keep the text of a bad line."""
    found = []
    for file in LAB.rglob("*.py"):
        if file.relative_to(LAB).parts[0] in ("tasks", "bench", "learn"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in TASKS:
                found.append(f"{file.relative_to(LAB)}:{node.lineno}: {node.value!r}")
    assert found == []


def test_a_task_says_all(task):
    said = (task.kind, task.title, task.link, task.subject, task.figure, task.rule, task.loss_axis)
    assert all(said) and all(task.told) and task.methods and task.numbers
    assert task.paper.citation and task.paper.settings and task.paper.seeds
    names = {f for f in task.__dataclass_fields__}
    assert {s.key for s in task.paper.settings} <= names and "steps" in names
    assert not task.facet or task.facet in names
    assert all("{}" in text for text in task.told[1:])
    for method in ("KF-RTRL", "TBPTT-25", "no such method"):
        assert len(task.published_cells(method, {})) == len(task.paper.heads)
    assert task.published("no such method", {}) is None
    assert {"laptop", "paper"} <= set(config.presets(task.kind))
    assert config.presets(f"compare-{task.kind}") == ["laptop"]


def test_a_name_means_one_quantity():
    for task in TASKS.values():
        for q in (task.curve, task.score, *task.numbers):
            assert KNOWN[q.key] == q


def test_a_stream_is_fit_for_compiled_programs(task):
    a, b = (config.make(task, {"lanes": 3, "steps": 7, "seed": s}).build() for s in (0, 1))
    assert a.stream == b.stream and hash(a.stream) == hash(b.stream)  # one program for all seeds


# -- one run ---------------------------------------------------------------------------------------


def test_train(task, trained):
    run = folder.read(trained)
    assert (run.kind, run.state, run.status["step"]) == (task.kind, "finished", STEPS)
    assert [m["step"] for m in run.metrics] == [10, 20, 30, 40, 40]  # and a closing line
    for line in run.metrics[:-1]:
        assert {"step", task.loss, "gradient"} <= set(line)
        assert task.note(line)
    assert all(number(run, q.key) is not None for q in (task.curve, *task.numbers))
    assert {q.key for q in task.numbers} <= set(summary(run))
    assert (trained / "figures" / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("step", [0, 20])
def test_resume_after_a_kill(trained, step, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    for file in (run / "checkpoints").iterdir():
        if step_of(file.name) > step:
            file.unlink()
    folder.set_status(run, "running", step=step, steps=STEPS, message="")
    assert command("resume", run) == 0
    assert same(trained, run) == []


# -- several runs ----------------------------------------------------------------------------------


def test_sweep(task, swept, capsys):
    result = json.loads((swept / "sweep.json").read_text())
    assert (result["kind"], result["rule"], result["failed"]) == (task.kind, task.rule, [])
    assert [row["method"] for row in result["best"]] == ["KF-RTRL", "TBPTT-2"]
    for row in result["best"]:
        assert all(row[q.key]["n"] == 1 for q in task.numbers)
    about = json.loads((swept / "about.json").read_text())
    assert (about["kind"], about["task"]) == ("sweep", task.kind)
    for written_down in (True, False):  # an earlier version did not
        if not written_down:
            (swept / "about.json").unlink()
        assert command("resume", swept, "--json") == 0
        assert json.loads(capsys.readouterr().out) == result


def test_list(task, swept, capsys):
    assert command("list", swept, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert {row["kind"] for row in rows} == {task.kind}
    assert all(q.key in row for row in rows for q in task.numbers)
    assert command("list", swept) == 0
    assert "finished" in capsys.readouterr().out


def test_report(task, swept, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert command("report", swept, "--out", out, "--json") == 0
    rows = json.loads(capsys.readouterr().out)[task.kind]
    assert [row["label"] for row in rows] == ["KF-RTRL", "TBPTT-2"]
    page = out.read_text()
    for text in (task.title, task.link, *task.paper.heads, *(q.head for q in task.numbers)):
        assert text.replace("'", "&#x27;") in page
    others = [t for t in TASKS.values() if t is not task]
    assert all(f"kronline train {t.kind} --preset laptop" in page for t in others)


@pytest.mark.parametrize("x", ["steps", "seconds"])
def test_plot(task, swept, x, tmp_path):
    out = tmp_path / "plot.svg"
    assert command("plot", swept, "--x", x, "--out", out) == 0
    assert f">{task.curve.axis}" in out.read_text()


def test_plot_over_a_setting(task, swept, tmp_path):
    out = tmp_path / "plot.svg"
    assert command("plot", swept, "--over", "estimator", "--out", out) == 0
    assert ">kf_rtrl<" in out.read_text()


def test_curves_of_others(task, swept, tmp_path):
    theirs, out = tmp_path / "theirs.csv", tmp_path / "plot.svg"
    theirs.write_text(f"label,run,step,{task.curve.key}\nTheirs,0,10,1\nTheirs,0,20,2\n")
    assert command("plot", swept, "--beside", theirs, "--out", out) == 0
    assert ">Theirs<" in out.read_text()


def test_compare(task, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cost, "SECONDS", 1e-4)
    more = ["--places", 2, "--draws", 2, "--loss-steps", 2, "--most", 1, "--workers", 2]
    words = ["compare", task.kind, *TINY, *METHODS, *more, "--out", tmp_path / "runs", "--json"]
    assert command(*words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == [] and found["kind"] == task.kind
    for row in found["rows"]:
        assert row["data"] is not None and row["variance"] >= 0 and -1 <= row["cosine"] <= 1.001
    page = (tmp_path / "runs" / "compare.html").read_text()
    assert task.curve.head.replace("'", "&#x27;") in page
    assert command("resume", tmp_path / "runs", "--json") == 0
    assert json.loads(capsys.readouterr().out) == found

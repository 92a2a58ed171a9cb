"""Every command that README, docs, examples and the commands' own --help show, tried.

Bash itself reads them (variables, comments, lines that go on), with `kronline` put in the place of
the command: it writes its arguments down. Each is then carried out, in the order of its page, in a
folder of its own, with fewer steps and lanes and nothing else changed, so that folders have the
names that the page gives them. What would take minutes is parsed, and its configuration built,
network, text and all.
"""

import contextlib
import dataclasses
import importlib.util
import inspect
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kronline.errors import UsageError
from kronline.lab import about, bench, cli, learn, variance
from kronline.lab.bench.run import planned
from kronline.lab.cli import demo, export, info, listing, train, verify
from kronline.lab.report import command as report
from kronline.lab.runs import folder, grid, publish, sample
from kronline.lab.runs.train import RUNS, named
from kronline.lab.tasks import Task
from kronline.lab.variance import plan as plans
from kronline.verifier.suite import library
from running import command as run_in_process

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# -- what is shown ---------------------------------------------------------------------------------

RECORD = """set -eu
PATH=
HOME=$PWD
write() { { printf '%s\\x1f' "$@"; printf '\\x1e'; } >> recorded; }
kronline() { write kronline "$@"; }
python() { write python "$@"; }
make() { write make "$@"; }
pip() { :; }
dask() { write dask "$@"; }
"""


def recorded(script, place):
    """The commands of a shell script, as lists of words."""
    file = place / "recorded"
    file.write_bytes(b"")
    words = ["bash", "-c", RECORD + script]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\nin\n{script}"
    lines = file.read_text().split("\x1e")[:-1]
    file.unlink()
    return [line.split("\x1f")[:-1] for line in lines]


def page(text):
    """A page's commands as one script, in its order: blocks of sh, and `kronline ...` in a text."""
    found = re.findall(r"```sh\n(.*?)```|```.*?```|`(kronline [^`]+)`", text, re.DOTALL)
    script = []
    for block, inline in found:
        line = inline.replace("\n", " ")
        some = re.search(r"\w+(\|\w+)+", line)  # copy|text: either
        lines = [line.replace(some[0], one) for one in some[0].split("|")] if some else [line]
        script.append(block or "\n".join(lines))
    return "\n".join(script)


def tried(doc):
    """What a docstring says under "Try:"."""
    return inspect.cleandoc(doc).partition("Try:")[2]


def helps():
    """Of all commands, in the order of `kronline --help`."""
    kinds = [cls for _, kinds, _ in cli.VERBS.values() for cls in kinds.values()]
    docs = [cls.__doc__ for cls in [*kinds, *(cls for cls, _ in cli.PLAIN.values())]]
    without = [doc for doc in docs if not tried(doc).strip()]
    assert not without
    return "\n".join([*map(tried, docs), page(about.ABOUT)])


def examples():
    found = [f.read_text() for f in sorted((ROOT / "examples").glob("*.py"))]
    return "\n".join(re.findall(r"^kronline .*", "\n".join(found), re.MULTILINE))


SHOWN = {str(p.relative_to(ROOT)): (lambda p=p: page(p.read_text())) for p in PAGES}
SHOWN = {name: text for name, text in SHOWN.items() if text().strip()}
SHOWN |= {"--help": helps, "examples": examples}

# -- what is done with it --------------------------------------------------------------------------

SMALL = ["--steps", "40", "--lanes", "2", "--log-every", "20", "--save-every", "20"]
ONE = ["--estimators", "kf_rtrl", "--rates", "1e-3", "--seeds", "0"]
CELL = """
import jax.numpy as jnp
import kronline as kl
class MyCell(kl.UnitCell):
    gates = ("g",)
    def unit(self, z, s):
        return jnp.sin(z[0])
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with what a reader of the pages has."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / ".local/share/bash-completion/completions").mkdir(parents=True)
    (tmp_path / "book.txt").write_text((ROOT / "README.md").read_text())
    (tmp_path / "my.toml").write_text("hidden = 8\n")
    (tmp_path / "theirs.csv").write_text("label,run,step,T\ntheirs,0,20,3\ntheirs,0,40,4\n")
    (tmp_path / "my_cell.py").write_text(CELL)
    events = [
        {
            "pump": f"p{t % 3}",
            "pressure": t % 7 + 0.5,
            "load": t % 5,
            "state": "on" if t % 4 else "off",
        }
        for t in range(60)
    ]
    (tmp_path / "pumps.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    rows = [",".join(events[0]), *(",".join(map(str, e.values())) for e in events)]
    (tmp_path / "pumps.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "my_trace.py").write_text("import kronline as kl\nestimator = kl.uoro\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Reader:
    """Someone who tries one command after the other."""

    def __init__(self, all_words):
        self.all = all_words
        self.made = set()  # folders that commands before this one make
        self.runs = {}  # the first of each kind, for RUN

    def tries(self, words):
        words = [w.removesuffix("...") for w in words if w != "..."]
        if words[-1].startswith("--estimators"):  # which were left to the reader
            words.append("uoro")
        kind = "text" if words[0] in ("variance", "sample") else "copy"
        if "RUN" in words and kind not in self.runs:
            self.tries(["train", kind, "--preset", "laptop"])
        if words[0].startswith("--"):
            assert not _code(*words)
            return None
        given = {"RUN": str(self.runs.get(kind)), "N": "80", "FOLDER": "runs/folder"}
        words = [given.get(w, w) for w in words]
        if _mentioned(words):
            assert _code(*words, "--help") == 0
            return None
        args = _parsed(words)
        for word, before in zip(words, ["", *words], strict=False):
            if word.startswith("runs/") and before != "--out":
                assert word in self.made, f"{word} was made by no command before"
        for kind, does in DONE.items():
            if isinstance(args, kind):
                return does(self, args, words)
        assert isinstance(args, demo.Demo)  # which tests/test_cli.py runs
        return None

    def several(self, args, words):
        """A sweep: small if its folder is named later, else every network of it is built."""
        path = args.out or folder.free(RUNS, f"sweep-{args.kind}")
        if any(str(path) in w[1:] for w in self.all if w[0] not in cli.VERBS):
            assert _code(*words, *SMALL, *ONE) == 0
        else:
            once = dataclasses.replace(args, rates=args.rates[:1], seeds=(0,))
            for member in grid.members(once, path):
                assert member.settings.build().steps > 0
        self.made.add(str(path))

    def one(self, args, words):
        path = args.out or folder.free(RUNS, named(args))
        if getattr(args, "data", None) == "ptb":
            assert args.build().steps > 0
        else:
            every = ["--valid-every", "40"] if args.kind == "text" else []
            assert _code(*words, *SMALL, *every) == 0
            assert path.is_dir()
            self.runs.setdefault(args.kind, path)
        self.made.add(str(path))

    def measures(self, args, words):
        if args.retime is None:
            assert plans.make(args).units
            self.made.add(str(args.out))

    def resumes(self, args, words):
        steps = folder.read(args.run).status["step"] + 40
        assert _code(*words, *(["--steps", str(steps)] if args.steps else [])) == 0
        assert not args.steps or folder.read(args.run).status["step"] == steps

    def proves(self, args, words):
        if args.cell or args.estimator:
            assert _code(*words) == 0
        else:
            assert library(args.all)

    def times(self, args, words):
        assert planned(args.quick, args.full, args.diagonal)  # the estimators' names have been read
        assert args.compare is None or args.compare.is_file()

    def learns(self, args, words):
        words = ["pumps.jsonl" if w == "-" else w for w in words if w != "--follow"]
        assert _code(*words, "--set", "hidden=4") == 0
        self.made.add(str(args.folder))

    def exports(self, args, words):
        package = {"onnx": "onnx", "jax": "flatbuffers"}.get(args.to, "numpy")
        there = importlib.util.find_spec(package) is not None
        assert _code(*words) == (0 if there else 2)
        assert args.out.is_file() or not there

    def at_once(self, args, words):
        assert _code(*words) == 0
        self.made.add(str(getattr(args, "out", None)))


DONE = {
    grid.Grid: Reader.several,
    Task: Reader.one,
    variance.Variance: Reader.measures,
    train.Resume: Reader.resumes,
    verify.Verify: Reader.proves,
    bench.Bench: Reader.times,
    learn.Learn: Reader.learns,
    export.Export: Reader.exports,
    listing.List | sample.Sample | publish.Publish | info.Info: Reader.at_once,
    report.Report | report.Plot: Reader.at_once,
}


def _mentioned(words):
    """A command that is only named, and not to be typed so: what it needs is left out."""
    if words[0] in cli.VERBS:
        return len(words) == 1
    fields = dataclasses.fields(cli.PLAIN[words[0]][0])
    needs = [f for f in fields if f.default is dataclasses.MISSING]
    return len(words) == 1 and bool(needs)


def _parsed(words):
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return cli.parse(words)
    except SystemExit:
        pytest.fail(f"kronline {' '.join(words)}\n{shown.getvalue()}")


def _code(*words):
    return run_in_process(*words)


@pytest.mark.parametrize("name", SHOWN)
def test_every_command_runs(name, place):
    commands = recorded(SHOWN[name](), place)
    assert commands
    for kind, *words in commands:
        if kind == "make":
            dry = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, check=False)
            assert dry.returncode == 0, words
        elif kind == "dask":
            assert importlib.util.find_spec(f"distributed.cli.dask_{words[0]}"), words
        elif kind == "python":
            file = words[0] != "-m" and ROOT / words[0]
            assert file.is_file() if file else importlib.util.find_spec(words[1]), words
    mine = [words for kind, *words in commands if kind == "kronline"]
    reader = Reader(mine)
    for words in mine:
        try:
            reader.tries(words)
        except (AssertionError, UsageError) as e:
            raise AssertionError(f"{name}: kronline {' '.join(words)}: {e}") from e


def test_a_folder_that_is_not_made_is_found(place):
    reader = Reader([])
    reader.tries(["train", "copy", "--preset", "laptop"])
    with pytest.raises(AssertionError, match="made by no command"):
        reader.tries(["resume", "runs/copy-kf_rtrl-n64-seed0"])
    with pytest.raises(pytest.fail.Exception, match="hiddn"):
        reader.tries(["train", "copy", "--hiddn", "8"])


def test_commands_are_read_as_a_shell_reads_them(place):
    script = 'A="--x 1"\nkronline a $A \\\n  "b c"  # d\nkronline e; kronline f > g\n'
    got = recorded(script, place)
    assert got == [["kronline", "a", "--x", "1", "b c"], ["kronline", "e"], ["kronline", "f"]]
    assert page("`kronline a b|c d` and\n```sh\nmake x\n```\n```python\n`kronline z`\n```").split(
        "\n"
    ) == ["kronline a b d", "kronline a c d", "make x", "", ""]

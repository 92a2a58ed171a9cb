"""Runs a part of the tests with every Python that is here, the oldest and the newest packages.

    python .ci/matrix.py                     # all that this machine has; what it lacks is named
    python .ci/matrix.py --pythons 3.13 --sets newest

`oldest` are the lowest versions that pyproject.toml allows (jax, optax, numpy, jaxtyping,
safetensors); `newest` are the newest that can be installed. Each gets an environment of its own
under build/matrix, which is kept for the next time.
"""

import argparse
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SETS = ("oldest", "newest")
TESTS = (  # the kernel, the mathematics, files, the command
    "tests/native/test_prebuilt.py",
    "tests/native/test_native.py::test_the_merge_equals_pure_jax",
    "tests/estimators/test_estimators.py",
    "tests/checkpoint/test_old.py",
    "tests/learner/test_regularise.py",
)
NUMPY = {"3.11": "2.0", "3.12": "2.0", "3.13": "2.1", "3.14": "2.3"}
TOOLS = ("pytest>=8", "tyro>=0.9", "rich>=13", "matplotlib>=3.9")
PROVE = ("verify", "--cell", "LSTM(1, 2)", "--estimator", "kf_rtrl()")


def main() -> None:
    """All that was asked for, then a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", metavar="3.X", help="these, or it has failed")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    args = parser.parse_args()
    rows, failed = [], False
    jobs = [(python, which) for python in args.pythons or PYTHONS for which in args.sets]
    for done, (python, which) in enumerate(jobs):
        print(f"{python}, {which} ({done + 1} of {len(jobs)})", flush=True)
        began = time.monotonic()
        outcome, versions = one(python, which)
        failed |= outcome.startswith("failed") or bool(args.pythons and not versions)
        rows.append((python, which, versions, outcome, f"{time.monotonic() - began:.0f} s"))
    width = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        print("  ".join(x.ljust(w) for x, w in zip(row, width, strict=True)).rstrip())
    sys.exit(failed)


def one(python: str, which: str) -> tuple[str, str]:
    """What came of one environment, and the versions in it."""
    program = find(python)
    if program is None:
        return f"skipped: no python{python} on this machine", ""
    place = ROOT / "build/matrix" / f"{python}-{which}"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([program, "-m", "venv", place], check=True)
        pip = [place / "bin/python", "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        wanted = pinned(python) if which == "oldest" else ["--upgrade", *core()]
        done = subprocess.run([*pip, *wanted, *TOOLS], check=False, capture_output=True, text=True)
        if done.returncode:
            lines = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
            return f"failed: {(lines or ['pip'])[0]}", ""
        # the checkout itself, without what it asks for: that was chosen above
        subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
        (place / "done").touch()
    versions = seen(place)
    for name, words in [
        ("verify", [place / "bin/kronline", *PROVE]),
        ("tests", [place / "bin/python", "-m", "pytest", "-p", "no:cacheprovider", *TESTS]),
    ]:
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
            return f"failed: {name}", versions
    return done.stdout.strip().splitlines()[-1].strip("= "), versions


def find(python: str) -> str | None:
    """A program that is that Python: on PATH, or one of pyenv's."""
    names = [shutil.which(f"python{python}")]
    names += sorted(map(str, Path.home().glob(f".pyenv/versions/{python}.*/bin/python")))
    for name in filter(None, names):
        ask = [name, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        if done.stdout.strip() == python:
            return name
    return None


def core() -> list[str]:
    """What the library itself needs."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def pinned(python: str) -> list[str]:
    """The lowest versions that are allowed; of numpy the lowest with wheels for this Python."""
    low = [need.replace(">=", "==") for need in core() if not need.startswith("numpy")]
    return [*low, f"numpy=={NUMPY[python]}.*"]


def seen(place: Path) -> str:
    """The versions that matter."""
    code = "import jax, optax, numpy; print('jax', jax.__version__, 'optax', optax.__version__, "
    code += "'numpy', numpy.__version__)"
    ask = [place / "bin/python", "-c", code]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()

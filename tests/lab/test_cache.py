"""Programs that the commands keep: nothing that is computed changes, and no trouble shows."""

import os
import subprocess
import sys

import pytest

from compiling import UNOPTIMISED
from kronline import cache
from kronline.native import build
from running import SMALL

TRAIN = ["train", "copy", *SMALL, "--steps", "40"]
HIT = "Persistent compilation cache hit for 'jit_stretch'"
OFF = {"JAX_ENABLE_COMPILATION_CACHE": "0"}


def kronline(place, run, **env):
    """A training in a process of its own, as a user starts it, whose cache folder is `place`."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    # small programs are worth keeping, too, and whether they are found is told
    plain |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    plain |= {"JAX_LOG_COMPILES": "1", UNOPTIMISED: "1"}
    words = [sys.executable, "-m", "kronline", *TRAIN, "--out", str(run)]
    env = plain | {"XDG_CACHE_HOME": str(place)} | env
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kronline: warning" not in done.stderr
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr
    return HIT in done.stderr


def numbers(run):
    return (run / "metrics.jsonl").read_bytes(), *(
        f.read_bytes() for f in sorted((run / "checkpoints").iterdir())
    )


def programs(place):
    return sorted(place.glob("kronline/programs-*/*"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A cache folder that has the kernel, so that it is not built again."""
    made = tmp_path_factory.mktemp("cache")
    (made / "kronline").mkdir()
    if isinstance(kernel := build.library(), build.Library):
        (made / "kronline" / kernel.path.name).symlink_to(kernel.path)
    return made


def test_programs_are_kept_and_change_nothing(place, tmp_path):
    assert not kronline(place, tmp_path / "off", **OFF)
    elsewhere = tmp_path / "elsewhere"
    assert not kronline(place, tmp_path / "other", JAX_COMPILATION_CACHE_DIR=str(elsewhere))
    assert any(elsewhere.iterdir())
    assert programs(place) == []
    assert not kronline(place, tmp_path / "first")
    kept = programs(place)
    assert any("jit_stretch" in f.name for f in kept)
    assert kronline(place, tmp_path / "second")  # found, and
    assert programs(place) == kept
    # damaged: thrown away, and kept anew
    for file in kept:
        file.write_bytes(file.read_bytes()[:-200])
    assert not kronline(place, tmp_path / "damaged")
    assert kronline(place, tmp_path / "mended")
    runs = [r for r in tmp_path.iterdir() if r != elsewhere]
    assert len({numbers(r) for r in runs}) == 1


@pytest.mark.parametrize("kind", ["file", "nowhere"])
def test_a_folder_that_cannot_be_used_is_no_error(kind, tmp_path):
    (tmp_path / "file").touch()
    given = tmp_path / "file" if kind == "file" else "/proc/nowhere"
    native = {"KRONLINE_NATIVE": "0"}  # the kernel is kept there, too
    assert not kronline(given, tmp_path / "run", **native)


def test_small_programs_are_not_worth_it(place, tmp_path):
    see = "from kronline import cache; cache.keep_programs(2); import jax; "
    see += "jax.jit(lambda x: x + 1)(1.0); print(jax.config.jax_compilation_cache_dir)"
    plain = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    env = plain | {"XDG_CACHE_HOME": str(tmp_path)}
    words = [sys.executable, "-c", see]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))
    assert programs(tmp_path) == []


def test_the_oldest_half_goes_when_there_is_too_much(tmp_path, monkeypatch):
    for i in range(5):
        (tmp_path / str(i)).write_bytes(bytes(100))
        os.utime(tmp_path / str(i), (i, i))
    monkeypatch.setattr(cache, "MOST", 500)
    cache._thin(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(cache, "MOST", 499)
    cache._thin(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["3", "4"]

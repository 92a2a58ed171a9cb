"""Settings for all tests, and for the processes that they start.

Shapes that fit only by silent broadcasting are errors. The tests are many small programs, each run
once, so these are compiled as fast as can be: without optimisation, in one piece, and by XLA's
plain emitters (those of fusions, which are the default, take twice the time). `test_replay.py`
looks at programs as users have them, too. What is compiled is kept, so that the workers, the
processes that they start, and later runs need not compile it again.
"""

import gc
import os
import signal
from pathlib import Path

import jax
import pytest

from compiling import FLAGS, UNOPTIMISED

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "programs"
if FLAGS not in (given := os.environ.get("XLA_FLAGS", "")):
    os.environ["XLA_FLAGS"] = f"{given} {FLAGS}".strip()
os.environ[UNOPTIMISED] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes read the same sources
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell: also of
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the processes that are started
gc.set_threshold(100_000, 20, 100)  # tracing makes many objects, and little garbage
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)

# the files that take longest, which begin first: no worker is left with one of them at the end
LONGEST = (
    "docs/test_commands.py",
    "verifier/test_verify.py",
    "lab/runs/test_runs.py",
    "lab/runs/test_trouble.py",
    "native/test_native.py",
    "traces/test_segment_merge.py",
    "lab/test_cache.py",
    "lab/variance/test_table.py",
    "lab/runs/test_sweep.py",
    "lab/variance/test_variance.py",
    "lab/bench/test_bench.py",
    "lab/tasks/test_every_task.py",
    "learner/test_regularise.py",
    "estimators/test_reset.py",
    "cells/test_sparse.py",
    "traces/test_biased.py",
)


def pytest_collection_modifyitems(items):
    """In the order of `LONGEST`; needs --no-loadscope-reorder, or xdist has an order of its own."""
    rank = {Path(__file__).parent / name: i for i, name in enumerate(LONGEST)}
    assert all(file.is_file() for file in rank)
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(autouse=True, scope="module")
def _forget():
    """Compiled programs of a file are of no use to the next: gigabytes, by the end."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def book(tmp_path_factory):
    """A small text."""
    from kronline.lab.tasks.corpus import read  # noqa: PLC0415  after the settings above

    c = read(None)
    file = tmp_path_factory.mktemp("text") / "book.txt"
    file.write_text("".join(c.symbols[i] for i in c.train[:60_000]), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory, book):
    """A finished run of each kind; not to be changed."""
    from running import STEPS, command, words  # noqa: PLC0415

    place = tmp_path_factory.mktemp("unbroken")
    for kind in STEPS:
        assert command("train", *words(kind, book), "--out", place / kind) == 0
    return {kind: place / kind for kind in STEPS}

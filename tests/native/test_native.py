"""The native kernel computes what pure JAX computes, is built once, and is never needed."""

import os
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kronline as kl
from kronline import native
from kronline.lab.bench.equal import LIMIT, errors
from kronline.lab.bench.work import Row
from kronline.linearised import BlockH, UnitH, UnitM, WeightJac
from kronline.native import build, recipe
from kronline.traces.kf import Pair, merge_pair
from kronline.traces.mixing import balanced

STATUS = native.status()
kernel = pytest.mark.skipif(not STATUS.active, reason=f"no native kernel here: {STATUS.reason}")

# slots, gates, units, slots that are read; units both fit and do not fit the register blocks
SHAPES = [(1, 2, 33, (0,)), (2, 4, 17, (1,)), (3, 2, 9, (2, 0)), (1, 1, 64, (0,)), (1, 3, 1, (0,))]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def test_an_error_in_the_kernel_is_no_reason_to_leave_its_tests_out():
    assert "could not build" not in STATUS.reason, STATUS.reason


def normal(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape))


def parts(shape, lanes, m=7):
    """One merge's arguments, with lanes on the leading axis of all but W."""
    q, r, n, reads = shape
    rng = np.random.default_rng(0)
    W = normal(rng, len(reads), n, r, n)
    D, E = normal(rng, lanes, q, r, n), normal(rng, lanes, q, q, n)
    u = normal(rng, lanes, m).at[1].set(0.0)  # a lane after a reset
    A = normal(rng, lanes, q * n, r, n).at[1].set(jnp.nan)  # whatever A holds
    feats = normal(rng, lanes, m).at[2].set(0.0)  # a lane with nothing new
    pair = Pair(u, A, jnp.abs(normal(rng, lanes)) * 1e3)
    return W, D, E, reads, pair, feats, normal(rng, lanes, q * n), jnp.sign(normal(rng, lanes))


def merged(shape, lanes, before):
    W, D, E, reads, *rest = parts(shape, lanes)

    def lane(W, D, E, pair, feats, delta, c):
        H = UnitH(W, D, E, reads)
        return merge_pair(pair, WeightJac(feats, UnitM(D)), H, c, delta, before=before)

    return jax.vmap(lane, (None,) + (0,) * 6)(W, D, E, *rest)


def close(a, b, tolerance=1e-13):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.all(np.isfinite(y))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * max(1, np.abs(y).max()))


@kernel
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_merge_equals_pure_jax(shape, before):
    with native.use(False):
        want = merged(shape, 4, before)
    close(merged(shape, 4, before), want)


# slots, gates, units, slots that are read; units a block, offsets
SPARSE = [
    (1, 2, 64, (0,), 16, (0, 1)),
    (2, 4, 96, (0,), 32, (0, 2)),
    (2, 3, 12, (1, 0), 3, (0, 1, 3)),
    (1, 1, 5, (0,), 1, (0, 1)),
]


@kernel
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("shape", SPARSE, ids=str)
def test_the_merge_of_sparse_weights_equals_pure_jax(shape, before):
    *dense, size, offsets = shape
    W, D, E, reads, *rest = parts(tuple(dense), 3)
    _, r, n, _ = dense
    W = normal(np.random.default_rng(1), n // size, r, size, len(reads) * len(offsets) * size)

    def lane(W, D, E, pair, feats, delta, c):
        H = BlockH(W, D, E, reads, offsets)
        return merge_pair(pair, WeightJac(feats, UnitM(D)), H, c, delta, before=before)

    def run(use):
        with native.use(use):
            return jax.jit(jax.vmap(lane, (None,) + (0,) * 6))(W, D, E, *rest)

    close(run(True), run(False))


@kernel
def test_the_mix_equals_pure_jax():
    """Where all d differ; the kernel finds the same vectors by rotations."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        u, b = (jnp.asarray(rng.normal(size=(3, 7, 20))) for _ in range(2))
        Gu, Gb = (jnp.einsum("lix,ljx->lij", a, a) for a in (u, b))
        signs = jnp.asarray(rng.choice([-1.0, 1.0], size=(3, 6)))
        fast = jax.jit(jax.vmap(lambda *a: native.mix(*a, 3)))(Gu, Gb, signs)
        slow = jax.jit(jax.vmap(lambda *a: balanced(*a, 3)))(Gu, Gb, signs)
        close(fast, tuple(slow), 1e-6)


@kernel
@pytest.mark.parametrize("shape", SHAPES)
def test_P_times_H_equals_pure_jax(shape):
    W, D, E, reads, *_ = parts(shape, 2)
    P = normal(np.random.default_rng(1), 2, 29, shape[0] * shape[2])

    def product(D, E, P):
        return UnitH(W, D, E, reads).rmm(P)

    with native.use(False):
        want = jax.vmap(product)(D, E, P)
    close(jax.vmap(product)(D, E, P), want)


@kernel
def test_weights_may_differ_between_runs_and_be_shared_by_lanes():
    W, D, E, reads, pair, feats, delta, c = parts((2, 4, 17, (1,)), 3)
    Ws = jnp.stack([W, 2 * W])

    def lane(W, D, E, pair, feats, delta, c):
        H = UnitH(W, D, E, reads)
        return merge_pair(pair, WeightJac(feats, UnitM(D)), H, c, delta, before=False)

    lanes = jax.vmap(lane, (None,) + (0,) * 6)
    # runs of lanes, lanes of runs, and one lane alone
    for f, args in [
        (jax.vmap(lanes, (0,) + (None,) * 6), (Ws, D, E, pair, feats, delta, c)),
        (
            jax.vmap(jax.vmap(lane, (0,) + (None,) * 6), (None,) + (0,) * 6),
            (Ws, D, E, pair, feats, delta, c),
        ),
        (lane, jax.tree.map(lambda a: a[0], (Ws, D, E, pair, feats, delta, c))),
    ]:
        with native.use(False):
            want = f(*args)
        close(f(*args), want)


@kernel
def test_a_lane_that_is_split_over_threads():
    """One lane with more than 256 columns; the sum of squares must not depend on the split."""
    with native.use(False):
        want = merged((1, 2, 160, (0,)), 3, False)
    close(merged((1, 2, 160, (0,)), 3, False), want)
    one = jax.tree.map(lambda a: a[0], merged((1, 2, 160, (0,)), 3, False))
    W, D, E, reads, *rest = parts((1, 2, 160, (0,)), 3)
    pair, feats, delta, c = jax.tree.map(lambda a: a[0], tuple(rest))
    H = UnitH(W, D[0], E[0], reads)
    alone = merge_pair(pair, WeightJac(feats, UnitM(D[0])), H, c, delta, before=False)
    assert all(map(np.array_equal, jax.tree.leaves(alone), jax.tree.leaves(one)))


@kernel
def test_other_precisions_and_mixtures_take_the_pure_path():
    W, D, E, reads, *rest = parts((1, 2, 5, (0,)), 3)
    pair, feats, delta, c = jax.tree.map(lambda a: a[0], tuple(rest))
    H, group = UnitH(W, D[0], E[0], reads), WeightJac(feats, UnitM(D[0]))
    mixed = merge_pair(pair, group, H, c.astype(jnp.float32), delta, before=False)
    close(mixed, merge_pair(pair, group, H, c, delta, before=False))
    half = jax.tree.map(lambda a: a.astype(jnp.float16), (pair, group, H, c, delta))
    assert merge_pair(*half, before=False)[1].dtype == jnp.float16


@pytest.mark.parametrize("row", [("RHN", 64, 64), ("LSTM", 40, 3)])
def test_fast_paths_equal_float64(row):
    found = errors(Row("KF-RTRL", "fast", *row))
    assert set(found) == {"pure JAX"} | ({"native"} if STATUS.active else set())
    assert max(found.values()) <= LIMIT, found


def test_pure_jax_is_verified_too():
    with native.use(False):
        assert kl.verify(kl.LSTM(1, 2), kl.kf_rtrl()).ok


PROGRAM = """
import jax, optax, kronline as kl
learner = kl.Learner(kl.RHN(5, 3), kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1))
state = learner.init(jax.random.key(0), 2)
for _ in range(2):
    state, out = learner.run(state, [[0, 1]] * 20, [[1, 2]] * 20)
print(kl.native.status().active, float(out.loss[-1, 0]))
"""


def learn(tmp_path, **env):
    """A new process, with a cache of its own."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=True
    )
    active, loss = done.stdout.split()
    return active == "True", float(loss), done.stderr


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"KRONLINE_NATIVE": "0"}, "KRONLINE_NATIVE=0"),
        ({"CXX": "no-such-compiler"}, "no C++ compiler was found (looked for no-such-compiler)"),
        ({"CXX": "false"}, "could not build the kernel"),
    ],
)
def test_without_a_kernel_pure_jax_works_and_one_line_says_so(tmp_path, env, reason):
    active, loss, stderr = learn(tmp_path, **env)
    assert not active and 0 < loss < 2
    lines = [line for line in stderr.splitlines() if "pure JAX" in line]
    assert len(lines) == 1 and lines[0].startswith("kronline:") and reason in lines[0]


@kernel
def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "kronline").write_text("a file is in the way")
    active, _, stderr = learn(tmp_path)
    assert not active and "the kernel cannot be kept" in stderr


@kernel
def test_the_kernel_is_built_once(tmp_path):
    quick = script(tmp_path / "c++", f'#!/bin/sh\nexec {native.library().compiler} "$@" -O0\n')
    compiler = f"{quick} -pipe"  # which may have arguments
    assert learn(tmp_path, CXX=compiler)[0]
    (built,) = (tmp_path / "kronline").iterdir()
    before = built.stat().st_mtime_ns
    assert learn(tmp_path, CXX=compiler)[0]
    assert [p.stat().st_mtime_ns for p in (tmp_path / "kronline").iterdir()] == [before]
    built.write_bytes(b"not a library")
    assert learn(tmp_path, CXX=compiler)[0]  # what is damaged is built anew
    assert built.stat().st_size > 10_000


@kernel
def test_failures_are_remembered_and_explained(tmp_path):
    """A compiler that fails is run for its version and for each set of flags, once a process."""
    log = tmp_path / "log"
    compiler = script(
        tmp_path / "c++", f"#!/bin/sh\necho run >> {log}\nprintf 'error: \\377 no' >&2\nexit 1\n"
    )
    active, _, stderr = learn(tmp_path, CXX=compiler)
    assert not active and "could not build the kernel: error:" in stderr
    assert len(log.read_text().split()) == 4


X86 = os.uname().machine == "x86_64" if hasattr(os, "uname") else False


@kernel
@pytest.mark.skipif(not X86 or not shutil.which("g++"), reason="needs g++ on x86-64")
@pytest.mark.parametrize(("flags", "name"), [("-mno-avx512f", "AVX2"), ("-mno-avx2", "plain C++")])
def test_other_vector_units(tmp_path, flags, name):
    """The same tests of the merge, in a process whose kernel knows fewer instructions."""
    compiler = script(tmp_path / "c++", f'#!/bin/sh\nexec g++ "$@" {flags} -mno-avx512f -O1\n')
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": compiler}
    tests = [f"{__file__}::{t.__name__}" for t in (test_the_merge_equals_pure_jax,)]
    run = partial(subprocess.run, capture_output=True, text=True, env=env, check=False)
    done = run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *tests])
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout
    done = run([sys.executable, "-m", "kronline", "info"])
    assert name in done.stdout, done.stdout


def test_a_change_of_any_source_is_another_kernel(tmp_path, monkeypatch):
    here = shutil.copytree(recipe.SOURCE.parent, tmp_path / "native")
    monkeypatch.setattr(recipe, "SOURCE", here / "ffi.cpp")
    seen = {build._fingerprint(["g++"])}
    files = [f for f in sorted(here.iterdir()) if f.suffix in (".h", ".cpp")]
    for file in files:
        file.write_text(file.read_text() + "// changed\n")
        seen.add(build._fingerprint(["g++"]))
    assert len(files) >= 7 and len(seen) == len(files) + 1

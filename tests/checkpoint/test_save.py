"""A learner on disk: what comes back goes on bit for bit; what is damaged is refused."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

import kronline as kl
from kronline import disk

ADAM = optax.adam(1e-2)
rng = np.random.default_rng(0)
X, Y = rng.integers(0, 3, (2, 12, 2))


def make(cell=None, estimator=None, **kwargs):
    cell = cell or kl.Stack((kl.LSTM(3, 3, init_weights=kl.gate_bias(f=1.0)), kl.RHN(2, 3)))
    return kl.Learner(cell, kl.softmax(3), estimator or kl.kf_rtrl(window=1), ADAM, **kwargs)


def leaves(state):
    plain = state
    return [np.asarray(a) for a in jax.tree.leaves(plain)]


@pytest.fixture
def saved(tmp_path):
    a = make()
    state, _ = a.run(a.init(jax.random.key(0), 2), X[:6], Y[:6])
    kl.save(tmp_path / "a.safetensors", a, state)
    return tmp_path / "a.safetensors", a, state


def test_a_learner_goes_on_bit_for_bit(saved):
    path, a, state = saved
    b, loaded = kl.load(path, optimiser=ADAM)
    assert b == a
    for p, q in zip(leaves(loaded), leaves(state), strict=True):
        assert p.dtype == q.dtype
        assert np.array_equal(p, q)
    further, again = a.run(state, X[6:], Y[6:])[0], b.run(loaded, X[6:], Y[6:])[0]
    assert all(np.array_equal(p, q) for p, q in zip(leaves(further), leaves(again), strict=True))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "a",
    [
        make(kl.GRU(3, 3), kl.uoro(2)),
        make(kl.Embedded(kl.Tanh(3, 2), 3), kl.tbptt(3), layout=kl.Loop()),
        make(kl.Opaque(kl.DeepRHN(3, 3)), kl.rtrl(), update_every=4),
    ],
    ids=["uoro", "tbptt", "rtrl"],
)
def test_settings_survive(a, tmp_path):
    kl.save(tmp_path / "a", a, a.init(jax.random.key(0), 2))
    assert kl.load(tmp_path / "a", optimiser=ADAM)[0] == a


def test_a_buffer_survives(tmp_path):
    a = make(estimator=kl.tbptt(5))
    state, _ = a.run(a.init(jax.random.key(0), 2, example=(X[0], Y[0])), X[:7], Y[:7])
    kl.save(tmp_path / "a", a, state)
    with pytest.raises(ValueError, match="example"):
        kl.load(tmp_path / "a", learner=a)
    _, loaded = kl.load(tmp_path / "a", learner=a, example=(X[0], Y[0]))
    assert all(np.array_equal(p, q) for p, q in zip(leaves(loaded), leaves(state), strict=True))


def test_ones_own_cell_needs_ones_own_learner(tmp_path):
    class Mine(kl.Tanh):
        pass

    a = make(Mine(3, 3))
    kl.save(tmp_path / "a", a, a.init(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"load\(path, learner=learner\).*Mine\(3, 3\)"):
        kl.load(tmp_path / "a", optimiser=ADAM)
    assert kl.load(tmp_path / "a", learner=a)[0] is a
    with pytest.raises(
        ValueError, match=r"another learner: cell .*Mine\(3, 3\), not Tanh\(3, 3\)$"
    ):
        kl.load(tmp_path / "a", learner=make(kl.Tanh(3, 3)))


def test_ones_own_is_not_taken_for_the_librarys(tmp_path):
    @dataclass(frozen=True)
    class Tanh(kl.UnitCell):
        def unit(self, z, s):
            return jnp.sin(z[0])

    def squared_error(prediction, target):
        return jnp.sum(jnp.abs(prediction - target))

    for a in (
        make(Tanh(3, 3)),
        kl.Learner(kl.Tanh(3, 3), kl.Readout(1, squared_error), kl.kf_rtrl(), ADAM),
    ):
        kl.save(tmp_path / "a", a, a.init(jax.random.key(0)))
        with pytest.raises(ValueError, match="not the library's own"):
            kl.load(tmp_path / "a", optimiser=ADAM)


def test_the_file_has_the_usual_permissions(saved):
    path = saved[0]
    (path.parent / "plain").touch()
    assert path.stat().st_mode == (path.parent / "plain").stat().st_mode


def test_another_optimiser_is_noticed(saved):
    with pytest.raises(ValueError, match="does not fit"):
        kl.load(saved[0], optimiser=optax.sgd(0.1))
    with pytest.raises(ValueError, match="optimiser="):
        kl.load(saved[0])


def chain(rate=1e-2, clip=1.0, decay=1e-4, steps=100):
    schedule = optax.linear_schedule(rate, 0.0, steps)
    return optax.chain(optax.clip_by_global_norm(clip), optax.adamw(schedule, weight_decay=decay))


def table(last):
    """A schedule of three rates, in turn."""
    rates = np.array([1, 2, last], np.float32)
    return lambda t: jnp.asarray(rates)[t % 3]


OTHERS = {
    "rate": (ADAM, optax.adam(1.0000001e-2)),
    "epsilon": (ADAM, optax.adam(1e-2, eps=1e-7)),
    "kind": (ADAM, optax.amsgrad(1e-2)),
    "nothing remembered": (optax.sgd(0.1), optax.sgd(0.2)),
    "sign": (optax.sgd(0.1), optax.sgd(-0.1)),
    "clip": (chain(), chain(clip=2.0)),
    "decay": (chain(), chain(decay=0.0)),
    "schedule": (chain(), chain(steps=101)),
    "table": (optax.sgd(table(3)), optax.sgd(table(4))),
    "table within": (optax.sgd(jax.jit(table(3))), optax.sgd(jax.jit(table(4)))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_optimiser_or_rate_is_refused(name, tmp_path):
    was, now = OTHERS[name]
    for every in (None, 4):
        a = replace(make(update_every=every), optimiser=was)
        kl.save(tmp_path / "a", a, a.init(jax.random.key(0), 2))
        kl.load(tmp_path / "a", optimiser=was)
        match = r"another optimiser|does not fit" if name == "kind" else r"other_optimiser=True"
        with pytest.raises(ValueError, match=match):
            kl.load(tmp_path / "a", optimiser=now)
        with pytest.raises(ValueError, match=match):
            kl.load(tmp_path / "a", learner=replace(a, optimiser=now))
        if name != "kind":
            b, _ = kl.load(tmp_path / "a", optimiser=now, other_optimiser=True)
            assert b.optimiser is now


@pytest.mark.filterwarnings("error")
def test_the_same_optimiser_made_anew_is_taken_in_any_process(tmp_path):
    a = replace(make(), optimiser=chain())
    kl.save(tmp_path / "a", a, a.init(jax.random.key(0), 2))
    kl.load(tmp_path / "a", optimiser=chain())
    jax.clear_caches()
    kl.load(tmp_path / "a", optimiser=chain())
    see = "import sys, kronline as kl, test_save; kl.load(sys.argv[1], optimiser=test_save.chain())"
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    words = [sys.executable, "-W", "error::UserWarning", "-c", see, tmp_path / "a"]
    subprocess.run(words, check=True, env=os.environ | here)


def rewritten(path, change):
    """The file with another header, and a checksum to it."""
    header, arrays = disk.read_tree(path, "kronline-2")
    change(header)
    header["sha256"] = disk._checksum(header, arrays)
    disk.write(path, to_bytes(arrays, {"kronline": json.dumps(header)}))


def test_other_versions_cannot_tell_and_older_files_are_read(saved, recwarn):
    path = saved[0]
    rewritten(path, lambda h: h["optimiser"].update(jax="0.1"))
    kl.load(path, optimiser=ADAM)  # the same program, by any version
    assert not recwarn
    with pytest.warns(UserWarning, match="was saved by jax 0.1 instead of .* nobody can tell"):
        kl.load(path, optimiser=optax.adam(1e-3))
    kl.load(path, optimiser=optax.adam(1e-3), other_optimiser=True)
    rewritten(path, lambda h: h.pop("optimiser"))
    kl.load(path, optimiser=optax.adam(1e-3))
    assert not recwarn


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "header"])
def test_a_damaged_file_is_refused(saved, damage):
    path = saved[0]
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5] ^= 1
    elif damage == "cut":
        data = data[:-40]
    elif damage == "empty":
        data = bytearray()
    elif damage == "text":
        data = bytearray(b"not a checkpoint, by any means")
    else:
        data = data.replace(b"kronline-2", b"kronline-9")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged|format"):
        kl.load(path, optimiser=ADAM)


def test_a_missing_file_or_folder(tmp_path, saved):
    with pytest.raises(FileNotFoundError):
        kl.load(tmp_path / "nowhere", optimiser=ADAM)
    with pytest.raises(FileNotFoundError):
        kl.save(tmp_path / "no" / "folder", saved[1], saved[2])


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    path, a, state = saved
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        kl.save(path, a, state)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_header_is_made_of_specs(saved):
    with safe_open(saved[0], framework="numpy") as f:
        header = json.loads(f.metadata()["kronline"])
    assert header["format"] == "kronline-2" and header["at"] == ""
    assert header["learner"] == {
        "cell": "Stack((LSTM(3, 3, init_weights=gate_bias(f=1.0)), RHN(2, 3)))",
        "readout": "softmax(3)",
        "estimator": "kf_rtrl(window=1)",
        "layout": "Vmap()",
        "update_every": None,
        "dtype": "float32",
        "donate": False,
        "regularisers": [],
        "delay": 0,
    }


def test_a_header_cannot_make_anything_run(saved, tmp_path):
    path, _, state = saved
    disk.write_tree(path, state, {"format": "kronline-2", "at": "", "version": "0",
                                  "learner": {"cell": "os:getcwd()", "readout": None,
                                              "estimator": "kf_rtrl()"}})  # fmt: skip
    with pytest.raises(ValueError, match="not the library's own"):
        kl.load(path, optimiser=ADAM)


def test_regularisers_and_a_loss_of_ones_own_survive(tmp_path):
    rules = (kl.regularise.row_norm(1), kl.regularise.spectral(0.5))
    cell = kl.RHN(3, 3, sparse=kl.Blocks(0.5, size=1))
    a = kl.Learner(kl.LowRank(kl.RHN(3, 3), 2), None, kl.kf_rtrl(), ADAM, regularisers=rules)
    for each in (a, replace(a, cell=cell, regularisers=rules[:1])):
        kl.save(tmp_path / "a", each, each.init(jax.random.key(0), 2))
        assert kl.load(tmp_path / "a", optimiser=ADAM)[0] == each
        with pytest.raises(ValueError, match=r"regularisers \['row_norm\(1.0\)'.*\], not \[\]"):
            kl.load(tmp_path / "a", learner=replace(each, regularisers=()))

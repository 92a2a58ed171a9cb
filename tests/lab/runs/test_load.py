"""`kronline.load` opens a run; a run of an earlier version goes on."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import disk
from kronline.checkpoint import files, read
from kronline.lab.runs import train
from running import LANES, command

OLD = Path(__file__).parents[2] / "data" / "old-run"


def arrays(state):
    return [np.asarray(a) for a in jax.tree.leaves(state)]


@pytest.mark.parametrize("where", ["folder", "file", "damaged"])
def test_a_run_is_opened(where, unbroken, tmp_path):
    run = unbroken["copy"]
    if where == "damaged":  # then the one before it
        shutil.copytree(run, tmp_path / "run")
        run = tmp_path / "run"
        files(run)[0].write_bytes(files(run)[0].read_bytes()[:-9])
    first = files(run)[where == "damaged"]
    task = train.configured(train.folder.read(run))
    learner, state = kl.load(first if where == "file" else run, optimiser=optax.adam(task.rate))
    exp = task.build()
    assert learner.cell == exp.learner.cell and learner.estimator == exp.learner.estimator
    header, named = read(first)
    assert header["learner"]["cell"] == f"RHN({task.hidden}, {exp.learner.cell.inputs})"
    assert np.array_equal(state.params.cell["W"], named["training.learner.params.cell.W"])
    assert len(arrays(state)) == sum(name.startswith("training.learner.") for name in named)
    x = np.zeros((learner.estimator.span or 1, task.lanes), int)
    assert np.isfinite(learner.run(state, x, x)[1].loss).all()


def test_a_run_that_cannot_be_opened(unbroken, tmp_path):
    with pytest.raises(ValueError, match=r"does not fit"):
        kl.load(unbroken["copy"], optimiser=optax.sgd(1e-3))
    with pytest.raises(ValueError, match=r"saved with another optimiser"):
        kl.load(unbroken["copy"], optimiser=optax.adam(0.5))
    with pytest.raises(ValueError, match=r"a run's folder with a checkpoint.*step-\*"):
        kl.load(tmp_path, optimiser=optax.adam(1e-3))


def test_a_run_is_opened_with_another_optimiser_where_that_is_asked_for(unbroken):
    learner, _ = kl.load(unbroken["copy"], optimiser=optax.adam(0.5), other_optimiser=True)
    assert learner.estimator == kl.kf_rtrl()


@pytest.mark.filterwarnings("error")
def test_a_checkpoint_without_a_fingerprint_is_opened_with_any_rate(unbroken, tmp_path):
    """As runs wrote them before their checkpoints had one."""
    header, arrays = read(files(unbroken["copy"])[0])
    assert header.pop("optimiser")["sha256"]
    file = tmp_path / "before.safetensors"
    keys = header.pop("keys")
    made = {name: jax.random.wrap_key_data(arrays[name], impl=keys[name]) for name in keys}
    disk.write_tree(file, arrays | made, header)
    _, state = kl.load(file, optimiser=optax.adam(0.5))
    assert state.s.shape[0] == LANES


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    """Made by commit b9d75fc: seed 0, killed after the checkpoint of step 20 of 40."""
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    assert command("resume", run) == 0
    before, after = (
        [json.loads(line) for line in (r / "metrics.jsonl").read_text().splitlines()]
        for r in (OLD, run)
    )
    assert [line["step"] for line in after] == [20, 40, 40]
    assert after[0] == before[0]
    for name, value in before[1].items():
        assert after[1][name] == pytest.approx(value, rel=1e-4), name
    learner, state = kl.load(run, optimiser=optax.adam(1e-3))
    assert learner.estimator == kl.kf_tbptt(5, pairs=2)
    assert int(state.opt[0].count) == 8


@pytest.mark.parametrize("cell", ["Stack(RHN, LSTM)", "Embedded(LSTM, 3)", "Opaque(GRU)"])
def test_cells_made_of_cells_train_by_their_names(cell, tmp_path):
    run, method = tmp_path / "run", "uoro"
    small = ["--hidden", 4, "--lanes", 2, "--steps", 4, "--log-every", 2]
    assert (
        command("train", "copy", "--cell", cell, "--estimator", method, *small, "--out", run) == 0
    )
    made = {
        "Stack(RHN, LSTM)": kl.Stack((kl.RHN(4, 4), kl.LSTM(4, 4))),
        "Embedded(LSTM, 3)": kl.Embedded(kl.LSTM(4, 3), 4),
        "Opaque(GRU)": kl.Opaque(kl.GRU(4, 4)),
    }
    assert kl.load(run, optimiser=optax.adam(1e-3))[0].cell == made[cell]

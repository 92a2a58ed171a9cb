"""Files that earlier versions wrote are still read, and go on as they would have.

The files were made by commit b9d75fc, in float32: x and y are `integers(0, 3, (2, 12, 2))` of
`numpy.random.default_rng(0)`, the first six steps were learnt from `learner.init(key(0), 2)` with
adam(1e-2). The losses below are what that commit had over the other six.
"""

import json
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from safetensors import safe_open

import kronline as kl
from kronline import disk
from kronline.checkpoint import old, read

DATA = Path(__file__).parents[1] / "data"
ADAM = optax.adam(1e-2)
X, Y = np.random.default_rng(0).integers(0, 3, (2, 12, 2))
LEARNERS = {
    "old-kf_tbptt": kl.Learner(
        kl.RHN(3, 3), kl.softmax(3), kl.kf_tbptt(3, pairs=2, tail="auto"), ADAM
    ),
    "old-stack": kl.Learner(
        kl.Stack((kl.LSTM(2, 3, init_weights=kl.gate_bias(f=1.0)), kl.Tanh(2, 2, bias=False))),
        kl.softmax(3),
        kl.uoro(2, window=1),
        ADAM,
        layout=kl.Loop(),
        update_every=2,
        regularisers=(kl.regularise.row_norm(1.0),),
    ),
}
LOSSES = {
    "old-kf_tbptt": [2.2034178, 2.2146807, 2.2093005, 2.1963339, 2.1893115, 2.2138860],
    "old-stack": [2.2027984, 2.1812792, 2.1901262, 2.1958871, 2.2015960, 2.1886570],
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_goes_on(name, tmp_path):
    learner, state = kl.load(DATA / f"{name}.safetensors", optimiser=ADAM)
    assert learner == LEARNERS[name]
    _, out = learner.run(state, X[6:], Y[6:])
    assert np.allclose(out.loss.sum(1), LOSSES[name], rtol=1e-6, atol=0)
    kl.save(tmp_path / "new", learner, state)
    assert kl.load(tmp_path / "new", optimiser=ADAM)[0] == learner


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_is_compared(name):
    other = list(LEARNERS.values())[name == "old-kf_tbptt"]
    assert kl.load(DATA / f"{name}.safetensors", learner=LEARNERS[name])[0] is LEARNERS[name]
    with pytest.raises(ValueError, match=r"another learner: .*cell .*; estimator .*; layout"):
        kl.load(DATA / f"{name}.safetensors", learner=other)


class Mine(kl.Tanh):
    pass


def test_a_cell_of_ones_own(tmp_path):
    """As it was written then: by its class and all of its fields."""
    a = kl.Learner(Mine(2, 3), kl.softmax(3), kl.kf_rtrl(), ADAM)
    with safe_open(DATA / "old-kf_tbptt.safetensors", framework="numpy") as f:
        header = json.loads(f.metadata()["kronline"])
    cell = {"type": f"{__name__}.Mine", "hidden": 2, "inputs": 3, "bias": True,
            "init_weights": {"type": "Normal", "std": 0.01}, "sparse": None}  # fmt: skip
    method = {"type": "_Named", "trace": {"type": "KF"}, "window": None, "label": "kf_rtrl()"}
    header["learner"] |= {"cell": cell, "estimator": method}
    del header["sha256"]
    disk.write_tree(tmp_path / "a", a.init(jax.random.key(0), 2), header)
    assert kl.load(tmp_path / "a", learner=a)[0] is a
    with pytest.raises(ValueError, match=r"load\(path, learner=learner\).*Mine"):
        kl.load(tmp_path / "a", optimiser=ADAM)
    for other in (kl.Tanh(2, 3), Mine(3, 3)):
        with pytest.raises(ValueError, match=r"another learner: cell"):
            kl.load(tmp_path / "a", learner=kl.Learner(other, kl.softmax(3), kl.kf_rtrl(), ADAM))


def test_a_runs_checkpoint_of_then_says_nothing_of_its_learner():
    run = DATA / "old-run"
    with pytest.raises(ValueError, match=r"old version.*learner=learner.*kronline resume"):
        kl.load(run, optimiser=optax.adam(1e-3))
    a = kl.Learner(
        kl.RHN(4, 4), kl.softmax(4), kl.kf_tbptt(5, pairs=2), optax.adam(1e-3), layout=kl.Loop()
    )
    _, state = kl.load(run, learner=a)
    assert int(state.opt[0].count) == 4  # updates in 20 steps
    (file,) = (run / "checkpoints").iterdir()
    assert read(file)[0].items() >= old.FORMATS["kronline-run-1"].items()


def test_a_gru_of_before_its_hidden_map_had_a_bias():
    """Made by commit f281152 in the same way, with KF-RTRL; so are the losses without learning."""
    learner, state = kl.load(DATA / "old-gru.safetensors", optimiser=ADAM)
    assert learner == kl.Learner(kl.GRU(3, 3), kl.softmax(3), kl.kf_rtrl(), ADAM)
    assert not state.params.cell["W"][-1, 3].any()
    losses = learner.evaluate(state.params, X[6:], Y[6:]).loss.sum(1)
    were = [2.2265165, 2.2101467, 2.2195594, 2.2290378, 2.1894040, 2.2125347]
    assert np.allclose(losses, were, rtol=1e-6, atol=0)
    state, _ = learner.run(state, X[6:], Y[6:])
    assert state.params.cell["W"][-1, 3].all()  # now it is learnt

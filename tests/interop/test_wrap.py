"""Steps of JAX and PyTorch as cells: the same gradients from both, by every estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from frameworks import torch

import kronline as kl
from kronline import interop

N, INPUTS = 3, 2


def jax_gru(p, s, x):
    """nn.GRUCell, with PyTorch's parameters."""
    i = p["weight_ih"] @ x + p["bias_ih"]
    h = p["weight_hh"] @ s + p["bias_hh"]
    r, z = jax.nn.sigmoid(i[:N] + h[:N]), jax.nn.sigmoid(i[N : 2 * N] + h[N : 2 * N])
    return (1 - z) * jnp.tanh(i[2 * N :] + r * h[2 * N :]) + z * s


def cells():
    torch.manual_seed(0)
    module = torch.nn.GRUCell(INPUTS, N, dtype=torch.float64)
    there = interop.wrap_torch(module, size=N, inputs=INPUTS)
    return there, interop.wrap(jax_gru, there.start, size=N, inputs=INPUTS)


ESTIMATORS = {
    "uoro": kl.uoro(),
    "uoro window": kl.uoro(copies=2, window=2),
    "rtrl": kl.rtrl(),
    "tbptt": kl.tbptt(3),
    "rolling_tbptt": kl.rolling_tbptt(3),
    "artbp": kl.artbp(0.2, 3, every=2),
    "dni": kl.dni(3),
    "immediate": kl.immediate(),
    "bptt": kl.bptt(),
    "reservoir": kl.reservoir(None),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_gradients(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 2, INPUTS)), rng.normal(size=(6, 2, 1))
    with jax.enable_x64(True):
        got = []
        for cell in cells():
            learner = kl.Learner(
                cell, kl.linear(1, std=1.0), ESTIMATORS[name], optax.sgd(0.1), dtype="float64"
            )
            state, grads = learner.gradients(learner.init(jax.random.key(0), lanes=2), x, y)
            got.append((state.s, grads))
        there, here = got
        assert name == "reservoir" or all(g.any() for g in jax.tree.leaves(here[1].cell))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), there, here)


def test_which_estimators_apply():
    for cell in cells():
        found = interop.estimators_for(cell)
        assert set(found.takes) == {name.split()[0] for name in ESTIMATORS}
        assert "kf_rtrl" in found.refuses and "weights enter" in found.refuses["kf_rtrl"]
    assert "kf_rtrl" in interop.estimators_for(kl.GRU(3, 2)).takes


def test_symbols_and_what_is_shown():
    params = {"W": torch.ones(4, 4) / 8, "E": torch.arange(12.0).reshape(3, 4) / 12}

    def step(p, s, x):
        hot = (x == torch.arange(3)).to(s.dtype)
        return torch.tanh(p["W"] @ s + hot @ p["E"])

    cell = interop.wrap_torch(step, params, size=4, inputs=3, shown=slice(2, 4))
    learner = kl.Learner(cell, kl.softmax(3), kl.uoro(), optax.sgd(0.1))
    state = learner.init(jax.random.key(0), lanes=3)
    x = np.random.default_rng(0).integers(0, 3, (20, 3))
    state, out = learner.run(state, x, x)
    assert cell.outputs == 2 and state.params.readout["V"].shape == (3, 3)
    assert np.isfinite(out.loss).all() and not np.allclose(state.params.cell["E"], params["E"])


def test_larger_ones_do_not_wait_for_each_other():
    """A call into PyTorch must not wait for the program that it is called from."""
    cell = interop.wrap_torch(torch.nn.GRUCell(64, 128), size=128, inputs=64)
    learner = kl.Learner(cell, kl.linear(1), kl.tbptt(5), optax.sgd(0.01))
    x = np.random.default_rng(0).normal(size=(10, 16, 64)).astype(np.float32)
    _, out = learner.run(learner.init(jax.random.key(0), lanes=16), x, x[..., :1])
    assert np.isfinite(out.loss).all()


def test_what_cannot_be_wrapped():
    with pytest.raises(TypeError, match=r"step\(params, s, x\) and params"):
        interop.wrap_torch(lambda p, s, x: s, size=2, inputs=2)
    with pytest.raises(TypeError, match="a function"):
        interop.wrap(3, {}, size=2, inputs=2)
    with pytest.raises(ValueError, match="inputs >= 1"):
        interop.wrap(jax_gru, {}, size=2, inputs=0)

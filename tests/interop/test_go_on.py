"""A network that PyTorch began to train goes on learning online here."""

import jax
import numpy as np
import optax
import pytest
from frameworks import torch

import kronline as kl
from kronline import interop

LANES = 8


def data(steps):
    """y is what x was one and three steps before."""
    x = np.random.default_rng(steps).normal(size=(steps + 3, LANES, 1)).astype(np.float32)
    return x[3:], (x[2:-1] + x[:-3]) / 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(1, 16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    net, (x, y) = Net(), map(torch.tensor, data(40))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimiser.step()
    return net


def test_the_same_loss_and_then_a_lower_one(trained):
    cell, params = interop.from_torch(trained, readout="head")
    assert type(cell) is kl.LSTM
    learner = kl.Learner(cell, kl.linear(1), kl.kf_rtrl(), optax.adam(2e-3))
    state = learner.start(params, jax.random.key(0), lanes=LANES)
    x, y = data(1500)
    with torch.no_grad():
        there = ((trained(torch.tensor(x)) - torch.tensor(y)) ** 2).sum(-1).numpy() / 2
    np.testing.assert_allclose(learner.evaluate(params, x, y).loss, there, rtol=0, atol=1e-5)

    state, out = learner.run(state, x, y)
    np.testing.assert_allclose(out.loss[0], there[0], rtol=0, atol=1e-6)  # the first step
    assert out.loss[-300:].mean() < there[-300:].mean() / 2

    back = interop.to_torch(cell, state.params)  # and it is of use there, too
    with torch.no_grad():
        mine = back.readout(back.rnn(torch.tensor(x))[0]).numpy()
    now = learner.evaluate(state.params, x, y, predictions=True).prediction
    np.testing.assert_allclose(mine, now, rtol=0, atol=1e-5)

"""Every cell from and to every framework: the same outputs over 1,000 steps, in float64.

float64 because rounding is then no question: what is left is below 1e-12, and a wrong gate, bias or
order is far above 1e-6. One test looks at float32.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from frameworks import FRAMEWORKS, SEPARATE, nnx, torch
from safetensors.numpy import save_file

import kronline as kl
from kronline import interop

STEPS, N, INPUTS = 1000, 5, 3
KINDS = ("Tanh", "GRU", "LSTM")


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def data(steps=STEPS):
    return np.random.default_rng(0).normal(size=(steps, INPUTS))


def outputs(cell, params, x):
    """kronline's own, one lane from the zero state."""

    def step(s, x):
        s = cell.step(params, s, x)
        return s, cell.output(s)

    x = jnp.asarray(x)
    dtype = jax.tree.leaves(params)[0].dtype
    return jax.lax.scan(step, jnp.zeros(cell.size, dtype), x)[1]


def ours(kind, **more):
    """A cell with weights so large that every gate opens and closes."""
    cell = getattr(kl, kind)(N, INPUTS, init_weights=kl.Normal(0.7), **more)
    return cell, cell.init(jax.random.key(1), jnp.float64)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype == np.float64
    assert a.std() > 0.1  # it moves
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)  # what is in fact so


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_out(kind, name):
    framework, (cell, params) = FRAMEWORKS[name], ours(kind)
    there = framework.run(framework.out(cell, params), kind, data())
    same(there, outputs(cell, params, data()))


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_in_and_out_again(kind, name):
    framework = FRAMEWORKS[name]
    module = framework.make(kind, INPUTS, N)
    there = framework.run(module, kind, data())
    cell, params = framework.brought(module)
    assert type(cell).__name__ == kind
    same(there, outputs(cell, params.cell, data()))
    back = framework.brought(framework.out(cell, params))
    np.testing.assert_array_equal(back.params.cell["W"], params.cell["W"])


@pytest.mark.parametrize("name", SEPARATE)
def test_the_lstms_whose_gates_are_apart(name):
    framework = SEPARATE[name]
    module = framework.make("LSTM", INPUTS, N)
    cell, params = framework.brought(module)
    same(framework.run(module, "LSTM", data()), outputs(cell, params.cell, data()))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_a_stack_and_files_need_no_torch(kind, tmp_path):
    torch.manual_seed(0)
    make = getattr(torch.nn, "RNN" if kind == "Tanh" else kind)
    module = make(INPUTS, N, num_layers=2, dtype=torch.float64)
    there = FRAMEWORKS["torch"].run(module, kind, data())
    file = tmp_path / "model.safetensors"
    save_file({f"rnn.{n}": a.numpy() for n, a in module.state_dict().items()}, file)
    cell, params = interop.from_torch(file, dtype="float64")
    assert isinstance(cell, kl.Stack)
    same(there, outputs(cell, params.cell, data()))
    again = interop.to_torch(cell, params).rnn
    np.testing.assert_allclose(
        FRAMEWORKS["torch"].run(again, kind, data()), there, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_biases(kind):
    cell, params = ours(kind, bias=False)
    for framework in FRAMEWORKS.values():
        there = framework.run(framework.out(cell, params), kind, data(50))
        same(there, outputs(cell, params, data(50)))
    assert interop.from_torch(interop.to_torch(cell, params).rnn, dtype="float64").cell == (
        type(cell)(N, INPUTS, bias=False)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_float32(kind):
    """To 1e-6 here, too: units of rounding, which these networks do not amplify."""
    cell = getattr(kl, kind)(N, INPUTS, init_weights=kl.Normal(0.4))
    params = cell.init(jax.random.key(1))
    with torch.no_grad():
        there = interop.to_torch(cell, params).rnn(torch.tensor(data(), dtype=torch.float32))[0]
    here = outputs(cell, params, data().astype(np.float32))
    assert there.dtype is torch.float32 and here.dtype == jnp.float32
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-6)


def test_readout_and_embedding_go_along():
    cell = kl.Embedded(kl.GRU(N, INPUTS, init_weights=kl.Normal(0.7)), 7)
    learner = kl.Learner(cell, kl.softmax(4), kl.kf_rtrl(), optax.sgd(0.1), dtype="float64")
    params = learner.init(jax.random.key(0)).params
    x = np.random.default_rng(0).integers(0, 7, 100)
    V = params.readout["V"]
    here = outputs(cell, params.cell, x) @ V[:-1] + V[-1:]

    made = interop.to_torch(cell, params)
    with torch.no_grad():
        there = made.readout(made.rnn(made.embedding(torch.tensor(x)))[0])
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-12)
    brought = {
        "torch": interop.from_torch(
            made.rnn, readout=made.readout, embedding=made.embedding, dtype="float64"
        ),
        "named": interop.from_torch(
            interop.torch_state_dict(cell, params, prefix="rnn."),
            readout="readout",
            embedding="embedding",
            dtype="float64",
        ),
        "equinox": interop.from_equinox(
            **interop.to_equinox(cell, params)._asdict(), dtype="float64"
        ),
        "nnx": interop.from_nnx(**interop.to_nnx(cell, params)._asdict(), dtype="float64"),
    }
    to = interop.to_linen(cell, params)
    brought["linen"] = interop.from_linen(
        to.cell, to.variables, readout=to.readout[1], embedding=to.embedding[1], dtype="float64"
    )
    for network in brought.values():
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-15),
            network.params,
            params,
        )


def test_states_go_along():
    cell, params = ours("LSTM")
    h, c = np.random.default_rng(1).normal(size=(2, 1, N))
    s = interop.state(cell, {"h": h, "c": c})
    x = data(1)
    with torch.no_grad():
        module = interop.to_torch(cell, params, form="cell").rnn
        there = module(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    (new,) = interop.carry(cell, jax.vmap(cell.step, (None, 0, 0))(params, s, jnp.asarray(x)))
    np.testing.assert_allclose(new["h"], there[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(new["c"], there[1], rtol=0, atol=1e-12)


def test_what_is_not_the_same_is_refused():
    nn = torch.nn
    for module, message in (
        (nn.LSTM(2, 3, bidirectional=True), "future"),
        (nn.LSTM(2, 3, proj_size=2), "proj"),
        (nn.RNN(2, 3, nonlinearity="relu"), "tanh"),
        (nn.ModuleList([nn.LSTM(2, 3), nn.GRU(2, 3)]), "prefix="),
        (nn.Linear(2, 3), "weight_ih"),
    ):
        with pytest.raises(ValueError, match=message):
            interop.from_torch(module)
    with pytest.raises(TypeError, match="got RHN"):
        interop.to_torch(kl.RHN(3, 2), kl.RHN(3, 2).init(jax.random.key(0)))
    with pytest.raises(ValueError, match="activation_fn"):
        interop.from_nnx(nnx.GRUCell(2, 3, activation_fn=jax.nn.relu, rngs=nnx.Rngs(0)))

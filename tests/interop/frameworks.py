"""How each framework runs its own recurrent modules over (steps, inputs), from the zero state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

equinox = pytest.importorskip("equinox", reason="needs equinox: make interop")
flax = pytest.importorskip("flax", reason="needs flax: make interop")
torch = pytest.importorskip("torch", reason="needs torch: make interop")
from flax import linen, nnx  # noqa: E402

from kronline import interop  # noqa: E402

NAMES = {"Tanh": "SimpleCell", "GRU": "GRUCell", "LSTM": "OptimizedLSTMCell"}  # of Flax

# at most one thread each: two cores run two test processes
torch.set_num_threads(1)


def zeros(kind, n):
    """The carry of a JAX framework: (c, h) of an LSTM, in Flax's order."""
    h = jnp.zeros(n)
    return (h, h) if kind == "LSTM" else h


class Torch:
    """nn.RNN, nn.GRU, nn.LSTM."""

    def make(self, kind, inputs, n):
        torch.manual_seed(0)
        return getattr(torch.nn, "RNN" if kind == "Tanh" else kind)(inputs, n, dtype=torch.float64)

    def run(self, module, kind, x):
        with torch.no_grad():
            return module(torch.tensor(x))[0].numpy()

    def out(self, cell, params):
        return interop.to_torch(cell, params).rnn

    def brought(self, module):
        return interop.from_torch(module, dtype="float64")


class TorchCell(Torch):
    """nn.RNNCell, nn.GRUCell, nn.LSTMCell."""

    def make(self, kind, inputs, n):
        torch.manual_seed(0)
        name = "RNN" if kind == "Tanh" else kind
        return getattr(torch.nn, f"{name}Cell")(inputs, n, dtype=torch.float64)

    def run(self, module, kind, x):
        state, seen = None, []
        with torch.no_grad():
            for one in torch.tensor(x):
                state = module(one, state)
                seen.append((state[0] if kind == "LSTM" else state).numpy())
        return np.stack(seen)

    def out(self, cell, params):
        return interop.to_torch(cell, params, form="cell").rnn


class Equinox:
    """eqx.nn.GRUCell, eqx.nn.LSTMCell, and a Linear of [h, x]."""

    def make(self, kind, inputs, n):
        key, like = jax.random.key(0), {"dtype": jnp.float64}
        if kind == "Tanh":
            return equinox.nn.Linear(n + inputs, n, key=key, **like)
        return getattr(equinox.nn, f"{kind}Cell")(inputs, n, key=key, **like)

    def run(self, module, kind, x):
        def step(carry, x):
            if kind == "Tanh":
                new = jnp.tanh(module(jnp.concatenate([carry, x])))
            else:
                new = module(x, carry)
            return new, new[0] if kind == "LSTM" else new  # Equinox has (h, c)

        n = module.out_features if kind == "Tanh" else module.hidden_size
        return jax.lax.scan(step, zeros(kind, n), jnp.asarray(x))[1]

    def out(self, cell, params):
        return interop.to_equinox(cell, params).cell

    def brought(self, module):
        return interop.from_equinox(module, dtype="float64")


class Nnx:
    """nnx.SimpleCell, nnx.GRUCell, nnx.OptimizedLSTMCell."""

    names = NAMES

    def make(self, kind, inputs, n):
        made = getattr(nnx, self.names[kind])(
            inputs,
            n,
            dtype=jnp.float64,
            param_dtype=jnp.float64,
            bias_init=nnx.initializers.normal(0.5),
            rngs=nnx.Rngs(0),
        )
        return made

    def run(self, module, kind, x):
        n = module.hidden_features
        return jax.lax.scan(module.__call__, zeros(kind, n), jnp.asarray(x))[1]

    def out(self, cell, params):
        return interop.to_nnx(cell, params).cell

    def brought(self, module):
        return interop.from_nnx(module, dtype="float64")


class NnxSeparate(Nnx):
    """nnx.LSTMCell, whose gates are modules of their own."""

    names = NAMES | {"LSTM": "LSTMCell"}


class Linen:
    """linen.SimpleCell, linen.GRUCell, linen.OptimizedLSTMCell: with their variables."""

    names = Nnx.names

    def make(self, kind, inputs, n):
        bias = nnx.initializers.normal(0.5)
        module = getattr(linen, self.names[kind])(n, param_dtype=jnp.float64, bias_init=bias)
        return module, module.init(jax.random.key(0), zeros(kind, n), jnp.zeros(inputs))

    def run(self, both, kind, x):
        module, variables = both
        start = zeros(kind, module.features)
        step = lambda c, x: module.apply(variables, c, x)  # noqa: E731
        return jax.lax.scan(step, start, jnp.asarray(x))[1]

    def out(self, cell, params):
        made = interop.to_linen(cell, params)
        return made.cell, made.variables

    def brought(self, both):
        return interop.from_linen(*both, dtype="float64")


class LinenSeparate(Linen):
    """linen.LSTMCell."""

    names = NnxSeparate.names


FRAMEWORKS = {
    "torch": Torch(),
    "torch cell": TorchCell(),
    "equinox": Equinox(),
    "nnx": Nnx(),
    "linen": Linen(),
}
SEPARATE = {"nnx": NnxSeparate(), "linen": LinenSeparate()}

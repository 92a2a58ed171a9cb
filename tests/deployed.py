"""Cells of every kind, and how their deployed steps are run."""

import jax
import numpy as np
import optax

import kronline as kl

WIDE = {"init_weights": kl.Normal(0.4)}
CELLS = {
    "Tanh": kl.Tanh(5, 3, **WIDE),
    "LeakyTanh": kl.LeakyTanh(5, 3, **WIDE),
    "RHN": kl.RHN(5, 3, **WIDE),
    "LSTM": kl.LSTM(5, 3, **WIDE),
    "GRU": kl.GRU(5, 3, **WIDE),
    "GRU without bias": kl.GRU(5, 3, bias=False, **WIDE),
    "ELSTM": kl.ELSTM(5, 3, **WIDE),
    "LIF": kl.LIF(5, 3, **WIDE),
    "LRU": kl.LRU(5, 3),
    "RTU": kl.RTU(5, 3),
    "MinGRU": kl.MinGRU(5, 3),
    "MinLSTM": kl.MinLSTM(5, 3),
    "DeepRHN": kl.DeepRHN(5, 3, **WIDE),
    "ResetBeforeGRU": kl.ResetBeforeGRU(5, 3, **WIDE),
    "Embedded": kl.Embedded(kl.LSTM(5, 2, **WIDE), 3),
    "LowRank": kl.LowRank(kl.RHN(5, 3, **WIDE), 2),
    "sparse": kl.RHN(4, 3, sparse=kl.Blocks(0.5), **WIDE),
    "blocks": kl.Stack((kl.Block(kl.LRU(5, 3), 4), kl.Block(kl.MinGRU(5, 4)))),
    "stack": kl.Stack((kl.GRU(4, 3, **WIDE), kl.LSTM(3, 4, **WIDE)), see_input=True),
}
STEPS, LANES = 1000, 2


def learner(cell, readout=None, dtype="float32"):
    return kl.Learner(
        cell, readout or kl.linear(2, std=0.5), kl.bptt(), optax.sgd(0.1), dtype=dtype
    )


def problem(name, symbols, dtype="float32"):
    """A learner, its state, and a stream of inputs."""
    made = learner(CELLS[name], dtype=dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (STEPS, LANES)).astype(np.int32)
    if not symbols:
        x = rng.normal(size=(STEPS, LANES, 3)).astype(dtype)
    return made, made.init(jax.random.key(1), LANES), x


def predictions(made, state, x):
    """kronline's own."""
    y = np.zeros((*x.shape[:2], 2), np.float32)
    return np.asarray(made.evaluate(state.params, x, y, predictions=True).prediction)


def ran(step, state, x):
    """A deployed step over a stream."""
    seen = []
    for one in x:
        y, state = step(one, state)
        seen.append(y)
    return np.stack(seen)


def numpy_program(path):
    """A generated program, as a module."""
    program = {"__file__": str(path), "__name__": "deployed"}
    exec(compile(path.read_text(), str(path), "exec"), program)
    return program

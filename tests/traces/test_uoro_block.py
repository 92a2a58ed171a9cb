"""UORO over many steps at once equals UORO step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kronline as kl
from kronline.noise import repeat, sample
from kronline.traces import UORO, uoro_block
from kronline.traces.base import Steps, Stepwise

K, LANES = 7, 3
RHN, LSTM = kl.RHN(5, 3), kl.LSTM(4, 3)


@pytest.fixture
def doubles():
    with jax.enable_x64(True):
        yield


def pushed(trace: UORO, cell: kl.Cell, push, dtype=np.float64):
    """Two segments in a row, with resets inside, over several lanes; and its inputs."""
    rng = np.random.default_rng(0)
    params = cell.init(jax.random.key(0), dtype)
    params = jax.tree.map(lambda w: 30 * w, params)  # so that the past matters
    s = rng.normal(size=(LANES, 2 * K, cell.size)).astype(dtype)
    x = rng.integers(0, 3, (LANES, 2 * K))
    resets = np.zeros((LANES, 2 * K), bool)
    resets[0, 0] = resets[1, 3] = resets[1, 10] = resets[2, 6] = True
    draws = repeat(trace.draws(cell.structure(params), 2 * K), LANES)
    noise = sample(jax.random.key(1), draws, dtype)

    @jax.vmap
    def lane(s, x, resets, noise):
        memory = trace.init(cell.structure(params))
        for part in (slice(0, K), slice(K, 2 * K)):
            s_, x_ = s[part], x[part]
            steps = Steps(
                K, lambda t, s_=s_, x_=x_: cell.linearise(params, s_[t], x_[t]), resets[part]
            )
            memory = push(trace, memory, steps, noise[part])
        return memory

    return jax.jit(lane)(jnp.asarray(s), jnp.asarray(x), jnp.asarray(resets), noise)


@pytest.mark.parametrize(
    ("cell", "copies", "cached"),
    [(RHN, 1, 1 << 30), (RHN, 3, 0), (LSTM, 3, 1 << 30), (LSTM, 1, 0)],
    ids=["RHN", "RHN, copies, looped", "LSTM, copies", "LSTM, looped"],
)
def test_a_block_equals_its_steps(doubles, monkeypatch, cell, copies, cached):
    monkeypatch.setattr(uoro_block, "CACHED", cached)
    trace = UORO(copies)
    want = pushed(trace, cell, Stepwise.pushed)
    got = pushed(trace, cell, UORO.pushed)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        assert np.abs(np.asarray(a)).max() > 1e-3
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


def test_which_cells_go_in_blocks(monkeypatch):
    taken = []
    block = uoro_block.push
    monkeypatch.setattr(uoro_block, "push", lambda *a: taken.append(1) or block(*a))
    for cell in (RHN, LSTM, kl.GRU(4, 3), kl.DeepRHN(4, 3), kl.Opaque(kl.Tanh(4, 3))):
        before = len(taken)
        jax.eval_shape(lambda cell=cell: pushed(UORO(), cell, UORO.pushed, np.float32))
        assert (len(taken) > before) == (cell in (RHN, LSTM)), cell


def test_a_reset_recovers_from_overflow():
    cell, trace = kl.RHN(3, 2), UORO(2)
    params = cell.init(jax.random.key(0))
    memory = jax.tree.map(lambda a: jnp.full_like(a, np.inf), trace.init(cell.structure(params)))
    resets = jnp.asarray([True, False, False])
    steps = Steps(3, lambda t: cell.linearise(params, jnp.zeros(3), 0), resets)
    noise = sample(jax.random.key(0), trace.draws(cell.structure(params), 3))
    for leaf in jax.tree.leaves(trace.pushed(memory, steps, noise)):
        assert np.isfinite(leaf).all()

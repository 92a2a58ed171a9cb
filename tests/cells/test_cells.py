"""Cells: what is derived for them equals plain automatic differentiation of their step."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kronline as kl
from kronline.linearised import Kronecker, UnitH, UnitM
from kronline.linearised.gradients import written_out

UNIT = {
    "tanh": kl.Tanh(5, 3),
    "leaky": kl.LeakyTanh(5, 3),
    "rhn": kl.RHN(5, 3),
    "rhn tanh": kl.RHN(5, 3, activation="tanh", bias=False),
    "lstm": kl.LSTM(4, 3),
    "gru": kl.GRU(4, 3),
}
GROUP = {
    "deep": kl.DeepRHN(4, 3, depth=3),
    "reset-before": kl.ResetBeforeGRU(4, 3),
    "stack": kl.Stack((kl.LSTM(3, 3), kl.GRU(2, 3))),
    "embedded": kl.Embedded(kl.RHN(4, 2), inputs=3),
}
ALL = {**UNIT, **GROUP}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def at(cell, seed=0):
    """Random parameters, state and input."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), jnp.float64))
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape)), shapes)
    return params, *(jnp.asarray(rng.normal(size=n)) for n in (cell.size, cell.inputs))


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_the_linearisation_is_the_derivative_of_the_step(name):
    cell = ALL[name]
    params, s, x = at(cell)
    rng = np.random.default_rng(3)
    v, A, P = (
        jnp.asarray(rng.normal(size=z)) for z in ((cell.size,), (cell.size, 7), (6, cell.size))
    )

    @jax.jit
    def products(params, s, x):
        lin = cell.linearise(params, s, x)
        assert isinstance(lin, Kronecker)
        half = lin.H.scaled(jnp.float64(0.5))
        dH, dF = lin.vjp(v)
        got = {
            "s": lin.state, "H, F": lin.dense(), "H v": lin.jvp(v), "H A": lin.H.mm(A),
            "P H": lin.H.rmm(P), "H A / 2": half.mm(A), "v H": dH, "v F": lin.times_F(v),
            "v F, factored": cell.project(written_out(dF)),
        }  # fmt: skip
        F, H = jax.jacrev(cell.step, argnums=(0, 1))(params, s, x)
        vF = jax.tree.map(lambda f: jnp.tensordot(v, f, axes=1), F)
        want = {
            "s": cell.step(params, s, x), "H, F": (H, F), "H v": H @ v, "H A": H @ A,
            "P H": P @ H, "H A / 2": H @ A / 2, "v H": v @ H, "v F": vF, "v F, factored": vF,
        }  # fmt: skip
        return got, want

    got, want = products(params, s, x)
    for part in want:
        jax.tree.map(close, got[part], want[part])


@pytest.mark.parametrize("name", UNIT)
def test_unit_cells_have_structure(name):
    cell = UNIT[name]
    shape = (cell.size, *cell.weights()["W"].shape[1:])
    A = jnp.asarray(np.random.default_rng(0).normal(size=shape))

    @jax.jit
    def products(*at):
        lin = cell.linearise(*at)
        M = lin.groups["W"].M
        assert isinstance(lin.H, UnitH)
        assert isinstance(M, UnitM)
        return M.dense(), M.norm2(), M.inner(A), M.added(A, jnp.float64(2))

    M, norm2, inner, added = products(*at(cell))
    close(norm2, np.sum(M**2))
    close(inner, np.sum(M * A))
    close(added, A + 2 * M)


def test_an_lstms_unread_slot_costs_nothing():
    # H A: 2 · (2n) · n · (4n) = 16n³ flops with the unread slot left out, not 32n³
    n = 64
    cell = kl.LSTM(n, 3)
    params, s, x = at(cell)
    A = jnp.zeros((2 * n, 4, n))
    compiled = (
        jax.jit(lambda *a: cell.linearise(*a[1:]).H.mm(a[0])).lower(A, params, s, x).compile()
    )
    assert compiled.cost_analysis()["flops"] < 1.2 * 16 * n**3


@pytest.mark.parametrize("name", ALL)
def test_a_symbol_is_a_one_hot_vector(name):
    cell = ALL[name]
    params, s, _ = at(cell)

    @jax.jit
    def both(symbol):
        out = []
        for x in (symbol, jnp.eye(cell.inputs)[symbol]):
            out.append((cell.step(params, s, x), cell.linearise(params, s, x).dense()))
        return out

    for symbol in range(cell.inputs):
        jax.tree.map(close, *both(symbol))


def test_the_papers_equations():
    # RHN: g = 2σ(z1) − 1, t = σ(z2), h' = g t + h (1 − t)
    params, s, x = at(kl.RHN(2, 3))
    z = jnp.einsum("m,mrn->rn", jnp.concatenate([s, x, jnp.ones(1)]), params["W"])
    g, t = 2 / (1 + jnp.exp(-z[0])) - 1, 1 / (1 + jnp.exp(-z[1]))
    close(kl.RHN(2, 3).step(params, s, x), g * t + s * (1 - t))
    # LSTM: c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'); the readout sees h
    cell = kl.LSTM(2, 3)
    params, s, x = at(cell)
    c, h = s[:2], s[2:]
    f, i, o, g = jnp.einsum("m,mrn->rn", jnp.concatenate([h, x, jnp.ones(1)]), params["W"])
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    close(cell.step(params, s, x), jnp.concatenate([c, h]))
    close(cell.output(cell.step(params, s, x)), h)


def test_the_paper_counts_133k_weights():
    cell = kl.RHN(256, 4, bias=False)
    assert cell.weights()["W"].shape == (260, 2, 256)
    assert np.prod(cell.weights()["W"].shape) == 133_120


def test_initialisations():
    key = jax.random.key(0)
    W = kl.RHN(64, 8).init(key, jnp.float64)["W"]
    assert abs(W.std() - 0.01) < 0.001
    W = np.asarray(kl.LSTM(64, 3, init_weights=kl.Uniform()).init(key, jnp.float64)["W"])
    assert (W[-1] == 0).all()  # biases
    assert 0.99 / 8 < np.abs(W[:-1]).max() <= 1 / 8  # 1/√n
    assert abs(W[:-1].mean()) < 5 / (192 * W[:-1].size) ** 0.5  # five standard deviations
    np.testing.assert_allclose(W[:-1].var(), 1 / 192, rtol=0.03)
    W = kl.Tanh(4, 3, bias=False, init_weights=kl.Uniform(2.0)).init(key, jnp.float64)["W"]
    assert 1 < np.abs(W).max() <= 2 and (np.asarray(W) != 0).all()
    with pytest.raises(ValueError, match="scale >= 0"):
        kl.Uniform(-1.0)
    W = kl.LSTM(16, 3, init_weights=kl.Orthogonal(1.5)).init(key, jnp.float64)["W"]
    for gate in range(4):
        close(W[:16, gate].T @ W[:16, gate], 2.25 * jnp.eye(16))
    close(W[-1], jnp.zeros((4, 16)))
    plain = kl.LSTM(4, 3).init(key, jnp.float64)["W"]
    offset = kl.LSTM(4, 3, init_weights=kl.gate_bias(f=1.0)).init(key, jnp.float64)["W"]
    close(offset - plain, jnp.zeros_like(plain).at[-1, 0].set(1.0))
    stack = kl.Stack((kl.Tanh(3, 2), kl.Tanh(3, 3, init_weights=kl.Normal(5.0)))).init(key)
    assert stack["layer1.W"].std() > 100 * stack["layer0.W"].std()
    masked = kl.GRU(4, 3).init(key)["W"]
    assert not masked[:4, 2].any()
    assert not masked[4:7, 3].any()
    assert masked[7].all()  # both maps of the candidate have a bias


@pytest.mark.parametrize(
    "cell", [kl.LSTM(3, 2), kl.LSTM(3, 2, bias=False), kl.ResetBeforeGRU(2, 2)]
)
def test_an_unknown_gate_is_named(cell):
    cell = type(cell)(3, 2, bias=cell.bias, init_weights=kl.gate_bias(t=1.0))
    with pytest.raises(ValueError, match="'t'"):
        cell.init(jax.random.key(0))


def test_a_weight_that_enters_twice_is_refused():
    @dataclass(frozen=True)
    class Twice(kl.Tanh):
        def forward(self, linear, s, x):
            z = linear("W", *self.pieces(s, x))
            return jnp.tanh(z[0] + linear("W", *self.pieces(s, x))[0])

    with pytest.raises(ValueError, match="used twice"):
        Twice(2, 2).step(*at(Twice(2, 2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: kl.RHN(0, 3),
        lambda: kl.RHN(3, -1),
        lambda: kl.RHN(3, 2.5),
        lambda: kl.RHN(3, 3, activation="relu"),
        lambda: kl.LeakyTanh(3, 3, leak=0.0),
        lambda: kl.DeepRHN(3, 3, depth=0),
        lambda: kl.Stack(()),
        lambda: kl.Stack((kl.Tanh(3, 2), kl.Tanh(3, 2))),
        lambda: kl.Embedded(kl.Tanh(2, 2), inputs=0),
    ],
)
def test_wrong_sizes_are_refused(make):
    with pytest.raises(ValueError, match=r"needs|must"):
        make()


def test_opaque_parts_are_refused_where_structure_is_needed():
    with pytest.raises(TypeError, match="visible"):
        kl.Stack((kl.Opaque(kl.Tanh(2, 2)),))
    with pytest.raises(TypeError, match="visible"):
        kl.Embedded(kl.Opaque(kl.Tanh(2, 2)), inputs=3)

"""Block-sparse recurrent weights: the pattern, H's products, and that nothing else changes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_cells import at, close

import kronline as kl
from kronline import native, spec
from kronline.errors import UsageError
from kronline.linearised import BlockH, UnitH, UnitM
from kronline.linearised.gradients import written_out
from kronline.verifier import enumeration

CELLS = {
    "tanh": kl.Tanh(16, 3, sparse=kl.Blocks(0.25, 2)),
    "leaky": kl.LeakyTanh(10, 3, sparse=kl.Blocks(0.4, seed=5)),
    "rhn": kl.RHN(8, 3, sparse=kl.Blocks(0.5, 2)),
    "rhn full": kl.RHN(4, 3, sparse=kl.Blocks(1.0)),
    "one unit": kl.RHN(1, 3, sparse=kl.Blocks(0.1)),
    "lstm": kl.LSTM(6, 3, sparse=kl.Blocks(0.7, 2)),
    "gru": kl.GRU(6, 3, sparse=kl.Blocks(0.5)),
    "lif": kl.LIF(6, 3, sparse=kl.Blocks(0.5)),
    "two slots": None,  # below
}


class TwoSlots(kl.LSTM):
    """Its linear maps read both slots, in another order."""

    reads = ("h", "c")


CELLS["two slots"] = TwoSlots(6, 3, sparse=kl.Blocks(0.7, 2))
TINY = {
    "tanh": kl.Tanh(3, 2, sparse=kl.Blocks(0.5)),
    "rhn": kl.RHN(3, 2, sparse=kl.Blocks(0.5)),
    "lstm": kl.LSTM(3, 2, sparse=kl.Blocks(0.5)),
}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("density", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 50, 64, 128, 256])
def test_the_pattern_is_regular(n, density):
    blocks = kl.Blocks(density)
    B, mask = blocks.units(n), blocks.mask(n)
    assert n % B == 0
    some = mask[::B, ::B]
    np.testing.assert_array_equal(mask, np.kron(some, np.ones((B, B))))
    count = len(blocks.offsets(n))
    assert (some.sum(0) == count).all()
    assert (some.sum(1) == count).all()
    assert (np.diag(some) == 1).all()
    assert mask.mean() == pytest.approx(blocks.exact(n))
    # every unit is reached from every other, in time
    assert (np.linalg.matrix_power(some, len(some)) > 0).all()
    if density * n >= 2 and n % 2 == 0:
        assert 0.8 <= blocks.exact(n) / density <= 1.25


def test_the_seed_decides():
    a, b, c = (kl.Blocks(0.25, 4, seed=s).mask(64) for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


@pytest.mark.parametrize("name", CELLS)
def test_the_linearisation_is_the_derivative_of_the_step(name):
    cell = CELLS[name]
    params, s, x = at(cell)
    rng = np.random.default_rng(3)
    N = cell.size
    v, A, P = (jnp.asarray(rng.normal(size=z)) for z in ((N,), (N, 2, 7), (6, N)))

    @jax.jit
    def products(params, s, x):
        lin = cell.linearise(params, s, x)
        H, M = lin.H, lin.groups["W"].M
        assert isinstance(H, BlockH)
        assert isinstance(M, UnitM)
        half = H.scaled(jnp.float64(0.5))
        got = {
            "s": lin.state, "H, F": lin.dense(), "H v": H.mv(v), "H A": H.mm(A), "P H": H.rmm(P),
            "P H, few": H.rmm_few(P), "v H": H.vm(v), "half": (half.mm(A), half.rmm(P), half.mv(v)),
            "v F": cell.project(written_out(lin.vjp(v)[1])), "own": H.own_units(),
        }  # fmt: skip
        F, J = jax.jacrev(cell.step, argnums=(0, 1))(params, s, x)
        HA, PH = jnp.tensordot(J, A, axes=1), P @ J
        units = J.reshape(len(cell.slots), cell.hidden, len(cell.slots), cell.hidden)
        want = {
            "s": cell.step(params, s, x), "H, F": (J, F), "H v": J @ v, "H A": HA, "P H": PH,
            "P H, few": PH, "v H": v @ J, "half": (HA / 2, PH / 2, J @ v / 2),
            "v F": jax.tree.map(lambda f: jnp.tensordot(v, f, axes=1), F),
            "own": jnp.einsum("aibi->abi", units),
        }  # fmt: skip
        return got, want

    got, want = products(params, s, x)
    for part in want:
        jax.tree.map(close, got[part], want[part])


def test_the_cost_follows_the_density():
    n, cost = 64, []
    for cell in (kl.LSTM(n, 3), kl.LSTM(n, 3, sparse=kl.Blocks(0.25, 8))):
        A, P = jnp.zeros((2 * n, 4, n)), jnp.zeros((8 * n, 2 * n))

        def both(*args, cell=cell, A=A, P=P):
            H = cell.linearise(*args).H
            return H.mm(A), H.rmm(P)

        with native.use(False):  # XLA cannot count what the kernel does
            program = jax.jit(both).lower(*at(cell)).compile()
        cost.append(program.cost_analysis()["flops"])
    assert cost[1] < 0.35 * cost[0]


@pytest.mark.parametrize(
    ("name", "estimator"),
    [("tanh", kl.kf_rtrl()), ("rhn", kl.kf_tbptt(2, pairs=1)), ("lstm", kl.ok(2))],
    ids=str,
)
def test_no_bias(name, estimator):
    (check,) = enumeration.bias(TINY[name], estimator, "")
    assert check.value < 1e-10


@dataclass(frozen=True)
class Masked(kl.LSTM):
    """The same weights, without telling that they lie in blocks."""

    def mask(self):
        return kl.LSTM(6, 3, sparse=kl.Blocks(0.7, 2)).weights()["W"].mask


ESTIMATORS = [
    kl.kf_rtrl(), kl.kf_tbptt(2), kl.ok(2), kl.reverse_kf(), kl.uoro(), kl.rtrl(), kl.snap(2),
    kl.rflo(), kl.tbptt(2),
]  # fmt: skip


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.name)
def test_blocks_change_the_cost_alone(estimator):
    x = np.random.default_rng(0).integers(0, 3, (6, 2))
    outs = []
    for cell in (Masked(6, 3), CELLS["lstm"]):
        learner = kl.Learner(cell, kl.softmax(3), estimator, optax.sgd(0.1), dtype="float64")
        state, out = learner.run(learner.init(jax.random.key(0), 2), x, x)
        outs.append((state.params.cell["W"], out.loss))
    assert isinstance(Masked(6, 3).linearise(*at(Masked(6, 3))).H, UnitH)
    jax.tree.map(close, *outs)


def test_snap_2_keeps_what_the_blocks_let_through():
    cell = kl.RHN(6, 2, sparse=kl.Blocks(0.7, 2))
    params = cell.init(jax.random.key(0), jnp.float64)
    kept = kl.snap(2).trace.init(cell.structure(params))["W"]
    assert kept.G.shape[1] == 4  # of 6: the unit's own block, and the one that reads it
    assert kl.snap(2).ignores(cell)
    assert not kl.snap(3).ignores(cell)


def test_with_all_weights_it_is_the_dense_cell():
    dense, full = kl.RHN(4, 3), kl.RHN(4, 3, sparse=kl.Blocks(1.0))
    x = np.random.default_rng(0).integers(0, 3, (6, 2))
    losses = []
    for cell in (dense, full):
        learner = kl.Learner(cell, kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1), dtype="float64")
        losses.append(learner.run(learner.init(jax.random.key(0), 2), x, x)[1].loss)
    close(*losses)


@pytest.mark.parametrize("estimator", [kl.kf_rtrl(), kl.kf_tbptt(3), kl.uoro(), kl.tbptt(3)])
def test_weights_that_do_not_exist_stay_zero(estimator):
    cell = kl.LSTM(8, 3, sparse=kl.Blocks(0.25, 2), init_weights=kl.Orthogonal())
    learner = kl.Learner(cell, kl.softmax(3), estimator, optax.adam(0.05))
    x = np.random.default_rng(0).integers(0, 3, (31, 2))
    state, _ = learner.run(learner.init(jax.random.key(0), 2), x[:-1], x[1:])
    W, mask = np.asarray(state.params.cell["W"]), cell.sparse.mask(8)[:, None]
    exists = np.broadcast_to(mask == 1, W[:8].shape)
    assert (W[:8][~exists] == 0).all()
    assert (W[:8][exists] != 0).all()
    assert (W[8:] != 0).all()


def test_it_is_saved_by_name(tmp_path):
    for cell in (kl.RHN(4, 3, sparse=kl.Blocks(0.5, seed=3)), kl.LowRank(kl.RHN(4, 3), 2)):
        learner = kl.Learner(cell, kl.softmax(3), kl.kf_rtrl(), optax.sgd(0.1))
        state = learner.init(jax.random.key(0), 2)
        kl.save(tmp_path / "a.safetensors", learner, state)
        again, _ = kl.load(tmp_path / "a.safetensors", optimiser=optax.sgd(0.1))
        assert again.cell == cell


def test_by_name():
    got = spec.given("RHN(sparse=Blocks(0.25))", "cell", 64, 5)
    assert got == kl.RHN(64, 5, sparse=kl.Blocks(0.25))
    got = spec.given("LSTM(4, 2, sparse=Blocks(density=0.5, size=2, seed=3))", "cell")
    assert got == kl.LSTM(4, 2, sparse=kl.Blocks(0.5, 2, 3))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RHN(sparse=0.25)", r"RHN needs sparse=Blocks\(density\) or None, got 0.25"),
        ("RHN(sparse=Blocks(25))", "needs 0 < density <= 1, got 25; 0.25 is 25 %"),
        ("RHN(sparse=Blocks('a'))", "needs 0 < density <= 1, a number, got 'a'"),
        ("RHN(sparse=Blocks(0.5, 0))", "needs size >= 1, an integer, got 0"),
        ("RHN(sparse=Blocks(0.5, seed=-1))", "needs seed >= 0, an integer, got -1"),
        ("RHN(sparse=Blocks())", "missing .* 'density'"),
        ("RHN(sparse=Blocs(0.25))", "got 'Blocs'; did you mean 'Block"),
        ("RHN(sparse=os.system('true'))", "must be NAME"),
        ("DeepRHN(sparse=Blocks(0.5))", "unexpected keyword argument 'sparse'"),
    ],
)
def test_what_cannot_be_is_explained(text, why):
    with pytest.raises(UsageError, match=why):
        spec.given(text, "cell", 64, 5)

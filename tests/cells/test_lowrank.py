"""Recurrent weights of low rank: H and M, every estimator, and what cannot be had."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_cells import at, close

import kronline as kl
from kronline import spec
from kronline.errors import UsageError
from kronline.linearised import DenseM, LowRankH, UnitM
from kronline.linearised.gradients import written_out
from kronline.verifier import enumeration
from kronline.verifier.enumeration import by_segment
from kronline.verifier.problem import Problem, flat


class TwoSlots(kl.LSTM):
    """Its linear maps read both slots, in another order."""

    reads = ("h", "c")


CELLS = {
    "tanh": kl.LowRank(kl.Tanh(5, 3), 2),
    "rhn": kl.LowRank(kl.RHN(5, 3), 2),
    "rhn, no bias": kl.LowRank(kl.RHN(5, 3, bias=False), 5),
    "lstm": kl.LowRank(kl.LSTM(4, 3), 2),
    "gru": kl.LowRank(kl.GRU(4, 3), 2),
    "two slots": kl.LowRank(TwoSlots(3, 3), 4),
}
TINY = {
    "tanh": kl.LowRank(kl.Tanh(2, 2), 1),
    "rhn": kl.LowRank(kl.RHN(2, 2), 1),
    "lstm": kl.LowRank(kl.LSTM(2, 2), 1),
}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


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
        H = lin.H
        assert isinstance(H, LowRankH)
        assert isinstance(lin.groups["U"].M, UnitM)
        assert isinstance(lin.groups["V"].M, DenseM)
        half = H.scaled(jnp.float64(0.5))
        got = {
            "s": lin.state, "H, F": lin.dense(), "H v": H.mv(v), "H A": H.mm(A), "P H": H.rmm(P),
            "P H, few": H.rmm_few(P), "v H": H.vm(v), "half": (half.mm(A), half.rmm(P), half.mv(v)),
            "v F": cell.project(written_out(lin.vjp(v)[1])),
            "M": {k: g.M.dense() for k, g in lin.groups.items()},
        }  # fmt: skip
        F, J = jax.jacrev(cell.step, argnums=(0, 1))(params, s, x)
        HA, PH = jnp.tensordot(J, A, axes=1), P @ J
        dz = {k: jnp.zeros(w.shape[1:]) for k, w in cell.weights().items()}
        want = {
            "s": cell.step(params, s, x), "H, F": (J, F), "H v": J @ v, "H A": HA, "P H": PH,
            "P H, few": PH, "v H": v @ J, "half": (HA / 2, PH / 2, J @ v / 2),
            "v F": jax.tree.map(lambda f: jnp.tensordot(v, f, axes=1), F),
            "M": jax.jacrev(lambda dz: cell.traced(params, dz, s, x)[0])(dz),
        }  # fmt: skip
        return got, want

    got, want = products(params, s, x)
    for part in want:
        jax.tree.map(close, got[part], want[part])


def test_it_is_the_cell_inside_with_the_product_of_both():
    cell = CELLS["rhn"]
    params, s, x = at(cell)
    U, V = params["U"], params["V"][:, 0]
    W = jnp.concatenate([jnp.tensordot(V, U[:2], axes=1), U[2:]])
    close(cell.step(params, s, x), cell.cell.step({"W": W}, s, x))
    assert np.linalg.matrix_rank(W[:5].reshape(5, -1)) == 2


def test_z_starts_as_large_as_with_full_rank():
    inside = kl.RHN(128, 4)
    cell, key = kl.LowRank(inside, 8), jax.random.key(0)
    U, V = (cell.init(key)[name] for name in "UV")
    W = jnp.tensordot(V[:, 0], U[:8], axes=1)
    assert abs(W.std() / inside.init(key)["W"].std() - 1) < 0.1


def test_the_cost_follows_the_rank():
    n, cost = 64, []
    for cell in (kl.RHN(n, 3), kl.LowRank(kl.RHN(n, 3), 4)):
        args, A = at(cell), jnp.zeros((n, 2, n))
        program = jax.jit(lambda *a, c=cell, A=A: c.linearise(*a).H.mm(A)).lower(*args).compile()
        cost.append(program.cost_analysis()["flops"])
    assert cost[1] < 0.2 * cost[0]  # 2 · 4/64, and the diagonal


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        ("tanh", kl.kf_rtrl()),
        ("tanh", kl.uoro()),
        ("tanh", kl.ok(2)),
        ("rhn", kl.kf_tbptt(2, pairs=1)),
        ("lstm", kl.kf_rtrl()),
        ("lstm", kl.ok(2)),
    ],
    ids=str,
)
def test_no_bias(name, estimator):
    (check,) = enumeration.bias(TINY[name], estimator, "")
    assert check.value < 1e-10


# a weight of V touches every unit within a step; one of U its own, then all through V
@pytest.mark.parametrize("estimator", [kl.rtrl(), kl.rtrl(window=1), kl.snap(2), kl.bptt()])
def test_exact_estimators_are_exact(estimator):
    cell = kl.LowRank(kl.LSTM(3, 2), 2)
    problem = Problem(cell, 5)
    assert not estimator.ignores(cell)
    learner = problem.learner(estimator)
    got = learner.gradients(problem.start(learner), **problem.data)[1]
    want = by_segment(problem, estimator)
    close(flat(got, 1), want)


def test_snap_1_leaves_out_what_u_reaches_through_v():
    cell = TINY["tanh"]
    assert kl.snap(1).ignores(cell)
    assert kl.verify(cell, kl.snap(1)).ok


@pytest.mark.parametrize("estimator", [kl.rflo(), kl.rflo(window=1)], ids=str)
def test_rflo_needs_units(estimator):
    with pytest.raises(TypeError, match="needs a unit-wise cell"):
        kl.verify(TINY["rhn"], estimator)


def test_by_name():
    got = spec.given("LowRank(RHN, 16)", "cell", 64, 5)
    assert got == kl.LowRank(kl.RHN(64, 5), 16)
    got = spec.given("LowRank(RHN(4, 2, activation='tanh'), rank=2)", "cell")
    assert got == kl.LowRank(kl.RHN(4, 2, activation="tanh"), 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("LowRank(RHN, 0)", "needs rank >= 1, an integer, got 0"),
        ("LowRank(RHN, 65)", "needs rank <= 64, .* got 65; without LowRank"),
        ("LowRank(RHN)", "missing .* 'rank'"),
        ("LowRank(DeepRHN, 4)", "needs a unit-wise cell .*, got DeepRHN; LowRank"),
        ("LowRank(64, 4)", "needs a unit-wise cell .*, got int; LowRank"),
        ("LowRank(RNH, 4)", "got 'RNH'; did you mean 'RHN'"),
        ("LowRank(RHN(sparse=Blocks(0.5)), 4)", "leave sparse=... out"),
    ],
)
def test_what_cannot_be_is_explained(text, why):
    with pytest.raises(UsageError, match=why):
        spec.given(text, "cell", 64, 5)

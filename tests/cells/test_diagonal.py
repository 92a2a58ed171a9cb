"""Cells in which no unit reads another unit's state, alone, in blocks and in stacks."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_cells import at, close

import kronline as kl
from kronline.linearised import DiagonalH
from kronline.linearised.gradients import written_out

ONE = {
    "LRU": kl.LRU(3, 2),
    "RTU": kl.RTU(3, 2),
    "RTU tanh": kl.RTU(3, 2, activation="tanh", bias=False),
    "eLSTM": kl.ELSTM(3, 2),
    "minGRU": kl.MinGRU(3, 2),
    "minLSTM": kl.MinLSTM(3, 2),
}
DEEP = {
    "block": kl.Block(kl.LRU(2, 3)),
    "plain block": kl.Block(
        kl.MinGRU(2, 2), 3, norm=False, skip=False, gelu=False, glu=False, residual=False
    ),
    "stack": kl.Stack((kl.Block(kl.ELSTM(2, 2), 3), kl.Block(kl.RTU(2, 3))), see_input=True),
    "embedded": kl.Embedded(kl.Stack((kl.LRU(2, 3), kl.MinLSTM(2, 4))), inputs=2),
}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", [*ONE, *DEEP])
def test_the_linearisation_is_the_derivative_of_the_step(name):
    cell = (ONE | DEEP)[name]
    params, s, x = at(cell)
    rng = np.random.default_rng(3)
    A, P = (jnp.asarray(rng.normal(size=z)) for z in ((cell.size, 4), (3, cell.size)))

    @jax.jit
    def products(params, s, x):
        lin = cell.linearise(params, s, x)
        F, H = jax.jacrev(cell.step, argnums=(0, 1))(params, s, x)
        dH, dF = lin.vjp(P[0])
        PH, PM = lin.rows(P)
        PF = {k: jnp.einsum("pN,Nmrn->pmrn", P, f) for k, f in F.items()}
        feats = {k: g.feats for k, g in lin.groups.items()}
        got = (lin.dense(), lin.H.mm(A), lin.H.rmm(P), dH, written_out(dF), PH)
        want = ((H, F), H @ A, P @ H, P[0] @ H, {k: f[0] for k, f in PF.items()}, P @ H)
        by_rows = {k: jnp.einsum("m,prn->pmrn", feats[k], PM[k]) for k in PM}
        return (*got, by_rows), (*want, PF)

    jax.tree.map(close, *products(params, s, x))


@pytest.mark.parametrize("name", [*ONE, *DEEP])
def test_layers_are_the_blocks_of_the_jacobian(name):
    """E is all of H within a layer; D ĥ is all of F within it, for slots and gates that count."""
    cell = (ONE | DEEP)[name]
    params, s, x = at(cell)
    structure = cell.structure()
    lin = jax.jit(cell.linearise)(params, s, x)
    F, H = jax.jit(jax.jacrev(cell.step, argnums=(0, 1)))(params, s, x)
    for layer, now in zip(structure.layers, lin.layers, strict=True):
        places = layer.places  # (c, n)
        mine = H[places[:, None, :, None], places[None, :, None, :]]  # (c, c, n, n)
        close(mine, now.E[..., None] * np.eye(layer.units)[None, None])
        for w in layer.weights:
            of_own = F[w.name][places][:, :, :, list(w.gates)]  # (c, j, m, g, j')
            D, h = now.D[w.name], lin.met.feats[w.name]
            want = jnp.einsum("cgj,m,jk->cjmgk", D, h, jnp.eye(layer.units))
            close(of_own, want)
    # what is not kept is read by nothing
    kept = {int(p) for layer in structure.layers for p in layer.places.ravel()}
    close(H[:, [i for i in range(cell.size) if i not in kept]], 0)


def test_what_counts_is_found():
    """An eLSTM's h and output gate are not remembered: its own paper's trace, two per input."""
    (layer,) = kl.ELSTM(3, 2).structure().layers
    assert layer.kept == (0,)
    assert [(w.name, w.gates) for w in layer.weights] == [("W", (0, 1)), ("own", (0, 1))]
    memory = kl.Exact().init(kl.ELSTM(3, 2).structure())
    assert {k: e.shape for k, e in memory.e.items()} == {"W": (3, 1, 2, 3), "own": (1, 1, 2, 3)}


def test_memory_is_linear_in_the_parameters():
    def numbers(tree):
        return sum(a.size for a in jax.tree.leaves(tree))

    for cell in (kl.LRU(50, 7), kl.RTU(50, 7), kl.MinGRU(50, 7), kl.ELSTM(50, 7)):
        params = jax.eval_shape(lambda cell=cell: cell.init(jax.random.key(0)))
        assert numbers(kl.Exact().init(cell.structure())) <= 2 * numbers(params)
    assert isinstance(kl.LRU(3, 2).linearise(*at(kl.LRU(3, 2))).H, DiagonalH)


@dataclass(frozen=True)
class Leaky(kl.UnitCell):
    """A user's own: each unit forgets at a rate of its own."""

    own = ("decay",)
    reads, shows = (), ("h",)

    def unit(self, z, s, own):
        return jax.nn.sigmoid(own[0]) * s[0] + jnp.tanh(z[0])


@pytest.mark.parametrize("estimator", [kl.rtrl(), kl.kf_rtrl(), kl.spatial(2)], ids=str)
def test_a_users_own_cell_gets_everything(estimator):
    assert kl.verify(Leaky(2, 2), estimator).ok


@dataclass(frozen=True)
class WrongDerivative(kl.LRU):
    """dθ by hand, without its factor: a mistake found in public code."""

    def derivatives(self, z, slots, *own):
        D, E, of_own = super().derivatives(z, slots, *own)
        return D, E, of_own.at[:, 1].divide(jnp.exp(own[0][1]))


def test_a_wrong_derivative_of_a_units_own_number_fails():
    report = kl.verify(WrongDerivative(2, 2), kl.rtrl())
    assert not report.ok
    assert kl.verify(kl.LRU(2, 2), kl.rtrl()).ok


def test_a_unit_may_read_others_and_have_numbers_of_its_own():
    @dataclass(frozen=True)
    class Scaled(kl.UnitCell):
        own = ("gain",)

        def unit(self, z, s, own):
            return jnp.tanh(own[0] * z[0]) + 0.5 * s[0]

    for estimator in (kl.rtrl(), kl.kf_rtrl(), kl.snap(1), kl.rflo()):
        assert kl.verify(Scaled(2, 2), estimator).ok, estimator


def test_own_numbers_start_as_asked():
    cell = kl.LRU(400, 3, init_own=kl.Ring(0.5, 0.9, phase=1.0))
    nu, theta, gamma = cell.init(jax.random.key(0), jnp.float64)["own"][0]
    rho, phi = np.exp(-np.exp(nu)), np.exp(theta)
    assert 0.5 <= rho.min() < 0.55 and 0.88 < rho.max() <= 0.9
    assert phi.min() > 0 and 0.9 < phi.max() <= 1
    close(np.exp(gamma), np.sqrt(1 - rho**2))


def test_a_loss_of_ones_own_reads_the_newest_step_too():
    """h of an eLSTM is not remembered: its gradient needs the newest step, kept for it."""
    x = np.random.default_rng(0).normal(size=(4, 2, 2))
    delta = np.random.default_rng(1).normal(size=(2, 3))
    grads = []
    for cell in (kl.ELSTM(3, 2), kl.Opaque(kl.ELSTM(3, 2))):
        learner = kl.Learner(cell, None, kl.rtrl(), optax.sgd(0.1), dtype="float64")
        state = learner.init(jax.random.key(0), lanes=2, example=x[0])
        for now in x:
            state, _ = learner.advance(state, now)
        grads.append(learner.pull(state, delta))
    jax.tree.map(close, *grads)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: kl.Online(kl.InLayer(), 2).check(kl.RHN(2, 2)), "spatial needs a cell made of"),
        (lambda: kl.LowRank(kl.LRU(4, 2), 1), "its recurrence is diagonal already"),
        (lambda: kl.LRU(4, 2, sparse=kl.Blocks(0.5)), "needs sparse=None"),
        (lambda: kl.RTU(2, 2, activation="relu"), "'linear' or 'tanh'"),
        (lambda: kl.Ring(0.9, 1.5), "largest < 1"),
        (lambda: kl.MinGRU(2, 2, init_own="x"), "needs an initialiser"),
        (lambda: kl.ELSTM(2, 2, init_own=kl.Ring()).init(jax.random.key(0)), "Ring needs"),
        (lambda: kl.Block(kl.Opaque(kl.LRU(2, 2))), "Block needs a cell"),
        (lambda: kl.Block(kl.LRU(2, 2), 0), "width"),
    ],
)
def test_errors_say_what_is_needed(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_a_cell_that_reads_nothing_must_show_something():
    @dataclass(frozen=True)
    class Blind(kl.UnitCell):
        reads = ()

        def unit(self, z, s):
            return z[0]

    with pytest.raises(TypeError, match="must name the slots that the readout sees"):
        Blind(2, 2)

"""Cheap and biased methods: each equals its definition, written out here with dense Jacobians."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
import small
from broken import Wrapped
from kronline import spec
from kronline.estimators import Model
from kronline.traces.reach import reached
from kronline.traces.snap import Kept
from kronline.verifier import enumeration as proofs
from kronline.verifier.definition import biased
from running import command
from small import INPUTS, LANES, SYMBOLS, close, start

data = partial(small.data, vectors=True)
ADAM = optax.adam(1e-2)  # one, so that equal learners share their compiled programs


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def learner(cell, estimator, **kwargs):
    kwargs = {"optimiser": ADAM, "dtype": "float64"} | kwargs
    return kl.Learner(cell, kl.softmax(SYMBOLS), estimator, **kwargs)


def recursion(a, state, d, push):
    """`δ·G` of every step, averaged over lanes, where `push(s, x, H, F, G)` gives the next G."""
    cell, params = a.cell, state.params

    @jax.jit
    def jacobians(s, x):
        return jax.jacrev(cell.step, argnums=(0, 1))(params.cell, s, x)

    @jax.jit
    def sensitivity(s, y, weight):
        def loss(s):
            o = a.readout.predict(params.readout, cell.output(s))
            return weight * a.readout.loss(o, y)

        return jax.grad(loss)(s)

    step = jax.jit(lambda s, x: cell.step(params.cell, s, x))
    steps, lanes = d["y"].shape
    out = np.zeros((steps, *params.cell["W"].shape))
    for lane in range(lanes):
        s, G = np.zeros(cell.size), np.zeros((cell.size, *params.cell["W"].shape))
        for t in range(steps):
            x, y, reset, weight = (d[k][t, lane] for k in ("x", "y", "reset", "weight"))
            s, G = (np.zeros_like(s), np.zeros_like(G)) if reset else (s, G)
            F, H = jacobians(s, x)
            G = push(s, x, np.asarray(H), np.asarray(F["W"]), G)
            s = np.asarray(step(s, x))
            out[t] += np.tensordot(sensitivity(s, y, weight), G, axes=1) / lanes
    return out


def times(H, G):
    return np.tensordot(H, G, axes=1)


# -- SnAp ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ring(kl.RHN):
    """Each unit reads itself and the unit before it, nobody else."""

    def mask(self):
        n = self.hidden
        mask = np.ones((n + self.inputs + 1, 2, n))
        mask[:n] = (np.eye(n) + np.eye(n, k=1) + np.eye(n, k=1 - n))[:, None]
        return mask


# which slots a gate's weights move within a step, (slots, gates)
MOVES = {
    kl.Tanh(3, INPUTS): [[1]],
    kl.RHN(3, INPUTS): [[1, 1]],
    kl.GRU(3, INPUTS): [[1, 1, 1, 1]],
    kl.LSTM(3, INPUTS): [[1, 1, 0, 1], [1, 1, 1, 1]],  # f i o g: o moves h alone
    kl.LIF(3, INPUTS): [[1], [1]],
}


@pytest.mark.parametrize("cell", MOVES, ids=lambda c: type(c).__name__)
def test_snap_1_keeps_the_slots_of_a_weights_own_unit(cell):
    a, d = learner(cell, kl.snap(1)), data(7)
    state = start(a)
    n, moves = cell.hidden, np.array(MOVES[cell])
    mask = moves[:, None, None, :, None] * np.eye(n)[None, :, None, None]  # (a, i, m, k, j)
    mask = np.broadcast_to(mask, (len(moves), n, *state.params.cell["W"].shape))
    mask = mask.reshape(cell.size, *mask.shape[2:])
    want = recursion(a, state, d, lambda s, x, H, F, G: mask * (times(H, G) + F))
    close(a.gradients(state, **d)[1].cell["W"], want)
    exact = recursion(a, state, d, lambda s, x, H, F, G: times(H, G) + F)
    assert not np.allclose(want, exact)


@pytest.mark.parametrize(
    ("cell", "window"), [(kl.Tanh(3, INPUTS), None), (kl.LSTM(2, INPUTS), 2)], ids=["tanh", "lstm"]
)
def test_snap_2_on_a_dense_cell_is_rtrl(cell, window):
    d = data(6)
    got, want = (learner(cell, e) for e in (kl.snap(2, window), kl.rtrl(window)))
    close(got.gradients(start(got), **d)[1], want.gradients(start(want), **d)[1], 1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_snap_follows_weights_that_exist(order):
    cell, n = Ring(5, INPUTS), 5
    a, d = learner(cell, kl.snap(order)), data(6)
    state = start(a)
    # within one step unit j's weights move j alone, then every step one unit more
    hops = (np.arange(n)[:, None] - np.arange(n)[None]) % n  # [i, j]: from j to i
    mask = np.broadcast_to((hops < order)[:, None, None], (n, n + INPUTS + 1, 2, n))
    want = recursion(a, state, d, lambda s, x, H, F, G: mask * (times(H, G) + F))
    close(a.gradients(state, **d)[1].cell["W"], want)
    if order > 1:  # and no other entry is stored
        kept = state.memory["W"]
        assert isinstance(kept, Kept)
        assert kept.G.shape == (LANES, n, order, 2, n + INPUTS + 1)


def test_what_is_kept_does_not_depend_on_values():
    cell = kl.Tanh(3, INPUTS)
    zero = jax.tree.map(jnp.zeros_like, cell.init(jax.random.key(0)))
    full = kl.SnAp(2).init(cell.structure(zero))["W"]
    assert full.shape == (3, 3 + INPUTS + 1, 1, 3)  # all of G, though nothing is reached just now


def test_what_is_reached_within_a_step():
    own = np.eye(3)
    assert reached(kl.DeepRHN(3, 2).structure(), 1)["layer0"].all()
    close(reached(kl.DeepRHN(3, 2).structure(), 1)["layer1"], np.stack([own, own], 1))
    gates = reached(kl.ResetBeforeGRU(3, 2).structure(), 1)["gates"]
    assert gates[:, 0].all()  # r acts before the candidate's matrix
    close(gates[:, 1], own)
    stack = kl.Stack((kl.RHN(3, 2), kl.Tanh(2, 3)))
    close(reached(stack.structure(), 1)["layer0.W"][:3, 0], own)
    above = reached(stack.structure(), 1)["layer0.W"][3:]
    assert above.all()  # the layer above, within the same step
    assert not reached(stack.structure(), 9)["layer1.W"][:3].any()  # the layer below, never
    assert kl.SnAp(2).ignores(stack.structure()) == ""  # so that nothing is left out
    assert kl.SnAp(1).ignores(stack.structure())


# -- RFLO, immediate -------------------------------------------------------------------------------


def test_rflo_on_leaky_units_forgets_at_the_rate_of_the_leak():
    cell = kl.LeakyTanh(3, INPUTS, leak=0.3)
    a, d = learner(cell, kl.rflo()), data(7)
    state = start(a)
    want = recursion(a, state, d, lambda s, x, H, F, G: 0.7 * G + F)
    got = a.gradients(state, **d)[1].cell["W"]
    close(got, want)
    now = learner(cell, kl.immediate())
    assert not np.allclose(now.gradients(start(now), **d)[1].cell["W"], got)


def test_rflo_on_an_lstm_follows_its_memory():
    cell = kl.LSTM(3, INPUTS)
    a, d = learner(cell, kl.rflo()), data(7)
    state = start(a)
    W = np.asarray(state.params.cell["W"])

    def push(s, x, H, F, G):
        # with the gates as they are: dc' = σ(f) dc, dh' = σ(o) (1 − tanh²c') dc'
        f, i, o, g = np.einsum("m,mrn->rn", np.concatenate([s[3:], x, [1]]), W)
        sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
        c = sigmoid(f) * s[:3] + sigmoid(i) * np.tanh(g)
        E = np.zeros((6, 6))
        E[:3, :3] = np.diag(sigmoid(f))
        E[3:, :3] = np.diag(sigmoid(o) * (1 - np.tanh(c) ** 2) * sigmoid(f))
        return times(E, G) + F

    close(a.gradients(state, **d)[1].cell["W"], recursion(a, state, d, push))


def test_immediate_is_the_newest_step_alone():
    d = data(6)
    for cell in (kl.Tanh(3, INPUTS), kl.LSTM(2, INPUTS)):
        a, b = learner(cell, kl.immediate()), learner(cell, kl.tbptt(1))
        got = a.gradients(start(a), **d)[1]
        jax.tree.map(np.testing.assert_array_equal, got, b.gradients(start(b), **d)[1])
        close(got.cell["W"], recursion(a, start(a), d, lambda s, x, H, F, G: F))
    a, b = (learner(kl.Tanh(3, INPUTS), e) for e in (kl.immediate(), kl.rflo()))
    close(a.gradients(start(a), **d)[1], b.gradients(start(b), **d)[1])


@pytest.mark.parametrize("estimator", [kl.snap(1), kl.rflo()], ids=lambda e: e.name)
def test_a_loss_of_ones_own(estimator):
    cell, d = kl.LSTM(3, INPUTS), data(4)
    a = kl.Learner(cell, None, estimator, ADAM, dtype="float64")
    b = learner(cell, estimator)
    state = start(b)
    V, own = state.params.readout["V"], a.start(state.params._replace(readout=()), state.key, LANES)
    want = b.gradients(state, **d)[1].cell
    for t in range(4):
        own, h = a.advance(own, d["x"][t], reset=d["reset"][t])
        p = jax.nn.softmax(jnp.concatenate([h, np.ones((LANES, 1))], 1) @ V, axis=1)
        delta = d["weight"][t][:, None] * (p - np.eye(SYMBOLS)[d["y"][t]]) @ V[:-1].T
        close(a.pull(own, delta)["W"], want["W"][t])


# -- DNI -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear(kl.UnitCell):
    """`h' = ĥ W`."""

    def unit(self, z, s):
        return z[0]


def linear_problem(k, steps, lanes=1):
    """A linear network with a constant target: ∂(future loss)/∂s is affine in s, exactly."""
    n, rng = 3, np.random.default_rng(3)
    cell = Linear(n, 1, bias=False)
    a = kl.Learner(cell, kl.linear(2), kl.dni(k), optax.sgd(0.0), dtype="float64")
    A = rng.normal(size=(n, n))
    A *= 0.6 / np.abs(np.linalg.eigvals(A)).max()  # s' = s A
    V, y = rng.normal(size=(n + 1, 2)), rng.normal(size=2)
    C, c = V[:n], V[n] - y
    # L = ½‖s C + c‖²;  the future's derivative is s P + p,
    # P = A (C Cᵀ + P) Aᵀ,  p = (c Cᵀ + p) Aᵀ
    P, p = np.zeros((n, n)), np.zeros(n)
    for _ in range(400):
        P, p = A @ (C @ C.T + P) @ A.T, (c @ C.T + p) @ A.T
    W = np.concatenate([A, rng.normal(size=(1, n))])[:, None]
    params = kl.Params(
        {"W": jnp.asarray(W)}, {"V": jnp.asarray(V)}, {"B": jnp.asarray(np.vstack([P, p]))}
    )
    d = {"x": np.zeros((steps, lanes, 1)), "y": np.broadcast_to(y, (steps, lanes, 2))}
    state = a.start(params, jax.random.key(0), lanes)
    return a, state._replace(s=jnp.asarray(rng.normal(size=(lanes, n)))), d


@pytest.mark.parametrize("k", [1, 3])
def test_dni_is_exact_with_the_exact_map(k):
    a, state, d = linear_problem(k, 6)
    got = a.gradients(state, **d)[1]
    close(got.estimator["B"], np.zeros_like(got.estimator["B"]))  # nothing left to be learnt
    V, y = state.params.readout["V"], d["y"][0, 0]
    A = state.params.cell["W"][:3, 0]

    def all_losses(W):  # of this and all later time, through these six steps' weights
        def step(carry, t):
            s, total = carry
            s = s @ jnp.where(t < 6, W[:3, 0], A)
            return (s, total + jnp.sum((s @ V[:3] + V[3] - y) ** 2) / 2), None

        return jax.lax.scan(step, (state.s[0], 0.0), jnp.arange(300))[0][1]

    want = jax.jit(jax.grad(all_losses))(state.params.cell["W"])
    close(k * got.cell["W"].sum(0)[:3], want[:3], 1e-9)


def test_dni_learns_from_its_own_guess():
    cell, k, d = kl.RHN(3, INPUTS), 2, data(6)
    a = learner(cell, kl.dni(k))
    state = start(a)
    d["reset"][2] = [True, False]  # at the start of a segment: there is no future beyond it
    got = a.gradients(state, **d)[1]
    B = state.params.estimator["B"]

    def guess(B, s):
        return jnp.concatenate([s, jnp.ones(1)]) @ B

    def segment(params, s, t0, lane):
        total = 0.0
        for t in range(t0, t0 + k):
            s = jnp.where(d["reset"][t, lane], 0.0, s)
            s = cell.step(params.cell, s, d["x"][t, lane])
            o = a.readout.predict(params.readout, s)
            total += d["weight"][t, lane] * a.readout.loss(o, d["y"][t, lane])
        return total + jax.lax.stop_gradient(guess(B, s)) @ s, s

    @jax.jit
    def by_hand(params):
        out = []
        for lane in range(LANES):
            s, parts = jnp.zeros(3), []
            for t in range(0, 6, k):
                (g, target), new = jax.grad(segment, (0, 1), has_aux=True)(params, s, t, lane)
                error = jax.grad(lambda B, s, y: jnp.sum((guess(B, s) - y) ** 2) / 2)(B, s, target)
                parts.append((g.cell, g.readout, {"B": error}))
                s = new
            out.append(jax.tree.map(lambda *p: jnp.stack(p), *parts))
        return jax.tree.map(lambda *p: sum(p) / (LANES * k), *out)

    close(tuple(got), by_hand(state.params))


def test_dni_learns_the_future():
    # a linear network that is driven by noise; only the map learns
    a, state, d = linear_problem(2, 4000, lanes=8)
    still, exact = kl.Params("still", "still", "learn"), state.params.estimator["B"]
    optimiser = optax.multi_transform(
        {"still": optax.set_to_zero(), "learn": optax.adam(1e-2)}, still
    )
    a = kl.Learner(a.cell, a.readout, a.estimator, optimiser, dtype="float64")
    params = state.params._replace(estimator={"B": jnp.zeros_like(exact)})
    d["x"] = np.random.default_rng(0).normal(size=d["x"].shape)
    state, _ = a.run(a.start(params, state.key, 8), **d)
    close(state.params.cell, params.cell, 0)
    # on states that the network visits
    visited = np.concatenate([state.s, np.ones((8, 1))], axis=1)
    error = visited @ (state.params.estimator["B"] - exact)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(visited @ exact)


# -- reservoirs ------------------------------------------------------------------------------------


def radii(W, n):
    """The spectral radius of every gate's recurrent block."""
    return [np.abs(np.linalg.eigvals(np.asarray(W[:n, k]))).max() for k in range(W.shape[1])]


def test_a_reservoir_never_moves():
    a = learner(kl.Tanh(8, INPUTS), kl.reservoir(), optimiser=optax.adamw(1e-2, weight_decay=0.1))
    d = data(40)
    state = a.init(jax.random.key(0), LANES)
    grads = a.gradients(state, **d)[1]
    assert not grads.cell["W"].any()
    other = learner(a.cell, kl.immediate())
    want = other.gradients(other.start(state.params, state.key, LANES), **d)[1]
    close(grads.readout, want.readout)  # the readout is not recurrent: exact
    after, _ = a.run(state, **d)
    np.testing.assert_array_equal(after.params.cell["W"], state.params.cell["W"])
    assert (after.params.readout["V"] != state.params.readout["V"]).all()


@pytest.mark.parametrize("cell", [kl.Tanh(12, 3), kl.LSTM(8, 3)], ids=["tanh", "lstm"])
def test_a_reservoir_has_the_radius_that_was_asked_for(cell):
    a = learner(cell, kl.reservoir(1.3, input_scale=0.5))
    W = a.init(jax.random.key(0)).params.cell["W"]
    close(radii(W, cell.hidden), [1.3] * W.shape[1])
    assert 0.2 < W[cell.hidden : -1].std() < 0.9
    assert not W[-1].any()
    own = learner(cell, kl.reservoir(None)).init(jax.random.key(0)).params.cell["W"]
    same = learner(cell, kl.rtrl()).init(jax.random.key(0)).params.cell["W"]
    np.testing.assert_array_equal(own, same)


def test_a_spectral_radius_of_the_weights_that_exist():
    key, spectral = jax.random.key(0), kl.Spectral(0.8)
    close(radii(Ring(6, 2, init_weights=spectral).init(key, jnp.float64)["W"], 6), [0.8] * 2)
    gru = kl.GRU(6, 2, init_weights=spectral).init(key, jnp.float64)["W"]
    close(radii(gru, 6), [0.8, 0.8, 0, 0.8])  # one of the gates has no recurrent weights
    embedded = kl.Embedded(kl.Tanh(4, 2), 3, init_weights=spectral)
    assert jnp.isfinite(embedded.init(key)["embedding"]).all()


def test_wrong_settings_are_refused():
    wrong = [
        lambda: kl.Spectral(-1.0),
        lambda: kl.reservoir(-1.0),
        lambda: kl.snap(0),
        lambda: kl.snap(1, window=0),
        lambda: kl.dni(0),
        lambda: kl.LIF(2, 2, leak=2.0),
    ]
    for make in wrong:
        with pytest.raises(ValueError, match="needs"):
            make()
    opaque = kl.Opaque(kl.Tanh(2, INPUTS))
    for estimator, instead in (
        (kl.snap(1), "use uoro"),
        (kl.rflo(), "use snap"),
        (kl.reservoir(), r"reservoir\(None\)"),
    ):
        with pytest.raises(TypeError, match=instead):
            learner(opaque, estimator)
    with pytest.raises(TypeError, match="unit-wise"):
        learner(kl.DeepRHN(2, INPUTS), kl.rflo())


# -- spikes ----------------------------------------------------------------------------------------


def test_leaky_integrate_and_fire():
    cell = kl.LIF(3, 2, leak=0.2, threshold=0.5, sharpness=2.0)
    rng = np.random.default_rng(0)
    W, x = rng.normal(size=(6, 1, 3)), rng.normal(size=2)
    v, s = rng.normal(size=3), np.array([1.0, 0.0, 1.0])
    new = cell.step({"W": jnp.asarray(W)}, jnp.concatenate([v, s]), x)
    want = 0.8 * v + np.concatenate([s, x, [1]]) @ W[:, 0] - 0.5 * s
    close(new, np.concatenate([want, want > 0.5]))
    close(cell.output(new), want > 0.5)

    # a spike's derivative is the surrogate's, forward and backward
    def spikes(v):
        return cell.output(cell.step({"W": jnp.asarray(W)}, jnp.concatenate([v, s]), x))

    surrogate = np.diag(0.8 / 0.5 / (1 + 2 * np.abs(want / 0.5 - 1)) ** 2)
    close(jax.jit(jax.jacfwd(spikes))(v), surrogate)
    close(jax.jit(jax.jacrev(spikes))(v), surrogate)


def test_spiking_networks_are_cells_as_any_other():
    assert kl.verify(kl.LIF(2, 2), kl.rtrl()).ok
    assert kl.verify(kl.LIF(1, 2), kl.kf_rtrl()).ok


def test_a_liquid_state_machine_learns_to_wait():
    # the input one step ago, from spikes alone
    a = learner(kl.LIF(64, 3), kl.reservoir(), optimiser=optax.adam(1e-2))
    x = np.random.default_rng(0).integers(0, 3, (1500, 4))
    state, out = a.run(a.init(jax.random.key(0), 4), x, np.roll(x, 1, axis=0))
    rate = state.s.reshape(4, 2, 64)[:, 1].mean()
    assert 0.02 < rate < 0.9  # units fire, and not all the time
    assert out.loss[-300:].mean() < 0.6 * np.log(3)


# -- with everything else --------------------------------------------------------------------------

ALL = [kl.snap(1), kl.snap(2), kl.rflo(window=1), kl.immediate(), kl.dni(2), kl.reservoir()]


@pytest.mark.parametrize("estimator", ALL, ids=lambda e: e.name)
def test_layouts_steps_and_files(estimator, tmp_path):
    cell, d = Ring(4, INPUTS) if estimator.name == "snap(2)" else kl.RHN(3, INPUTS), data(8)
    a = learner(cell, estimator)
    whole, out = a.run(start(a), **d)
    for layout in [kl.Loop()] + [kl.Shard(1)] * (estimator.name in ("snap(1)", "dni(2)")):
        b = learner(cell, estimator, layout=layout)
        close(b.run(start(b), **d)[0].params, whole.params)
    # step by step, from and to a file on the way
    state = start(a)
    if estimator.span > 1:
        with_buffer = a.init(jax.random.key(0), LANES, example=(d["x"][0], d["y"][0]))
        state = state._replace(buffer=with_buffer.buffer)
    for t in range(8):
        if t == 4:
            kl.save(tmp_path / "a", a, state)
            example = (d["x"][0], d["y"][0]) if estimator.span > 1 else None
            known = {"learner": a} if type(cell) is Ring else {"optimiser": ADAM}
            same, state = kl.load(tmp_path / "a", **known, example=example)
            assert same == a
        state, one = a.step(state, **{k: v[t] for k, v in d.items()})
        close(one.loss, out.loss[t])
    close((state.params, state.s, state.memory), (whole.params, whole.s, whole.memory))


def test_they_are_known_by_name():
    for name in ("snap(1)", "snap(order=2)", "rflo", "immediate", "dni(4)", "reservoir(0.95)"):
        spec.given(name, "estimator")
    assert spec.given("LIF(leak=0.2)", "cell", 8, 4) == kl.LIF(8, 4, leak=0.2)


def test_the_command_line(tmp_path):
    with jax.enable_x64(False):
        small = ["--hidden", 6, "--lanes", 3, "--steps", 40, "--log-every", 20]
        words = ["--estimator", "dni(2)", "--cell", "LIF", "--out", tmp_path / "run"]
        assert command("train", "copy", *small, *words) == 0
        assert (tmp_path / "run" / "metrics.jsonl").read_text().count("bits")


# -- the verifier ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modest(Wrapped):
    """Says that it is biased, and is not."""

    def ignores(self, structure):
        return "something"


def lines(estimator, cell=kl.Tanh(2, 2)):  # noqa: B008
    report = kl.verify(cell, estimator)
    return {c.name.split(",")[0].split(":")[0]: c.ok for c in report.checks}, report


@pytest.mark.parametrize(
    "estimator", [kl.snap(1), kl.rflo(), kl.dni(2), kl.reservoir()], ids=lambda e: e.name
)
def test_a_biased_method_says_so_and_is_what_it_says(estimator):
    found, report = lines(estimator)
    assert found == {"gradient = definition": True, "biased as stated": True}
    assert estimator.ignores(kl.Tanh(2, 2)) in report.checks[1].name
    if not jax.tree.leaves(estimator.init_params(None, Model(kl.Tanh(2, 2), None), float)):
        (check,) = proofs.exact(kl.Tanh(2, 2), estimator, "tanh")
        assert not check.ok  # as unbiased it does not pass


def test_a_method_that_is_not_what_it_says_fails():
    modest = kl.Online(Modest(kl.Exact()))
    assert lines(modest)[0] == {"biased as stated": False}
    with jax.enable_x64(True):  # RTRL, where SnAp-1 is expected
        checks = biased(kl.Tanh(2, 2), modest, "tanh", of=kl.snap(1))
    assert [c.ok for c in checks] == [False, False]
    assert set(lines(kl.snap(2))[0]) == {"gradient = BPTT"}  # nothing is left out of a dense cell

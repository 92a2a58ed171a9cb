"""Regularisers: bounds that hold, penalties whose gradients are exact."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline import regularise
from kronline.estimators.base import Model

INPUTS, LANES = 3, 2
WIDE = kl.Normal(0.8)
CELLS = [
    kl.RHN(6, INPUTS, init_weights=WIDE),
    kl.LSTM(5, INPUTS, init_weights=WIDE),
    kl.DeepRHN(5, INPUTS, init_weights=WIDE),
    kl.Embedded(kl.Tanh(4, 3, init_weights=WIDE), INPUTS),
]


def name(thing):
    return getattr(thing, "name", type(thing).__name__)


def recurrent(cell, weights):
    """The recurrent weights of each gate, as matrices; all other weights."""
    blocks, rest = [], []
    for key, w in cell.weights().items():
        W = np.asarray(weights[key])
        blocks += [W[: w.recurrent, k] for k in range(W.shape[1]) if w.recurrent]
        rest.append(W[w.recurrent :])
    return blocks, rest


def sizes(kind, blocks):
    if kind is regularise.row_norm:
        return np.concatenate([np.linalg.norm(b, axis=0) for b in blocks])
    return np.concatenate([np.linalg.svd(b, compute_uv=False) for b in blocks])


@pytest.mark.parametrize("cell", CELLS, ids=name)
@pytest.mark.parametrize("kind", [regularise.row_norm, regularise.spectral])
def test_a_projection_bounds_what_is_too_large_and_leaves_the_rest(kind, cell):
    weights = cell.init(jax.random.key(0))
    before, others = recurrent(cell, weights)
    limit = float(np.median(sizes(kind, before)))
    after, same = recurrent(cell, kind(limit).constrained(cell, weights))
    assert sizes(kind, after).max() <= limit * (1 + 1e-5)
    # what was small enough keeps its size, the rest is at the limit, and both keep directions
    want = np.minimum(sizes(kind, before), limit)
    np.testing.assert_allclose(np.sort(sizes(kind, after)), np.sort(want), rtol=1e-4)
    for a, b in zip(others, same, strict=True):
        np.testing.assert_array_equal(a, b)
    if kind is regularise.row_norm:
        for a, b in zip(before, after, strict=True):
            short = np.linalg.norm(a, axis=0) <= limit
            np.testing.assert_array_equal(a[:, short], b[:, short])
    # allowed weights are untouched, to the last bit
    wide = kind(float(sizes(kind, before).max()) * 1.01).constrained(cell, weights)
    jax.tree.map(np.testing.assert_array_equal, wide, weights)


def test_the_nearest_allowed_matrix():
    """The spectral projection is the closest point of its set: nothing allowed is nearer."""
    cell = kl.Tanh(4, 2, init_weights=WIDE)
    W = cell.init(jax.random.key(1))
    got = regularise.spectral(0.7).constrained(cell, W)["W"]
    distance = float(jnp.linalg.norm(got - W["W"]))
    for seed in range(20):
        other = cell.init(jax.random.key(seed + 2))
        allowed = regularise.spectral(0.7).constrained(cell, other)["W"]
        for t in (0.01, 0.1, 1.0):  # the set is convex
            mixed = (1 - t) * got + t * allowed.at[4:].set(W["W"][4:])
            assert float(jnp.linalg.norm(mixed - W["W"])) >= distance * (1 - 1e-6)


def data(steps):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, INPUTS, (2, steps, LANES))
    return {"x": x, "y": y, "reset": rng.random((steps, LANES)) < 0.15}


def learner(cell, estimator, *regularisers, optimiser=None, **kwargs):
    optimiser = optimiser or optax.sgd(0.3)
    return kl.Learner(
        cell, kl.softmax(INPUTS), estimator, optimiser, regularisers=regularisers, **kwargs
    )


@pytest.mark.parametrize("kind", [regularise.row_norm, regularise.spectral])
def test_the_bound_holds_while_learning(kind):
    cell = kl.RHN(6, INPUTS, init_weights=WIDE)
    a = learner(cell, kl.kf_rtrl(), kind(0.5))
    state = a.init(jax.random.key(0), LANES)
    for _ in range(3):
        state, _ = a.run(state, **data(10))
        assert sizes(kind, recurrent(cell, state.params.cell)[0]).max() <= 0.5 * (1 + 1e-5)
    free = learner(cell, kl.kf_rtrl())
    loose = learner(cell, kl.kf_rtrl(), kind(1e6))
    runs = [b.run(b.init(jax.random.key(0), LANES), **data(10))[0] for b in (free, loose)]
    jax.tree.map(np.testing.assert_array_equal, runs[0].params, runs[1].params)


EXACT = [kl.rtrl(), kl.rtrl(window=1), kl.rtrl(window=4), kl.bptt(), kl.rolling_tbptt(12, every=4)]


@pytest.mark.parametrize(
    ("cell", "estimator"),
    [
        *((CELLS[0], e) for e in EXACT),
        (CELLS[1], kl.rtrl(window=4)),
        (CELLS[2], kl.rtrl()),
        (kl.Opaque(CELLS[0]), kl.rtrl(window=4)),
    ],
    ids=name,
)
def test_the_activation_penalty_has_the_exact_gradient(cell, estimator):
    """Of `Σ_t weight_t loss_t + c‖h_t‖²`, by reverse mode over all of it; the loss is as it was."""
    c, steps = 0.3, 12
    with jax.enable_x64(True):
        a = learner(
            cell,
            estimator,
            regularise.activation(c / 3),
            regularise.activation(2 * c / 3),
            dtype="float64",
        )
        d = data(steps)
        d["weight"] = np.random.default_rng(1).choice([0.0, 1.0, 2.0], (steps, LANES))
        state = a.init(jax.random.key(0), LANES)
        _, each = a.gradients(state, **d)
        segments = jax.tree.leaves(each)[0].shape[0]

        def total(params):
            def lane(x, y, reset, weight):
                def step(s, now):
                    x, y, reset, weight = now
                    s = cell.step(params.cell, jnp.where(reset, 0, s), x)
                    h = cell.output(s)
                    loss = a.readout.loss(a.readout.predict(params.readout, h), y)
                    return s, weight * loss + c * jnp.sum(h**2)

                return jax.lax.scan(step, jnp.zeros(cell.size), (x, y, reset, weight))[1].sum()

            lanes = (jnp.asarray(d[k]) for k in ("x", "y", "reset", "weight"))
            return jax.vmap(lane, 1)(*lanes).mean()

        want = jax.grad(total)(state.params)
        got = jax.tree.map(lambda g: g.sum(0) * (steps / segments), each)
        jax.tree.map(
            lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-12), got, want
        )
        plain = learner(cell, estimator, dtype="float64")
        seen, bare = (b.run(state, **d)[1].loss[0] for b in (a, plain))
        np.testing.assert_array_equal(seen, bare)


FORMULAS = [kl.kf_rtrl(), kl.ok(2), kl.reverse_kf(), kl.uoro(), kl.kf_rtrl(copies=2)]


SMALL = kl.RHN(3, INPUTS, init_weights=WIDE)
DEEP = kl.DeepRHN(3, INPUTS, init_weights=WIDE)  # one pair a layer


@pytest.mark.parametrize(
    ("cell", "estimator"), [*((SMALL, e) for e in FORMULAS), (DEEP, kl.kf_rtrl())], ids=name
)
def test_the_noise_penalty_has_the_gradient_of_the_closed_form(cell, estimator):
    """By finite differences of the trace's own formula, state and trace held fixed."""
    with jax.enable_x64(True):
        a = learner(cell, estimator, dtype="float64", optimiser=optax.sgd(0.0))
        d = data(7)
        state, _ = a.run(a.init(jax.random.key(0), LANES), **d)
        s, memory = jax.tree.map(lambda v: v[0], (state.s, state.memory))
        x, stay = jnp.asarray(1), jnp.zeros((), bool)
        trace = estimator.trace

        @jax.jit
        def gradient(reset):
            now = (Model(cell, a.readout), state.params, s, memory, x, reset)
            return regularise.noise(0.25).gradient(estimator, *now)

        @jax.jit
        def variance(weights):
            return trace.variance(memory, cell.linearise(weights, s, x))

        g = gradient(stay)

        weights = state.params.cell
        scale = trace.mean2(memory, cell.linearise(weights, s, x)) + variance(weights)
        rng = np.random.default_rng(0)
        for _ in range(5):
            by = {k: jnp.asarray(rng.normal(size=w.shape)) for k, w in weights.items()}
            up, down = ({k: w + e * by[k] for k, w in weights.items()} for e in (1e-6, -1e-6))
            want = 0.25 * (variance(up) - variance(down)) / 2e-6 / scale
            got = sum(jnp.sum(g[k] * by[k]) for k in g)
            assert float(got) == pytest.approx(float(want), rel=1e-5, abs=1e-9)
        anew = gradient(jnp.ones((), bool))
        assert all(np.isfinite(v).all() for v in jax.tree.leaves(anew))


def test_the_noise_penalty_is_added_to_every_lanes_gradient():
    cell, estimator = kl.RHN(4, INPUTS, init_weights=WIDE), kl.kf_rtrl(window=2)
    r, d = regularise.noise(0.5), data(2)
    plain, a = learner(cell, estimator), learner(cell, estimator, r)
    state, _ = plain.run(plain.init(jax.random.key(0), LANES), **data(8))
    _, bare = plain.gradients(state, **d)
    _, got = a.gradients(state, **d)
    model = Model(cell, a.readout)
    more = [
        jax.jit(r.gradient, static_argnums=(0, 1))(
            estimator,
            model,
            state.params,
            state.s[i],
            *jax.tree.map(
                lambda v, i=i: v[i],
                (state.memory, jnp.asarray(d["x"][0]), jnp.asarray(d["reset"][0])),
            ),
        )
        for i in range(LANES)
    ]
    want = bare.cell["W"][0] + sum(m["W"] for m in more) / LANES
    np.testing.assert_allclose(got.cell["W"][0], want, rtol=1e-4, atol=1e-6)


def test_the_noise_penalty_lowers_the_noise():
    """The penalty alone, with next to no loss (with none, nothing is learnt at all)."""
    cell, d = kl.RHN(8, INPUTS, init_weights=WIDE), data(300)
    d["weight"] = np.full((300, LANES), 1e-12)
    shares = []
    for regularisers in ((), (regularise.noise(1.0),)):
        a = learner(cell, kl.kf_rtrl(), *regularisers, optimiser=optax.adam(0.01))
        state, _ = a.run(a.init(jax.random.key(0), LANES), **d)
        still = learner(cell, kl.kf_rtrl(), optimiser=optax.sgd(0.0))
        seen = []
        for t in range(20):
            seen.append(float(still.noise_share(state, d["x"][t]).mean()))
            state, _ = still.run(state, d["x"][t : t + 1], d["y"][t : t + 1])
        shares.append(np.mean(seen))
    assert shares[1] < 0.85 * shares[0]


WRONG = [
    (lambda: regularise.row_norm(0), ValueError, "limit must be a positive number, got 0"),
    (lambda: regularise.spectral(float("nan")), ValueError, "limit must be a positive number"),
    (lambda: regularise.activation("1"), ValueError, "weight must be a positive number, got '1'"),
    (lambda: regularise.noise(-1), ValueError, "weight must be a positive number, got -1"),
    (
        lambda: learner(kl.Opaque(CELLS[0]), kl.uoro(), regularise.row_norm(1)),
        TypeError,
        "recurrent weights are visible .* got Opaque; use activation",
    ),
    (
        lambda: learner(CELLS[0], kl.tbptt(3), regularise.noise(1)),
        TypeError,
        r"known as a formula, got tbptt\(3\); use kf_rtrl",
    ),
    (lambda: learner(CELLS[0], kl.rtrl(), 3.0), TypeError, "regularisers must be such as"),
    (
        lambda: kl.Learner(
            CELLS[0], None, kl.rtrl(), optax.sgd(1.0), regularisers=(regularise.activation(1),)
        ),
        TypeError,
        "needs a readout",
    ),
]


@pytest.mark.parametrize(("make", "kind", "message"), WRONG)
def test_what_cannot_be_done_is_explained(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_a_regularised_learner_is_saved_and_loaded(tmp_path):
    a = learner(CELLS[0], kl.kf_rtrl(), regularise.spectral(0.9), regularise.activation(0.1))
    state = a.init(jax.random.key(0), LANES)
    kl.save(tmp_path / "a", a, state)
    b, _ = kl.load(tmp_path / "a", optimiser=a.optimiser)
    assert b.regularisers == a.regularisers

"""KF-RTRL written the straightforward way: Algorithm 1, batched over lanes with einsum.

What a user would write without kronline, in one compiled scan, without further care. Also TBPTT as
`jax.grad` over `lax.scan`. `kronline bench --show-baseline` prints this file.
"""

import jax
import jax.numpy as jnp
import optax

OPTIMISER = optax.adam(1e-3)


def rhn(W, h, x):
    """The new state, D (lanes, slots, gates, n), E (lanes, slots, slots, n)."""
    z = jnp.einsum("lm,mkn->lkn", x, W)
    g, t = 2 * jax.nn.sigmoid(z[:, 0]) - 1, jax.nn.sigmoid(z[:, 1])
    dg, dt = (1 - g**2) / 2, t * (1 - t)
    D = jnp.stack([dg * t, (g - h) * dt], axis=1)[:, None]
    return g * t + h * (1 - t), D, (1 - t)[:, None, None]


def lstm(W, s, x):
    """The same; the state is (c, h), of which W reads h."""
    c, _ = jnp.split(s, 2, axis=1)
    f, i, o, g = jnp.moveaxis(jnp.einsum("lm,mkn->lkn", x, W), 1, 0)
    f, i, o, g = jax.nn.sigmoid(f), jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(g)
    c_new = f * c + i * g
    tc = jnp.tanh(c_new)
    dc = jnp.stack([c * f * (1 - f), g * i * (1 - i), 0 * o, i * (1 - g**2)], axis=1)
    through = (o * (1 - tc**2))[:, None]
    dh = through * dc + jnp.stack([0 * o, 0 * o, tc * o * (1 - o), 0 * o], axis=1)
    E = jnp.stack([f, through[:, 0] * f], axis=1)[:, :, None]  # by c alone: h enters through W
    E = jnp.concatenate([E, jnp.zeros_like(E)], axis=2)
    return jnp.concatenate([c_new, o * tc], axis=1), jnp.stack([dc, dh], axis=1), E


CELLS = {"RHN": rhn, "LSTM": lstm}
SLOTS = {"RHN": 1, "LSTM": 2}
GATES = {"RHN": 2, "LSTM": 4}


def init(cell, n, lanes, symbols, key=0):
    """Parameters, optimiser, state, u, A, key."""
    q, r, m = SLOTS[cell], GATES[cell], n + symbols + 1
    k1, k2, k3 = jax.random.split(jax.random.key(key), 3)
    params = {
        "W": 0.01 * jax.random.normal(k1, (m, r, n)),
        "V": 0.01 * jax.random.normal(k2, (n + 1, symbols)),
    }
    s, u, A = jnp.zeros((lanes, q * n)), jnp.zeros((lanes, m)), jnp.zeros((lanes, q * n, r, n))
    return params, OPTIMISER.init(params), s, u, A, k3


def norm(a):
    """Over all axes but lanes."""
    return jnp.sqrt(jnp.sum(a**2, axis=tuple(range(1, a.ndim)))) + 1e-30


def loss_and_gradient(V, h, y):
    """Softmax cross-entropy of [h, 1] V: the mean loss, dV, and each lane's dh."""
    h1 = jnp.concatenate([h, jnp.ones((len(h), 1))], axis=1)
    logits = h1 @ V
    error = jax.nn.softmax(logits) - jax.nn.one_hot(y, V.shape[1])
    loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()
    return loss, h1.T @ error / len(h), error @ V[:-1].T


def kf_rtrl(cell, carry, x, y):
    """KF-RTRL over steps x, y (steps, lanes) of symbols, an update each step."""

    def step(carry, data):
        params, opt, s, u, A, key = carry
        x, y = data
        W, V = params["W"], params["V"]
        lanes, n = s.shape[0], W.shape[2]
        q = s.shape[1] // n
        symbols = jax.nn.one_hot(x, V.shape[1])
        feats = jnp.concatenate([s[:, -n:], symbols, jnp.ones((lanes, 1))], axis=1)
        s, D, E = CELLS[cell](W, s, feats)

        # H A: the columns that W reads, and the diagonals
        eye = jnp.eye(n)
        H = jnp.einsum("laki,jki->laij", D, W[:n]) + jnp.einsum("lai,ij->laij", E[:, :, -1], eye)
        blocks = A.reshape(lanes, q, n, -1)
        HA = jnp.einsum("laij,ljc->laic", H, blocks[:, -1])
        if q > 1:
            HA = HA + E[:, :, 0, :, None] * blocks[:, :1]
        HA = HA.reshape(A.shape)

        # u <- c1 p1 u + c2 p2 h,  A <- c1 HA/p1 + c2 D/p2
        key, k = jax.random.split(key)
        c1, c2 = jax.random.rademacher(k, (2, lanes), jnp.float32)
        p1, p2 = jnp.sqrt(norm(HA) / norm(u)), jnp.sqrt(norm(D) / norm(feats))
        u = (c1 * p1)[:, None] * u + (c2 * p2)[:, None] * feats
        dense_D = jnp.einsum("laki,ij->laikj", D, eye).reshape(A.shape)
        A = (c1 / p1)[:, None, None, None] * HA + (c2 / p2)[:, None, None, None] * dense_D

        loss, dV, dh = loss_and_gradient(V, s[:, -n:], y)
        dA = jnp.einsum("li,likn->lkn", dh, A[:, -n:])
        grads = {"W": jnp.einsum("lm,lkn->mkn", u, dA) / lanes, "V": dV}
        updates, opt = OPTIMISER.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt, s, u, A, key), loss

    return jax.lax.scan(step, carry, (x, y))


def tbptt(cell, k, carry, x, y):
    """TBPTT-k as jax.grad over lax.scan, an update every k steps."""

    def segment(carry, data):
        params, opt, s = carry

        def loss(params, s):
            def step(s, data):
                x, y = data
                W, V = params["W"], params["V"]
                symbols = jax.nn.one_hot(x, V.shape[1])
                feats = jnp.concatenate([s[:, -W.shape[2] :], symbols, jnp.ones((len(s), 1))], 1)
                s = CELLS[cell](W, s, feats)[0]
                h1 = jnp.concatenate([s[:, -W.shape[2] :], jnp.ones((len(s), 1))], axis=1)
                logits = jax.nn.log_softmax(h1 @ V)
                return s, -jnp.take_along_axis(logits, y[:, None], axis=1).mean()

            s, losses = jax.lax.scan(step, s, data)
            return losses.mean(), s

        (value, s), grads = jax.value_and_grad(loss, has_aux=True)(params, s)
        updates, opt = OPTIMISER.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt, s), value

    x, y = (a.reshape(-1, k, a.shape[1]) for a in (x, y))
    return jax.lax.scan(segment, carry, (x, y))

"""KF-RTRL on RHN in torch, written the straightforward way: `python benchmarks/torch_baseline.py`.

Needs torch, which nothing else here does.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]


def kf_rtrl(n: int, lanes: int, symbols: int, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    """A function that takes all steps of x, y (steps, lanes) once more."""
    torch.manual_seed(0)
    m, eye = n + symbols + 1, torch.eye(n)
    W, V = 0.01 * torch.randn(m, 2, n), 0.01 * torch.randn(n + 1, symbols)
    optimiser = torch.optim.Adam([W, V], lr=1e-3)
    ones = torch.ones(lanes, 1)
    carry = [torch.zeros(lanes, n), torch.zeros(lanes, m), torch.zeros(lanes, n, 2, n)]
    data = list(zip(torch.from_numpy(x).long(), torch.from_numpy(y).long(), strict=True))

    def norm(a: Any) -> Any:
        return a.reshape(lanes, -1).norm(dim=1) + 1e-30

    @torch.no_grad()
    def run() -> Any:
        h, u, A = carry
        for symbol, target in data:
            one_hot = torch.nn.functional.one_hot(symbol, symbols).float()
            feats = torch.cat([h, one_hot, ones], 1)
            z = torch.einsum("lm,mkn->lkn", feats, W)
            g, t = 2 * torch.sigmoid(z[:, 0]) - 1, torch.sigmoid(z[:, 1])
            D = torch.stack([(1 - g**2) / 2 * t, (g - h) * t * (1 - t)], 1)
            H = torch.einsum("lki,jki->lij", D, W[:n]) + torch.diag_embed(1 - t)
            h = g * t + h * (1 - t)
            HA = torch.bmm(H, A.reshape(lanes, n, -1)).reshape(A.shape)
            c1, c2 = torch.randint(0, 2, (2, lanes)).float() * 2 - 1
            p1, p2 = (norm(HA) / norm(u)).sqrt(), (norm(D) / norm(feats)).sqrt()
            u = (c1 * p1)[:, None] * u + (c2 * p2)[:, None] * feats
            dense_D = torch.einsum("lki,ij->likj", D, eye)
            A = (c1 / p1)[:, None, None, None] * HA + (c2 / p2)[:, None, None, None] * dense_D
            h1 = torch.cat([h, ones], 1)
            error = torch.softmax(h1 @ V, 1) - torch.nn.functional.one_hot(target, symbols).float()
            dA = torch.einsum("li,likn->lkn", error @ V[:-1].T, A)
            W.grad, V.grad = torch.einsum("lm,lkn->mkn", u, dA) / lanes, h1.T @ error / lanes
            optimiser.step()
        carry[:] = [h, u, A]
        return float(h[0, 0])

    run()
    return run


def main() -> None:
    """Time both, one after the other, and print microseconds per step and lane."""
    import jax  # noqa: PLC0415  torch first: both bring an OpenMP of their own
    import optax  # noqa: PLC0415

    import kronline as kl  # noqa: PLC0415

    n, lanes, symbols, steps = 128, 64, 32, 20
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, symbols, (steps, lanes)) for _ in range(2))
    learner = kl.Learner(kl.RHN(n, symbols), kl.softmax(symbols), kl.kf_rtrl(), optax.adam(1e-3))
    state = learner.init(jax.random.key(0), lanes)
    in_torch = kf_rtrl(n, lanes, symbols, x, y)

    def here() -> Any:
        return jax.block_until_ready(learner.run(state, x, y))

    here()
    found: dict[str, list[float]] = {}
    for name, run in (("kronline", here), ("torch", in_torch)) * 5:
        start = time.perf_counter()
        run()
        found.setdefault(name, []).append(1e6 * (time.perf_counter() - start) / steps / lanes)
    for name, times in found.items():
        print(
            f"{name:9} {np.median(times):8.1f} µs per step and lane (RHN, n = {n}, {lanes} lanes)"
        )


if __name__ == "__main__":
    main()

"""Whether the fast paths compute what the reference computes, at the sizes that are timed.

The reference is pure JAX in float64. Same parameters, same signs, 100 steps with resets, parameters
frozen; the error of a step's gradient is `‖g − g_ref‖ / ‖g_ref‖`.
"""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from kronline import native
from kronline.lab.bench.work import SYMBOLS, Row, learner
from kronline.lab.progress import Tracker
from kronline.noise import is_draw

SHAPES = (("RHN", 64, 64), ("LSTM", 128, 32), ("RHN", 128, 64), ("RHN", 256, 32))
STEPS = 100
LIMIT = 1e-5


def gradients(row: Row, dtype: str, kernel: bool, steps: int = STEPS) -> np.ndarray:
    """Of the cell's weights after each step, from data and signs that depend on the row alone."""
    with native.use(kernel):
        learn = replace(learner(row), dtype=dtype, donate=False)
        rng = np.random.default_rng(0)
        x, y = (rng.integers(0, SYMBOLS, (steps, row.lanes)) for _ in range(2))
        reset = rng.random((steps, row.lanes)) < 0.02

        def signs(d: Any) -> np.ndarray:
            return rng.choice([-1.0, 1.0], (steps, *d.shape))

        noise = jax.tree.map(signs, learn.draws(row.lanes), is_leaf=is_draw)
        state = replace(learn, dtype="float32").init(jax.random.key(0), row.lanes)
        state = learn.start(
            jax.tree.map(lambda a: jnp.asarray(a, dtype), state.params), state.key, row.lanes
        )
        found = learn.gradients(state, x, y, reset=reset, noise=noise)[1]
        return np.asarray(found.cell["W"], np.float64).reshape(steps, -1)


def errors(row: Row, steps: int = STEPS) -> dict[str, float]:
    """The largest error over all steps, of each fast path that there is here."""
    want = gradients(row, "float64", False, steps)
    paths = {"pure JAX": False} | ({"native": True} if native.status().active else {})
    out = {}
    for name, kernel in paths.items():
        got = gradients(row, "float32", kernel, steps)
        error = np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)
        out[name] = float(error.max())
    return out


def main(as_json: bool) -> int:
    """Check all shapes; 1 if an error is too large."""
    jax.config.update("jax_enable_x64", True)
    lines = []
    with Tracker({"check": len(SHAPES)}) as tracker:
        for cell, n, lanes in SHAPES:
            for path, error in errors(Row("KF-RTRL", "fast", cell, n, lanes)).items():
                line = {"cell": cell, "hidden": n, "lanes": lanes, "path": path, "error": error}
                lines.append({**line, "ok": error <= LIMIT})
            tracker.update("check", 1, f"{cell} {n}x{lanes}")
    if as_json:
        print(json.dumps({"steps": STEPS, "limit": LIMIT, "checks": lines}))
    else:
        table = Table(title=f"Largest relative error of a gradient, {STEPS} steps, against float64")
        for name in lines[0]:
            table.add_column(name)
        for line in lines:
            table.add_row(*(f"{v:.1e}" if isinstance(v, float) else str(v) for v in line.values()))
        Console().print(table)
    return 0 if all(line["ok"] for line in lines) else 1

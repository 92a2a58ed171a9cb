"""The step as `jax.export` writes it: kronline's predictions, where kronline cannot be imported."""

import subprocess
import sys

import jax
import jax.export
import numpy as np
import pytest

from deployed import predictions, problem, ran
from kronline import deploy

pytest.importorskip("flatbuffers", reason="needs flatbuffers: make interop")


@pytest.mark.parametrize("name", ["GRU", "blocks"])
def test_jax_export(name, tmp_path):
    made, state, x = problem(name, False)
    path = deploy.jax_export(made, state, tmp_path / "net.jax")
    step = jax.jit(jax.export.deserialize(bytearray(path.read_bytes())).call)
    there = ran(step, np.zeros((2, made.cell.size), np.float32), x)
    np.testing.assert_allclose(there, predictions(made, state, x), rtol=0, atol=1e-5)
    y, _ = step(x[0][:1], np.zeros((1, made.cell.size), np.float32))  # another batch
    np.testing.assert_allclose(y, there[0][:1], rtol=0, atol=1e-5)


CHILD = """
import sys
sys.modules["kronline"] = None  # an import of it would fail
import numpy as np
from jax import export
step = export.deserialize(bytearray(open("net.jax", "rb").read())).call
state, seen = np.zeros((2, 10), np.float32), []
for x in np.load("x.npy", allow_pickle=False):
    y, state = step(x, state)
    seen.append(np.asarray(y))
np.save("y.npy", np.stack(seen))
"""


def test_it_loads_without_kronline(tmp_path):
    made, state, x = problem("LSTM", True)
    deploy.jax_export(made, state, tmp_path / "net.jax", inputs="symbols", names=("a", "b", "c"))
    assert "symbols, int32 (batch,)" in (tmp_path / "net.jax.json").read_text()
    np.save(tmp_path / "x.npy", x[:200])
    subprocess.run([sys.executable, "-c", CHILD], cwd=tmp_path, check=True, timeout=300)
    there = np.load(tmp_path / "y.npy", allow_pickle=False)
    np.testing.assert_allclose(there, predictions(made, state, x)[:200], rtol=0, atol=1e-5)

"""Every cell as plain numpy: kronline's predictions over 1,000 steps.

ONNX and `jax.export`, which need more than kronline brings along, are tested in tests/interop.
"""

import subprocess
import sys

import jax
import numpy as np
import pytest

import kronline as kl
from deployed import CELLS, numpy_program, predictions, problem, ran
from kronline import deploy


@pytest.mark.parametrize("symbols", [False, True], ids=["vectors", "symbols"])
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_as_numpy(name, symbols, tmp_path):
    made, state, x = problem(name, symbols)
    kind = "symbols" if symbols else "vectors"
    path = deploy.numpy_step(made, state, tmp_path / "net.py", inputs=kind)
    program, here = numpy_program(path), predictions(made, state, x)
    assert here.std() > 0.01
    there = ran(program["step"], program["start"](2), x)
    assert there.dtype == np.float32
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-5)
    one = ran(program["step"], program["start"](), x[:20, :1])  # another batch
    np.testing.assert_allclose(one, here[:20, :1], rtol=0, atol=1e-5)


CHILD = """
import sys
sys.modules["kronline"] = sys.modules["jax"] = None  # an import of them would fail
import numpy as np, net
assert net.SYMBOLS == ["a", "b", "'"], net.SYMBOLS
state, seen = net.start(2), []
try:
    net.step([[0.0]], state)
    raise AssertionError("a wrong shape was taken")
except ValueError as e:
    assert "needed x (batch,) and state (batch, 10)" in str(e), e
for x in np.load("x.npy", allow_pickle=False):
    y, state = net.step(x, state)
    seen.append(y)
np.save("y.npy", np.stack(seen))
"""


def test_it_runs_where_there_is_numpy_only(tmp_path):
    made, state, x = problem("LSTM", True)
    names = ("a", "b", "'")
    deploy.numpy_step(made, state, tmp_path / "net.py", inputs="symbols", names=names)
    np.save(tmp_path / "x.npy", x)
    subprocess.run([sys.executable, "-c", CHILD], cwd=tmp_path, check=True, timeout=300)
    there = np.load(tmp_path / "y.npy", allow_pickle=False)
    np.testing.assert_allclose(there, predictions(made, state, x), rtol=0, atol=1e-5)


def test_a_loss_of_ones_own_shows_the_cells_outputs(tmp_path):
    made = kl.Learner(kl.GRU(4, 3), None, kl.kf_rtrl(), problem("GRU", False)[0].optimiser)
    state = made.init(jax.random.key(0))
    program = numpy_program(deploy.numpy_step(made, state, tmp_path / "net.py"))
    y, s = program["step"](np.ones((1, 3)), program["start"]())
    np.testing.assert_array_equal(y, s)
    assert program["ABOUT"]["y"] == "the cell's outputs (batch, 4)"


def test_errors(tmp_path):
    made, state, _ = problem("GRU", False)
    with pytest.raises(ValueError, match=r"net\.py, got .*net"):
        deploy.numpy_step(made, state, tmp_path / "net")
    with pytest.raises(ValueError, match="names"):
        deploy.numpy_step(made, state, tmp_path / "net.py", names=("a", "b", "c"))

"""Every cell as ONNX, run by onnxruntime: kronline's predictions to 1e-5 over 1,000 steps."""

import json

import jax
import numpy as np
import pytest

import kronline as kl
from deployed import CELLS, predictions, problem, ran
from kronline import deploy

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: make interop")
onnx = pytest.importorskip("onnx", reason="needs onnx: make interop")


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("symbols", [False, True], ids=["vectors", "symbols"])
@pytest.mark.parametrize("name", CELLS)
def test_every_cell(name, symbols, tmp_path):
    made, state, x = problem(name, symbols)
    kind = "symbols" if symbols else "vectors"
    net = session(deploy.onnx(made, state, tmp_path / "net.onnx", inputs=kind))

    def step(x, s):
        return net.run(None, {"x": x, "state": s})

    here = predictions(made, state, x)
    assert here.std() > 0.01
    there = ran(step, np.zeros((2, made.cell.size), np.float32), x)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-5)
    one = ran(step, np.zeros((1, made.cell.size), np.float32), x[:20, :1])  # another batch
    np.testing.assert_allclose(one, here[:20, :1], rtol=0, atol=1e-5)


def test_float64(tmp_path):
    with jax.enable_x64(True):
        made, state, x = problem("LSTM", False, "float64")
        net = session(deploy.onnx(made, state, tmp_path / "net.onnx"))
        there = ran(lambda x, s: net.run(None, {"x": x, "state": s}), np.zeros((2, 10)), x)
        np.testing.assert_allclose(there, predictions(made, state, x), rtol=0, atol=1e-12)


def test_what_the_file_says(tmp_path):
    made, state, _ = problem("RHN", True)
    path = deploy.onnx(
        made, state, tmp_path / "n.onnx", inputs="symbols", names=("a", "b", "\u00e9")
    )
    said = session(path).get_modelmeta().custom_metadata_map
    assert json.loads(said["symbols"]) == ["a", "b", "\u00e9"]
    assert json.loads(said["learner"])["cell"].startswith("RHN(5, 3")
    assert said["state"] == "float32 (batch, 5), zeros at the start of a stream"
    assert [
        d.dim_param or d.dim_value
        for d in onnx.load(path).graph.input[1].type.tensor_type.shape.dim
    ] == ["batch", 5]


def test_errors(tmp_path):
    made, state, _ = problem("RHN", True)
    with pytest.raises(ValueError, match="3 symbols"):
        deploy.onnx(made, state, tmp_path / "n.onnx", inputs="symbols", names=("a",))
    with pytest.raises(ValueError, match="'vectors' or 'symbols'"):
        deploy.onnx(made, state, tmp_path / "n.onnx", inputs="text")
    odd = kl.interop.wrap(lambda p, s, x: jax.lax.cumsum(p * s) + x, np.ones(3), size=3, inputs=3)
    made = kl.Learner(odd, None, kl.uoro(), made.optimiser)
    with pytest.raises(TypeError, match=r"'cumsum'.*jax_export"):
        deploy.onnx(made, made.init(jax.random.key(0)), tmp_path / "n.onnx")
    assert not list(tmp_path.iterdir())

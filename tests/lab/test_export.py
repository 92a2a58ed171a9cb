"""`kronline export`: what a run learnt, as files."""

import json

import jax
import numpy as np
import optax
import pytest

import kronline as kl
from deployed import numpy_program, ran
from kronline.lab.runs.train import load
from running import command


@pytest.mark.parametrize("kind", ["text", "copy"])
def test_a_run(kind, unbroken, tmp_path, capsys):
    run, out = unbroken[kind], tmp_path / "net.py"
    assert command("export", run, "--to", "numpy", "--out", out) == 0
    assert "net.py and its .npz: numpy" in capsys.readouterr().err
    task, exp, params, _ = load(run)
    stream = exp.stream.batch(exp.stream.init(jax.random.key(0), task.lanes), exp.data, 30)[1]
    x = np.asarray(stream.x)
    here = exp.learner.evaluate(params, x, x % exp.learner.readout.outputs, predictions=True)
    program = numpy_program(out)
    there = ran(program["step"], program["start"](task.lanes), x)
    np.testing.assert_allclose(there, here.prediction, rtol=0, atol=1e-5)
    assert ("SYMBOLS" in program) == (kind == "text")
    if kind == "text":
        assert tuple(program["SYMBOLS"]) == tuple(exp.source.symbols)


def test_a_file(tmp_path, capsys):
    learner = kl.Learner(kl.GRU(4, 3), kl.linear(2), kl.kf_rtrl(), optax.adam(1e-3))
    state = learner.init(jax.random.key(0))
    kl.save(tmp_path / "a.safetensors", learner, state)
    words = ["export", tmp_path / "a.safetensors", "--to", "numpy", "--out", tmp_path / "net.py"]
    assert command(*words) == 2
    assert "add --inputs vectors or --inputs symbols" in capsys.readouterr().err
    assert command(*words, "--inputs", "vectors") == 0
    program = numpy_program(tmp_path / "net.py")
    x = np.ones((1, 3), np.float32)
    y, _ = program["step"](x, program["start"]())
    np.testing.assert_allclose(y, learner.peek(state, x), rtol=0, atol=1e-6)
    assert json.loads(program["ABOUT"]["learner"])["cell"] == "GRU(4, 3)"


def test_errors(unbroken, tmp_path, capsys):
    for words, message in (
        ((tmp_path / "none", "--to", "onnx", "--out", "x"), "needed a run's folder"),
        ((unbroken["text"], "--to", "numpy", "--out", tmp_path / "x"), "a path like net.py"),
        (
            (unbroken["text"], "--to", "onnx", "--out", tmp_path / "x", "--inputs", "vectors"),
            "learnt from symbols",
        ),
    ):
        assert command("export", *words) == 2
        assert message in capsys.readouterr().err

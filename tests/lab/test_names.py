"""Every method is known by its name wherever a method can be named."""

import json

import jax
import numpy as np
import pytest

from kronline import MinGRU, Tanh, softmax, spec
from kronline.errors import UsageError
from kronline.estimators import methods
from kronline.lab.analysis import labels
from kronline.lab.bench import work
from kronline.lab.bench.command import Bench
from kronline.lab.runs import training as train
from kronline.lab.runs.grid import members, sweep_of
from kronline.lab.runs.train import named
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.text import TextTask
from kronline.lab.variance import Variance, main
from kronline.lab.variance import settings as variance

CopySweep = sweep_of(CopyTask)

# as one would write it, and what it is called then
METHODS = {
    "artbp(0.3, 4, every=2)": "ARTBP (c = 0.3, 4 steps), every 2",
    "bptt": "BPTT",
    "dni(2)": "DNI-2",
    "immediate": "Immediate",
    "kf_rtrl(copies=2)": "KF-RTRL-AVG (k = 2)",
    "kf_tbptt(2, pairs=2)": "KF-TBPTT-2, 2 pairs",
    "ok(2)": "OK (r = 2)",
    "reservoir": "Reservoir (ρ = 0.9)",
    "reverse_kf": "R-KF",
    "rflo": "RFLO",
    "rolling_tbptt(2)": "Rolling TBPTT-2",
    "rtrl": "RTRL",
    "snap(1)": "SnAp-1",
    "spatial(2)": "Spatial-2",
    "tbptt(2)": "TBPTT-2",
    "uoro": "UORO",
}


def test_all_are_here():
    assert [text.partition("(")[0] for text in METHODS] == sorted(methods.__all__)
    assert (
        set(labels.KNOWN) == set(methods.__all__) == set(spec.KINDS["estimator"].known) - {"Online"}
    )


@pytest.mark.parametrize("text", METHODS)
def test_a_method_is_known_everywhere(text, tmp_path):
    method = spec.given(text, "estimator")
    assert Bench(estimators=(text,)).estimators == (text,)
    assert work.estimator(work.Row(text, "fast", "RHN", 2, 2)) == method
    if method.span is None:
        with pytest.raises(UsageError, match="whole run"):
            variance.estimator(text, 2)
    else:
        assert variance.estimator(text, 2) == method
    cell = MinGRU(2, 3) if text.startswith("spatial") else Tanh(2, 3)
    assert TextTask(estimator=text).learner(cell, softmax(3), 4).estimator == method
    (member,) = members(CopySweep(estimators=(text,), rates=(1e-3,), seeds=(0,)), tmp_path)
    assert member.settings.estimator == text
    assert labels.method(text) == labels.method(member.settings.estimator) == METHODS[text]
    assert named(member.settings).startswith(f"copy-{text.partition('(')[0].split('_')[0]}")


def test_a_method_by_its_parts_has_the_same_name():
    assert labels.method("Online(KF, window=3)") == "KF-RTRL, window 3"
    assert labels.method("Online(Average(UORO, 2))") == "Online(Average(UORO(), 2))"


@pytest.mark.parametrize("text", METHODS)
def test_a_method_learns(text):
    cell = "Stack(LRU, LRU)" if text.startswith("spatial") else "LeakyTanh"
    run = CopyTask(estimator=text, cell=cell, hidden=2, lanes=2, steps=4)
    exp = run.build()
    training = train.start(exp.learner, exp.stream, jax.random.key(0), run.lanes)
    before = jax.tree.map(np.asarray, training.learner.params.readout)
    after, seen = train.stretch(exp.learner, exp.stream, exp.data, training, exp.steps)
    assert np.isfinite(seen.loss).all() and np.isfinite(seen.norm).all()
    changed = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after.learner.params.readout)
    assert max(jax.tree.leaves(changed)) > 0


def test_the_noise_of_methods_that_are_no_trace(tmp_path, capsys):
    some = ("dni(2)", "reservoir", "artbp(0.3, 4, every=2)")
    args = Variance(experiment="time", estimators=some, hidden=2, characters=4, times=2, json=True,
                    cell="LeakyTanh", networks=1, draws=2, out=tmp_path / "run")  # fmt: skip
    assert main(args) == 0
    found = json.loads(capsys.readouterr().out)["time"]
    assert set(found) == set(some)
    assert found["reservoir"][-1]["cosine"] == 0  # it has no gradient

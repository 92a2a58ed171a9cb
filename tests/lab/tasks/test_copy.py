"""The copy task: the paper's figure, its curriculum, and what counts as learnt."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import kronline as kl
from kronline.lab.runs import training as train
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.strings import BLANK, MARK, Copy, accuracies


def text(symbols):
    return "".join("01#-"[s] for s in np.asarray(symbols))


def one_sequence(task, length, bits=0b10110):
    at = jnp.arange(task.total(length))
    lengths, words = jnp.full(at.shape, length), jnp.full((len(at), 2), bits, jnp.uint32)
    return task.symbols(at, lengths, words)


def test_the_papers_figure():
    x, y, is_bit = one_sequence(Copy("paper"), 5)
    assert text(x) == "#01101------------"
    assert text(y) == "------------#01101"
    assert is_bit.sum() == 5
    x, y, is_bit = one_sequence(Copy("short"), 5)
    assert text(x) == "#01101------"
    assert text(y) == "------#01101"


@pytest.mark.parametrize("delay", ["short", "paper"])
def test_lanes_hold_whole_sequences_one_after_another(delay):
    task, lanes = Copy(delay, max_length=40), 5
    state = task.init(jax.random.key(0), lanes)._replace(T=jnp.int32(12))
    # the first sequences were drawn at T = 1; skip them
    _, seg = jax.jit(task.batch, static_argnums=(1, 2))(state, (), 600)
    lengths = set()
    for lane in range(lanes):
        starts = np.flatnonzero(seg.reset[:, lane])
        assert starts[0] == 0
        for a, b in itertools.pairwise(starts[1:]):
            x, y = text(seg.x[a:b, lane]), text(seg.y[a:b, lane])
            length = (b - a) // (2 if delay == "short" else 3) - 1
            assert b - a == task.total(length)
            assert x[0] == "#"
            assert set(x[1 : length + 1]) <= set("01")
            assert x[length + 1 :] == "-" * task.lag(length)
            assert y == "-" * task.lag(length) + x[: length + 1]
            lengths.add(length)
    assert lengths <= set(range(7, 13))
    assert len(lengths) == 6
    assert (seg.weight == 1).all()
    assert MARK == 2
    assert BLANK == 3


def test_bits_are_random_and_differ_between_lanes():
    task = Copy(max_length=40)
    state = task.init(jax.random.key(0), 64)._replace(T=jnp.int32(20))
    _, seg = jax.jit(task.batch, static_argnums=(1, 2))(state, (), 400)
    x = np.asarray(seg.x)
    assert abs(x[x < 2].mean() - 0.5) < 0.02
    assert not (x[:, 0] == x[:, 1]).all()


def test_the_curriculum_grows_below_the_threshold_only():
    task = Copy(threshold=0.15, restart=0.3, smoothing=0.999, max_length=3)
    state = task.init(jax.random.key(0), 2)
    feedback = jax.jit(task.feedback)
    # the running mean of zero error falls from 0.3 to 0.15 in log(0.5)/log(0.999) steps
    steps = int(np.ceil(np.log(0.5) / np.log(0.999)))
    for _ in range(steps - 1):
        state = feedback(state, jnp.zeros((1, 2)))
    assert state.T == 1
    state = feedback(state, jnp.zeros((1, 2)))
    assert state.T == 2
    assert state.error == pytest.approx(0.3)
    for _ in range(1000):
        state = feedback(state, jnp.full((1, 2), 0.2))
    assert state.T == 2
    for _ in range(3):  # segments count as their steps do; T stops at max_length
        state = feedback(state, jnp.zeros((2000, 2)))
    assert state.T == 3


def test_a_segments_feedback_is_that_of_its_steps():
    task = Copy(threshold=0.0)
    bits = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (7, 3)), jnp.float32)
    whole = task.feedback(task.init(jax.random.key(0), 3), bits)
    state = task.init(jax.random.key(0), 3)
    for t in range(7):
        state = task.feedback(state, bits[t : t + 1])
    assert state.error == pytest.approx(float(whole.error), rel=1e-6)


def test_bits_right_by_length():
    class Oracle(kl.Learner):
        """Right up to length 6, and guessing beyond."""

        def evaluate(self, params, x, y, *, reset=None, predictions=False):
            written = np.asarray((y != BLANK).sum(0))[None, :, None] - 1
            right = jax.nn.one_hot(y, 4)
            guess = jax.nn.one_hot(jnp.zeros_like(y), 4)
            return kl.Out(jnp.zeros(y.shape), jnp.where(written <= 6, right, guess))

    oracle = Oracle(kl.RHN(2, 4), kl.softmax(4), kl.kf_rtrl(), optax.sgd(0.1))
    got = accuracies(oracle, None, Copy(), 10, samples=64)
    assert got[:6] == [1.0] * 6
    assert all(0.4 < a < 0.6 for a in got[6:])
    assert Copy().closing(got, 6) == {"right_trained": 1.0, "solved": 6}


def test_the_lengths_that_are_drawn():
    for T in range(1, 13):  # those of the stream itself
        task = Copy(spread=3)
        state = task.init(jax.random.key(0), 1)._replace(T=jnp.int32(T))
        drawn, _ = task._sequences(jax.random.key(1), state.T, 50, 20)
        assert set(np.asarray(drawn).ravel().tolist()) == set(task.drawn(T))
    assert [*Copy(spread=0).drawn(4)] == [4]


@pytest.mark.parametrize(
    ("right", "spread", "solved"),
    [
        ([0.0, 0.0, 0.33, 0.65, 0.9, 0.98, 1.0, 0.9], 5, 0),  # the longest at 99 % is not solved
        ([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], 5, 1),  # 2 is drawn with 7
        ([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 5, 8),  # and not with 8: 3 .. 8
        ([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 6, 1),
        ([0.0, 1.0, 1.0, 1.0], 2, 4),
        ([0.0, 1.0, 1.0, 1.0], 3, 0),
        ([0.5, 1.0, 0.5], 0, 2),  # each length alone
        ([0.99, 0.99, 0.9899], 5, 2),
        ([0.9899], 5, 0),
        ([1.0], 5, 1),
    ],
)
def test_a_length_is_solved_if_all_that_are_drawn_with_it_are_right(right, spread, solved):
    assert Copy(spread=spread).closing(right, 1)["solved"] == solved


@pytest.mark.parametrize(
    ("T", "spread", "share"),
    [
        (1, 5, 0.1),
        (3, 5, (1 * 0.1 + 2 * 0.2 + 3 * 0.3) / 6),  # no length below 1
        (6, 5, sum(n * 0.1 * n for n in (1, 2, 3, 4, 5, 6)) / 21),
        (7, 5, sum(n * 0.1 * n for n in (2, 3, 4, 5, 6, 7)) / 27),
        (7, 1, (6 * 0.6 + 7 * 0.7) / 13),
        (7, 0, 0.7),
    ],
)
def test_bits_right_over_the_trained_lengths(T, spread, share):
    right = [0.1 * n for n in range(1, 10)]  # what is beyond T does not count
    assert Copy(spread=spread).closing(right, T)["right_trained"] == pytest.approx(share, rel=1e-6)


def test_metrics_of_earlier_versions_get_the_numbers_of_today():
    right = [0.0, 0.0, 0.33, 0.65, 0.9, 0.98, 1.0, 0.9]
    way = [{"step": 10, "T": 6, "bits": 0.2}, {"step": 20, "T": 7, "bits": 0.1}]
    old = [*way, {"step": 20, "solved": 7, "right": right}]
    new = {"step": 20, "right": right, "right_trained": pytest.approx(20.97 / 27), "solved": 0}
    assert CopyTask.reread(old, {"spread": 5}) == [*way, new]
    assert CopyTask.reread(old, {}) == CopyTask.reread(old, {"spread": 5})  # the default
    assert CopyTask.reread(old, {"spread": 0})[-1]["solved"] == 7
    assert CopyTask.reread(old, {"spread": 0})[-1]["right_trained"] == 1.0
    assert CopyTask.reread(CopyTask.reread(old, {}), {}) == CopyTask.reread(old, {})
    # what cannot be made anew is not shown
    assert CopyTask.reread([*way, {"step": 20, "solved": 7}], {}) == [*way, {"step": 20}]
    assert CopyTask.reread([*way, {"step": 20, "solved": 3, "right": [1.0] * 3}], {})[-1] == {
        "step": 20,
        "right": [1.0] * 3,
    }


def test_a_spread_below_zero_is_refused():
    with pytest.raises(ValueError, match="spread must be >= 0, got -1"):
        Copy(spread=-1)


def test_training_stretches_learn_the_first_lengths_and_never_recompile():
    task = Copy(max_length=16)
    learner = kl.Learner(kl.RHN(16, 4), kl.softmax(4), kl.kf_rtrl(window=1), optax.adam(3e-3))
    training = train.start(learner, task, jax.random.key(0), 8)
    before = train.stretch._cache_size()
    for _ in range(4):
        training, seen = train.stretch(learner, task, (), training, 2000)
    assert train.stretch._cache_size() == before + 1
    assert training.task.T >= 2
    assert float(seen.loss.mean()) < 0.4

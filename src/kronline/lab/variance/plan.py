"""The work, unit by unit, in a fixed order: what each needs follows from the seed alone."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Key

from kronline import Learner, softmax, spec, tbptt
from kronline.errors import UsageError
from kronline.estimators import Model, Online, Params
from kronline.lab.tasks import corpus
from kronline.lab.tasks.corpus import Corpus
from kronline.lab.variance import exact
from kronline.lab.variance.measure import Found, Tick, lane_bytes, log_spaced, measure
from kronline.lab.variance.settings import Variance, estimator
from kronline.lab.variance.trained import as_trained, trained
from kronline.traces import UORO, Nothing

BLOCKS_PAY = 2 * 10**10  # bytes of traces, above which pushing in blocks is worth its compiling
COMPILING = 4_000_000  # microseconds, of the programs for one estimator and size
STILL = optax.identity()  # nothing is learnt; one object, so that learners are equal


class Unit(NamedTuple):
    """One network and one estimator, with all draws and times: done as a whole, or not at all."""

    experiment: str
    estimator: str  # as it was written
    n: int
    network: int
    times: tuple[int, ...]
    draws: int
    trained: bool = False  # in the table

    def lines(self, found: Found) -> list[dict[str, Any]]:
        """As they go into metrics.jsonl, one per time."""
        rows = zip(self.times, found.cosine, found.error, found.size, strict=True)
        return [
            self.head(t)
            | {"cosine": _short(c), "error": _short(e)}
            | ({"size": _short([g])[0]} if self.experiment == "table" else {})
            for t, c, e, g in rows
        ]

    def head(self, t: int) -> dict[str, Any]:
        """Which line it is."""
        trained = {"trained": self.trained} if self.experiment == "table" else {}
        return {
            "experiment": self.experiment,
            "estimator": self.estimator,
            "n": self.n,
            "network": self.network,
            **trained,
            "t": t,
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """All of it."""

    settings: Variance
    corpus: Corpus
    learners: dict[tuple[str, int], Learner]  # by estimator and size
    units: tuple[Unit, ...]
    params: Params | None  # of a trained network; None: each is drawn, or it is yet to be trained

    def run(self, unit: Unit, tick: Tick) -> Found:
        """One unit."""
        s, learner, text = self.settings, self.learners[unit.estimator, unit.n], self.corpus.train
        key = _network_key(s.seed, unit)
        known = None if unit.experiment == "table" and not unit.trained else self.params
        params = fresh(learner, key) if known is None else known
        model = Model(learner.cell, learner.readout)
        true = exact.gradients(model, params, text, unit.times, s.loss_steps)
        # noise of its own for every unit
        key = jax.random.fold_in(key, ("time", "units", "table").index(unit.experiment))
        key = jax.random.fold_in(key, zlib.crc32(unit.estimator.encode()))
        parts = (learner, params, text, unit.times, true, key, unit.draws)
        blocks = self._bytes(unit) > BLOCKS_PAY
        return measure(*parts, loss_steps=s.loss_steps, blocks=blocks, tick=tick)

    def _bytes(self, unit: Unit) -> int:
        """That are gone through for this unit and the others with the same programs."""
        same = (u for u in self.units if (u.estimator, u.n) == (unit.estimator, unit.n))
        steps = sum(u.draws * u.times[-1] for u in same)
        return steps * lane_bytes(self.learners[unit.estimator, unit.n])

    def cost(self, unit: Unit) -> tuple[int, float]:
        """About the microseconds to compile a unit's programs, and for each step and lane of it."""
        learner = self.learners[unit.estimator, unit.n]
        return 0 if unit.network else COMPILING, _weight(learner, unit.n)

    def about(self) -> dict[str, Any]:
        """What a run writes down besides its configuration."""
        learner = self.learners[self.units[0].estimator, self.units[0].n]
        shapes = jax.eval_shape(lambda: fresh(learner, jax.random.key(0)))
        count = sum(math.prod(a.shape) for a in jax.tree.leaves(shapes))
        return {"parameters": count, "data": self.corpus.about()}


def fresh(learner: Learner, key: Key[Array, ""]) -> Params:
    """An untrained network: the same for all estimators."""
    return replace(learner, estimator=tbptt(1)).init(key).params


def _network_key(seed: int, unit: Unit) -> Key[Array, ""]:
    """The same network for all estimators, and in both experiments."""
    key = jax.random.fold_in(jax.random.key(seed), unit.n)
    return jax.random.fold_in(key, unit.network)


def make(settings: Variance) -> Plan:
    """The plan for a configuration; whatever is wrong with it is found here."""
    s = settings
    params: Params | None = None
    if s.run is None:
        text = corpus.read(s.data)
        symbols = len(text.symbols)
        base = {n: _learner(s.cell, n, symbols) for n in _sizes(s)}
        over_time = s.hidden
    else:
        learner, params, text = trained(s.run, s.data)
        s = as_trained(s, s.run)
        over_time = int(getattr(learner.cell, "hidden", learner.cell.size))
        base = {
            over_time: Learner(learner.cell, learner.readout, tbptt(1), STILL, dtype=learner.dtype)
        }
    learners = {(e, n): _with(base[n], e, n) for e in s.estimators for n in base}
    span = math.lcm(*(x.estimator.span or 1 for x in learners.values()))
    times = {e: _times(s, e, span) for e in s.experiments}
    needed = math.ceil(max(t[-1] for t in times.values()) / span) * span + 1
    if len(text.train) < needed:
        raise UsageError(
            f"{text.name}: needed {needed:,} characters to read and predict, got "
            f"{len(text.train):,}; ask for fewer --characters and --steps, or give a longer text"
        )
    units = [
        Unit(experiment, e, n, network, times[experiment], _draws(s, experiment, learners[e, n]))
        for e in s.estimators
        for experiment in s.experiments
        for n in (sorted(s.units) if experiment == "units" else [over_time])
        for network in range(_networks(s, experiment))
    ]
    if s.experiment == "table":  # the last network is the trained one
        units = [u._replace(trained=u.network == s.networks) for u in units]
    return Plan(s, text, learners, tuple(units), params)


def _sizes(s: Variance) -> list[int]:
    time = set() if s.experiments == ("units",) else {s.hidden}
    return sorted(time | (set(s.units) if "units" in s.experiments else set()))


def _learner(cell: str, n: int, symbols: int) -> Learner:
    made = spec.given(cell, "cell", n, symbols)
    try:
        return Learner(made, softmax(symbols), tbptt(1), STILL)
    except (TypeError, ValueError) as e:
        raise UsageError(str(e)) from e


def _with(learner: Learner, text: str, n: int) -> Learner:
    try:
        return replace(learner, estimator=estimator(text, n))
    except TypeError as e:
        raise UsageError(f"estimator {text!r}: {e}") from e


def _times(s: Variance, experiment: str, span: int) -> tuple[int, ...]:
    """At which times the estimates are looked at; all windows end there."""
    if experiment == "units":
        return (math.ceil(max(s.steps, s.loss_steps) / span) * span,)
    if experiment == "table":
        return _steady(s, span)
    first = math.ceil(s.loss_steps / span) * span
    if s.characters < first:
        raise UsageError(
            f"characters must be at least {first}, the first time at which all windows and "
            f"loss_steps end, got {s.characters}"
        )
    return log_spaced(s.characters, s.times, span, s.loss_steps)


def _steady(s: Variance, span: int) -> tuple[int, ...]:
    """Late times, so that the losses lie at every place of every segment equally often."""
    span = math.lcm(span, s.loss_steps)
    low, high = math.ceil(s.steps / span) * span, s.characters // span * span
    if high < low or high == 0:
        raise UsageError(
            f"characters must be at least {low or span}: steps ({s.steps}) rounded up to whole "
            f"segments of all methods ({span}), got {s.characters}"
        )
    ends = np.unique(np.linspace(max(low, span), high, s.times) // span * span).astype(int)
    k = s.loss_steps
    return tuple(t for end in ends.tolist() for t in range(end - span + k, end + 1, k))


def _networks(s: Variance, experiment: str) -> int:
    if experiment == "table":
        return s.networks + 1
    if s.run is not None:
        return 1
    return s.networks if experiment == "time" else s.units_networks


def _draws(s: Variance, experiment: str, learner: Learner) -> int:
    if experiment == "units":
        return s.units_draws
    averaged = (
        isinstance(learner.estimator, Online) and getattr(learner.estimator.trace, "copies", 1) > 1
    )
    return s.avg_draws if averaged and s.avg_draws else s.draws


def _weight(learner: Learner, n: int) -> float:
    """About the time per step and lane, in microseconds on two cores."""
    trace = learner.estimator.trace if isinstance(learner.estimator, Online) else None
    numbers = lane_bytes(learner) / 4
    # products H·(a trace) are n operations a number; UORO reads and writes each of them
    times = 40 if isinstance(trace, UORO) else 0 if isinstance(trace, Nothing) else 2 * n
    return 5 + numbers * times / 2e5


def _short(values: Sequence[Any]) -> list[float]:
    """Float32, in six digits: what is beyond them is rounding."""
    return [float(f"{float(v):.6g}") for v in values]

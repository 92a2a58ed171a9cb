"""Chaotic series: predict the next value of a system of which only the first coordinate is seen.

Lanes follow the same system from initial conditions of their own, each scaled to mean 0 and
variance 1. Inputs and targets are real numbers. The protocol is that of the table in SK-RTRL (2026,
under review), its Table 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from kronline import Uniform, linear
from kronline.cells import UnitCell
from kronline.errors import UsageError
from kronline.estimators import Segment
from kronline.lab.tasks.base import Experiment, Meter, Outcome, Task, Told, Training
from kronline.lab.tasks.paper import Difference, Published, Setting
from kronline.lab.tasks.quantity import Quantity
from kronline.lab.tasks.settings import whole
from kronline.lab.wording import listed, rounded

TRANSIENT = 64  # values that are left out at the start
SCALED = 15_000  # values of which mean and variance are taken, however many are used
WINDOW = 200  # steps over which an error is averaged,
EVERY = 250  # which is done so often,
LAST = 5  # and the last of these are averaged once more

Values = Float[np.ndarray, "values lanes"]


def henon(lanes: int, count: int, seed: int) -> Values:
    """The Hénon map from x₀ = 0.1 + 0.01·lane, y₀ = 0; the seed plays no part."""
    x, y = 0.1 + 0.01 * np.arange(lanes), np.zeros(lanes)
    out = np.empty((count, lanes))
    for t in range(count):
        out[t] = x
        # x' = 1 − 1.4 x² + y,   y' = 0.3 x
        x, y = 1 - 1.4 * x**2 + y, 0.3 * x
    return out


def mackey_glass(lanes: int, count: int, seed: int) -> Values:
    """The Mackey-Glass equation, dt = 1, from a history of values drawn from 1.2 + 0.2·U(0, 1)."""
    delay = 17
    rng = np.random.default_rng(seed)
    out = np.empty((delay + count, lanes))
    out[: delay + 1] = 1.2 + 0.2 * rng.random((delay + 1, lanes))
    for t in range(delay, delay + count - 1):
        x, past = out[t], out[t - delay]
        # x' = x + 0.2 x_τ / (1 + x_τ¹⁰) − 0.1 x
        out[t + 1] = x + 0.2 * past / (1 + past**10) - 0.1 * x
    return out[delay:]


def lorenz(lanes: int, count: int, seed: int) -> Values:
    """x of the Lorenz system by Euler's method, every second step; x₀ = y₀ = 1 + lane, z₀ = 20."""
    sigma, rho, beta, dt = 10.0, 28.0, 8 / 3, 0.01
    x = y = 1.0 + np.arange(lanes)
    z = np.full(lanes, 20.0)
    out = np.empty((count, lanes))
    for t in range(2 * count):
        if t % 2 == 0:
            out[t // 2] = x
        # x' = σ (y − x),   y' = x (ρ − z) − y,   z' = x y − β z
        dx, dy, dz = sigma * (y - x), x * (rho - z) - y, x * y - beta * z
        x, y, z = x + dt * dx, y + dt * dy, z + dt * dz
    return out


SYSTEMS = {"henon": henon, "mackey-glass": mackey_glass, "lorenz": lorenz}
NAMES = {"henon": "Hénon", "mackey-glass": "Mackey-Glass", "lorenz": "Lorenz"}


@cache
def values(system: str, lanes: int, count: int, seed: int) -> Values:
    """Behind the transient, each lane scaled; fewer values are the beginning of more."""
    with np.errstate(over="ignore", invalid="ignore"):
        many = SYSTEMS[system](lanes, TRANSIENT + max(count, SCALED), seed)[TRANSIENT:]
    if not np.isfinite(many).all():
        lane = int(np.argmin(np.isfinite(many).all(0)))
        raise UsageError(
            f"lane {lane} of {system} leaves the attractor for infinity; use at most {lane} --lanes"
        )
    seen = many[:SCALED]
    return ((many - seen.mean(0)) / seen.std(0))[:count]


class SeriesState(NamedTuple):
    """Where the stream stands, and the errors that are averaged."""

    at: Int[Array, ""]  # steps so far
    recent: Float[Array, " window"]  # squared errors of the last steps, the mean over lanes
    taken: Float[Array, " last"]  # means over a window, the last ones that were taken


@dataclass(frozen=True)
class Series:
    """The stream of values, which are handed to `batch`.

    Args:
        reset_every: steps after which state and trace start anew.
    """

    reset_every: int = 200

    def init(self, key: Key[Array, ""], lanes: int) -> SeriesState:
        """At the first value."""
        return SeriesState(jnp.zeros((), jnp.int32), jnp.zeros(WINDOW), jnp.zeros(LAST))

    def batch(
        self, state: SeriesState, data: Float[Array, "values lanes"], steps: int
    ) -> tuple[SeriesState, Segment]:
        """The next steps of every lane, (steps, lanes)."""
        some = jax.lax.dynamic_slice_in_dim(data, state.at, steps + 1)[..., None]
        first = (state.at + jnp.arange(steps)) % self.reset_every == 0
        shape = (steps, data.shape[1])
        reset, weight = jnp.broadcast_to(first[:, None], shape), jnp.ones(shape)
        return state._replace(at=state.at + steps), Segment(some[:-1], some[1:], reset, weight)

    def measured(self, loss: Float[Array, "steps lanes"]) -> Float[Array, "steps lanes"]:
        """The squared error; the readout's loss is half of it."""
        return 2 * loss

    def feedback(self, state: SeriesState, loss: Float[Array, "steps lanes"]) -> SeriesState:
        """Errors are averaged over the last WINDOW steps whenever EVERY steps have gone by."""
        steps = loss.shape[0]
        errors = jnp.concatenate([state.recent, loss.mean(1)])
        ends = 1 + jnp.arange(steps)  # how many of these steps are behind us
        windows = errors[ends[:, None] + jnp.arange(WINDOW)[None]].mean(1)
        due = (state.at - steps + ends) % EVERY == 0
        # of those that were taken before and now, the last ones
        every = jnp.concatenate([state.taken, windows])
        known = jnp.concatenate([jnp.ones(LAST, bool), due])
        last = jnp.sort(jnp.where(known, jnp.arange(len(every)), -1))[-LAST:]
        return SeriesState(state.at, errors[-WINDOW:], every[last])


def nmse(state: SeriesState) -> float:
    """Over the last WINDOW steps, or as many as there were."""
    return float(state.recent.sum()) / min(WINDOW, max(1, int(state.at)))


def closing_nmse(state: SeriesState) -> float:
    """The mean of the last ones that were taken; of a run that is too short for any, the newest."""
    count = min(LAST, int(state.at) // EVERY)
    return float(state.taken[-count:].mean()) if count else nmse(state)


# -- the task --------------------------------------------------------------------------------------

NMSE = Quantity("nmse", "NMSE, last 200 steps", "NMSE", digits=4, scale="log")
CLOSING = Quantity("nmse_end", "NMSE", "NMSE at the end", digits=4)
PAPER_NMSE = {
    "henon": {
        "RTRL": 0.0052,
        "SnAp-1": 0.0052,
        "KF-RTRL": 0.0384,
        "UORO": 0.6583,
        "RFLO": 0.0704,
        "TBPTT-25": 0.0311,
    },
    "mackey-glass": {
        "RTRL": 0.0180,
        "SnAp-1": 0.0050,
        "KF-RTRL": 0.0286,
        "UORO": 0.0497,
        "RFLO": 0.0572,
        "TBPTT-25": 0.0080,
    },
    "lorenz": {
        "RTRL": 0.0051,
        "SnAp-1": 0.0024,
        "KF-RTRL": 0.0126,
        "UORO": 0.0425,
        "RFLO": 0.0442,
        "TBPTT-25": 0.0054,
    },
}


@dataclass(frozen=True)
class SeriesTask(Task):
    """Learn to predict the next value of a chaotic series: Hénon, Mackey-Glass or Lorenz.

    Inputs and targets are real numbers; the series is generated, and every lane has an initial
    condition of its own. Reports the NMSE: the mean squared error over the last 200 steps, of a
    series of variance 1, on the way; and nmse_end: of those at every 250th step, the mean of the
    last five. The run is a folder; stop it with Ctrl-C, go on with `kronline resume`.

    Try:
        kronline train series --preset laptop
        kronline train series --preset paper --series lorenz --estimator "snap(1)"
        kronline train series --series mackey-glass --cell LSTM --steps 50000
    """

    series: Literal["henon", "mackey-glass", "lorenz"] = "henon"  # which system is followed
    steps: int = 15_000  # one value each
    reset_every: int = 200  # steps after which state and trace start anew
    weights: Literal["uniform", "cell"] = "uniform"  # at first: within 1/sqrt(n), or as the cell's
    cell: str = "Tanh"  # Tanh, RHN, LSTM, GRU, ..., or file.py:NAME
    hidden: int = 64  # units
    lanes: int = 8  # series that are learnt from at once, each from an initial condition of its own
    log_every: int = 250  # steps between lines of metrics; a stop signal waits for the next one

    kind: ClassVar[str] = "series"
    title: ClassVar[str] = "Chaotic series"
    link: ClassVar[str] = "Series"
    subject: ClassVar[str] = "a chaotic series"
    figure: ClassVar[str] = "Table 6 of SK-RTRL"
    facet: ClassVar[str] = "series"

    loss: ClassVar[str] = "squared_error"
    loss_axis: ClassVar[str] = "squared error"
    curve: ClassVar[Quantity] = NMSE
    numbers: ClassVar[tuple[Quantity, ...]] = (CLOSING,)
    legend: ClassVar[str] = (
        "nmse_end: the mean squared error over the last 200 steps, of a series of variance 1,\n"
        "taken every 250 steps; the mean of the last five."
    )

    score: ClassVar[Quantity] = CLOSING
    rule: ClassVar[str] = (
        "the lowest mean NMSE at the end; rates with which a run diverged come last"
    )

    methods: ClassVar[tuple[str, ...]] = (
        *("kf_rtrl", "uoro", "snap(1)", "rtrl", "tbptt(25)", "tbptt(5)"),
        *("kf_tbptt(5, pairs=8)", "ok(4)"),
    )
    rates: ClassVar[tuple[float, ...]] = (10**-3,)
    seeds: ClassVar[tuple[int, ...]] = (0, 1, 2)

    told: ClassVar[Told] = Told("NMSE", "comes down to an NMSE of {}", "to {}", "NMSE {}")
    paper: ClassVar[Published] = Published(
        "SK-RTRL, 2026, under review: its Table 6",
        (
            Setting("cell", "network", "Tanh", "a cell with gates holds more"),
            Setting("hidden", "units", 64, "noise grows with the units; so does what can be held"),
            Setting("lanes", "lanes (batch size)", 8, "more lanes average more noise"),
            Setting("weights", "first weights", "uniform", "within ±1/√n, biases zero"),
            Setting("optimiser", "optimiser", "adam", "at its defaults"),
            Setting("schedule", "schedule of the rate", "constant", "none is named"),
            Setting("clip", "gradient clipping", "none", "none is named; it adds a bias"),
            Setting("reset_every", "steps between resets", 200, "of state and trace"),
        ),
        ("published NMSE",),
        rates=(10**-3,),
        seeds=10,
        steps=15_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "reset_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.series not in SYSTEMS:
            raise UsageError(f"series must be one of {', '.join(SYSTEMS)}, got {self.series!r}")

    def network(self, inputs: int) -> Any:
        """The cell, with the weights that were asked for."""
        cell = super().network(inputs)
        if self.weights == "cell":
            return cell
        if not isinstance(cell, UnitCell):
            raise UsageError(
                f"weights 'uniform' needs a cell that takes an initialisation, got {self.cell}; "
                "use --weights cell"
            )
        return replace(cell, init_weights=Uniform())

    def build(self) -> Experiment:
        """The run, ready to start."""
        learner = self.learner(self.network(1), linear(1), self.steps)
        steps = whole(self.steps, learner)
        # the value behind the last target is only looked at, with --monitor
        data = values(self.series, self.lanes, steps + 2, self.seed)
        return Experiment(learner, Series(self.reset_every), jnp.asarray(data, jnp.float32), steps)

    def meter(self, exp: Experiment) -> "SeriesMeter":
        """What measures this run."""
        return SeriesMeter()

    def guessing(self, exp: Experiment) -> float | None:
        """To predict the mean has the series' variance as its squared error."""
        return 1.0

    def lane(self, exp: Experiment, steps: int) -> Segment:
        """The first lane."""
        data = jnp.asarray(values(self.series, self.lanes, steps + 1, self.seed), jnp.float32)
        _, seg = exp.stream.batch(exp.stream.init(jax.random.key(0), 1), data[:, :1], steps)
        return jax.tree.map(lambda a: a[:, 0], seg)

    @classmethod
    def note(cls, line: dict[str, Any]) -> str:
        """The error."""
        return f"NMSE {line['nmse']:.4f}"

    @classmethod
    def called(cls, key: str, value: str) -> str | None:
        """The system by its name."""
        return NAMES.get(value, value) if key == "series" else None

    @classmethod
    def about(cls, groups: Sequence[Outcome]) -> str:
        """The names of the systems."""
        found = dict.fromkeys(str(g.config["series"]) for g in groups)
        return listed([f"the {NAMES.get(name, name)} series" for name in found])

    @classmethod
    def intro(cls, groups: Sequence[Outcome]) -> str:
        """What has to be learnt, and what NMSE is."""
        return (
            "The network sees the first coordinate of a chaotic system, value by value, and at "
            "each one predicts the next. NMSE is the mean squared error over the last 200 steps, "
            "of a series of variance 1: to predict the mean gives 1, and less is better. The table "
            "has the mean of the last five of these, taken every 250 steps."
        )

    @classmethod
    def table_title(cls, groups: Sequence[Outcome]) -> str:
        """Of the table of numbers."""
        return f"NMSE on {cls.about(groups)}, beside what was published"

    @classmethod
    def remarks(cls, groups: Sequence[Outcome]) -> list[str]:
        """What was published."""
        theirs = [
            f"{method} {error:.4f}"
            for method, error in PAPER_NMSE.get(str(groups[0].config["series"]), {}).items()
        ]
        return [f"Published, after 15,000 steps, 10 seeds: {listed(theirs)}."]

    @classmethod
    def published(cls, method: str, config: dict[str, Any]) -> float | None:
        """NMSE."""
        return PAPER_NMSE.get(str(config.get("series", "henon")), {}).get(method)

    @classmethod
    def published_cells(cls, method: str, config: dict[str, Any]) -> tuple[str, ...]:
        """The same, in a column of its own."""
        found = cls.published(method, config)
        return ("–" if found is None else f"{found:.4f}",)

    @classmethod
    def differences(cls, groups: Sequence[Outcome]) -> list[Difference]:
        """What the table's text leaves open."""
        return [
            Difference(
                "updates",
                "at every step, or after every segment of a method that has one",
                "at every step",
                "TBPTT-k in segments updates every k steps",
            ),
            Difference(
                "first weights of the readout",
                "from N(0, 0.01²)",
                "not stated apart from the cell's",
                "with N(0, 1/(3n)), as wide as the cell's, SnAp-1 ends lower and TBPTT-5 higher",
            ),
            Difference(
                "initial condition of Lorenz",
                "x₀ = y₀ = 1 + lane, z₀ = 20",
                "one per lane, not stated",
                "the transient leads to the attractor from anywhere",
            ),
        ]


class SeriesMeter(Meter):
    """NMSE on the way, and the mean of the last ones at the end."""

    def now(self, training: Training, step: int, loss: Float[np.ndarray, " steps"]) -> Any:
        """Of the last steps."""
        line = {"nmse": rounded(nmse(training.task))}
        self.note = SeriesTask.note(line)
        return line

    def last(self, training: Training, step: int) -> dict[str, Any]:
        """As published."""
        return {"step": step, "nmse_end": rounded(closing_nmse(training.task))}

"""What `kronline variance` can be told."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from kronline import spec
from kronline.errors import UsageError
from kronline.estimators import Estimator


@dataclass(frozen=True)
class Variance:
    """Measure how near gradient estimates come to the exact gradient (section 5.3, Figure 3).

    Networks read a text, with their parameters left as they are. At some times t the estimate of
    the gradient of L_t, the loss of predicting the next character, is compared with the exact one:
    the cosine of the angle between them (1: the same direction), and |estimate - exact|² over
    |exact|². Of the cell's parameters, that is; the readout's gradient is exact in every method.

    Two experiments: "time", one size of network over many characters, which shows whether noise
    piles up; and "units", networks of several sizes after a fixed number of steps, which shows how
    noise grows with size. Several networks, and for each several draws of the estimator's noise.

    A third one, "table", has all methods side by side: untrained networks and one that was trained
    first, in the steady state, the gradient of the same few losses for all, and what a step costs.

    The run is a folder; stop it with Ctrl-C, go on with `kronline resume`.

    Try:
        kronline variance --preset laptop
        kronline variance --preset table --out runs/noise
        kronline variance --retime runs/noise
        kronline variance --preset laptop --cell LSTM --estimators kf_rtrl "kf_rtrl(window=1)" uoro
        kronline variance --experiment time --estimators kf_rtrl "tbptt(5)" --characters 500
        kronline variance --run runs/text-kf-rtrl-n64-seed0 --estimators kf_rtrl uoro
        kronline variance --preset paper --data ptb
    """

    preset: str = ""  # paper, laptop or table: a whole configuration; what else is given overrides
    config: Path | None = None  # a TOML file; overrides the preset, and flags override it
    out: Path | None = None  # the run's folder (default: a new one in runs/)
    # "time", "units", both of them, or "table"; see above
    experiment: Literal["both", "time", "units", "table"] = "both"
    # what is measured, by name; n stands for the number of units
    estimators: tuple[str, ...] = ("kf_rtrl", "uoro", "uoro(copies=n)")
    cell: str = "RHN"  # RHN, Tanh, LSTM, GRU, DeepRHN(depth=2), ..., or file.py:NAME
    data: str | None = None  # as for `kronline train text`; none: the text that Python brings along
    run: Path | None = None  # a text run, whose trained network and text are used; not for "units"
    hidden: int = 64  # time: units
    characters: int = 1000  # time: how far the text is read
    times: int = 30  # time: how many times are looked at, evenly spaced in the logarithm
    networks: int = 3  # time: networks, each with its own weights
    draws: int = 10  # time: draws of the noise for each of them
    avg_draws: int | None = None  # time: fewer for averages of many copies, which cost more
    units: tuple[int, ...] = (8, 16, 32, 64)  # units: sizes of networks
    steps: int = 100  # units: characters that are read before the look
    units_networks: int = 6  # units: networks of each size
    units_draws: int = 5  # units: draws for each of them
    loss_steps: int = 1  # how many of the last losses are summed; 1: L_t alone
    train_steps: int = 60_000  # table: for which the trained network is trained, by TBPTT-25
    lanes: int = 32  # table: of that, and of the steps that are timed
    retime: Path | None = None  # a table that was measured: time its methods again, and show it
    seed: int = 0  # of the networks' weights and of the noise
    print_config: bool = False  # print the resolved configuration, with reasons, and stop
    json: bool = False  # print one JSON object at the end

    kind: ClassVar[str] = "variance"

    def __post_init__(self) -> None:
        counts = ["hidden", "characters", "times", "networks", "draws", "steps", "loss_steps"]
        counts += ["train_steps", "lanes"]
        for name in (*counts, "units_networks", "units_draws", "avg_draws"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"{name} must be >= 1, got {value}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed must be between 0 and 2^32 - 1, got {self.seed}")
        for name in ("estimators", "units"):
            if not (given := getattr(self, name)) or len(set(given)) < len(given):
                raise UsageError(f"{name} needs one or more, each once, got {list(given)}")
        if min(self.units) < 1:
            raise UsageError(f"units needs sizes >= 1, got {min(self.units)}")
        if self.run is not None and self.experiment == "units":
            raise UsageError(
                'a trained network has one size, so it cannot be in the experiment "units"; leave '
                "out --run, or use --experiment time"
            )

    @property
    def experiments(self) -> tuple[str, ...]:
        """One or both."""
        if self.run is not None and self.experiment != "table":
            return ("time",)
        return ("time", "units") if self.experiment == "both" else (self.experiment,)


def estimator(text: str, n: int) -> Estimator:
    """The estimator of that name, where `n` in its arguments is the number of units."""
    place, colon, call = text.rpartition(":")
    try:
        tree = ast.parse(call, mode="eval")
    except SyntaxError:
        pass  # `parse` says what is wrong
    else:
        if isinstance(tree.body, ast.Call):
            put = _Units(n)
            tree.body.args = [put.visit(a) for a in tree.body.args]
            tree.body.keywords = [put.visit(k) for k in tree.body.keywords]
            call = ast.unparse(tree)
    found = spec.given(f"{place}{colon}{call}", "estimator")
    if not isinstance(found, Estimator):
        raise UsageError(f"estimator {text!r} is no estimator, but {found!r}")
    if found.span is None:
        raise UsageError(
            f"estimator {text!r} takes a whole run as one segment, and is then the exact gradient "
            "itself; needed one that goes on for ever: kf_rtrl, uoro, rtrl, tbptt(k), ..."
        )
    return found


class _Units(ast.NodeTransformer):
    def __init__(self, n: int):
        self.n = n

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self.n) if node.id == "n" else node

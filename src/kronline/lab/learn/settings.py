"""What `kronline learn` can be told."""

import ast
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from kronline.errors import UsageError

HOME = Path("streams")  # where models go that are given no folder
PIPE = Path("-")

# what may differ when a command is given again: it changes neither predictions nor the model
FREE = ("commit", "durable", "every", "follow", "quiet", "json", "report", "model", "pipe")


@dataclass(frozen=True)
class Learn:
    """Learn from a stream of events: predict each one, learn from it, lose nothing.

    Reads JSON lines or CSV from a file or a pipe, one event a line, and writes one prediction a
    line. Events are journalled before their predictions are shown, and the model is saved now and
    then: killed at any moment, the same command goes on where it was, and ends as if it had never
    been killed. A line that cannot be used is reported, kept in rejected.jsonl, and left out.

    Try:
        kronline learn pumps.csv --target pressure --key pump --out predictions.jsonl
        kronline learn pumps.csv --target pressure --key pump --horizon 1 --model streams/ahead
        kronline learn pumps.csv --target state --task classify --ignore pressure --out states.jsonl
        kronline learn pumps.csv --task anomaly --key pump --model streams/odd --report odd.html
        cat pumps.jsonl | kronline learn - --target pressure --model streams/pipe --quiet
    """

    input: tyro.conf.Positional[Path]  # a file of events; - reads a pipe
    target: str | None = None  # the column that is predicted; not needed for --task anomaly
    key: str | None = None  # the column that names the machine, user, ... that an event is from
    time: str | None = None  # a column of times, left out of the features; a key's never go back
    horizon: int | None = None  # predict the target so many events ahead (forecast: 1; else 0)
    # what is learnt (default: regress if the first target is a number, else classify)
    task: Literal["regress", "classify", "forecast", "anomaly"] | None = None
    model: Path | None = None  # folder of journal, checkpoints, settings (default: in streams/)
    out: Path | None = None  # file of predictions (default: they are printed)
    format: Literal["json", "csv"] | None = None  # of the input (default: by its name or its look)
    only: tuple[str, ...] = ()  # columns that are features (default: all)
    ignore: tuple[str, ...] = ()  # columns that are no features
    category: tuple[str, ...] = ()  # columns whose numbers are names, post codes for instance
    on_nan: Literal["missing", "skip", "stop"] = "missing"  # NaN and infinite numbers
    set: tuple[str, ...] = ()  # settings of the model, seed=1 for instance
    level: float | None = None  # regress: write an interval of this probability, 0.9 for instance
    every: int = 10_000  # lines between checkpoints
    commit: int = 256  # events a commit; fewer where the next one is not there yet
    durable: bool = False  # one commit an event
    follow: bool = False  # wait for more at the end of the file, until Ctrl-C
    # the pipe of a restart: replay begins anew, and what is known is skipped; live goes on
    pipe: Literal["replay", "live"] = "replay"
    keep_journal: bool = False  # all events stay in the journal (default: those not in the model)
    max_line: int = 1_000_000  # bytes; longer lines are rejected
    max_features: int = 1000  # columns; a line with further ones is rejected
    report: Path | None = None  # write a page at the end: errors, noise, drift, latency
    quiet: bool = False  # no progress
    json: bool = False  # one JSON object at the end: on stdout with --out, else on stderr

    def __post_init__(self) -> None:
        for name in ("every", "commit", "max_line", "max_features"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.horizon is not None and not 0 <= self.horizon <= 1000:
            raise UsageError(f"horizon must be between 0 and 1000, got {self.horizon}")
        if self.task == "forecast" and self.horizon == 0:
            raise UsageError("--task forecast looks ahead: horizon must be >= 1, got 0")
        if self.task == "anomaly" and self.horizon:
            raise UsageError("--task anomaly judges the event itself: it has no horizon")
        if self.target is None and self.task != "anomaly":
            raise UsageError(
                "target is needed, the column that is predicted: --target NAME; without one, "
                "--task anomaly says how unusual each event is"
            )
        if self.level is not None and not 0 < self.level < 1:
            raise UsageError(f"level must be between 0 and 1, 0.9 for instance, got {self.level}")
        if self.level is not None and self.task not in (None, "regress"):
            raise UsageError(f"level is for --task regress; --task is {self.task}")
        if self.follow and self.input == PIPE:
            raise UsageError("--follow is for a file that grows; a pipe is followed anyway")
        named = [n for n in (self.target, self.key, self.time) if n is not None]
        if len(set_(named)) < len(named):
            raise UsageError(
                f"target, key and time need a column each, got {', '.join(map(repr, named))}"
            )
        if self.report is not None and not self.report.parent.is_dir():
            raise UsageError(f"report needs an existing folder, got {str(self.report.parent)!r}")
        if self.out is not None and (self.out.is_dir() or not self.out.parent.is_dir()):
            raise UsageError(f"out needs a file in an existing folder, got {str(self.out)!r}")
        self.settings()

    @property
    def folder(self) -> Path:
        """Of the model."""
        if self.model is not None:
            return self.model
        stem = "pipe" if self.input == PIPE else self.input.name.partition(".")[0] or "stream"
        return HOME / f"{stem}-{self.target or self.task}"

    def settings(self) -> dict[str, Any]:
        """`--set`, read: seed=1 is {"seed": 1}; what is no Python value is a text."""
        found: dict[str, Any] = {}
        for given in self.set:
            name, equals, text = given.partition("=")
            if not (equals and name.isidentifier()):
                raise UsageError(f"set needs NAME=VALUE, seed=1 for instance, got {given!r}")
            found[name] = value(text)
        return found

    def identity(self) -> dict[str, Any]:
        """What must be the same when the command is given again, as JSON has it."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["input"] = str(self.input if self.input == PIPE else self.input.absolute())
        values["out"] = None if self.out is None else str(self.out.absolute())
        found = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        return {k: v for k, v in found.items() if k not in FREE}


set_ = set  # `set` is a setting in the class above


def value(text: str) -> Any:
    """A setting's value: as Python has it, true, false or none; else the text itself."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def same(before: dict[str, Any], now: dict[str, Any], place: Path) -> None:
    """Refuse to go on with a model under other settings.

    Raises:
        UsageError: naming what differs.
    """
    odd = [k for k in now if before.get(k) != now[k]]
    if odd == ["on_nan"] and before["on_nan"] == "stop":
        return  # the way to go on behind a line that stopped it
    if odd:
        told = ", ".join(f"{k} was {before.get(k)!r} and is {now[k]!r}" for k in odd)
        raise UsageError(
            f"{place} holds a model of another stream: {told}; give the same settings again, or "
            "another folder: --model DIR"
        )

"""`kronline train` and `resume`."""

import contextlib
import json
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import tyro

from kronline import machine
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.runs import checkpoint, config, folder, longer, loop, memory
from kronline.runs.settings import KINDS, Experiment, Train, named
from kronline.tasks import copy

RUNS = Path("runs")  # where runs are made, and looked for
DIVERGED = 3  # exit code


def train(args: Train) -> int:
    """A new run."""
    if args.print_config:
        print(config.toml(args, args.KIND), end="")
        return 0
    _devices()
    exp = args.build()
    fits(args, exp)
    path = args.out or folder.free(RUNS, named(args))
    about: dict[str, Any] = {"parameters": _parameters(exp), "steps": exp.steps}
    if exp.corpus is not None:
        about |= {"data": exp.corpus.about(), "symbols": "".join(exp.corpus.symbols)}
    folder.create(path, args.KIND, config.toml(args, args.KIND), about)
    begin(path, args, args.KIND)
    try:
        end = loop.go(path, args, exp)
    except memory.OutOfMemory:
        folder.discard(path)
        raise
    return _ended(path, end, args.json)


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed; it ends as if it had never been interrupted.

    With more steps a run goes on beyond its end, too, if it has --schedule constant: it becomes the
    run that would have had as many from the start.

    Try:
        kronline resume runs/copy-kf-rtrl-n64-seed0
        kronline resume runs/copy-kf-rtrl-n64-seed0 --steps 1000000
    """

    run: tyro.conf.Positional[Path]  # its folder, as `kronline list` shows it
    steps: int | None = None  # in all, from now on: more than it had
    data: str | None = None  # where the text lies now, if it was moved
    json: bool = False  # print one JSON object at the end


def resume(args: Resume) -> int:
    """The run goes on."""
    if args.steps is not None:
        longer.only_one(args.run)
    if (args.run / "sweep.toml").is_file():
        from kronline.runs import sweep  # noqa: PLC0415  which is made of runs

        return sweep.resume(args.run, as_json=args.json)
    if (args.run / "compare.toml").is_file():
        from kronline import compare  # noqa: PLC0415

        return compare.resume(args.run, as_json=args.json)
    run = folder.read(args.run)
    if args.steps is not None and run.kind not in KINDS:
        raise UsageError(f"--steps is for a training; {args.run} is a run of {run.kind!r}")
    if run.kind == "variance":
        from kronline import variance  # noqa: PLC0415

        return variance.continue_(args.run, args.data, as_json=args.json)
    if run.kind not in KINDS:
        raise UsageError(f"{args.run} is a run of {run.kind!r}, which is not trained")
    if run.state == "finished" and args.steps is None:
        print(f"kronline: {args.run} is finished", file=sys.stderr)
        return _ended(args.run, loop.End("finished", run.status["step"], "finished"), args.json)
    if run.status.get("step") and not (args.run / folder.CHECKPOINTS).is_dir():
        raise UsageError(
            f"{args.run} has no checkpoints, so it cannot go on: what is published has none. Go on "
            "with the run itself, or train anew by `kronline train --config`"
        )
    settings = _settings(run, args.data)
    if args.steps is not None:
        settings = longer.settings(run, settings, args.steps)
    _devices()
    exp = settings.build()
    fits(settings, exp)
    _same(run, exp)
    if args.steps is not None:  # where the text lies now is not kept, here as elsewhere
        longer.write(run, replace(_settings(run, None), steps=args.steps), exp)
    return _ended(args.run, loop.go(args.run, settings, exp), args.json)


def load(path: Path | str, data: str | None = None) -> tuple[Experiment, Any, int]:
    """A trained run: what it is made of, its parameters (the best in validation), of which step."""
    run = folder.read(path)
    if run.kind not in KINDS:
        raise UsageError(f"{path} is a run of {run.kind!r}; needed one of {', '.join(KINDS)}")
    settings = _settings(run, data)
    exp = settings.build()
    _same(run, exp)
    key, lanes = jax.random.key(0), settings.lanes

    def begin() -> Any:
        from kronline import train  # noqa: PLC0415

        return train.start(exp.learner, exp.task, key, lanes)

    like = checkpoint.shapes(begin, run.kind == "text")
    return exp, *checkpoint.latest_params(run.path, like)


def _settings(run: folder.Run, data: str | None) -> Any:
    cls = KINDS[run.kind]
    values = config.read(cls, run.path / folder.CONFIG)
    settings = config.make(cls, values)
    if data is not None:
        if run.kind != "text":
            raise UsageError(f"--data is for a text; {run.path} is a run of {run.kind!r}")
        settings = replace(settings, data=data)  # type: ignore[call-arg]
    return settings


def _same(run: folder.Run, exp: Experiment) -> None:
    """The run goes on with what it began with."""
    if exp.corpus is not None and exp.corpus.sha256 != run.about["data"]["sha256"]:
        raise UsageError(
            f"the text of {run.path} is not the one that it began with: needed the parts with "
            f"sha256 {run.about['data']['sha256']}, got {exp.corpus.sha256}; give it by --data"
        )
    now = {"version": __version__} | machine.describe()
    then = {"version": run.about["version"]} | run.about["machine"]
    for name in ("version", "jax", "path", "cores"):  # sums over cores are rounded differently
        if now[name] != then[name]:
            warnings.warn(
                f"{run.path} began with {name} {then[name]!r} and goes on with {now[name]!r}: it "
                "may not end bit for bit as it would have",
                stacklevel=2,
            )


def _devices() -> None:
    """One device a core, over which lanes are split where there is no native kernel."""
    with contextlib.suppress(RuntimeError):  # JAX has started already
        jax.config.update("jax_num_cpu_devices", machine.cores())


def begin(path: Path, settings: Any, kind: str, what: str = "") -> None:
    """Say where a run lies, and how long it takes, as far as that is known before it starts."""
    print(f"kronline: {path}{what and ': '}{what}", file=sys.stderr)
    if told := config.told(settings, kind):
        print(f"kronline: preset {settings.preset}: {told}", file=sys.stderr)


def fits(settings: Train, exp: Experiment) -> None:
    """Refuse a run that this machine has not the memory for."""
    what = f"{settings.estimator} with {settings.hidden:,} units and {settings.lanes:,} lanes"
    memory.check(lambda: exp.learner.init(jax.random.key(0), settings.lanes), what)


def _parameters(exp: Experiment) -> int:
    shapes = jax.eval_shape(lambda: exp.learner.init(jax.random.key(0), 1).params)
    return sum(a.size for a in jax.tree.leaves(shapes))


def _ended(path: Path, end: loop.End, as_json: bool) -> int:
    """Say how it ended; the exit code."""
    run = folder.read(path)
    result = {"run": str(path), "state": end.state, "step": end.step, "message": end.message}
    result |= summary(run)
    if end.state == "finished":
        _draw(run)
    if as_json:
        print(json.dumps(result))
    else:
        shown = {k: v for k, v in result.items() if k not in ("run", "message", "state", "right")}
        print(f"{path}: {end.message}")
        print(", ".join(f"{name} {value}" for name, value in shown.items()))
    if end.state == "stopped":
        print(f"kronline: go on with `kronline resume {path}`", file=sys.stderr)
        return 128 + end.signal
    return DIVERGED if end.state == "diverged" else 0


def _draw(run: folder.Run) -> None:
    from kronline.report import figures  # noqa: PLC0415  matplotlib takes a second

    where = run.path / "figures"
    where.mkdir(exist_ok=True)
    figures.for_run(run).savefig(where / "curve.png", dpi=150)


def summary(run: folder.Run) -> dict[str, Any]:
    """A run in a few numbers."""
    out: dict[str, Any] = {}
    wanted = (*copy.NUMBERS, "bits", "valid", "test", "snr", "noise")
    for line in run.metrics:
        out |= {k: v for k, v in line.items() if k in wanted}
    if run.kind == "text" and (valid := [m["valid"] for m in run.metrics if "valid" in m]):
        out["valid"] = min(valid)
    return out

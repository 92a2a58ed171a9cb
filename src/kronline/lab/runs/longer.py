"""A run with more steps than it was planned with: `kronline resume RUN --steps N`.

It goes on from its newest checkpoint at a chunk's end, so that it becomes the very run that would
have had N steps from the start. All that can be wrong is found before anything is written.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kronline import disk
from kronline.checkpoint import files
from kronline.errors import UsageError
from kronline.lab.runs import checkpoint, config, folder, loop
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import Experiment, Task

SEVERAL = {"sweep.toml": "a sweep", "compare.toml": "a comparison"}  # files of such folders


def only_one(path: Path) -> None:
    """Not a folder of several runs, and not one of their members."""
    for name, what in SEVERAL.items():
        if (path / name).is_file():
            raise UsageError(f"--steps is for one run; {path} is {what}, and has several")
        if (path.parent / name).is_file():
            raise UsageError(
                f"{path} is one of {what}, whose runs all have the same steps: copy its folder to "
                "another place, and go on with the copy"
            )


def settings(run: Run, asked: Any, steps: int) -> Any:
    """The run's configuration with these steps."""
    has = int(run.about["steps"])
    if asked.schedule != "constant":
        raise UsageError(
            f"--steps needs a run with --schedule constant; that of {run.path} is "
            f"{asked.schedule}, so its rate falls to zero at the end that was planned: train anew"
        )
    if steps <= has:
        raise UsageError(f"--steps must be more than {run.path} has, {has}, got {steps}")
    return replace(asked, steps=steps)


def write(run: Run, asked: Task, exp: Experiment) -> None:
    """What lies there is a run of the new length, wherever this is cut short."""
    chunk = loop.chunk(asked, exp)
    saved = files(run.path)
    early = [f for f in saved if checkpoint.step_of(f) % chunk]
    if saved == early:
        raise UsageError(
            f"{run.path} ends at step {run.status['step']}, within a chunk of {chunk}, and has no "
            "checkpoint before that, from which it could go on as if it had been longer: train "
            "anew. With a --keep of 2 or more there is one"
        )
    with folder.locked(run.path):
        folder.set_status(run.path, "stopped", step=run.status["step"], steps=exp.steps)
        disk.write(run.path / folder.CONFIG, config.toml(asked, run.kind))
        lengthened = [*run.about.get("lengthened", []), run.about["steps"]]
        about = run.about | {"steps": exp.steps, "lengthened": lengthened}
        disk.write(run.path / folder.ABOUT, json.dumps(about, indent=1) + "\n")
        for file in early:
            file.unlink()

"""The file: arrays by their names, and a header that says what learner they belong to.

    {"format": "kronline-2", "version": "0.1.0",
     "learner": {"cell": "RHN(64, 4)", "readout": "softmax(4)", "estimator": "kf_rtrl()", ...},
     "at": ""}

Everything of the learner is there as its spec, but for the optimiser, which optax cannot name. `at`
is where the learner's state lies among the arrays: a run's checkpoint holds more than that. A run
of many processes has its lanes in several files (`parts.py`).
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from kronline import disk
from kronline._version import __version__
from kronline.checkpoint import old, parts
from kronline.learner import Learner
from kronline.spec import KINDS, parse, show

FORMAT = "kronline-2"
FOLDER = "checkpoints"  # of a run


def write(path: Path, tree: Any, learner: Learner, at: str = "", **more: Any) -> None:
    """The whole file or nothing.

    Args:
        path: where to.
        tree: arrays and keys, a learner's state among them.
        learner: whose state it is.
        at: where in the tree the state lies: `training.learner`; empty: it is the whole tree.
        **more: what else the header is to hold.
    """
    header = {"format": FORMAT, "version": __version__, "learner": described(learner), "at": at}
    disk.write_tree(path, tree, header | more)


def read(path: Path, own: "parts.Own | None" = None) -> tuple[dict[str, Any], disk.Arrays]:
    """Header and arrays, of this format or an older one.

    Args:
        path: the file.
        own: the lanes to read; None: all of them.

    Raises:
        ValueError: if the file is damaged, or of another format.
    """
    header, arrays = parts.read(path, own, FORMAT, *old.FORMATS)
    header = old.FORMATS.get(header["format"], {}) | header
    return header, old.completed(arrays, header["at"])


def at_step(run: Path, step: int) -> Path:
    """A run's checkpoint of this step."""
    return run / FOLDER / f"step-{step:012d}.safetensors"


def files(run: Path) -> list[Path]:
    """A run's checkpoints, the newest first."""
    return sorted((run / FOLDER).glob("step-*.safetensors"), reverse=True)


# -- a learner as specs ----------------------------------------------------------------------------


def described(learner: Learner) -> dict[str, Any]:
    """All but the optimiser."""
    names = [f.name for f in dataclasses.fields(learner) if f.name != "optimiser"]
    return {name: _described(name, getattr(learner, name)) for name in names}


def _described(name: str, value: Any) -> Any:
    if name == "regularisers":
        return [show(r) for r in value]
    if name in KINDS and value is not None:
        return show(value)
    return value.item() if isinstance(value, np.generic) else value


def settings(header: dict[str, Any]) -> dict[str, Any]:
    """The learner's settings, all but the optimiser.

    Raises:
        ValueError: if some of them are not the library's own.
    """
    made = old.made if header["format"] in old.FORMATS else _made
    return {name: made(name, value) for name, value in header["learner"].items()}


def _made(name: str, value: Any) -> Any:
    if name == "regularisers":
        return tuple(parse(text, "regulariser") for text in value)
    return parse(value, name) if name in KINDS and value is not None else value


def differences(header: dict[str, Any], learner: Learner) -> list[str]:
    """In what a learner is not the one of a file: `cell RHN(3, 3), not Tanh(3, 3)`."""
    now, was = described(learner), {"regularisers": []} | header["learner"]
    if header["format"] in old.FORMATS:
        same = {name: old.same(was[name], getattr(learner, name)) for name in was}
    else:
        same = {name: was[name] == now[name] for name in was}
    return [f"{name} {was[name]}, not {now[name]}" for name in was if not same[name]]

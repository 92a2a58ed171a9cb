"""A learner on disk: save, load. No pickle."""

from pathlib import Path
from typing import Any

import jax
import optax

from kronline import checks, disk
from kronline.checkpoint import file
from kronline.estimators import Params
from kronline.learner import Learner, State, check_same, fingerprint


def save(path: str | Path, learner: Learner, state: State) -> None:
    """Write all of a learner; of its optimiser, which optax cannot name, a fingerprint.

    Args:
        path: a file; `.safetensors` is the usual ending.
        learner: whose settings go into the header, as specs: `RHN(64, 4)`.
        state: parameters, optimiser state, lanes, traces and key.

    Example:
        >>> import jax, optax, tempfile, kronline as kl
        >>> learner = kl.Learner(kl.Tanh(2, 3), kl.softmax(3), kl.uoro(), optax.sgd(0.1))
        >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        ...     kl.save(file.name, learner, learner.init(jax.random.key(0), lanes=2))
        ...     kl.load(file.name, learner=learner)[1].s.shape
        (2, 2)
    """
    checks.alive("this state", state.s, state.params)
    file.write(Path(path), state, learner, optimiser=fingerprint(learner, state))


def load(
    path: str | Path,
    *,
    optimiser: optax.GradientTransformation | None = None,
    learner: Learner | None = None,
    example: Any = None,
    other_optimiser: bool = False,
) -> tuple[Learner, State]:
    """Read what `save` wrote, or the learner of a run that `kronline train` made.

    Args:
        path: the file; or a run's checkpoint; or a run's folder, for its newest checkpoint.
        optimiser: the optimiser that was in use; the rest of the learner is rebuilt from the file.
        learner: instead, the learner itself: needed where parts of it are not the library's (a cell
            or loss of one's own).
        example: `(x, y)` of one step, where the state was made with one (see `Learner.init`).
        other_optimiser: go on with another optimiser, or another rate, than was in use. What it
            remembers must be of the same shapes.

    Returns:
        the learner, and its state, ready to go on.

    Raises:
        ValueError: if the file is damaged, does not fit the learner, or was saved with another
            optimiser. Where versions of JAX or optax differ, that is not known: a warning.

    Example:
        >>> import jax, optax, tempfile, kronline as kl
        >>> learner = kl.Learner(kl.Tanh(2, 3), kl.softmax(3), kl.uoro(), optax.sgd(0.1))
        >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        ...     kl.save(file.name, learner, learner.init(jax.random.key(0), lanes=2))
        ...     learner, state = kl.load(file.name, optimiser=optax.sgd(0.1))
        >>> learner.estimator.name, state.s.shape
        ('uoro()', (2, 2))
    """
    path, header, arrays = _read(Path(path))
    if learner is None:
        learner = _rebuilt(path, header, optimiser)
    elif header["learner"] and (differ := file.differences(header, learner)):
        raise ValueError(f"{path} was saved from another learner: {'; '.join(differ)}")
    arrays, keys = (_inside(named, header["at"]) for named in (arrays, header["keys"]))
    if example is None and any(name.startswith("buffer.") for name in arrays):
        raise ValueError(f"{path} holds a buffer; load needs example=(x, y), as init did")
    if "s" not in arrays:
        raise ValueError(f"{path} holds no state of a learner")
    lanes = arrays["s"].shape[0]
    like = jax.eval_shape(lambda: learner.init(jax.random.key(0), lanes, example))
    state = disk.filled(path, like, arrays, keys)
    if "optimiser" in header and not other_optimiser:
        check_same(path, header["optimiser"], fingerprint(learner, like))
    return learner, state


def load_params(path: str | Path) -> tuple[Learner, Params]:
    """What was learnt, of what `save` or `kronline train` wrote, without its optimiser.

    Args:
        path: as for `load`.

    Returns:
        the learner, with an optimiser that does nothing, and its parameters.

    Raises:
        ValueError: if the file is damaged, or parts of the learner are not the library's own.

    Example:
        >>> import jax, optax, tempfile, kronline as kl
        >>> from kronline.checkpoint import load_params
        >>> learner = kl.Learner(kl.Tanh(2, 3), kl.softmax(3), kl.uoro(), optax.adam(0.1))
        >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        ...     kl.save(file.name, learner, learner.init(jax.random.key(0)))
        ...     load_params(file.name)[1].readout["V"].shape
        (3, 3)
    """
    path, header, arrays = _read(Path(path))
    learner = _rebuilt(path, header, optax.identity())
    like = {"params": learner.engine.shapes()}
    mine = _inside(arrays, header["at"])
    arrays = {name: mine[name] for name in disk.named(like) if name in mine}
    return learner, disk.filled(path, like, arrays, {})["params"]


def _read(path: Path) -> tuple[Path, dict[str, Any], disk.Arrays]:
    """The file, or the newest whole one of a run's folder: its path, header and arrays."""
    if not path.is_dir():
        return path, *file.read(path)
    problem = f"there is no {file.at_step(Path(), 0).parent}/step-*.safetensors in it"
    for checkpoint in file.files(path):
        try:
            return checkpoint, *file.read(checkpoint)
        except ValueError as e:
            problem = str(e)
    raise ValueError(
        f"load needs a file, or a run's folder with a checkpoint, got {path}: {problem}"
    )


def _rebuilt(
    path: Path, header: dict[str, Any], optimiser: optax.GradientTransformation | None
) -> Learner:
    """The learner that a header describes, with an optimiser."""
    if optimiser is None:
        raise ValueError("load needs optimiser=... (optax's are not in the file) or learner=...")
    if header["learner"] is None:
        raise ValueError(
            f"{path} is of an old version, and does not say of which learner: use load(path, "
            "learner=learner), or `kronline resume` first, which writes new checkpoints"
        )
    try:
        settings = file.settings(header)
    except ValueError as e:
        raise ValueError(
            f"{path} holds what is not the library's own; build the learner yourself and use "
            f"load(path, learner=learner). {e}"
        ) from e
    return Learner(**settings, optimiser=optimiser)


def _inside(named: dict[str, Any], at: str) -> dict[str, Any]:
    """What lies at a place of a tree, by its names there."""
    prefix = f"{at}." if at else ""
    return {name[len(prefix) :]: a for name, a in named.items() if name.startswith(prefix)}

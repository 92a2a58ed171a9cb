"""A stream model on disk: safetensors, and what is no array as JSON in its header. No pickle."""

from pathlib import Path
from typing import Any

import jax

from kronline import disk
from kronline._version import __version__
from kronline.stream.anomaly import AnomalyDetector
from kronline.stream.classifier import Classifier
from kronline.stream.forecaster import Forecaster
from kronline.stream.model import Model, settings
from kronline.stream.regressor import Regressor

FORMAT = "kronline-stream-3"
KINDS: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (Regressor, Classifier, Forecaster, AnomalyDetector)
}


def save(path: str | Path, model: Model) -> None:
    """Write a model: the whole file or nothing."""
    kind = next(name for name, kind in KINDS.items() if type(model) is kind)
    header = {
        "format": FORMAT,
        "version": __version__,
        "model": kind,
        "settings": settings(model),
        "events": model.events,
        "features": model._features.header(),
        "keys_": model._keys.header(),
        "more": model._header(),
        "begun": model._network is not None,
    }
    tree: dict[str, Any] = {
        "running": model._features.running.state(),
        "own": model._arrays(),
    }
    if model._network is not None:
        tree["network"] = model._network.state
    disk.write_tree(Path(path), tree, header)


def load(path: str | Path) -> Any:
    """Read what `save` wrote; the model goes on from there, bit for bit.

    Raises:
        ValueError: if the file is damaged, or holds no stream model.

    Example:
        >>> import tempfile
        >>> from kronline import stream
        >>> model = stream.Regressor().learn_one({"a": 1.0}, 2.0)
        >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        ...     model.save(file.name)
        ...     same = stream.load(file.name)
        >>> same.predict_one({"a": 1.0}) == model.predict_one({"a": 1.0})
        True
    """
    header, arrays = disk.read_tree(Path(path), FORMAT)
    model = KINDS[header["model"]](**header["settings"])
    model.events = header["events"]
    model._features.restore(header["features"], _inside(arrays, "running."))
    model._keys.restore(header["keys_"])
    model._restore(_inside(arrays, "own."), header["more"])
    if header["begun"]:
        network = model.network
        if model._keys.count > 1:
            network.grow(lanes=model._keys.count)
        like = jax.eval_shape(lambda: network.state)
        network.state = disk.filled(
            path, like, _inside(arrays, "network."), _inside(header["keys"], "network.")
        )
    return model


def _inside(named: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {k[len(prefix) :]: v for k, v in named.items() if k.startswith(prefix)}

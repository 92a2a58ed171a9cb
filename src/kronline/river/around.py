"""What all river estimators here have in common: settings, files in place of pickles, keys."""

import inspect
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kronline import stream

KEY = inspect.Parameter("key", inspect.Parameter.KEYWORD_ONLY, default=None)
T = TypeVar("T", bound="type[Around]")


class Around:
    """A stream model inside a river estimator.

    Settings are kept under their names, as river's `clone` needs it. `pickle` and `copy` get the
    model as the bytes of the file that `save` writes.
    """

    kind: ClassVar[type]  # of the stream model

    def _begin(self, settings: dict[str, Any]) -> None:
        given = inspect.signature(type(self)).bind(**settings)
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)
        del given.arguments["key"]
        self._model = self.kind(**given.arguments)

    def _split(self, x: Mapping[Any, Any] | None) -> tuple[dict[str, Any], Hashable]:
        """The features, in an order that does not depend on theirs, and the key."""
        event = {name: x[name] for name in sorted(x, key=str)} if x else {}
        name: str | None = self.key  # type: ignore[attr-defined]
        return event, None if name is None else event.pop(name, None)

    def _split_all(self, rows: Iterable[Mapping[Any, Any]]) -> tuple[list[Any], list[Hashable]]:
        pairs = [self._split(row) for row in rows]
        return [x for x, _ in pairs], [key for _, key in pairs]

    # -- copies ------------------------------------------------------------------------------------

    def _as_bytes(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.safetensors")
            self._model.save(path)
            return path.read_bytes()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_model"} | {"_file": self._as_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({k: v for k, v in state.items() if k != "_file"})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.safetensors")
            path.write_bytes(state["_file"])
            self._model = stream.load(path)

    @property
    def _raw_memory_usage(self) -> int:
        return len(self._as_bytes())


def settings_of(kind: type) -> Callable[[T], T]:
    """Gives a class the settings of a stream model as its own, and `key`.

    `key` names the feature that says which entity an event is from; it is no feature then.
    """

    def around(cls: T) -> T:
        own = [p for n, p in inspect.signature(kind).parameters.items() if n != "self"]

        def __init__(self: Any, **settings: Any) -> None:
            self._begin(settings)

        __init__.__qualname__ = f"{cls.__name__}.__init__"  # as an error names it
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([this, *own, KEY])  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]
        cls.kind = kind
        return cls

    return around

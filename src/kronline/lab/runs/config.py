"""Configurations: frozen dataclasses, described by presets and TOML files, overridden by flags.

Later ones win: the defaults, the preset, the file, the flags. Presets are TOML files of the package
whose comments give the reason beside each value; the reasons go along into a run's own file.
"""

import dataclasses
import difflib
import json
import sys
import tomllib
import types
import typing
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from kronline.errors import UsageError
from kronline.lab.runs import packed

C = TypeVar("C")
PRESETS = resources.files("kronline.lab") / "presets"
NOT_KEPT = (  # about a command, not about its run
    *("config", "out", "json", "print_config"),
    *("processes", "coordinator", "process", "of"),
)
NONE = "none"  # TOML has no null
SIZES = (  # settings that say how long a run takes
    *("cell", "hidden", "lanes", "steps", "epochs", "estimators", "experiment", "characters"),
    *("networks", "draws", "avg_draws", "units", "units_networks", "units_draws", "train_steps"),
)


def given(argv: Sequence[str], name: str) -> str | None:
    """The value of an option, before the command line is parsed."""
    found = None
    for i, word in enumerate(argv):
        if word == f"--{name}" and i + 1 < len(argv):
            found = argv[i + 1]
        elif word.startswith(f"--{name}="):
            found = word.split("=", 1)[1]
    return found


def with_none(cls: type, argv: Sequence[str]) -> list[str]:
    """`--clip none` as the `--clip None` that the parser knows: flags say it as files do."""
    optional = {name for name, hint in _hints(cls).items() if type(None) in typing.get_args(hint)}
    flags = ["", *(word.removeprefix("--").replace("-", "_") for word in argv)]
    return [
        "None" if word == NONE and flag in optional else word
        for flag, word in zip(flags, argv, strict=False)
    ]


def start(cls: type[C], kind: str, argv: Sequence[str]) -> C:
    """What the flags start from: the defaults, the preset and the file that `argv` names."""
    file = given(argv, "config")
    values = read(cls, Path(file)) if file else {}
    preset = given(argv, "preset") or values.get("preset") or ""
    if preset:
        values = {name: value for name, (value, _) in of_preset(cls, kind, preset).items()} | values
    values |= {"preset": preset, "config": Path(file) if file else None}
    return make(cls, {k: v for k, v in values.items() if k in _hints(cls)})


def make(cls: type[C], values: dict[str, Any]) -> C:
    """The configuration of these values; errors of its own are the user's."""
    try:
        return cls(**values)
    except UsageError:
        raise
    except (TypeError, ValueError) as e:
        raise UsageError(str(e)) from e


def read(cls: type, path: Path) -> dict[str, Any]:
    """The values of a TOML file, which may be that of a packed run."""
    try:
        text = packed.text(path)
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the configuration {str(path)!r} cannot be read: {e}") from e
    if text is None:
        raise UsageError(f"the configuration {str(path)!r} cannot be read: there is no such file")
    return checked(cls, text, str(path))


def checked(cls: type, text: str, where: str) -> dict[str, Any]:
    """The values of a TOML text, each known and of the type that is needed."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{where} is not TOML: {e}") from e
    hints = _hints(cls)
    for name in values:
        if name not in hints or name == "config":
            known = [n for n in hints if n not in NOT_KEPT]
            close = difflib.get_close_matches(name, known, 1, 0.4)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise UsageError(f"{where}: there is no setting {name!r}; {hint}")
    return {name: _fit(value, hints[name], f"{where}: {name}") for name, value in values.items()}


def of_preset(cls: type, kind: str, name: str) -> dict[str, tuple[Any, str]]:
    """A preset's values, each with the reason for it."""
    known = presets(kind)
    if name not in known:
        close = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"preset must be one of {', '.join(known)}, got {name!r}{hint}")
    text = (PRESETS / f"{kind}-{name}.toml").read_text(encoding="utf-8")
    values = checked(cls, text, f"preset {name}")
    reasons = comments(text)
    return {key: (value, reasons.get(key, "")) for key, value in values.items()}


def told(settings: Any, kind: str) -> str | None:
    """What a preset says of itself, how long it takes for one; None if its sizes were changed."""
    if not settings.preset:
        return None
    values = of_preset(type(settings), kind, settings.preset)
    if any(getattr(settings, k) != v for k, (v, _) in values.items() if k in SIZES):
        return None
    text = (PRESETS / f"{kind}-{settings.preset}.toml").read_text(encoding="utf-8")
    return text.splitlines()[0].removeprefix("#").strip()


def begin(path: Path, settings: Any, kind: str, what: str = "") -> None:
    """Say where a run lies, and how long it takes, as far as that is known before it starts."""
    print(f"kronline: {path}{what and ': '}{what}", file=sys.stderr)
    if said := told(settings, kind):
        print(f"kronline: preset {settings.preset}: {said}", file=sys.stderr)


def presets(kind: str) -> list[str]:
    """The names of a kind's presets."""
    files = sorted(f.name for f in PRESETS.iterdir())
    return [
        f[len(kind) + 1 : -5] for f in files if f.startswith(f"{kind}-") and f.endswith(".toml")
    ]


def comments(text: str) -> dict[str, str]:
    """The comment beside each value of a TOML text, one setting a line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        # a '#' inside a string is no comment: the shortest beginning that is TOML is the setting
        parts = line.split("#")
        for i in range(1, len(parts)):
            try:
                names = list(tomllib.loads("#".join(parts[:i])))
            except tomllib.TOMLDecodeError:
                continue
            found |= dict.fromkeys(names, "#".join(parts[i:]).strip())
            break
    return found


def toml(config: Any, kind: str) -> str:
    """A configuration as TOML, with the preset's reason beside each value that is still its."""
    reasons = of_preset(type(config), kind, config.preset) if config.preset else {}
    out = []
    for field in dataclasses.fields(config):
        if field.name in NOT_KEPT:
            continue
        value = getattr(config, field.name)
        line = f"{field.name} = {_toml(value)}"
        if field.name in reasons and reasons[field.name][0] == value and reasons[field.name][1]:
            line += f"  # {reasons[field.name][1]}"
        out.append(line)
    return "\n".join(out) + "\n"


def _toml(value: Any) -> str:
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, bool | int):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else _string(str(value))


def _string(text: str) -> str:
    """As JSON has it, but for what TOML does otherwise: no surrogates, and DEL is escaped."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise UsageError(f"{text!r} is not UTF-8, so it cannot be kept in a configuration") from e
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _fit(value: Any, hint: Any, where: str) -> Any:
    """The value as the type that is needed."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if value == NONE and type(None) in options:
            return None
        hint = next(t for t in options if t is not type(None))
    if typing.get_origin(hint) is Literal:
        if value in typing.get_args(hint):
            return value
        raise UsageError(f"{where} must be one of {typing.get_args(hint)}, got {value!r}")
    if typing.get_origin(hint) is tuple:
        if isinstance(value, list):
            return tuple(_fit(v, typing.get_args(hint)[0], where) for v in value)
        raise UsageError(f"{where} needs a list, got {value!r}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    raise UsageError(f"{where} needs {hint.__name__}, got {value!r}")

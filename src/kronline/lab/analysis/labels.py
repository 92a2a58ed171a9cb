"""What things are called in figures and tables: methods, settings, numbers."""

import ast
import inspect
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kronline.estimators import methods
from kronline.lab.tasks import TASKS
from kronline.lab.wording import short
from kronline.spec import canonical

_SUPERSCRIPT = str.maketrans("-−0123456789.", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹·")


def call(estimator: str) -> tuple[str, list[str], dict[str, str]]:
    """`NAME(arguments)` taken apart, arguments as they were written: nothing is evaluated."""
    try:
        node = ast.parse(estimator, mode="eval").body
    except SyntaxError:
        return estimator, [], {}
    if not isinstance(node, ast.Call):
        return estimator, [], {}
    named = {str(k.arg): ast.unparse(k.value) for k in node.keywords}
    return ast.unparse(node.func), [ast.unparse(a) for a in node.args], named


def method(estimator: str) -> str:
    """The name by which a method is known: `kf_rtrl` is KF-RTRL, `tbptt(25)` TBPTT-25.

    A user's own, `file.py:NAME(...)`, keeps its name as it is written.
    """
    place, _, text = estimator.rpartition(":")
    if place:
        return text
    name, first, named = call(estimator)
    if name == "Online":  # by the method's name, if it has one
        found = canonical(estimator, "estimator")
        return found if found.startswith(name) else method(found)
    if not name.isidentifier() or name.startswith("_"):
        return estimator
    known = getattr(methods, name) if name in methods.__all__ else None
    try:
        given = known and inspect.signature(known).bind(*first, **named)
    except TypeError:
        given = None  # not as the method takes them
    if not given:
        out = name.upper().replace("_", "-") + "".join(f"-{a}" for a in first)
        return out + "".join(f", {k} {v}" for k, v in named.items() if v != "None")
    given.apply_defaults()
    a = {k: str(v) for k, v in given.arguments.items()}
    window = a.get("window", "None")
    return KNOWN[name](a) + (f", window {window}" if window != "None" else "")


def _averaged(name: str, copies: str) -> str:
    return name if copies == "1" else f"{name}-AVG (k = {copies})"


def _tail(a: dict[str, str]) -> str:
    more = "" if _number(a["tail"]) == 1 else f", tail {a['tail'].strip(chr(39))}"
    return f"KF-TBPTT-{a['k']}, {a['pairs']} pair{'' if a['pairs'] == '1' else 's'}{more}"


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _every(a: dict[str, str]) -> str:
    return "" if a["every"] in ("1", "None") else f", every {a['every']}"


def _reservoir(a: dict[str, str]) -> str:
    scale = "" if _number(a["input_scale"]) == 1 else f", inputs × {a['input_scale']}"
    radius = a["spectral_radius"]
    return ("Reservoir" if radius == "None" else f"Reservoir (ρ = {radius})") + scale


# from arguments as they are written
KNOWN: dict[str, Callable[[dict[str, str]], str]] = {
    "artbp": lambda a: f"ARTBP (c = {a['c']}, {a['max_len']} steps)" + _every(a),
    "bptt": lambda a: "BPTT",
    "dni": lambda a: f"DNI-{a['k']}",
    "immediate": lambda a: "Immediate",
    "kf_rtrl": lambda a: _averaged("KF-RTRL", a["copies"]),
    "kf_tbptt": _tail,
    "ok": lambda a: f"OK (r = {a['pairs']})",
    "reservoir": _reservoir,
    "reverse_kf": lambda a: "R-KF",
    "rflo": lambda a: "RFLO",
    "rolling_tbptt": lambda a: f"Rolling TBPTT-{a['k']}" + _every(a),
    "rtrl": lambda a: "RTRL",
    "snap": lambda a: f"SnAp-{a['order']}",
    "spatial": lambda a: f"Spatial-{a['k']}",
    "tbptt": lambda a: f"TBPTT-{a['k']}",
    "uoro": lambda a: _averaged("UORO", a["copies"]),
}


def horizon(estimator: str) -> int | None:
    """k of `tbptt(k)`, None for any other method."""
    name, first, named = call(estimator)
    k = (first or [named.get("k", "")])[0]
    return int(k) if name == "tbptt" and k.isdigit() else None


def rate(value: float) -> str:
    """A learning rate as the paper writes it: 10⁻³·⁵."""
    if not value > 0:
        return f"{value:g}"
    power = round(2 * math.log10(value)) / 2
    if not math.isclose(value, 10**power, rel_tol=1e-3):
        return f"{value:.3g}"
    return "10" + f"{power:g}".translate(_SUPERSCRIPT)


def value(key: str, given: Any) -> str:
    """One setting's value, for people."""
    match given:
        case None | "" | [] | ():
            return "none"
        case list() | tuple():
            return ", ".join(value(key, v) for v in given)
        case bool():
            return "yes" if given else "no"
        case int() | float() if key == "rate":
            return rate(given)
        case int():
            return f"{given:,}"
    return f"{given:g}" if isinstance(given, float) else str(given)


def setting(key: str, given: Any, kind: str = "") -> str:
    """A setting that tells two curves apart, as short as can be; `kind`: of runs."""
    text = value(key, given)
    if kind in TASKS and (own := TASKS[kind].called(key, text)) is not None:
        return own
    known = {
        "hidden": f"n = {text}",
        "lanes": f"{text} lanes",
        "steps": f"{text} steps",
        "cell": text,
        "regulariser": "unregularised" if text == "none" else text,
        "schedule": "constant rate" if text == "constant" else f"rate falling ({text})",
        "clip": "unclipped" if text == "none" else f"clipped to {text}",
        "data": short(text),
        "run": "untrained" if text == "none" else f"trained in {short(text)}",
    }
    return known.get(key, f"{key.replace('_', ' ')} {text}")


def date(started: str) -> str:
    """The day of an ISO time, for people: 16 November 2025."""
    try:
        day = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{day.day} {day:%B %Y}"


def duration(seconds: float) -> str:
    """Compute time in the unit that fits."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"

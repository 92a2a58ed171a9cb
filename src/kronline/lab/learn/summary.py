"""A stream in numbers: for the progress, the end, and programs."""

from pathlib import Path
from typing import Any

from kronline.lab.learn import meter
from kronline.lab.learn.lines import Place
from kronline.lab.learn.settings import Learn
from kronline.lab.learn.timing import Timing, quantile
from kronline.lab.learn.worker import Worker
from kronline.lab.wording import plural

TIMED = 100  # events, with fewer a rate is that of the compiler
MEASURES = {
    "regress": "mean absolute error",
    "forecast": "mean absolute error",
    "classify": "share of wrong classes",
    "anomaly": "mean score",
}


def numbers(
    args: Learn, folder: Path, worker: Worker, timing: Timing, place: Place
) -> dict[str, Any]:
    """What there is to say."""
    task, total, whole = worker.reader.task, worker.meter.total, timing.whole
    model, last, mean = meter.errors(total)
    found: dict[str, Any] = {
        "model": str(folder),
        "task": task,
        "lines": place.line,
        "events": worker.events,
        "rejected": worker.rejected,
        "scored": int(total[meter.SCORED]),
        "measure": None if task is None else MEASURES[task],
        "error": model,
    }
    if task == "anomaly":
        found["alarms"] = int(total[meter.SQ])
        for name, i in (("score_of_odd", 1), ("score_of_others", 2)):
            n = total[meter.SQ + i]
            found[name] = total[meter.ABS + i] / n if n else None
        del found["error"]
        found["mean_score"] = model
    elif worker.baseline is not None:
        for name, value in zip(worker.baseline.names, (last, mean), strict=True):
            found[name.replace(" ", "_")] = value
    if args.level is not None:
        asked = total[meter.ASKED]
        found["inside_interval"] = total[meter.INSIDE] / asked if asked else None
    clock = whole["clock"]
    found["events_per_second"] = round(whole["events"] / clock, 1) if clock else None
    for name, q in (("median_microseconds", 0.5), ("p99_microseconds", 0.99)):
        seconds = quantile(whole, q)
        found[name] = None if seconds is None else round(1e6 * seconds, 1)
    return found


def line(found: dict[str, Any]) -> str:
    """The same in one line."""
    parts = [plural(found["events"], "event")]
    if found["rejected"]:
        parts[0] += f" ({plural(found['rejected'], 'line')} rejected)"
    if found["events"] >= TIMED:
        if found["events_per_second"]:
            parts.append(f"{found['events_per_second']:,.0f} events/s")
        if found["median_microseconds"]:
            parts.append(f"{found['median_microseconds']:,.0f} µs an event")
    if found["task"] == "anomaly":
        parts.append(f"{found['alarms']:,} alarms")
        if found["score_of_odd"] is not None:
            others = found["score_of_others"]
            parts.append(f"mean score {found['score_of_odd']:.3f} of those labelled odd")
            parts.append("–" if others is None else f"{others:.3f} of the others")
    elif found.get("error") is not None:
        names = [n for n in found if n.startswith(("last_", "running_", "commonest_"))]
        beside = ", ".join(f"{n.replace('_', ' ')} {found[n]:.4g}" for n in names)
        parts.append(f"{found['measure']} {found['error']:.4g} ({beside})")
    return ", ".join(parts)

"""Runs made up for tests of analysis and reports: folders, as training would leave them."""

import json

from kronline import disk
from kronline.lab.runs import folder


def made(path, kind, settings, metrics, timing=(), state="finished", message="", **about):
    """A run's folder, as training would leave it."""
    lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in settings.items()]
    folder.create(path, kind, "\n".join(lines) + "\n", about)
    steps = settings.get("steps", 0)
    last = max((m.get("step", 0) for m in metrics), default=0)
    folder.set_status(path, state, step=last, steps=steps, message=message)
    for name, rows in ((folder.METRICS, metrics), (folder.TIMING, timing)):
        disk.write(path / name, "".join(json.dumps(row) + "\n" for row in rows))
    return folder.read(path)


def copy_run(path, T, *, seconds=1.0, solved=None, state="finished", message="", **settings):
    """T is the curriculum's length at steps 100, 200, ..., each of which takes `seconds`."""
    base = {"cell": "RHN", "hidden": 8, "estimator": "kf_rtrl", "optimiser": "adam", "rate": 1e-3}
    base |= {"clip": "none", "lanes": 4, "steps": 100 * len(T), "seed": 0, "delay": "short"}
    base |= {"threshold": 0.15, "spread": 5, "smoothing": 0.999, "restart": 0.3, "log_every": 100}
    steps = [100 * (i + 1) for i in range(len(T))]
    metrics = [
        {"step": s, "bits": 0.5, "error": 0.2, "T": t} for s, t in zip(steps, T, strict=True)
    ]
    timing = [{"step": s, "seconds": seconds} for s in steps]
    if solved is not None:
        share = [1.0] * solved + [0.5] * max(1, T[-1] - solved)
        metrics.append({"step": steps[-1], "solved": solved, "right": share})
    return made(path, "copy", base | settings, metrics, timing, state, message, parameters=100)


def text_run(path, valid, test=None, *, name="a book", sha="00", state="finished", **settings):
    base = {"cell": "RHN", "hidden": 8, "estimator": "kf_rtrl", "optimiser": "adam", "rate": 1e-3}
    base |= {"clip": "none", "lanes": 4, "steps": 100 * len(valid), "seed": 0, "data": "none"}
    base |= {"reset": 0.01}
    metrics = [{"step": 100 * i, "bits": 3.0, "valid": v} for i, v in enumerate(valid, 1)]
    timing = [{"step": m["step"], "seconds": 2.0} for m in metrics]
    if test is not None:
        at = 100 * (1 + valid.index(min(valid)))
        last = metrics[-1]["step"] if metrics else 0
        metrics.append({"step": last, "valid": min(valid), "valid_step": at, "test": test})
    data = {"name": name, "symbols": 50, "sha256": {"train": sha, "valid": sha, "test": sha}}
    return made(path, "text", base | settings, metrics, timing, state, parameters=1, data=data)


def noise_run(path, **settings):
    base = {"cell": "RHN", "estimators": ["kf_rtrl", "uoro(copies=n)"], "experiment": "both"}
    base |= {"hidden": 256, "seed": 0, "characters": 10_000, "data": "none"}
    metrics = []
    for estimator, by in (("kf_rtrl", 0.0), ("uoro(copies=n)", 0.1)):
        common = {"estimator": estimator, "network": 0}
        for t in (1, 10, 100, 1000):
            cosine = [0.4 + by, 0.6 + by]
            metrics.append({"experiment": "time", "n": 256, "t": t, "cosine": cosine, **common})
        for n in (16, 32):
            row = {"experiment": "units", "n": n, "t": 100, "cosine": [0.2 + by, 0.4 + by]}
            metrics.append(row | {"error": [n, n + 2]} | common)
    return made(path, "variance", base | settings, metrics)


def csv_file(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path

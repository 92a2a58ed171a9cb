"""What was found, in a few numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.table import Table

ROWS = 7  # times that the table shows


def summary(metrics: Iterable[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By experiment and estimator: mean and deviation over networks and draws, at each t or n."""
    pooled: dict[str, dict[str, dict[tuple[int, int], tuple[list, list]]]] = {}
    for line in metrics:
        by_point = pooled.setdefault(line["experiment"], {}).setdefault(line["estimator"], {})
        cosine, error = by_point.setdefault((line["n"], line["t"]), ([], []))
        cosine += line["cosine"]
        error += line["error"]
    return {
        experiment: {
            name: [_point(n, t, *lists) for (n, t), lists in sorted(by_point.items())]
            for name, by_point in by_name.items()
        }
        for experiment, by_name in pooled.items()
    }


def _point(n: int, t: int, cosine: list[float], error: list[float]) -> dict[str, Any]:
    return {
        "n": n,
        "t": t,
        "cosine": float(np.mean(cosine)),
        "std": float(np.std(cosine)),
        "error": float(np.mean(error)),
        "repetitions": len(cosine),
    }


def tables(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[Table]:
    """One table per experiment: times or sizes below each other, estimators side by side."""
    out = []
    for experiment, by_name in found.items():
        points = next(iter(by_name.values()))
        if experiment == "time":
            title, name = f"Cosine to the exact gradient, n = {points[0]['n']}", "t"
            pick = np.unique(np.linspace(0, len(points) - 1, ROWS).round().astype(int))
        else:
            title, name = f"Cosine to the exact gradient after {points[0]['t']} steps", "n"
            pick = np.arange(len(points))
        table = Table(title=title, show_footer=True)
        table.add_column(name, "repetitions", justify="right")
        for estimator, column in by_name.items():
            table.add_column(estimator, str(column[0]["repetitions"]), justify="right")
        for i in pick:
            row = [column[i] for column in by_name.values()]
            cells = (f"{p['cosine']:.3f} ± {p['std']:.3f}" for p in row)
            table.add_row(str(points[i][name]), *cells)
        out.append(table)
    return out

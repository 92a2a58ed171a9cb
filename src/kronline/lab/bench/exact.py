"""Exact traces of diagonal cells: beside TBPTT on the same cell, beside the machine's copy rate.

A step has to read and write every trace once, so that the limit of the whole step is a memory copy
of that size, by all cores.
"""

from statistics import median
from typing import Any, Protocol

import jax
import numpy as np

from kronline.lab.bench.plan import Turns
from kronline.lab.bench.work import Row, learner


class Measured(Protocol):
    """What `run.Bench` has measured."""

    times: dict[Row, list[float]]
    rates_at: dict[Row, list[dict[str, float]]]
    bytes: dict[Row, float | None]
    trace_bytes: dict[Row, int]
    copies_by_all: list[float]


def share(bench: Measured, row: Row) -> float | None:
    """GB/s of the traces, read and written once per step, over the copy rate just before."""
    if not row.diagonal or not bench.trace_bytes[row]:
        return None
    moved = 2e-9 * bench.trace_bytes[row]
    pairs = zip(bench.times[row], bench.rates_at[row], strict=True)
    return round(median(moved / t / rate["copy_by_all"] for t, rate in pairs), 3)


def found(bench: Measured, plan: list[Turns]) -> dict[str, Any] | None:
    """Every diagonal cell: its step over TBPTT's, its share of the copy rate, its growth."""
    if not bench.copies_by_all:
        return None
    cells, growth = [], []
    for turns in (t for t in plan if t.limit == "copy_by_all"):
        rows = [row for row in turns.rows if row in bench.times]
        if turns.show and len(rows) == 2:
            cells.append(_beside(bench, rows[0], rows[1], turns.rounds))
        if not turns.show and len(rows) > 1:
            growth.append(_grown(bench, rows))
    copy = round(median(bench.copies_by_all), 2)
    return {"copy_by_all_gbytes_per_s": copy, "cells": cells, "growth": growth}


def _beside(bench: Measured, exact: Row, tbptt: Row, rounds: int) -> dict[str, Any]:
    pairs = zip(bench.times[exact][-rounds:], bench.times[tbptt][-rounds:], strict=False)
    return {
        "cell": exact.cell,
        "hidden": exact.hidden,
        "lanes": exact.lanes,
        "parameters": parameters(exact),
        "trace_bytes": bench.trace_bytes[exact],
        "over_tbptt": round(median(a / b for a, b in pairs), 3),
        "fraction_of_copy": share(bench, exact),
    }


def _grown(bench: Measured, rows: list[Row]) -> dict[str, Any]:
    """Exponents in the number of parameters, fitted to logarithms."""
    sizes = [parameters(row) for row in rows]
    us = [1e6 * median(bench.times[row]) for row in rows]
    memory = [bench.bytes[row] or 0.0 for row in rows]
    return {
        "cell": rows[0].cell,
        "hidden": [row.hidden for row in rows],
        "parameters": sizes,
        "us_per_step": [round(t, 1) for t in us],
        "bytes_per_lane": [round(b) for b in memory],
        "fraction_of_copy": [share(bench, row) for row in rows],
        "time_exponent": _exponent(sizes, us),
        "memory_exponent": _exponent(sizes, memory) if all(memory) else None,
    }


def _exponent(sizes: list[int], values: list[float]) -> float:
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 3)


def parameters(row: Row) -> int:
    """Of the cell."""
    cell = learner(row).cell
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0)))
    return sum(int(np.prod(a.shape)) for a in jax.tree.leaves(shapes))


def lines(result: dict[str, Any]) -> list[str]:
    """In words."""
    found = result.get("exact")
    if not found:
        return []
    out = [f"Memory copy by all cores: {found['copy_by_all_gbytes_per_s']:.1f} GB/s."]
    for c in found["cells"]:
        out.append(
            f"{c['cell']}, n = {c['hidden']}, {c['lanes']} lanes, exact traces of "
            f"{c['trace_bytes'] / 1e6:.1f} MB: {c['over_tbptt']:.2f} of the time of TBPTT-25, "
            f"{c['fraction_of_copy']:.2f} of the copy rate."
        )
    for g in found["growth"]:
        memory = g["memory_exponent"]
        out.append(
            f"{g['cell']}, n = {', '.join(map(str, g['hidden']))}: time grows as parameters^"
            f"{g['time_exponent']:.2f}, memory as parameters^"
            f"{'?' if memory is None else format(memory, '.2f')}; of the copy rate: "
            f"{', '.join(format(s, '.2f') for s in g['fraction_of_copy'])}."
        )
    return out

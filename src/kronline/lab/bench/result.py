"""A result as a table, and beside an older one."""

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from kronline.errors import UsageError
from kronline.lab.bench import exact

KEY = ("method", "path", "cell", "hidden", "lanes")


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What identifies a row."""
    return tuple(row[name] for name in KEY)


def load(path: Path) -> dict[str, Any]:
    """A result that was saved.

    Raises:
        UsageError: for anything else.
    """
    try:
        old = json.loads(path.read_text())
        for row in old["rows"]:
            key(row), row["us_per_step"]
        return dict(old)
    except OSError as e:
        raise UsageError(f"--compare needs a readable file: {e}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(
            f"--compare needs a result of `kronline bench --json`, got {path} ({e!r})"
        ) from e


def compared(new: dict[str, Any], old: dict[str, Any]) -> list[dict[str, Any]]:
    """Old over new, so above 1 is faster: in time, and in the fraction of the machine's rate."""
    before = {key(row): row for row in old["rows"]}
    out = []
    for row in new["rows"]:
        if (was := before.get(key(row))) is None:
            continue
        line = {name: row[name] for name in KEY}
        line["speedup"] = round(was["us_per_step"] / row["us_per_step"], 3)
        limit = "fraction_of_copy" if row.get("fraction_of_copy") else "fraction_of_matmul"
        both = was.get(limit), row[limit]
        # the machine may have been slower: fractions tell it apart
        line["speedup_of_fraction"] = round(both[1] / both[0], 3) if all(both) else None
        out.append(line)
    return out


def show(result: dict[str, Any], console: Console) -> None:
    """Tables, and what else was found."""
    console.print(
        f"This machine: {result['machine']['cpu']}, {result['machine']['cores']} cores; "
        f"large float32 matmul {result['matmul_gflops']:.0f} GFLOP/s (by {result['matmul_by']}), "
        f"memory copy {result['copy_gbytes_per_s']:.1f} GB/s.",
        soft_wrap=True,
    )
    console.print(_rows(result))
    for line in _findings(result):
        console.print(line, soft_wrap=True)
    if result.get("compared"):
        console.print(_compared(result["compared"]))


def _rows(result: dict[str, Any]) -> Table:
    title = "One whole training step (forward, trace, loss, gradient, Adam)"
    table = Table(title=title, box=box.SIMPLE)
    for name in ("method", "path", "cell", "n", "lanes"):
        table.add_column(name, justify="left" if name in KEY[:3] else "right", no_wrap=True)
    for name in ("µs/step", "GFLOP/s", "of matmul", "of copy", "× plain", "kB/lane"):
        table.add_column(name, justify="right", no_wrap=True)
    plain = {
        (r["method"], r["cell"], r["hidden"], r["lanes"]): r["us_per_step"]
        for r in result["rows"]
        if r["path"] == "plain"
    }
    last = None
    for row in result["rows"]:
        work = (row["method"], row["cell"], row["hidden"], row["lanes"])
        if last is not None and work[1:] != last[1:]:
            table.add_section()
        last = work
        gain = plain[work] / row["us_per_step"] if work in plain else None
        table.add_row(
            *(str(row[name]) for name in KEY),
            f"{row['us_per_step']:.1f}",
            _number(row["gflops"], ".0f"),
            _number(row["fraction_of_matmul"], ".2f"),
            _number(row.get("fraction_of_copy"), ".2f"),
            _number(gain, ".2f"),
            _number(row["bytes_per_lane"] and row["bytes_per_lane"] / 1e3, ".0f"),
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _findings(result: dict[str, Any]) -> list[str]:
    out = [
        f"{b['method']}, {b['cell']} n = {b['hidden']}, {b['lanes']} lanes: "
        f"{b['over_kf_rtrl']:.2f} of the time of KF-RTRL."
        for b in result.get("beside", ())
    ]
    out += exact.lines(result)
    for name, g in result["growth"].items():
        if name == "in_time":
            early, late = g["steps"]
            ratio = g["late_over_early"]
            out.append(f"KF-RTRL at step {late:,}: {ratio:.3f} of the time at step {early:,}.")
        else:
            sizes = ", ".join(map(str, g["hidden"]))
            out.append(f"{name}: time grows as n^{g['exponent_in_n']:.2f} (n = {sizes}).")
    if one := result["one_lane"]:
        out.append(
            f"One lane, n = {one['hidden']}: {one['run_us_per_step']:.1f} µs per step in `run`, "
            f"{one['step_call_us']:.1f} µs by `step`; its bare H·A by numpy: "
            f"{one['numpy_HA_us']:.1f} µs."
        )
    path = result["machine"]
    out.append(
        f"fast: {'native kernel' if path['native'] else 'pure JAX'}"
        f" ({path['native_reason']}); jax: pure JAX, lanes over CPU devices, if there are several; "
        "plain: batched einsum (--show-baseline)."
    )
    for row in result["skipped"]:
        out.append(f"skipped: {' '.join(str(row[name]) for name in KEY)}: {row['reason']}")
    return out


def _compared(lines: list[dict[str, Any]]) -> Table:
    table = Table(title="Beside the older result (above 1: faster now)", box=box.SIMPLE)
    for name in (*KEY, "time", "of the limit"):
        table.add_column(name)
    for line in lines:
        table.add_row(
            *(str(line[name]) for name in KEY),
            f"{line['speedup']:.2f}",
            _number(line["speedup_of_fraction"], ".2f"),
        )
    return table

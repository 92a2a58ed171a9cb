"""The page's Figure 3: the noise of gradients."""

from kronline.lab.report import panels as draw
from kronline.lab.report import sections, words
from kronline.lab.report.findings import Findings
from kronline.lab.report.html import Html, join, table, tag
from kronline.lab.report.keys import named
from kronline.lab.report.panels import Panel
from kronline.lab.runs.folder import Run
from kronline.lab.variance import steady
from kronline.lab.variance.series import Series


def section(f: Findings) -> Html:
    """Figure 3."""
    panels: list[tuple[Panel, str]] = []
    parts: list[Html | None] = []
    if f.over_time:
        panels.append((draw.noise_time(f.over_time, f.look), words.noise_time(f.over_time)))
    if f.over_units:
        panels.append((draw.noise_units(f.over_units, f.look), words.noise_units(f.over_units)))
    which = [over for over, s in (("time", f.over_time), ("units", f.over_units)) if s]
    caption = join(
        tag("b", "Variance analysis. "),
        f"Cosine between estimated and exact gradient, over {' and over '.join(which)}; mean and "
        "standard deviation over networks and draws of the signs. 1 is perfect, 0 is as good as "
        "a random direction.",
    )
    if f.over_time:
        parts.append(_time_table(f))
    if f.over_units:
        parts += [_units_table(f, "cosine"), _units_table(f, "error")]
    beside = [_all_methods(run) for g in f.noise for run in g.runs]
    intro = (
        "KF-RTRL and UORO give the right gradient on average, with noise. How much of an estimate "
        "points the right way, and does the noise grow: with time, with the size of the network?"
    )
    body: list[Html | None] = [tag("p", intro), sections.figure(panels, caption), *parts, *beside]
    if not panels:
        body = [tag("p", intro), *beside] if any(beside) else [tag("p", "Nothing is measured yet.")]
    return sections.section(
        "Figure 3", "The noise of gradients", "noise", *body, sections.notes(f.noise)
    )


def _all_methods(run: Run) -> Html | None:
    """`kronline variance --preset table`."""
    found = steady.rows(run)
    if not found:
        return None
    losses, n = run.config.get("loss_steps"), run.config.get("hidden")
    caption = (
        f"All methods, n = {n}: variance and cosine of estimates of the gradient of {losses} "
        "losses, in untrained networks and in a trained one; time and flops of a step, KF-RTRL's "
        "is 1"
    )
    return table(caption, steady.HEAD, [steady.cells(row) for row in found])


def _time_table(f: Findings) -> Html:
    spans = words.decades(f.over_time)
    rows = []
    for s in f.over_time:
        means = [s.at(*span) for span in spans]
        cells = ["–" if m is None else f"{m:.3f}" for m in means]
        rows.append([named(s.label, f.look.get(s.label)), *cells])
    head = ("mean cosine at t =", *(f"{a:,} to {b:,}" for a, b in spans))
    return table("Over time: flat means that noise does not pile up", head, rows)


def _units_table(f: Findings, name: str) -> Html | None:
    units = sorted({int(n) for s in f.over_units for n in s.x})

    def cells(s: Series) -> list[str]:
        stats = dict(zip(s.x.tolist(), getattr(s, name), strict=True))
        digits = 2 if name == "cosine" else 1
        return [stats[n].text(digits) if stats.get(n) else "–" for n in units]

    rows = [[named(s.label, f.look.get(s.label)), *cells(s)] for s in f.over_units]
    if all(c == "–" for row in rows for c in row[1:]):
        return None
    caption = {
        "cosine": "Over units: the cosine",
        "error": "Over units: the squared error, relative to the squared gradient. In theory "
        "UORO's is about n times KF-RTRL's",
    }[name]
    return table(caption, ("n =", *units), rows)

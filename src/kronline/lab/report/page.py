"""The report: one HTML page with everything inside, which needs no network and no script."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from kronline import disk
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab.report import details, keys, labels, noise_section, paper, sections
from kronline.lab.report.beside import Beside
from kronline.lab.report.findings import Findings
from kronline.lab.report.html import Html, prose, tag
from kronline.lab.report.style import Look
from kronline.lab.runs.folder import Run

# nothing is ever loaded: a browser that knows this refuses to
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
KINDS = ("copy", "text", "variance")
LINKS = {"copy": ("copy", "Copy task"), "text": ("text", "Text"), "variance": ("noise", "Noise")}


def write(runs: Sequence[Run], out: Path, beside: Sequence[Beside] = ()) -> Path:
    """Write the report of these runs.

    Args:
        runs: as `folder.find` gives them.
        out: the file, in a folder that exists.
        beside: curves of others, drawn beside them.

    Returns:
        where it lies.
    """
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"out needs a file in an existing folder, report.html, got {str(out)!r}")
    disk.write(out, page(Findings.of(runs, beside)))
    return out


def page(f: Findings) -> str:
    """The whole page."""
    kinds = [kind for kind in KINDS if any(run.kind == kind for run in f.runs)]
    title = _title(f, kinds)
    make = {"copy": sections.copy, "text": sections.text, "variance": noise_section.section}
    main: list[Html | None] = [details.summary(f, kinds), *(make[kind](f) for kind in kinds)]
    main += [sections.missing([k for k in KINDS if k not in kinds])]
    main += [details.differences(f, kinds), details.runs(f, kinds)]
    places = [("summary", "In short"), *(LINKS[kind] for kind in kinds)]
    places += [("differences", "What differs"), ("runs", "The runs")]
    return document(title, _lead(f), places, main, f.look, f"The paper: {paper.CITATION}.", FOOT)


def document(
    title: str,
    lead: str,
    places: Sequence[tuple[str, str]],
    main: Sequence[Html | None],
    look: dict[str, Look],
    *foot: str,
) -> str:
    """A page of this kind: its head, its contents, its sections, its foot."""
    css = (resources.files("kronline.lab.report") / "page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{title} · kronline"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("style", Html(css + keys.css(look))),
    )
    header = tag(
        "header",
        tag("p", "kronline report", _class="kicker"),
        tag("h1", title),
        tag("p", prose(lead), _class="lead"),
        tag("nav", *(tag("a", name, href=f"#{to}") for to, name in places), aria_label="Contents"),
    )
    footer = tag("footer", *(tag("p", f) for f in (*foot, f"Written by kronline {__version__}.")))
    body = tag("body", header, tag("main", *main), footer)
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _title(f: Findings, kinds: Sequence[str]) -> str:
    texts = labels.texts(g.config for g in f.text.shown)
    names = {"copy": "the copy task", "text": texts, "variance": "gradient noise"}
    return "Learning online: " + labels.listed([names[kind] for kind in kinds])


def _lead(f: Findings) -> str:
    methods = [g.method for g in [*f.copy.shown, *f.text.shown]]
    methods += [s.method for s in [*f.over_time, *f.over_units]]
    dates = sorted({str(run.about.get("started", ""))[:10] for run in f.runs} - {""})
    days = [labels.date(d) for d in dates]
    when = f"of {days[0]}" + (f" to {days[-1]}" if days[1:] else "") if days else ""
    return (
        f"{labels.listed(list(dict.fromkeys(methods)))}, in "
        f"{labels.plural(len(f.runs), 'run')} {when}, beside what the paper on KF-RTRL reports."
    )


FOOT = (
    "Curves: the mean over seeds, where one that has finished keeps its last value; the shade and "
    "± are the standard deviation of the sample (n − 1). Compute time is that of the steps, "
    "without compiling; it is as exact as the machine was quiet."
)

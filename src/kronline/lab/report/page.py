"""The report: one HTML page with everything inside, which needs no network and no script."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from kronline import disk
from kronline._version import __version__
from kronline.errors import UsageError
from kronline.lab.analysis import labels
from kronline.lab.analysis.beside import Beside
from kronline.lab.report import details, keys, noise_section, sections
from kronline.lab.report.findings import Findings
from kronline.lab.report.html import Html, prose, tag
from kronline.lab.report.style import Look
from kronline.lab.runs.folder import Run
from kronline.lab.tasks import TASKS
from kronline.lab.tasks.paper import CITATION
from kronline.lab.wording import listed, plural

# nothing is ever loaded: a browser that knows this refuses to
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


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
    main: list[Html | None] = [details.summary(f)]
    main += [sections.learning(f, part) for part in f.parts]
    main += [noise_section.section(f)] if f.noise else []
    main += [sections.missing([t for t in TASKS.values() if t not in f.tasks], not f.noise)]
    main += [details.differences(f), details.runs(details.chapters(f))]
    places = [("summary", "In short")]
    places += [(part.name, part.facet or part.task.link) for part in f.parts]
    places += [("noise", "Noise")] if f.noise else []
    places += [("differences", "What differs"), ("runs", "The runs")]
    cited = dict.fromkeys([CITATION, *(task.paper.citation for task in f.tasks)])
    papers = [f"{'The paper' if i == 0 else 'Also'}: {text}." for i, text in enumerate(cited)]
    return document(_title(f), _lead(f), places, main, f.look, *papers, FOOT)


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


def _title(f: Findings) -> str:
    about = [t.about([g for part in f.of_task(t) for g in part.shown]) for t in f.tasks]
    return "Learning online: " + listed(about + ["gradient noise"] * bool(f.noise))


def _lead(f: Findings) -> str:
    methods = [g.method for part in f.parts for g in part.shown]
    methods += [s.method for s in [*f.over_time, *f.over_units]]
    dates = sorted({str(run.about.get("started", ""))[:10] for run in f.runs} - {""})
    days = [labels.date(d) for d in dates]
    when = f"of {days[0]}" + (f" to {days[-1]}" if days[1:] else "") if days else ""
    return (
        f"{listed(list(dict.fromkeys(methods)))}, in "
        f"{plural(len(f.runs), 'run')} {when}, beside what the paper on KF-RTRL reports."
    )


FOOT = (
    "Curves: the mean over seeds, where one that has finished keeps its last value; the shade and "
    "± are the standard deviation of the sample (n − 1). Compute time is that of the steps, "
    "without compiling; it is as exact as the machine was quiet."
)

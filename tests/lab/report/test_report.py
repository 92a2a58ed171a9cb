"""The report: numbers from files to page, and the page in a real browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tyro
from matplotlib.figure import Figure

from browser import Browser, installed
from kronline import disk
from kronline.errors import UsageError
from kronline.lab.analysis import beside
from kronline.lab.analysis.groups import grouped
from kronline.lab.analysis.numbers import number
from kronline.lab.report import differences, figures, page, words
from kronline.lab.report import panels as draw
from kronline.lab.report.command import Plot, Report, main
from kronline.lab.report.findings import Findings
from kronline.lab.report.style import DARK, LIGHT, looks
from kronline.lab.runs import config, folder
from kronline.lab.tasks.copy import CopyTask
from kronline.lab.tasks.paper import NOT_STATED
from kronline.lab.tasks.text import TextTask
from kronline.lab.variance import Variance
from kronline.lab.variance import paper as noise_paper
from made_up import copy_run, csv_file, noise_run, text_run

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of every kind, with all that can be odd about them."""
    at = tmp_path_factory.mktemp("runs")
    for seed, final in enumerate((3, 4, 8)):
        copy_run(at / f"kf{seed}", [1, 2, final], solved=final - 1, seed=seed)
        copy_run(at / f"kf-high{seed}", [1, 2, 2], solved=1, seed=seed, rate=10**-2.5)
    copy_run(at / "uoro", [1, 1, 2], solved=1, estimator="uoro")
    copy_run(
        *(at / f"u-{EVIL.replace('/', '|')}", [1, 1]),
        **{
            "seed": 1,
            "steps": 300,
            "estimator": "uoro",
            "state": "diverged",
            "message": f"NaN {EVIL}",
        },
    )
    copy_run(at / "tbptt", [2, 3, 3], solved=3, estimator="tbptt(5)")
    for seed, valid in enumerate(([3.0, 2.0, 2.5], [3.0, 2.2, 2.1])):
        text_run(at / f"text{seed}", valid, 2.3 + 0.2 * seed, seed=seed, name=f"{EVIL} & $x$")
    text_run(at / "text-own", [2.9], name=f"{EVIL} & $x$", estimator="own.py:_mine(k=3)", steps=300)
    noise_run(at / "noise")
    return folder.find([at])


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    return page.write(runs, tmp_path_factory.mktemp("page") / "report.html")


def test_curves_of_others_stand_beside_ours(runs, tmp_path):
    T_ = csv_file(
        tmp_path / "a.csv",
        "\ufefflabel,run,step,T",  # as Excel begins a file
        *("Theirs,0,0,1", "Theirs,0,100,3", "Theirs,1,50,2", "Theirs,1,150,8"),
        *("KF-RTRL,0,0,1", "KF-RTRL,0,90000,9", "Late,0,90000,9", "Late,0,99000,9"),
    )
    valid_ = csv_file(tmp_path / "b.csv", "label,run,step,valid", "_o,x,0,4", "_o,x,100,2")
    T, same, late, valid = beside.read([T_, valid_])
    assert [b.kind for b in (T, same, late, valid)] == ["copy", "copy", "copy", "text"]
    # at 50 the one has T = 1 still, at 100 the other T = 2 still; elsewhere there is only one
    assert T.curve.x.tolist() == [50, 100] and T.curve.mean.tolist() == [1.5, 2.5]
    assert valid.curve.mean.tolist() == [4, 2]
    plotted(runs, tmp_path / "a.svg", "--beside", str(T_), str(valid_))
    svg = (tmp_path / "a.svg").read_text()
    # one that has the name of ours is told apart, one that begins after ours end is not named
    assert all(f">{name}</text>" in svg for name in ("Theirs", "KF-RTRL", "KF-RTRL (others)"))
    assert ">Late</text>" not in svg and "_o</text>" in svg
    text = page.write(runs, tmp_path / "r.html", [T, same, late, valid]).read_text()
    assert text.count("for comparison: Theirs and KF-RTRL (others).") == 1
    assert text.count("for comparison: _o.") == 1


def test_curves_of_others_are_never_left_out_in_silence(runs, tmp_path):
    T = str(csv_file(tmp_path / "a.csv", "label,run,step,T", "a,0,1,2", "a,0,9,3"))
    for args in (("--x", "seconds"), ("--over", "rate")):
        with pytest.raises(UsageError, match="--beside needs --x steps"):
            plotted(runs, tmp_path / "a.png", "--beside", T, *args)
    text = text_run(tmp_path / "text", [2.0, 1.9])
    with pytest.raises(UsageError, match="there is no run of copy"):
        main(Report((text.path,), tmp_path / "r.html", (Path(T),)))


def test_the_headline_is_what_says_most(tmp_path):
    copy_run(tmp_path / "a", [2, 9], solved=4)
    summary = words.summary(Findings.of(folder.find([tmp_path])).parts[0])
    # bits of length 4 are right, and half of those of 5 to 9: (4 + 35 / 2) / 39
    assert summary.headline == "KF-RTRL reaches T = 9 with 55.1 % of bits right."
    copy_run(tmp_path / "b", [2, 12], solved=0, estimator="uoro")
    copy_run(tmp_path / "c", [2], estimator="tbptt(5)", steps=200, state="stopped")
    summary = words.summary(Findings.of(folder.find([tmp_path])).parts[0])
    assert summary.headline == (
        "UORO reaches T = 12 with 50.0 % of bits right, KF-RTRL T = 9 with 55.1 % of bits right "
        "and TBPTT-5 T = 2."
    )
    assert "Strings of T − 5 to T bits are trained, T being the curriculum's" in summary.more
    assert "shorter ones are no longer drawn, and are forgotten" in summary.more
    assert "Solved: UORO 0 and KF-RTRL 4." in summary.more


def test_runs_of_earlier_versions_are_shown_as_they_would_be_today(tmp_path):
    copy_run(tmp_path / "old", [2, 7], spread=1)
    old = {"step": 200, "solved": 7, "right": [0.0, 0.0, 0.3, 0.6, 0.9, 0.98, 1.0, 0.9]}
    way = (tmp_path / "old" / folder.METRICS).read_text()
    disk.write(tmp_path / "old" / folder.METRICS, f"{way}{json.dumps(old)}\n")
    copy_run(tmp_path / "older", [2, 7], spread=1, seed=1)
    del old["right"]
    disk.write(tmp_path / "older" / folder.METRICS, f"{way}{json.dumps(old)}\n")
    first, second = (folder.read(tmp_path / name) for name in ("old", "older"))
    assert (number(first, "T"), number(first, "solved")) == (7, 0)
    assert number(first, "right_trained") == pytest.approx((6 * 0.98 + 7) / 13)
    assert (number(second, "T"), number(second, "solved")) == (7, None)
    assert number(second, "right_trained") is None
    page_ = Page(page.write([second], tmp_path / "report.html").read_text())
    assert [row[1:4] for row in page_.rows if row[0] == "KF-RTRL"] == [["7", "–", "–"]]


def test_bits_right_are_shown_on_the_whole_axis(runs):
    f = Findings.of(runs)
    ax = Figure().subplots()
    (part,) = f.of_task(CopyTask)
    draw.profiles(part, CopyTask.profile, f.look)(ax, LIGHT)
    low, high = ax.get_ylim()
    assert low <= 0 and high >= 100
    assert ax.get_ylabel() == "bits right, %"


def test_every_curve_has_a_look_of_its_own():
    names = [f"TBPTT-{k}" for k in range(1, 13)]
    found = looks([("KF-RTRL", "KF-RTRL"), *zip(names, names, strict=True)])
    seen = {(v.colour(LIGHT), str(v.dash), v.marker) for v in found.values()}
    assert len(seen) == len(found) == 13


def test_looks_agree_between_figures():
    kf, small = ("KF-RTRL", "KF-RTRL"), ("KF-RTRL", "KF-RTRL, n = 8")
    five, ten = ("TBPTT-5", "TBPTT-5"), ("TBPTT-10", "TBPTT-10")
    found = looks([kf, five], [small, ten], [five, ten])
    assert found[kf[1]] == found[small[1]]  # the method's colour: they never meet
    assert found[five[1]] != found[ten[1]]  # these do


@pytest.mark.parametrize("style", [LIGHT, DARK])
def test_curves_stand_out_from_their_ground(style):
    for colour in style.colours:
        assert contrast(colour, style.paper) >= 3


def contrast(a, b):
    """As WCAG defines it."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        lin = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# -- what differs from the paper -------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "cls"), [("copy", CopyTask), ("text", TextTask)])
def test_the_papers_preset_is_the_papers(kind, cls, tmp_path):
    def found_in(preset, **about):
        made = config.start(cls, kind, ["--preset", preset])
        about = {"steps": 10} | about
        folder.create(tmp_path / preset, kind, config.toml(made, kind), about)
        folder.set_status(tmp_path / preset, "stopped", step=0, steps=10)
        groups = grouped([folder.read(tmp_path / preset)], cls)
        return {d.what: d for d in differences.of_task(cls, groups)}

    text = {"data": {"name": "Penn Treebank", "sha256": {}}} if kind == "text" else {}
    found = found_in("paper", **text)
    open_ = {"seeds", "learning rates tried", "steps", "test", "parameters"}
    open_ |= {"steps between reading and writing", "error that raises T", "what was learnt"}
    assert set(found) <= open_  # one seed, one rate, and what the paper does not say
    assert found["steps"].paper == NOT_STATED
    found = found_in("laptop")
    assert found["units"].paper == "256" and found["units"].here != "256"


def test_differences_come_from_the_configurations(tmp_path):
    copy_run(tmp_path / "a", [1], hidden=64, threshold=0.1, delay="paper")
    copy_run(tmp_path / "b", [1], hidden=128, threshold=0.1, estimator="uoro", clip=1.0)
    groups = grouped(folder.find([tmp_path]), CopyTask)
    found = {d.what: d for d in differences.of_task(CopyTask, groups)}
    assert found["units"].here == "64 (KF-RTRL), 128 (UORO)"
    assert found["T grows below"].here == "0.1"
    assert found["gradient clipping"].here == "none (KF-RTRL), 1 (UORO)"
    assert found["steps between reading and writing"].here == "2(T + 1) (KF-RTRL), T + 1 (UORO)"
    assert found["learning rates tried"].here == "10⁻³" and found["seeds"].here == "1"
    assert "network" not in found and "optimiser" not in found
    noise_run(tmp_path / "c", networks=5, draws=10, units_networks=20, units_draws=5, steps=100)
    runs = grouped(folder.find([tmp_path]), Variance)
    every = differences.of_settings(noise_paper.SETTINGS, runs) + noise_paper.differences(runs)
    noise = {d.what: d for d in every}
    assert noise["repetitions, over time"].here == "50"
    assert set(noise) == {"repetitions, over time", "text that is read", "exact gradient"}


# -- the page --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Elements, properly nested, and the text between them."""

    VOID = frozenset({"meta", "img", "source", "br", "link", "input", "hr"})

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.cells, self.rows = [], [], None, []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words += data
        if self.open[-1:] and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def parsed(written):
    return Page(written.read_text())


def test_the_page_shows_the_files_numbers(parsed):
    rows = {row[0]: row[1:] for row in parsed.rows if row[1:]}
    assert rows["KF-RTRL"]
    copy = [row for row in parsed.rows if row[0] == "KF-RTRL"]
    # T, bits right, solved, the paper's, the rate, steps, seconds, seeds
    assert [
        "KF-RTRL",
        "5.0 ± 2.6",
        "81.0 ± 6.5",
        "4.0 ± 2.6",
        "36",
        "10⁻³",
        "300",
        "3 s",
        "3",
    ] in copy
    assert ["TBPTT-5", "3", "100.0", "3", "–", "10⁻³", "300", "3 s", "1"] in parsed.rows
    assert [
        "KF-RTRL",
        "10⁻²·⁵",
        "2.0 ± 0.0",
        "66.7 ± 0.0",
        "1.0 ± 0.0",
        "3",
        "–",
        "",
    ] in copy  # was not picked
    assert any(row[1:5] == ["2.050 ± 0.071", "2.400 ± 0.141", "1.77", "1.72"] for row in copy)
    assert ["UORO-AVG (k = n)", "0.40 ± 0.14", "0.40 ± 0.14"] in parsed.rows
    assert "KF-RTRL reaches T = 5.0 ± 2.6 with 81.0 ± 6.5 % of bits right" in parsed.words.replace(
        "\u00a0", " "
    )
    assert "is diverged at step 200" in parsed.words


def test_the_page_is_well_formed_and_whole(parsed):
    assert parsed.all("html") == [{"lang": "en"}]
    assert [len(parsed.all(t)) for t in ("title", "main", "header", "footer", "h1")] == [1] * 5
    assert any(m.get("name") == "viewport" for m in parsed.all("meta"))
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"] for a in parsed.all("a")} <= {f"#{i}" for i in ids}
    assert len(parsed.all("table")) == len(parsed.all("caption"))
    assert all(a.get("scope") in ("row", "col") for a in parsed.all("th"))
    alts = [img["alt"] for img in parsed.all("img")]
    assert len(alts) == len(parsed.all("picture")) == 7
    assert any("KF-RTRL reaches T = 5.0 ± 2.6" in alt for alt in alts)


def test_nothing_is_loaded_and_user_text_is_escaped(written, parsed):
    html = written.read_text()
    assert "script" not in {name for name, _ in parsed.elements}
    assert "<script" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert f"NaN {EVIL}" in parsed.words  # to be read, not to be run
    for name, attrs in parsed.elements:
        for key in ("src", "srcset", "href"):
            if key in attrs:
                assert attrs[key].startswith(("data:", "#")), (name, key)
        assert not any(key.startswith("on") for key in attrs)
    assert not re.search(r"url\(|@import|https?://", re.sub(r'"data:[^"]*"', "", html))


def test_what_is_missing_is_one_line(tmp_path):
    copy_run(tmp_path / "a", [1, 2])
    html = page.page(Findings.of(folder.find([tmp_path])))
    assert "kronline train text" in html and "kronline variance" in html
    assert "Figure 3 " not in Page(html).words.replace("Figure 3, the noise", "")
    assert "kronline train copy" not in html


def test_reasons_stand_beside_the_configuration(tmp_path):
    made_ = config.start(CopyTask, "copy", ["--preset", "laptop"])
    folder.create(tmp_path / "a", "copy", config.toml(made_, "copy"), {})
    reasons = config.comments((tmp_path / "a" / folder.CONFIG).read_text())
    words = Page(page.page(Findings.of(folder.find([tmp_path])))).words
    assert reasons["hidden"] and reasons["hidden"] in words
    assert "Nothing is measured yet" in words


def test_the_same_runs_give_the_same_page(runs):
    f = Findings.of(runs)
    assert page.page(f) == page.page(f)


def test_many_curves_are_still_readable(tmp_path):
    for k in range(2, 14):
        copy_run(tmp_path / f"{k}", [1, k], estimator=f"tbptt({k})")
    f = Findings.of(folder.find([tmp_path]))
    html = page.page(f)
    assert "TBPTT-13 reaches T = 13, TBPTT-12 T = 12" in Page(html).words.replace("\u00a0", " ")
    assert "8 more in the table" in html
    shape = re.findall(r'width="(\d+)" height="(\d+)"', html)[0]
    assert int(shape[1]) > 0.75 * int(shape[0])  # the legend has its own place


# -- the commands ----------------------------------------------------------------------------------


def test_report_prints_its_numbers_for_programs(runs, tmp_path, capsys):
    at, out = str(runs[0].path.parent), str(tmp_path / "r.html")
    assert main(tyro.cli(Report, args=[at, "--out", out, "--json"])) == 0
    result = json.loads(capsys.readouterr().out)
    assert Path(result["page"]).read_text().startswith("<!doctype html>")
    kf = result["copy"][0]
    assert (kf["label"], kf["T"]["mean"], kf["paper"]) == ("KF-RTRL", 5, 36)
    assert len(result["rates"]) == 2 and result["variance"]["units"][0]["x"] == [16, 32]


def plotted(runs, out, *args):
    return main(tyro.cli(Plot, args=[str(runs[0].path.parent), "--out", str(out), *args]))


def test_plots_are_fit_for_a_paper(runs, tmp_path):
    plotted(runs, tmp_path / "a.png", "--width", "3")
    head = (tmp_path / "a.png").read_bytes()[:24]
    assert head.startswith(b"\x89PNG") and int.from_bytes(head[16:20]) == 900  # at 300 dpi
    plotted(runs, tmp_path / "a.svg", "--x", "seconds")
    svg = (tmp_path / "a.svg").read_text()
    assert ">KF-RTRL</text>" in svg and "compute time" in svg and ">_mine" in svg.replace("> ", ">")
    plotted(runs, tmp_path / "a.pdf")
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf  # TrueType, embedded


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "a.gif"], ".png, .svg, .pdf"),
        (["--out", "no/such/folder/a.png"], "existing folder"),
        (["--out", "a.png", "--width", "0"], "between 1 and 40"),
    ],
)
def test_wrong_plots_are_explained(runs, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)):
        main(tyro.cli(Plot, args=[str(runs[0].path), *args]))


def test_wrong_reports_are_explained(runs, tmp_path):
    with pytest.raises(UsageError, match="at least one run"):
        main(Report(()))
    with pytest.raises(UsageError, match="holds no run"):
        main(Report((tmp_path,)))
    with pytest.raises(UsageError, match="file in an existing folder"):
        page.write(runs, tmp_path)
    empty = text_run(tmp_path / "empty", [])
    with pytest.raises(UsageError, match="nothing is measured"):
        main(Plot((empty.path,), tmp_path / "a.png"))


def test_every_run_has_a_figure_of_its_own(runs, tmp_path):
    one_of_each = {run.kind: run for run in runs}.values()
    for i, run in enumerate([*one_of_each, text_run(tmp_path / "empty", [])]):
        figures.for_run(run).savefig(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 1000


# -- in a real browser -----------------------------------------------------------------------------

# the lowest contrast of all text on the page with the ground that it stands on


CONTRASTS = """(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const lum = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  let worst = [99, ''];
  for (const e of document.body.querySelectorAll('*')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.tagName + '.' + e.className + ' ' + e.innerText];
  }
  return worst;
})()"""


IMAGES = (
    "[...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().right, i.currentSrc])"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if installed() is None:
        pytest.skip("no chromium, chromium-browser or google-chrome is installed here")
    with Browser(tmp_path_factory.mktemp("browser")) as b:
        yield b


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360, 320])
def test_the_page_in_a_browser(browser, written, width, dark):
    browser.look(written.as_uri(), width, dark=dark)
    images = browser.value(IMAGES)
    assert len(images) == 7
    assert all(natural > 0 and edge <= width for natural, edge, _ in images)

    # all is in the file, and the browser has nothing to complain about
    assert all(url == written.as_uri() or url.startswith("data:") for url in browser.requests())
    assert browser.complaints() == []

    # no scrolling sideways, also when everything is open
    for _ in range(2):
        assert browser.value("document.documentElement.scrollWidth") <= width
        browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    lowest, where = browser.value(CONTRASTS)
    assert lowest >= 4.5, where

    # what cannot be seen can be heard
    nodes = browser("Accessibility.getFullAXTree")["nodes"]
    shown = [n for n in nodes if not n["ignored"]]
    pictures = [n for n in shown if n["role"]["value"] in ("image", "img", "graphics-document")]
    assert len(pictures) == 7 and all(len(n["name"]["value"]) > 20 for n in pictures)
    roles = {n["role"]["value"] for n in shown}
    assert {"main", "banner", "contentinfo", "navigation", "table", "rowheader"} <= roles


def test_night_is_dark(browser, written):
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for dark in (False, True):
        browser.look(written.as_uri(), 800, dark=dark)
        seen.append((browser.value(ground), browser.value(IMAGES)[0][2]))
    (day, day_image), (night, night_image) = seen
    assert day != night and day_image != night_image
    assert sum(map(int, re.findall(r"\d+", night))) < 150


def test_user_text_does_nothing_in_a_browser(browser, runs, written):
    browser.look(written.as_uri(), 800)
    assert browser.value("document.scripts.length") == 0
    assert EVIL in browser.value("document.body.textContent")

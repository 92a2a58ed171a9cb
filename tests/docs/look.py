"""Looks at the built site in a real browser: `python tests/docs/look.py build/site`.

Every page is opened from a server on this machine, wide by day and narrow by night, and must ask
for nothing elsewhere, complain of nothing, fit its window, have no broken image, and be as light or
as dark as it was asked to be; its formulas have the site's font. A search for "unbiased"
must find the theory, from the server and from the files themselves.
"""

import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
import browser

WORD, FOUND = "unbiased", "understand/"
HITS = "[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
BROKEN = "[...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
PAPER = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
UNREAD = "!!document.querySelector('math') && ![...document.fonts].some(f => f.status == 'loaded')"
LOOKS = ((1400, False), (400, True))  # width, by night


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a line for every request."""

    def log_message(self, format, *args):
        """Nothing."""


def searched(page, root):
    """The pages that a search finds, once it has come to an end."""
    page.look(f"{root}/search.html?q={WORD}", 1400)
    end = time.monotonic() + 20
    hits = []
    while time.monotonic() < end:
        now = page.value(HITS)
        if now and now == hits:
            return now
        hits = now
        time.sleep(0.3)
    return hits


def wrong(page, url, width, dark, home):
    """What is wrong with a page, as sentences."""
    page.look(url, width, dark=dark)
    elsewhere = [u for u in page.requests() if not u.startswith((home, "data:"))]
    found = [f"asks for {u}" for u in elsewhere]
    found += [f"says {c}" for c in page.complaints()]
    found += [f"has the broken image {i}" for i in page.value(BROKEN)]
    if (more := page.value(TOO_WIDE)) > 0:
        found.append(f"is {more} pixels wider than {width}")
    if (sum(page.value(PAPER)) < 3 * 128) != dark:
        found.append(f"is {'light by night' if dark else 'dark by day'}")
    if page.value(UNREAD):
        found.append("has formulas without the font for them")
    return found


def main(site):
    """Look; how many things are wrong."""
    if not browser.installed():
        print("no Chromium here: the site is built, but was not looked at")
        return 0
    serve = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=serve.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{serve.server_port}"
    pages = sorted(p.relative_to(site) for p in site.rglob("*.html"))
    pages = [p for p in pages if not p.parts[0].startswith("_") and str(p) != "index.html"]
    faults = []
    with TemporaryDirectory() as folder, browser.Browser(folder) as page:
        for file in pages:
            for look in LOOKS:
                faults += [f"{file} {w}" for w in wrong(page, f"{home}/{file}", *look, home)]
        for root in (home, site.resolve().as_uri()):
            hits = searched(page, root)
            if not any(FOUND in hit for hit in hits):
                faults.append(f"{root}: a search for {WORD} finds {hits}, and not the theory")
            asked = [u for u in page.requests() if not u.startswith((root, "data:"))]
            faults += [f"a search asks for {u}" for u in asked]
    serve.shutdown()
    print("\n".join(faults) or f"{len(pages)} pages looked at, nothing wrong")
    return len(faults)


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]))))

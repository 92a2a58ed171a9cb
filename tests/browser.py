"""A real browser, headless, driven over a pair of pipes: standard library only.

Chromium started with --remote-debugging-pipe reads commands from file descriptor 3 and writes
answers to 4: JSON, each message ended by a zero byte.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60  # seconds, for a slow machine; nothing waits that long when all is well


def installed():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; use it in a `with`."""

    def __init__(self, folder):
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        # move out of the way of 3 and 4 first, then into place: in the child alone
        script = f'exec 8<&{theirs_in} 9>&{theirs_out}; exec 3<&8 4>&9 8<&- 9>&-; exec "$0" "$@"'
        command = [
            *("bash", "-c", script, installed(), "--headless", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--disable-background-networking", f"--user-data-dir={folder}", "about:blank"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its own children can be ended with it
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._rest = ours_in, ours_out, b""
        self._count, self._session, self.events = 0, None, []
        targets = self("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attach = self("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attach["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            self(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._out)  # the browser ends when nobody drives it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        os.close(self._in)

    def __call__(self, method, **params):
        """One command; its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._count:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _message(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser gives no answer")
            self._rest += data
        first, self._rest = self._rest.split(b"\0", 1)
        return json.loads(first)

    def look(self, url, width, height=900, dark=False):
        """Open a page as wide as this, by day or by night, and wait until it is all there."""
        self.events = []
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self("Emulation.setDeviceMetricsOverride", **metrics, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._message())

    def value(self, expression):
        """Of an expression in the page's own JavaScript."""
        out = self("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in out:
            raise RuntimeError(out["exceptionDetails"])
        return out["result"].get("value")

    def requests(self):
        """Every address that was asked for since `look`."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    def complaints(self):
        """What the browser wrote to its console."""
        methods = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [e["params"] for e in self.events if e.get("method") in methods]

    def screenshot(self, path):
        """The whole page as PNG."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

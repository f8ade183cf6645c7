"""Headless Chromium for tests of pages, driven over a pipe (--remote-debugging-pipe): Python's standard library only.

    with Browser() as browser:
        browser.open(path.as_uri(), dark=True)
        browser.evaluate("document.title")

`Browser(url)` opens the page at once. `requests` and `complaints` have what the page asked of the network, and its errors, policy
violations too.

  browser.py URL PICTURE.png [--dark] [--width N] [--height N]    writes a screenshot, a second after the page has loaded
"""
import argparse
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY_NOT = "no Chromium: install the Debian package chromium (deploy/packages-test.txt)"


class Browser:
    def __init__(self, url=None, dark=False, width=1200, height=900):
        self.url, self.dark, self.size = url, dark, (width, height)
        self.requests, self.complaints, self.events = [], [], []
        self.number, self.session, self.buffer = 0, None, b""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="muster-browser-")
        # The browser reads commands from descriptor 3 and writes answers to 4.
        command_read, self.commands = os.pipe()
        self.answers, answer_write = os.pipe()
        low = 10  # above 3 and 4, so that the shell overwrites neither
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, low) for fd in (command_read, answer_write)]
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                     "--remote-debugging-pipe", f"--user-data-dir={self.folder}/profile", f"--window-size={self.size[0]},{self.size[1]}", "about:blank"]
        script = f'exec 3<&{ends[0]} 4>&{ends[1]}; exec "$0" "$@"'
        with open(f"{self.folder}/browser.log", "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", script, CHROMIUM, *arguments], pass_fds=ends, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        for fd in (command_read, answer_write, *ends):
            os.close(fd)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network", "Log":
            self.call(f"{domain}.enable")
        if self.url:
            self.open(self.url, self.dark)
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the group is its own
        except ProcessLookupError:
            pass
        self.process.wait(10)
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.folder, ignore_errors=True)  # a process of the browser may still write there

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise AssertionError("the browser does not answer")
            data = os.read(self.answers, 1 << 20)
            if not data:
                raise AssertionError(f"the browser ended: {open(f'{self.folder}/browser.log', errors='replace').read()[-2000:]}")
            self.buffer += data
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def note(self, event):
        method, what = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent" and not what["request"]["url"].startswith("data:"):
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(what["exceptionDetails"].get("exception", {}).get("description") or what["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"])
        self.events.append(method)

    def call(self, method, timeout=60, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.commands, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while (answer := self.message(deadline)).get("id") != self.number:
            self.note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url, dark=False, width=None, timeout=60):
        """Loads the page, as it looks to somebody who prefers dark pages, or on a narrow screen."""
        self.requests, self.complaints, self.events = [], [], []
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width or self.size[0], height=self.size[1], deviceScaleFactor=1,
                  mobile=(width or self.size[0]) < 700)
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + timeout
        while "Page.loadEventFired" not in self.events:
            self.note(self.message(deadline))

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def until(self, expression, timeout=60):
        """Until the expression is true of the page, and no error, as before the page has loaded; its value."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                if value := self.evaluate(expression):
                    return value
            except AssertionError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"{expression} never came true; the page: {self.evaluate('document.body.innerText')}; its console: {self.complaints}")
            time.sleep(0.05)

    def press(self, key):
        for kind in "keyDown", "keyUp":
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}[key])

    def drag(self, begin, end):
        for kind, (x, y) in ("mousePressed", begin), ("mouseMoved", end), ("mouseReleased", end):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("picture")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--height", type=int, default=900)
    arguments = parser.parse_args()
    with Browser(arguments.url, arguments.dark, arguments.width, arguments.height) as browser:
        browser.until("document.readyState == 'complete'")
        time.sleep(1)
        browser.screenshot(arguments.picture)

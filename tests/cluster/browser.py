"""A headless Chromium, driven over the pipe of its DevTools protocol: Python's standard library only.

  browser.py URL PICTURE.png [--dark] [--width N] [--height N]    writes a screenshot, a second after the page has loaded
"""
import argparse
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_NOT = "there is no Chromium (Debian package chromium)"


class Browser:
    """One page. `with Browser(url) as page: page.evaluate("document.title")`."""

    def __init__(self, url, dark=False, width=1100, height=900, timeout=60):
        self.deadline = time.monotonic() + timeout
        self.url, self.dark, self.width, self.height = url, dark, width, height
        self.number, self.buffer, self.session = 0, b"", None
        self.complaints = []  # what the page's console says, errors and refusals of its policy among it

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="muster-browser-")
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        # It reads from descriptor 3, and writes to 4.
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=self.width, height=self.height, deviceScaleFactor=1, mobile=self.width < 700)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}])
        self.call("Page.navigate", url=self.url)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        # A process of its own may still write there.
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self.back, 1 << 16)
            if not data:
                raise ConnectionError("Chromium has ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.receive()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("method") == "Log.entryAdded":
                self.complaints.append(answer["params"]["entry"]["text"])
            if answer.get("id") != self.number:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def evaluate(self, expression):
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["text"])
        return done["result"].get("value")

    def until(self, expression):
        """Until the expression is true of the page, and no error, as before the page has loaded; its value."""
        while True:
            try:
                if value := self.evaluate(expression):
                    return value
            except RuntimeError:
                pass
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"{expression} never came true; the page: {self.evaluate('document.body.innerText')}; its console: {self.complaints}")
            time.sleep(0.05)

    def picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("picture")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--height", type=int, default=900)
    arguments = parser.parse_args()
    with Browser(arguments.url, arguments.dark, arguments.width, arguments.height) as browser:
        browser.until("document.readyState == 'complete'")
        time.sleep(1)
        browser.picture(arguments.picture)

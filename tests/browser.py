"""Pages in headless Chromium, driven over a pipe with the DevTools protocol: no package is needed.

Debian has it as `chromium`. RL_TRAINING_NEEDS_BROWSER=1 makes a missing browser fail the tests instead of skipping.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--mute-audio",
    "--autoplay-policy=no-user-gesture-required", "--hide-scrollbars",
)  # fmt: skip
SECONDS = 120.0  # limit of one answer


def chromium() -> str:
    """The browser's path; without one the test skips, or fails where it must be there."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium here; Debian's package is called chromium"
        if os.environ.get("RL_TRAINING_NEEDS_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@dataclass
class Page:
    """An open page: what it asked the network for, and what it complained about."""

    browser: Browser
    session: str
    url: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> Any:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, script: str) -> Any:
        """The value of a script, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def type(self, selector: str, text: str) -> None:
        """Type a text in place of what an input holds."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.evaluate("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, as it is seen."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{block: 'center'}})")
        middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        box = self.evaluate(f"{middle}({found}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def wait_for(self, condition: str) -> None:
        """Wait until a script's value is true."""
        end = time.monotonic() + SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"{condition} stays false"
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def resize(self, width: int, dark: bool = False) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> Path:
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def videos_play(self) -> list[bool]:
        """For each video whether its time advances."""
        script = """Promise.all([...document.querySelectorAll('video')].map(async v => {
            v.muted = true; await v.play(); const before = v.currentTime;
            for (let i = 0; i < 100 && v.currentTime === before; i++) await new Promise(r => setTimeout(r, 50));
            return v.currentTime !== before && v.videoWidth > 0; }))"""
        return list(self.evaluate(script))


class Browser:
    """One process of Chromium."""

    def __init__(self, folder: str) -> None:
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        shell = f"exec \"$0\" \"$@\" 3<&{read_commands} 4>&{write_answers}"
        command = ["bash", "-c", shell, chromium(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_commands)
        os.close(write_answers)
        os.set_blocking(self._answers, False)
        self._buffer, self._number = b"", 0
        self.pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command and wait for its answer; events that come first are recorded."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._record(answer)

    def _read(self) -> Any:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            try:
                data = os.read(self._answers, 1 << 20)
            except BlockingIOError:
                assert time.monotonic() < end, "the browser does not answer"
                time.sleep(0.01)
                continue
            assert data, "the browser has ended"
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _record(self, event: Any) -> None:
        page, params = self.pages.get(event.get("sessionId", "")), event.get("params", {})
        if page is None:
            return
        if event["method"] == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if url != page.url and not url.startswith("data:"):
                page.requests.append(url[:200])
        elif event["method"] == "Runtime.exceptionThrown":
            page.errors.append(str(params["exceptionDetails"])[:500])
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            page.errors.append(str(params["args"])[:500])
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            page.errors.append(str(params["entry"]["text"])[:500])

    def open(self, place: Path | str, width: int = 1200, dark: bool = False) -> Page:
        """Open a file or an address and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, place if isinstance(place, str) else place.absolute().as_uri())
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, dark)
        page.call("Page.navigate", url=page.url)
        page.wait_for("document.readyState === 'complete' && location.protocol !== 'about:'")
        return page

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in (self._commands, self._answers):
            os.close(descriptor)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        opened = Browser(folder)
        try:
            yield opened
        finally:
            opened.close()

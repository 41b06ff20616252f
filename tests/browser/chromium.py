"""A headless Chromium over its DevTools pipe (file descriptors 3 and 4, messages ended by a zero byte).

No driver program, no websocket, no port: https://chromedevtools.github.io/devtools-protocol/.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
    "--no-startup-window",
)


_TOO_WIDE_TO_PRINT = """Array.from(document.querySelectorAll("body *")).filter(function (node) {
  return node.getBoundingClientRect().right > innerWidth + 1;
}).map(function (node) { return node.outerHTML.slice(0, 200); })"""
_KEY_CODES = {
    name: {"windowsVirtualKeyCode": code}
    for name, code in {
        "Tab": 9,
        "Enter": 13,
        "Escape": 27,
        "Space": 32,
        "PageUp": 33,
        "PageDown": 34,
        "End": 35,
        "Home": 36,
        "ArrowLeft": 37,
        "ArrowUp": 38,
        "ArrowRight": 39,
        "ArrowDown": 40,
    }.items()
}


class Chromium:
    """One browser; :meth:`page` opens a page in it."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._write = _pipe()
        self._read, to_write = _pipe()
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._spare: list[Page] = []
        # A shell cannot name descriptors above 9, so a Python of our own puts them on 3 and 4.
        place = (
            f"import os,sys; os.dup2({to_read},3); os.dup2({to_write},4); os.execv(sys.argv[1],sys.argv[1:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", place, program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)

    def call(self, method: str, session: str | None = None, /, **params: Any) -> dict[str, Any]:
        """Returns the answer to ``method``. Keeps events that come before it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def page(self, *, width: int, height: int, dark: bool) -> Page:
        """Returns a page of an ended test if there is one, since its process has already loaded the
        charts' code."""
        page = self._spare.pop() if self._spare else Page(self)
        page.show(width=width, height=height, dark=dark)
        return page

    def done(self, page: Page) -> None:
        """Keeps ``page`` for the next :meth:`page`, unless more may be left in it than a document, which
        the next one replaces."""
        if page.acted_on or page.errors():
            page.close()
        else:
            self._spare.append(page)

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._write)
            os.close(self._read)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium went away")
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message


class Page:
    """A page with its own window size and colour scheme; remembers errors and requests.

    ``acted_on``: whether the mouse was used, or another medium shown.
    """

    def __init__(self, browser: Chromium) -> None:
        self._browser, self._since, self.acted_on = browser, 0, False
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._target = target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def show(self, *, width: int, height: int, dark: bool) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.evaluate("document.documentElement?.removeAttribute('data-ready')")  # of an earlier document
        self._since = len(self._browser.events)
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression. Waits for a promise."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Waits until ``expression`` is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never became true: {expression}; {self.errors()}")
            time.sleep(0.05)

    def move(self, x: float, y: float) -> None:
        """Moves the mouse to a place of the window, in pixels."""
        self.acted_on = True
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x - 1, y=y)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, *, text: str = "", shift: bool = False) -> None:
        """Presses and releases a key: ``Tab``, ``Enter``, ``Escape``, ``ArrowDown``, ``a``.

        ``text``: what it writes; by default ``key`` if that is one character.
        """
        self.acted_on = True
        written = text or {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
        held = {"modifiers": 8} if shift else {}
        named = {"key": " " if key == "Space" else key, "code": key, **_KEY_CODES.get(key, {}), **held}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=written, **named)
        self._call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, element: str) -> None:
        """Clicks the middle of the first element that the CSS selector ``element`` selects."""
        place = self.evaluate(
            f"(e => (e.scrollIntoView({{block: 'center'}}), e.getBoundingClientRect().toJSON()))"
            f"(document.querySelector({json.dumps(element)}))"
        )
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Presses the mouse at one place of the window, and releases it at another."""
        self.move(x0, y0)
        self._call("Input.dispatchMouseEvent", type="mousePressed", x=x0, y=y0, button="left", clickCount=1)
        for part in (0.25, 0.5, 0.75, 1.0):
            x, y = x0 + part * (x1 - x0), y0 + part * (y1 - y0)
            self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self._call("Input.dispatchMouseEvent", type="mouseReleased", x=x1, y=y1, button="left", clickCount=1)

    def write(self, text: str) -> None:
        """Writes ``text`` where the focus is."""
        self.acted_on = True
        self._call("Input.insertText", text=text)

    def prefer(self, scheme: str) -> None:
        """Changes the preferred colour scheme of the system while the page is open."""
        self.acted_on = True
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def on_paper(self) -> None:
        """Shows the page as it is printed."""
        self.acted_on = True
        self._call("Emulation.setEmulatedMedia", media="print")

    def printed(self) -> tuple[int, list[str]]:
        """Returns the number of A4 pages by the page's own style, and the elements wider than the paper."""
        self.on_paper()
        margins = 210 - 2 * 11  # mm, as in page.css
        width = round(margins / 25.4 * 96)
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False
        )
        wide: list[str] = self.evaluate(_TOO_WIDE_TO_PRINT)
        data = base64.b64decode(self._call("Page.printToPDF", preferCSSPageSize=True)["data"])
        self._call("Emulation.setEmulatedMedia", media="")
        return len(re.findall(rb"/Type\s*/Page\b", data)), wide

    def picture(self, element: str) -> bytes:
        """Returns a PNG of the first element that the CSS selector ``element`` selects."""
        place = self.evaluate(
            f"(r => ({{x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}}))"
            f"(document.querySelector({json.dumps(element)}).getBoundingClientRect())"
        )
        shot = self._call("Page.captureScreenshot", clip=place | {"scale": 1}, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def window(self) -> bytes:
        """Returns a PNG of what the window shows."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def errors(self) -> list[str]:
        """Returns exceptions, and warnings and errors of the console."""
        errors = []
        for event in self._events():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                errors.append(json.dumps(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in (
                "error",
                "warning",
                "assert",
            ):
                errors.append(json.dumps(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                errors.append(json.dumps(params["entry"]))
        return errors

    def requests(self) -> list[str]:
        """Returns every address that the page asked for, its own included."""
        sent = [e["params"] for e in self._events() if e["method"] == "Network.requestWillBeSent"]
        return [p["request"]["url"] for p in sent]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _events(self) -> list[Mapping[str, Any]]:
        return [e for e in self._browser.events[self._since :] if e.get("sessionId") == self._session]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)


def _pipe() -> tuple[int, int]:
    """Returns the ends of a pipe, both above 9, so that 3 and 4 stay free."""
    ends = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends]
    for fd in ends:
        os.close(fd)
    return high[0], high[1]

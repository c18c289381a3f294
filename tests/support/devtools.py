"""A page in a real browser that a test drives over the DevTools protocol.

A test can press keys, run scripts, open windows, and read the console.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.browser import CHROMIUM
from tests.support.guard import LIMIT_S

_FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "remote-debugging-pipe",
)  # fmt: skip
_CODES = {
    "Enter": 13,
    "Tab": 9,
    " ": 32,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
}


class Tab:
    """One page. log: lines of its console, and errors of its scripts. urls: of its requests."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.log: list[str] = []
        self.urls: list[str] = []
        self._out, self._count, self._session = to_browser, 0, ""
        self._replies: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, args=(from_browser,), daemon=True).start()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; returns its result."""
        self._count += 1
        message = {
            "id": self._count,
            "method": method,
            "params": parameters,
            **({"sessionId": self._session} if self._session else {}),
        }
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (reply := self._replies.get(timeout=LIMIT_S))["id"] != self._count:
            pass
        assert "error" not in reply, reply
        return reply["result"]

    def _read(self, source: int) -> None:
        rest = b""
        while part := os.read(source, 1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._replies.put(message)
                else:
                    self._note(message["method"], message["params"])

    def _note(self, method: str, told: Any) -> None:
        if method == "Runtime.consoleAPICalled":
            self.log.append(str([one.get("value") for one in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.log.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.log.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.urls.append(told["request"]["url"])

    def open(self, url: str, *, width: int = 1280, height: int = 800) -> None:
        """Go to a page, in a window of this size, and wait until its script has set `data-ready`."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Page.navigate", url=url)
        self.wait_for("document.body?.dataset.ready === 'true'")

    def run(self, script: str) -> Any:
        """Return the value of an expression, of a promise what it gives."""
        told = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + LIMIT_S
        while True:  # asked again and again, because a page that is left may never answer
            try:
                if self.run(f"Boolean({condition})"):
                    return
            except AssertionError as failure:
                if not re.search("navigated|context was destroyed|Cannot find context", str(failure)):
                    raise
            assert time.monotonic() < end, f"{condition} stays false"
            time.sleep(0.02)

    def text(self, name: str) -> str:
        """The text of the element with an id."""
        return self.run(f"document.getElementById({json.dumps(name)}).textContent")

    def press(self, *keys: str, control: bool = False) -> None:
        """Press and release keys, one after the other."""
        for key in keys:
            what = {
                "key": key,
                "code": key if key != " " else "Space",
                "windowsVirtualKeyCode": _CODES[key],
                "modifiers": 2 * control,
            }
            text = {"Enter": "\r", " ": " "}.get(key)
            self.send(
                "Input.dispatchKeyEvent",
                type="keyDown" if text else "rawKeyDown",
                **what,
                **({"text": text} if text else {}),
            )
            self.send("Input.dispatchKeyEvent", type="keyUp", **what)

    def frame(self, expression: str) -> Any:
        """Return the value of an expression in the one frame of another origin, as soon as it is true there."""
        while not (found := [one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "iframe"]):
            pass
        own = self._session
        try:
            self._session = self.send("Target.attachToTarget", targetId=found[0]["targetId"], flatten=True)["sessionId"]
            for domain in ("Runtime", "Log"):
                self.send(f"{domain}.enable")
            self.wait_for(expression)
            return self.run(expression.rsplit("&&", maxsplit=1)[-1])
        finally:
            self._session = own

    def type(self, text: str) -> None:
        """Write into what has the focus."""
        self.send("Input.insertText", text=text)


@contextmanager
def tab(folder: Path) -> Generator[Tab]:
    """Start a browser with an empty profile in a folder, for one page."""
    told_in, told_out = os.pipe(), os.pipe()  # to the browser, which reads at 3, and from it, which writes at 4
    flags = [f"--{flag}" for flag in (*_FLAGS, f"user-data-dir={folder / 'profile'}")]
    command = f'exec "$@" 3<&{told_in[0]} 4>&{told_out[1]}'
    process = subprocess.Popen(
        ["bash", "-c", command, "bash", str(CHROMIUM), *flags, "about:blank"],
        pass_fds=(told_in[0], told_out[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(told_in[0])
    os.close(told_out[1])
    try:
        page = Tab(told_in[1], told_out[0])
        yield page
        page.send("Browser.close")
        process.wait(LIMIT_S)
    finally:
        process.kill()
        process.wait(LIMIT_S)
        os.close(told_in[1])

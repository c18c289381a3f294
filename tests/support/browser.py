"""Pages in a real browser: what they draw, and what their controls do."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from tests.support.guard import LIMIT_S

CHROMIUM = shutil.which("chromium")


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())


@dataclass
class Page(HTMLParser):
    """The DOM after the script ran, as a flat list of elements with all their text.

    Args:
        dom: The DOM.
        log: The lines of the console.
    """

    dom: str
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(self.dom)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in {"meta", "link", "br", "img", "input", "hr"}:
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1].tag not in {"script", "style"}:
            for element in self._open:
                element.text += data

    def find_class(self, *names: str) -> list[Element]:
        return [element for element in self.elements if set(names) <= element.classes]

    def find_id(self, name: str) -> Element:
        (found,) = (element for element in self.elements if element.attributes.get("id") == name)
        return found

    @property
    def text(self) -> str:
        return next(element.text for element in self.elements if element.tag == "body")

    @property
    def body(self) -> dict[str, str]:
        return next(element.attributes for element in self.elements if element.tag == "body")


def open_page(html: str, folder: Path, *, size: str, fragment: str = "") -> Page:
    """Open a page from its file in a headless browser with an empty profile.

    A picture of the page is left beside the file as page.png.
    """
    (folder / "page.html").write_text(html, encoding="utf-8")
    quiet = [
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
    ]
    own = [
        f"user-data-dir={folder / 'profile'}",
        "virtual-time-budget=3000",
        f"window-size={size}",
        f"screenshot={folder / 'page.png'}",
    ]
    flags = ["headless", "no-sandbox", "hide-scrollbars", "enable-logging=stderr", "v=0", "dump-dom", *quiet, *own]
    command = [str(CHROMIUM), *(f"--{flag}" for flag in flags), (folder / "page.html").as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
    errors = done.stderr.decode("utf-8", "replace").splitlines()
    return Page(done.stdout.decode("utf-8"), [line for line in errors if "CONSOLE" in line or "Uncaught" in line])


def milliseconds_to_open(html: str, folder: Path) -> float:
    """Return the time from the request of a page to the end of its scripts, by the browser's own clock."""
    (folder / "timed.html").write_text(
        add_script(html, "console.log(`opened in ${performance.now()} ms`)"), encoding="utf-8"
    )
    flags = [
        "headless",
        "no-sandbox",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
        "disable-sync",
        "enable-logging=stderr",
    ]
    own = [f"user-data-dir={folder / 'timed'}", "v=0", "window-size=1280,800", f"screenshot={folder / 'timed.png'}"]
    command = [str(CHROMIUM), *(f"--{flag}" for flag in (*flags, *own)), (folder / "timed.html").as_uri()]
    told = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True).stderr.decode("utf-8", "replace")
    found = re.search(r"opened in ([\d.]+) ms", told)
    assert found is not None, told
    return float(found[1])


def add_script(html: str, script: str) -> str:
    """Return the page with one more script, which its content security policy is told to allow."""
    name = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html = html.replace("script-src '", f"script-src '{name}' '", 1)
    return html.replace("</body>", f"<script>{script}</script></body>")


def colours(path: Path) -> tuple[tuple[int, int], int]:
    """Return a PNG's width and height, and how many different bytes its filtered pixels have."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    size = (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))
    place, pixels = 8, b""
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert zlib.crc32(kind + body) == int.from_bytes(data[place + 8 + length : place + 12 + length], "big")
        pixels += body if kind == b"IDAT" else b""
        place += length + 12
    return size, len(set(zlib.decompress(pixels)))

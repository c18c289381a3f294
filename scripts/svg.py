"""What pictures in SVG share: the page with its colours for light and dark, and texts.

A picture is 640 units wide with letters of 20 units, so that it is read on a screen of 390 pixels too. It loads nothing
and has no script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

WIDTH = 640
LETTER = 20  # height of a letter in units; its mean width is about half of it
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LIGHT = {
    "page": "#fff", "ink": "#1a1e23", "soft": "#545d68", "line": "#8a939e", "accent": "#1f56c3", "other": "#8a5200",
    "win": "#08743d",
    "wash": "#e5ecf5",
}  # fmt: skip
_DARK = {
    "page": "#181c22", "ink": "#e8ebef", "soft": "#a4adb9", "line": "#76818e", "accent": "#86b2ff", "other": "#f2bb5c",
    "win": "#5fd897",
    "wash": "#222f42",
}  # fmt: skip
_COLOUR = re.compile(r"var\(--(page|ink|soft|line|accent|other|win|wash)\)")
_COLOURED = re.compile(r"[^{}\n]+\{[^{}]*(?:fill|stroke):var\(--[a-z]+\)[^{}]*\}")
_STYLE = """\
.page{fill:var(--page)}
text{font:20px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft)}.win{fill:var(--win)}.accent{fill:var(--accent)}.other{fill:var(--other)}.bold{font-weight:650}
.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:17px}
.axis{stroke:var(--line);stroke-width:1.5;fill:none}
"""


def document(height: float, title: str, description: str, body: Sequence[str], style: str = "") -> str:
    """Return a picture of `WIDTH` by `height` units.

    `title` and `description` are read out in the picture's place. `style` has further rules of CSS.
    """
    size = f'viewBox="0 0 {WIDTH} {number(height)}" width="{WIDTH}" height="{number(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">'
    labels = f'<title id="title">{safe(title)}</title>\n<desc id="description">{safe(description)}</desc>'
    page = '<rect class="page" width="100%" height="100%"/>'
    return "\n".join([head, labels, f"<style>\n{_rules(_STYLE + style)}</style>", page, *body, "</svg>", ""])


def _rules(style: str) -> str:
    """Return rules of CSS with their colours written out, for light screens, then for dark ones.

    Some programs know no variables of CSS.
    """
    dark = "".join(_COLOURED.findall(style))
    return f"{_paint(style, _LIGHT)}@media(prefers-color-scheme:dark){{{_paint(dark, _DARK)}}}\n"


def _paint(style: str, colours: Mapping[str, str]) -> str:
    return _COLOUR.sub(lambda found: colours[found[1]], style)


def words(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    """Return a line of text with its baseline at (x, y).

    `kind` has the CSS classes. `anchor` is the part of the text at x: "start", "middle" or "end".
    """
    class_attribute = f' class="{kind}"' if kind else ""
    anchor_attribute = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{number(x)}" y="{number(y)}"{class_attribute}{anchor_attribute}>{safe(text)}</text>'


def cut(text: str, most: int) -> str:
    """Return a text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def number(value: float) -> str:
    """Return a coordinate, to a hundredth of a unit."""
    return f"{round(value, 2):g}" if abs(value) < 1e5 else f"{value:.0f}"


def safe(text: str) -> str:
    """Return a text as XML; characters that XML does not have are U+FFFD."""
    return html.escape(_NOT_IN_XML.sub("\ufffd", text), quote=False)

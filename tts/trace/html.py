"""One page that shows a trace: the tree with scores and tokens, the candidates, the ledger.

The page loads nothing and needs no server. The page is `page.html` with the trace inserted as JSON. Texts come from
models and data sets and may contain markup. These texts are never parsed as HTML, and a content security policy allows
no script except the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

SLOT = "{{TRACE}}"
_HASH_SLOT = "{{SCRIPT_HASH}}"
_SHARED = {"{{SHARED_STYLE}}": "shared.css", "{{SHARED_SCRIPT}}": "shared.js"}
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def render(record: Mapping[str, Any], winner: int | None) -> str:
    """Return one self-contained HTML page of a trace.

    The page can be written as UTF-8 whatever the trace's texts are.

    Args:
        record: `Trace.to_dict`.
        winner: The node that the answer was taken from (`winning_node`).
    """
    return viewer().replace(SLOT, embed_record(record, winner), 1)


def viewer() -> str:
    """Return the page with `SLOT` where a trace belongs, as `embed_record` writes it."""
    return seal_page(resources.files("tts.trace").joinpath("page.html").read_text(encoding="utf-8"))


def seal_page(page: str) -> str:
    """Return a page with the style and script that pages share, and a content security policy.

    The policy allows the page's own script and no other.
    """
    for slot, name in _SHARED.items():
        page = page.replace(slot, resources.files("tts.trace").joinpath(name).read_text(encoding="utf-8").rstrip())
    return page.replace(_HASH_SLOT, script_hash(page))


def embed_record(record: Mapping[str, Any], winner: int | None) -> str:
    """Return a trace as JSON in pure ASCII without "<".

    So no text ends the script element, and lone surrogates can be encoded.
    """
    exact = {**record, "seed": str(record["seed"])}  # a browser's numbers are exact only up to 2**53
    return json.dumps({"trace": exact, "winner": winner}, allow_nan=False).replace("<", "\\u003c")


def script_hash(page: str) -> str:
    """Return the hash by which a content security policy names the one script of a page."""
    return _hash(_SCRIPT, page)


def style_hash(page: str) -> str:
    """Return the hash by which a content security policy names the one style of a page."""
    return _hash(_STYLE, page)


def _hash(element: re.Pattern[str], page: str) -> str:
    match = element.search(page)
    assert match is not None, "the page template has exactly one script and one style without attributes"
    return "sha256-" + base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()

"""One page that shows a trace: the tree with scores and tokens, the candidates, the ledger. It loads nothing and needs no server.

The page is `trace_page.html` with the trace put in as JSON. Every text in it was written by a model or a data set and may be
anything, markup included: it is never parsed as HTML, and a content security policy allows no script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.trace import Trace, TraceNode

SLOT = "{{TRACE}}"
_HASH_SLOT = "{{SCRIPT_HASH}}"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def render(trace: Trace) -> str:
    """Return one self-contained HTML page of a trace; it can be written as UTF-8 whatever the trace's texts are."""
    return viewer().replace(SLOT, embedded(trace), 1)


def viewer() -> str:
    """Return the page with `SLOT` where a trace belongs, as `embedded` writes it."""
    return sealed(resources.files("tts").joinpath("trace_page.html").read_text(encoding="utf-8"))


def sealed(page: str) -> str:
    """Return a page whose content security policy allows its own script and no other."""
    return page.replace(_HASH_SLOT, script_hash(page))


def winning_node(trace: Trace) -> int | None:
    """Return the node that the answer was taken from: of the candidates with exactly this answer the heaviest, then the first.

    Returns:
        Its number; None without an answer, or where no candidate has the answer in the same words.
    """
    if trace.answer is None:
        return None
    candidates = [node for node in trace.nodes if node.candidate is not None and node.answer == trace.answer]
    return min(candidates, key=_rank).node if candidates else None


def _rank(node: TraceNode) -> tuple[float, int]:
    weight = -math.inf if node.weight is None or math.isnan(node.weight) else node.weight
    return (-weight, node.candidate or 0)


def embedded(trace: Trace) -> str:
    """Return the trace as JSON in pure ASCII without "<": no text ends the script element, lone surrogates can be encoded."""
    record = trace.to_dict()
    record["seed"] = str(trace.seed)  # a browser's numbers are exact only up to 2**53
    return json.dumps({"trace": record, "winner": winning_node(trace)}, allow_nan=False).replace("<", "\\u003c")


def script_hash(page: str) -> str:
    """Return what a content security policy calls the one script of a page."""
    script = _SCRIPT.search(page)
    assert script is not None, "the page template has exactly one script without attributes"
    return "sha256-" + base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()

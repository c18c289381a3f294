"""`GET /`: a page that sends a problem and shows the growing tree of its search.

The page also opens the traces of recent searches. The page is `page.html`. It calls this server alone, by `fetch`, and
no url contains a text or key. Texts of models are never parsed as HTML. The content security policy allows its own
script and style, and those of the page of a trace, which it shows in a sandboxed frame.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.trace.html import script_hash, seal_page, style_hash, viewer


async def page(request: Request) -> Response:
    """Return the page; it has no data, so a client needs no key for it."""
    del request
    html, policy = _page()
    headers = {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    return Response(html, headers=headers, media_type="text/html; charset=utf-8")


@cache
def _page() -> tuple[bytes, str]:
    """Return the page, and its content security policy."""
    html = seal_page(resources.files("tts_addons.gateway").joinpath("page.html").read_text(encoding="utf-8"))
    pages = (html, viewer())
    rules = {
        "default-src": ["'none'"],
        "script-src": [f"'{script_hash(sealed_page)}'" for sealed_page in pages],
        "style-src": [f"'{style_hash(sealed_page)}'" for sealed_page in pages],
        "connect-src": ["'self'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
    return html.encode(), "; ".join(f"{name} {' '.join(sources)}" for name, sources in rules.items())


ROUTES = (Route("/", page),)

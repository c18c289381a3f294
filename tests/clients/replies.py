"""What the pages of clients call `qwen`: a script that calls the tools of its client and answers with their results."""

from __future__ import annotations

from typing import Any


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return the message that answers a request for a chat."""
    return {"content": "Hello."}

"""How servers show what a model thought: apart, within its text, or not at all."""

from __future__ import annotations

from typing import Any

_WORDS = "I think. "


def thought_of(tokens: int, form: str, content: str) -> dict[str, Any]:
    """Return the members of a whole message that show a thought of so many tokens; `form`: the field, "content", or "" for none."""
    if form == "content":
        return {"content": f"<think>{_WORDS * tokens}</think>{content}"}
    return {form: _WORDS * tokens} if form else {}


def thought_deltas(tokens: int, form: str) -> list[dict[str, Any]]:
    """Return the deltas of a stream that show it, one a token."""
    if form == "content":
        return [{"content": "<think>" * (i == 0) + _WORDS + "</think>" * (i == tokens - 1)} for i in range(tokens)]
    return [{form: _WORDS} if form else {"content": ""} for _ in range(tokens)]


def told_usage(read: int, generated: int, hidden: int, cached: int | None) -> dict[str, Any]:
    """Return a report of tokens."""
    used: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": generated, "total_tokens": read + generated}
    used |= {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return used | ({"completion_tokens_details": {"reasoning_tokens": hidden}} if hidden else {})

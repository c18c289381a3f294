"""Fields by which servers limit thoughts, or leave them out.

None of the fields belongs to the API. A probe finds the fields that a server obeys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Name of a field -> the member that it adds to a request. "tokens" stands for the most tokens of a thought.
LIMITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "thinking_token_budget": {"thinking_token_budget": "tokens"},  # vLLM
    "thinking_budget": {"thinking_budget": "tokens"},  # DashScope, SiliconFlow
    "thinking_budget_tokens": {"thinking_budget_tokens": "tokens"},  # llama-server
    "reasoning_budget_tokens": {"reasoning_budget_tokens": "tokens"},  # llama-server
    "reasoning.max_tokens": {"reasoning": {"max_tokens": "tokens"}},  # OpenRouter
    # servers that follow Anthropic's API
    "thinking.budget_tokens": {"thinking": {"type": "enabled", "budget_tokens": "tokens"}},
}
# Name of a field -> the member that it adds to a request without a thought.
SWITCHES: Final[Mapping[str, Mapping[str, Any]]] = {
    "chat_template_kwargs.enable_thinking": {"chat_template_kwargs": {"enable_thinking": False}},
    "reasoning_effort": {"reasoning_effort": "none"},
    "reasoning.enabled": {"reasoning": {"enabled": False}},
    "thinking.type": {"thinking": {"type": "disabled"}},
}


def limit_members(field: str, tokens: int) -> dict[str, Any]:
    """Return the members of a request whose thought has a limit.

    Args:
        field: A key of `LIMITS`.
        tokens: The most tokens of the thought, at least 1.
    """
    return _fill(LIMITS[field], tokens)


def switch_members(field: str) -> dict[str, Any]:
    """Return the members of a request without a thought.

    Args:
        field: A key of `SWITCHES`.
    """
    return _fill(SWITCHES[field], 0)


def with_members(body: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with further members. Where both have an object of one name, the objects are merged."""
    joined = dict(body)
    for name, value in members.items():
        old_value = joined.get(name)
        if isinstance(old_value, dict) and isinstance(value, dict):
            joined[name] = {**old_value, **value}
        else:
            joined[name] = value
    return joined


def _fill(members: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Return members with the number of tokens in each place of "tokens"."""
    filled: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, Mapping):
            filled[name] = _fill(value, tokens)
        else:
            filled[name] = tokens if value == "tokens" else value
    return filled

"""Prompts and paths as a server takes them, as one text or as messages, and their greatest number of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tts.errors import ConfigError, shown
from tts.types import Message, Prompt

CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
_OURS = frozenset((  # members of a request that a search or its backend sets
    "model", "messages", "prompt", "stream", "stream_options", "n", "seed", "stop", "include_stop_str_in_output",
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "repeat_penalty",
    "logprobs", "return_token_ids", "continue_final_message", "add_generation_prompt",
))  # fmt: skip


def extra_members(
    extra_body: str | Mapping[str, Any], reasoning_effort: str = "", chat_template_kwargs: str | Mapping[str, Any] = ""
) -> dict[str, Any]:
    """Return the members that a model's options add to every request; options that are "" add none.

    Raises:
        ConfigError: an option is no JSON object, sets what a search sets, or what another option sets.
    """
    extra = _object("extra_body", extra_body)
    named: dict[str, Any] = {"reasoning_effort": reasoning_effort} if reasoning_effort else {}
    if chat_template_kwargs:
        named["chat_template_kwargs"] = _object("chat_template_kwargs", chat_template_kwargs)
    if twice := sorted(named.keys() & extra.keys()):
        raise ConfigError(f"extra_body sets {', '.join(twice)}, which is given as an option too", hint="leave one out")
    extra |= named
    if taken := sorted(_OURS & extra.keys()):
        raise ConfigError(f"extra_body sets {', '.join(taken)}, but a search sets that itself", hint="use the options of solve")
    return extra


def _object(name: str, value: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        read: Any = json.loads(value or "{}") if isinstance(value, str) else dict(value)
        json.dumps(read, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise ConfigError(f"{name} is {shown(value)}, but must be a JSON object", hint='such as {"enable_thinking": false}')
    return read


def messages(prompt: Prompt, text: str = "") -> list[dict[str, str]]:
    """Return a prompt as messages, with the text of a path as the beginning of the assistant's message."""
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    said = (*turns, Message("assistant", text)) if text else turns
    return [{"role": turn.role, "content": turn.content} for turn in said]


def input_bound(prompt: Prompt, text: str, template_tokens: int) -> int:
    """Return the most tokens of a prompt and a path: their bytes, and `template_tokens`."""
    contents = [prompt] if isinstance(prompt, str) else [f"{message.role}{message.content}\n\n" for message in prompt]
    return sum(len(one.encode(errors="replace")) for one in (*contents, text)) + template_tokens

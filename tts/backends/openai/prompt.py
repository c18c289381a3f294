"""Prompts and paths as texts or messages for a server, and bounds on their tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tts.errors import ConfigError, quote
from tts.types import AnswerForm, Message, Part, Picture, Prompt, ToolCall, ToolOffer, ToolResult, pictures_in

CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
_OURS = frozenset(
    (  # members of a request that a search or its backend sets
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "n",
        "seed",
        "stop",
        "include_stop_str_in_output",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "repeat_penalty",
        "logprobs",
        "return_token_ids",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "continue_final_message",
        "add_generation_prompt",
    )
)


def extra_members(
    extra_body: str | Mapping[str, Any], reasoning_effort: str = "", chat_template_kwargs: str | Mapping[str, Any] = ""
) -> dict[str, Any]:
    """Return the members that a model's options add to every request; an option of "" adds none.

    Raises:
        ConfigError: An option is no JSON object, or sets a member that a search or another option sets.
    """
    extra = _object("extra_body", extra_body)
    optional: dict[str, Any] = {"reasoning_effort": reasoning_effort} if reasoning_effort else {}
    if chat_template_kwargs:
        optional["chat_template_kwargs"] = _object("chat_template_kwargs", chat_template_kwargs)
    duplicates = sorted(optional.keys() & extra.keys())
    if duplicates:
        raise ConfigError(
            f"extra_body sets {', '.join(duplicates)}, which is given as an option too", hint="leave one out"
        )
    extra |= optional
    reserved = sorted(_OURS & extra.keys())
    if reserved:
        raise ConfigError(
            f"extra_body sets {', '.join(reserved)}, but a search sets that itself", hint="use the options of solve"
        )
    return extra


def _object(name: str, value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return an option's JSON object; "" stands for an empty object.

    Raises:
        ConfigError: The option is no JSON object.
    """
    try:
        members: Any = json.loads(value or "{}") if isinstance(value, str) else dict(value)
        json.dumps(members, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise ConfigError(
            f"{name} is {quote(value)}, but must be a JSON object", hint='such as {"enable_thinking": false}'
        )
    return members


def messages(prompt: Prompt, text: str = "", *, tools: bool = False) -> list[dict[str, Any]]:
    """Return a prompt as messages, with the text of a path as the beginning of the assistant's message.

    Args:
        prompt: The prompt.
        text: The text of the path.
        tools: Whether the server takes tools. If so, calls and results of the history are sent natively; else as text.
    """
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    all_turns = (*turns, Message("assistant", text)) if text else turns
    return [member for turn in all_turns for member in _turn(turn, tools=tools)]


def _turn(turn: Message, *, tools: bool) -> list[dict[str, Any]]:
    """Return a turn as messages.

    With tools, each result is a message of its own, and an offer of tools is not written as text.
    """
    if not turn.parts:
        return [{"role": turn.role, "content": turn.content}]
    content: Any = turn.content
    parts: Sequence[Part] = turn.parts  # the parts that are written as text or pictures
    calls: list[dict[str, Any]] = []
    turn_messages: list[dict[str, Any]] = []
    if tools:
        parts = [part for part in parts if not isinstance(part, ToolCall | ToolResult | ToolOffer | AnswerForm)]
        content = Message.of(turn.role, parts).content.strip("\n")
        calls = [_call(part) for part in turn.parts if isinstance(part, ToolCall)]
        turn_messages = [
            {"role": "tool", "tool_call_id": part.id, "content": part.content}
            for part in turn.parts
            if isinstance(part, ToolResult)
        ]
    if any(isinstance(part, Picture) for part in parts):
        content = [_part(part) for part in parts if str(part)]
    if calls:
        turn_messages.append({"role": turn.role, "content": content or None, "tool_calls": calls})
    elif content or not tools:
        turn_messages.append({"role": turn.role, "content": content})
    return turn_messages


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Picture):
        return {"type": "image_url", "image_url": {"url": part.url, **({"detail": part.detail} if part.detail else {})}}
    return {"type": "text", "text": str(part)}


def native_members(prompt: Prompt, *, tools: bool, forms: bool) -> dict[str, Any]:
    """Return the members of a chat that offer the tools of a prompt and state the form of its answer.

    Args:
        prompt: The prompt.
        tools: Whether the server takes tools.
        forms: Whether the server decodes under a JSON schema.
    """
    members: dict[str, Any] = {}
    for part in _parts_of(prompt):
        if isinstance(part, ToolOffer) and tools:
            members["tools"] = [json.loads(tool) for tool in part.tools]
            members["tool_choice"] = json.loads(part.choice)
            if not part.parallel:
                members["parallel_tool_calls"] = False
        elif isinstance(part, AnswerForm) and forms:
            form: dict[str, Any] = {"type": "json_object"}
            if part.schema:
                form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": json.loads(part.schema)}}
            members["response_format"] = form
    if "tools" in members:  # the answer may be a call instead of the form
        members.pop("response_format", None)
    return members


def _parts_of(prompt: Prompt) -> list[Part]:
    """Return the parts of all turns of a prompt; a text has none."""
    parts: list[Part] = []
    if not isinstance(prompt, str):
        for turn in prompt:
            parts += turn.parts
    return parts


def input_bound(prompt: Prompt, text: str, template_tokens: int, picture_tokens: int | None = None) -> int:
    """Return a bound on the tokens of a prompt and a path: bytes, pictures, and `template_tokens`.

    Args:
        prompt: The prompt.
        text: The text of the path.
        template_tokens: The tokens that a template adds.
        picture_tokens: The most tokens of a picture; None: not known, and not counted.
    """
    texts = [text]
    if isinstance(prompt, str):
        texts.append(prompt)
    else:
        texts += [f"{message.role}{message.content}\n\n" for message in prompt]
    for part in _parts_of(prompt):
        if isinstance(part, ToolOffer):  # a template may render the tools in words of its own, beside the text
            texts += part.tools
    num_bytes = sum(len(counted_text.encode(errors="replace")) for counted_text in texts)
    return num_bytes + template_tokens + (picture_tokens or 0) * len(pictures_in(prompt))

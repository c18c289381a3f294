"""Messages, as Anthropic's clients speak them.

The endpoints are `POST /v1/messages` and `POST /v1/messages/count_tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tts.errors import quote
from tts.types import Part
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError, refuse_field
from tts_addons.gateway.server_events import named_event
from tts_addons.gateway.wire.fields import MESSAGES
from tts_addons.gateway.wire.request import (
    AnswerChoice,
    BodyPart,
    Counts,
    EffortWord,
    Frames,
    History,
    Outcome,
    ReplyHead,
    SearchRequest,
    SharedFields,
    report_with_answers,
    stop_texts,
    text_of,
    validate_body,
)

_FINISH = {
    "stop": "end_turn",
    "stop text": "stop_sequence",
    "length": "max_tokens",
    "calls": "tool_use",
    "refusal": "refusal",
}
_MOST_STOPS = 16
_FIELDS = {
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format",
    "n": "tts.n",
    "seed": "tts.seed",
    "budget": "thinking.budget_tokens",
}
_TYPES = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip


class Turn(BodyPart):
    """One turn, whose content is text, or blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class Thinking(BodyPart):
    """The setting of thinking; only `enabled` has a budget."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=1)


class OutputConfig(BodyPart):
    """The form of the answer, and a word for the budget."""

    effort: EffortWord | None = None
    format: dict[str, Any] | None = None


class MessagesBody(SharedFields):
    """A request for a message."""

    messages: list[Turn] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    stop_sequences: list[str] | None = None
    context_management: Any = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)


def read(value: Any, limits: GatewayLimits) -> SearchRequest:
    """Return the request in a body.

    Raises:
        ApiError: 400, a field is not valid or cannot be honoured.
    """
    body = validate_body(MessagesBody, value)
    if body.max_tokens is None:
        raise refuse_field("max_tokens", "is missing, but must be given", "missing")
    return request_of(body, limits, MESSAGES.check(value))


def read_count(value: Any, limits: GatewayLimits) -> SearchRequest:
    """Return the request in a body whose tokens are counted.

    Raises:
        ApiError: 400, a field is not valid.
    """
    return request_of(validate_body(MessagesBody, value), limits, MESSAGES.check(value))


def request_of(body: MessagesBody, limits: GatewayLimits, reports: tuple[str, ...]) -> SearchRequest:
    """Return the request in a body that is checked.

    Args:
        body: The body.
        limits: The operator's limits.
        reports: The notes of the reply on unknown fields.

    Raises:
        ApiError: 400, a field cannot be honoured.
    """
    notes = list(reports)
    if body.context_management is not None:
        notes.append("context_management is not supported and had no effect: the whole history reaches the model")
    if body.messages[-1].role == "assistant":
        notes.append("the last turn is the assistant's: it is history, and the answer does not continue it")
    tools, tool_choice, parallel = _tools(body, notes)
    thinking, output = body.thinking, body.output_config or OutputConfig()
    thinking_tokens = None
    if thinking is not None and thinking.type == "enabled":
        thinking_tokens = thinking.budget_tokens
        if thinking_tokens is None:
            raise refuse_field(
                "thinking.budget_tokens", "is missing, but must be given where thinking is enabled", "missing"
            )
    return body.request(
        _history(body, limits),
        notes,
        max_tokens=body.max_tokens,
        stops=stop_texts(body.stop_sequences, "stop_sequences", _MOST_STOPS),
        effort=output.effort or "",
        thinking_tokens=thinking_tokens,
        thinks=body.thinks and (thinking is None or thinking.type != "disabled"),
        tools=tools,
        tool_choice=tool_choice,
        parallel=parallel,
        form=_form(output.format),
        fields=_FIELDS,
    )


def _form(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the form of the answer as chat completions have it; None: the request gives no form."""
    if given is None:
        return None
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        raise refuse_field("output_config.format", f"is {quote(given)}, but must be json_schema with a schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given["schema"]}}


def _tools(body: MessagesBody, notes: list[str]) -> tuple[tuple[Mapping[str, Any], ...], str | Mapping[str, Any], bool]:
    """Return the functions, the tool choice, and whether several calls are allowed, as chat completions have them.

    A note is added on tools that are left out, and on the effectless field `defer_loading`.
    """
    functions: list[Mapping[str, Any]] = []
    vendor_tools: list[str] = []  # the names of tools that only their vendor runs
    for place, tool in enumerate(body.tools or ()):
        name = tool.get("name")
        if tool.get("type") not in (None, "custom"):
            vendor_tools.append(str(name or tool.get("type")))
            continue
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            raise refuse_field(f"tools[{place}].input_schema", f"is {quote(schema)}, but must be a JSON schema")
        description = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
        functions.append({"type": "function", "function": {"name": name, **description, "parameters": schema}})
    if vendor_tools:
        notes.append(f"tools that only their vendor runs are left out: {', '.join(sorted(vendor_tools))[:300]}")
    if any(tool.get("defer_loading") for tool in body.tools or ()):
        notes.append("defer_loading had no effect: all tools reach the model")
    tool_choice = body.tool_choice or {"type": "auto"}
    kind = tool_choice.get("type")
    if kind not in ("auto", "any", "tool", "none"):
        raise refuse_field("tool_choice", f"is {quote(tool_choice)}, but its type must be auto, any, tool or none")
    chat_choice: str | Mapping[str, Any] = {"auto": "auto", "any": "required", "none": "none"}.get(kind, "")
    if kind == "tool":
        if tool_choice.get("name") in vendor_tools:
            raise refuse_field(
                "tool_choice", f"asks for {quote(tool_choice['name'])}, which only its vendor runs", "unsupported"
            )
        chat_choice = {"type": "function", "function": {"name": tool_choice.get("name")}}
    is_parallel = tool_choice.get("disable_parallel_tool_use") is not True
    return tuple(functions), chat_choice, is_parallel


def _history(body: MessagesBody, limits: GatewayLimits) -> History:
    """Return the system prompt and the turns of a body."""
    history = History("messages", limits)
    if body.system:
        history.add("system", _parts(body.system, "system", history), "system")
    for place, turn in enumerate(body.messages):
        where = f"messages[{place}].content"
        history.add(turn.role, _parts(turn.content, where, history), where)
    return history


def _parts(content: str | list[dict[str, Any]], where: str, history: History) -> list[Part]:
    """Return the parts of a turn, with its calls and results of tools.

    Args:
        content: A text, or the blocks of the turn.
        where: The place of the content in the body, for errors.
        history: The history.
    """
    if isinstance(content, str):
        return [content]
    parts: list[Part] = []
    for index, block in enumerate(content):
        place, kind = f"{where}[{index}]", block.get("type")
        if kind == "tool_use":
            number = text_of(block.get("id"), f"{place}.id")
            parts.append(history.call(block.get("name"), block.get("input"), number, place, "input"))
        elif kind == "tool_result":
            inner, failed = block.get("content"), block.get("is_error") is True
            inner = "" if inner is None else inner
            number = text_of(block.get("tool_use_id"), f"{place}.tool_use_id")
            parts += history.result(number, inner, f"{place}.content", failed=failed)
        else:
            parts += history.part(block, place)
    return parts or [""]


# Replies --------------------------------------------------------------------------------------------------------------


def reply(head: ReplyHead, outcome: Outcome) -> dict[str, Any]:
    """Return the whole reply: the best answer."""
    choice = outcome.choices[0]
    return {
        **_opening(head),
        "content": _blocks(choice),
        "stop_reason": _FINISH[choice.finish],
        "stop_sequence": choice.stop_text or None,
        "usage": usage_of(outcome.counts),
        "tts": report_with_answers(outcome),
    }


def _opening(head: ReplyHead) -> dict[str, Any]:
    return {"id": f"msg_{head.number}", "type": "message", "role": "assistant", "model": head.model}


def _blocks(choice: AnswerChoice) -> list[dict[str, Any]]:
    """Return the content blocks of an answer: its thought, its text or refusal, and its calls."""
    blocks: list[dict[str, Any]] = []
    if choice.thought:
        blocks.append({"type": "thinking", "thinking": choice.thought, "signature": ""})
    text = choice.text or choice.refusal
    if text:
        blocks.append({"type": "text", "text": text})
    for call in choice.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
    return blocks


def usage_of(counts: Counts) -> dict[str, Any]:
    """Return counts of tokens in the API's terms: cached input tokens are no part of `input_tokens`."""
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.completion,
        "output_tokens_details": {"thinking_tokens": counts.reasoning},
    }


def error_body(error: ApiError, number: str) -> dict[str, Any]:
    """Return an error as the API has it, with the name of the refused field in its message."""
    default_kind = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _TYPES.get(error.status, default_kind)
    message = error.message
    if error.param is not None and error.param not in message and error.code != "context_length_exceeded":
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": number or None}


class MessageFrames(Frames):
    """Writes a stream: progress, the blocks of the answer, its end and the usage.

    Progress is written as the deltas of a thinking block.
    """

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._index = 0  # the index of the open block, or else of the next block
        self._thinks = False  # whether a thinking block was begun

    def begin(self) -> bytes:
        """Return the empty message."""
        usage = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
        empty = {**_opening(self.head), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _event("message_start", message=empty)

    def progress(self, line: str) -> bytes:
        """Return a line of progress."""
        block_start = b"" if self._thinks else self._start({"type": "thinking", "thinking": "", "signature": ""})
        self._thinks = True
        return block_start + self._delta({"type": "thinking_delta", "thinking": line})

    def text_piece(self, piece: str, *, is_first: bool) -> bytes:
        """See `Frames.text_piece`; the first piece ends the thinking block and begins the block of the text."""
        block_start = b""
        if is_first:
            end_of_thinking = self._end_of_thinking("") if self._thinks else b""
            block_start = end_of_thinking + self._start({"type": "text", "text": ""})
        return block_start + self._delta({"type": "text_delta", "text": piece})

    def ping(self) -> bytes:
        """Return a ping."""
        return _event("ping")

    def end(self, outcome: Outcome) -> bytes:
        """Return the events that are not sent yet: the rest of the best answer, its end and the usage."""
        choice = outcome.choices[0]
        events: list[bytes] = []
        unsent_thought = choice.thought.removeprefix(self.sent_thought)
        if not self.sent_text and (self._thinks or unsent_thought):
            events.append(self._end_of_thinking(unsent_thought))
        for block in _blocks(choice):
            if block["type"] == "text":
                if not self.sent_text:
                    events.append(self._start({**block, "text": ""}))
                unsent_text = block["text"].removeprefix(self.sent_text)
                if unsent_text:
                    events.append(self._delta({"type": "text_delta", "text": unsent_text}))
                events.append(self._stop())
            elif block["type"] == "tool_use":
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
                events += [self._start({**block, "input": {}}), self._delta(delta), self._stop()]
        stop = {"stop_reason": _FINISH[choice.finish], "stop_sequence": choice.stop_text or None}
        events.append(
            _event("message_delta", delta=stop, usage=usage_of(outcome.counts), tts=report_with_answers(outcome))
        )
        return b"".join([*events, _event("message_stop")])

    def _end_of_thinking(self, thought: str) -> bytes:
        """Return the events that end the thinking block: the unsent thought, and the signature.

        If no thinking block was begun, the events also begin it.
        """
        events: list[bytes] = []
        if not self._thinks:
            events.append(self._start({"type": "thinking", "thinking": "", "signature": ""}))
        if thought:
            events.append(self._delta({"type": "thinking_delta", "thinking": thought}))
        return b"".join([*events, self._delta({"type": "signature_delta", "signature": ""}), self._stop()])

    def fail(self, error: ApiError) -> bytes:
        """Return the error, which ends a stream."""
        return named_event("error", error_body(error, self.head.number))

    def _start(self, block: Mapping[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)


def _event(kind: str, **members: Any) -> bytes:
    return named_event(kind, {"type": kind, **members})


frames = MessageFrames

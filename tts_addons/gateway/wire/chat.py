"""Chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError, refuse_field
from tts_addons.gateway.server_events import chunk, ending, event
from tts_addons.gateway.wire.fields import CHAT
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
    choose_tools,
    flat,
    function_of,
    stop_texts,
    text_of,
    validate_body,
)

Role = Literal["system", "developer", "user", "assistant", "tool"]
_KIND = "chat.completion.chunk"
_OPENING: Mapping[str, Any] = {"role": "assistant", "content": ""}  # the first delta of each choice
_FINISH = {"stop": "stop", "stop text": "stop", "length": "length", "calls": "tool_calls", "refusal": "stop"}
_MOST_STOPS = 4  # the limit of the OpenAI API


class ChatMessage(BodyPart):
    """One turn, whose content is text, or parts."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(BodyPart):
    """Whether the last chunk of a stream has the usage."""

    include_usage: bool = False


class RequestBody(SharedFields):
    """The fields that requests for chats and for completions share."""

    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    reasoning_effort: EffortWord | None = None

    @property
    def choices(self) -> int:
        """Choices for each prompt."""
        return self.n or 1

    @property
    def streams_usage(self) -> bool:
        """Whether the last chunk of a stream has the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def stops(self, most: int) -> tuple[str, ...]:
        """Return the texts that end a choice.

        Raises:
            ApiError: 400, one is empty, or there are more than `most`.
        """
        return stop_texts(self.stop, "stop", most)


class ChatBody(RequestBody):
    """A request for a chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None


def read(value: Any, limits: GatewayLimits) -> SearchRequest:
    """Return the request in a body.

    Raises:
        ApiError: 400, a field is not valid or cannot be honoured.
    """
    return request_of(validate_body(ChatBody, value), limits, CHAT.check(value))


def request_of(body: ChatBody, limits: GatewayLimits, notes: tuple[str, ...]) -> SearchRequest:
    """Return the request in a body that is checked.

    Args:
        body: The body.
        limits: The operator's limits.
        notes: The notes of the reply on fields without effect.

    Raises:
        ApiError: 400, a field cannot be honoured.
    """
    tools = tuple(
        function_of(flat(tool), flat(tool).get("name")) if tool.get("type") == "custom" else tool
        for tool in body.tools or ()
    )
    tool_choice = "auto" if body.tool_choice is None else body.tool_choice
    if isinstance(tool_choice, dict) and tool_choice.get("type") in ("custom", "allowed_tools"):
        tools, tool_choice = choose_tools(tools, tool_choice, {})
    history = history_of(body.messages, limits)
    return body.request(
        history,
        notes,
        choices=body.choices,
        seed=body.seed,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        stops=body.stops(_MOST_STOPS),
        effort=body.reasoning_effort or "",
        tools=tools,
        tool_choice=tool_choice,
        parallel=body.parallel_tool_calls is not False,
        form=body.response_format,
        logprobs=bool(body.logprobs),
        echo={"usage": body.streams_usage},
    )


def history_of(turns: list[ChatMessage], limits: GatewayLimits) -> History:
    """Return the whole history.

    Raises:
        ApiError: 400, a part cannot be read, a result has no call, or there are too many turns.
    """
    history = History("messages", limits)
    for number, turn in enumerate(turns):
        where = f"messages[{number}]"
        if turn.content is None and not (turn.tool_calls or turn.refusal or turn.reasoning_content or turn.reasoning):
            raise refuse_field(f"{where}.content", "is missing, but must be text")
        content = turn.content or turn.refusal or ""
        if turn.role == "tool":
            parts = history.result(turn.tool_call_id or "", content, f"{where}.content")
        else:
            parts = history.parts(content, f"{where}.content")
        for index, call in enumerate(turn.tool_calls or ()):
            given = flat({"type": "function", **call})
            place, key, arguments = f"{where}.tool_calls[{index}].{given['type']}", "arguments", given.get("arguments")
            if given["type"] == "custom":
                key, arguments = "input", {"input": text_of(given.get("input"), f"{place}.input")}
            call_id = text_of(call.get("id") or "", f"{where}.tool_calls[{index}].id")
            parts.append(history.call(given.get("name"), arguments, call_id, place, key))
        role = {"developer": "system", "tool": "user"}.get(turn.role, turn.role)
        history.add(role, parts, f"{where}.tool_call_id" if turn.role == "tool" else where)
    return history


# Replies --------------------------------------------------------------------------------------------------------------


def reply(head: ReplyHead, outcome: Outcome) -> dict[str, Any]:
    """Return the whole reply."""
    return {
        **_heading(head, "chat.completion"),
        "choices": [
            {
                "index": place,
                "message": {"role": "assistant", "refusal": None, **_message(choice, head.request)},
                "logprobs": _logprobs(choice),
                "finish_reason": _FINISH[choice.finish],
            }
            for place, choice in enumerate(outcome.choices)
        ],
        "usage": usage_of(outcome.counts),
        "tts": outcome.report,
    }


def _heading(head: ReplyHead, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.number}", "object": kind, "created": int(head.created), "model": head.model}


def _logprobs(choice: AnswerChoice) -> dict[str, Any] | None:
    """Return the log-probabilities of an answer's tokens; None: the answer has none."""
    return None if choice.logprobs is None else {"content": choice.logprobs, "refusal": None}


def _message(choice: AnswerChoice, request: SearchRequest) -> dict[str, Any]:
    """Return an answer as a message, without its role.

    Args:
        choice: The answer.
        request: The request.
    """
    thought: dict[str, Any] = {"reasoning_content": choice.thought} if choice.thought else {}
    if choice.refusal:
        return {"content": None, "refusal": choice.refusal, **thought}
    if choice.calls:
        calls = [
            {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.input}}
            if request.takes_text(call.name)
            else {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.calls
        ]
        return {"content": choice.text or None, **thought, "tool_calls": calls}
    return {"content": choice.text, **thought}


def usage_of(counts: Counts) -> dict[str, Any]:
    """Return counts of tokens in the API's terms."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


class ChatFrames(Frames):
    """Writes a stream: progress as reasoning, then each answer, the usage and `[DONE]`."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._heading = _heading(head, _KIND)
        self._usage: bool = head.request.echo["usage"]

    def begin(self) -> bytes:
        """Return the opening of the first answer."""
        return self._chunk(_OPENING)

    def progress(self, line: str) -> bytes:
        """Return a line of progress."""
        return self._chunk({"reasoning_content": line})

    def text_piece(self, piece: str, *, is_first: bool) -> bytes:
        """See `Frames.text_piece`."""
        del is_first
        return self._chunk({"content": piece})

    def end(self, outcome: Outcome) -> bytes:
        """Return the unsent chunks of all answers, the usage if the request asks for it, and the end."""
        chunks = list[bytes]()
        last_place = len(outcome.choices) - 1
        for place, choice in enumerate(outcome.choices):
            if place == 0:  # the opening of the first answer, and perhaps more of it, was sent
                message = self._unsent(choice)
            else:
                message = _message(choice, self.head.request)
                chunks.append(self._chunk(_OPENING, place))
            for delta in _deltas(message):
                logprobs = _logprobs(choice) if "content" in delta else None
                chunks.append(self._chunk(delta, place, logprobs=logprobs))
            report = {"tts": outcome.report} if place == last_place else {}
            chunks.append(self._chunk({}, place, _FINISH[choice.finish], **report))
        usage = usage_of(outcome.counts) if self._usage else None
        return b"".join([*chunks, ending(self._heading, usage)])

    def _unsent(self, choice: AnswerChoice) -> dict[str, Any]:
        """Return the first answer as a message, without the texts that were sent."""
        message = _message(choice, self.head.request)
        for name, sent_text in (("reasoning_content", self.sent_thought), ("content", self.sent_text)):
            if sent_text:
                message[name] = message[name].removeprefix(sent_text) or None
        return message

    def fail(self, error: ApiError) -> bytes:
        """Return the error, which ends a stream."""
        return event(error.body())

    def _chunk(
        self, delta: Mapping[str, Any], place: int = 0, finish: str | None = None, logprobs: Any = None, **more: Any
    ) -> bytes:
        choice = {"index": place, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return chunk(self._heading, choice, usage=self._usage, **more)


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the deltas of a stream that together make up a message."""
    names = ("reasoning_content", "content", "refusal")
    deltas: list[dict[str, Any]] = [{name: message[name]} for name in names if message.get(name) is not None]
    calls = message.get("tool_calls")
    if calls:
        deltas.append({"tool_calls": [{"index": place, **call} for place, call in enumerate(calls)]})
    return deltas


frames = ChatFrames

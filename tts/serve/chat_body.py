"""The body of `/v1/chat/completions`: its fields, their ranges, and their conversion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tts.errors import shown
from tts.sections import field_path, main_fault, refusal
from tts.serve.config import BudgetGiven, GatewayLimits
from tts.serve.failures import ApiError, refused, too_long
from tts.types import Message

Body = TypeVar("Body", bound=BaseModel)
Role = Literal["system", "developer", "user", "assistant", "tool"]


class BodyPart(BaseModel):
    """A part of a body, whose unknown fields have no effect."""

    model_config = ConfigDict(extra="ignore", strict=True)


class FunctionCall(BodyPart):
    """The function of a tool call. arguments: JSON text."""

    name: str
    arguments: str = "{}"


class ToolCall(BodyPart):
    """A call that an assistant's message made."""

    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(BodyPart):
    """One turn. content: text, or parts of which each must be text."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class StreamOptions(BodyPart):
    """Of a stream: whether its last chunk has the usage."""

    include_usage: bool = False


class TtsOptions(BaseModel):
    """Settings of the search in a request; an unknown field is refused.

    Args:
        strategy, verifier: in place of the preset's. budget: tokens, or limits by unit. seed: in place of `seed`. trace: whether the
            trace is kept.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    strategy: str | None = Field(default=None, max_length=4000)
    budget: BudgetGiven | None = None
    verifier: str | None = Field(default=None, max_length=4000)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    trace: bool = True


class RequestBody(BaseModel):
    """The fields that requests for chats and for completions share. Unknown fields are reported as without effect."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    tts: TtsOptions | None = None

    @property
    def unknown(self) -> dict[str, Any]:
        """Fields that are not known, and their values."""
        return self.model_extra or {}

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
        found = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if not all(found) or len(found) > most:
            raise refused("stop", f"stop is {shown(self.stop)}, but must be at most {most} texts, none empty")
        return found

    def check_choices(self, limits: GatewayLimits) -> None:
        """Refuse more choices than the server gives.

        Raises:
            ApiError: 400, with the field.
        """
        if self.choices > limits.n:
            raise refused("n", f"n is {self.n}, but this server gives at most {limits.n} choices; ask for fewer")


class ChatBody(RequestBody):
    """A request for a chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


def parsed(raw: bytes) -> Any:
    """Return the value of a body in JSON.

    Raises:
        ApiError: 400, it is not UTF-8, not JSON, or no object, or a text in it has half of a character.
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\ud" in raw or b"\\uD" in raw:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as failure:
        raise ApiError(400, f"the body is not UTF-8: byte {failure.start} is not valid", code="invalid_json") from None
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds half of a character (a lone surrogate); write whole ones", code="invalid_value") from None
    except json.JSONDecodeError as failure:
        raise ApiError(
            400, f"the body is not JSON at line {failure.lineno}, column {failure.colno}: {failure.msg}", code="invalid_json"
        ) from None
    except (ValueError, RecursionError) as failure:
        why = "it is nested too deeply" if isinstance(failure, RecursionError) else str(failure)
        raise ApiError(400, f"the body is not JSON: {why}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is {shown(value)}, but must be a JSON object", code="invalid_json")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def checked(kind: type[Body], value: Any) -> Body:
    """Return a body's value as its schema.

    Raises:
        ApiError: 400, a field is missing, unknown or not valid.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as failure:
        fault = main_fault(failure)
        raise refused(field_path(fault["loc"]) or None, str(refusal(fault, kind))) from None


def texts_of(messages: Sequence[ChatMessage], limits: GatewayLimits) -> tuple[Message, ...]:
    """Return the whole history as messages of text; consecutive results of tools are one turn.

    Raises:
        ApiError: 400, a message has content other than text, or the history is too long.
    """
    if len(messages) > limits.messages:
        raise too_long("messages", f"{len(messages)} messages", limits.messages, "shorten the history")
    made: list[Message] = []
    for place, one in enumerate(messages):
        message = _message(place, one)
        if one.role == "tool" and place and messages[place - 1].role == "tool":
            message = Message("user", f"{made.pop().content}\n{message.content}")
        made.append(message)
    if (size := sum(len(one.content) for one in made)) > limits.characters:
        raise too_long("messages", f"{size} characters", limits.characters, "shorten the history")
    return tuple(made)


def _message(place: int, one: ChatMessage) -> Message:
    """Return a turn; calls of tools and their results are written as `request_task` shows them to models."""
    if one.content is None and not one.tool_calls:
        raise refused(f"messages[{place}].content", f"messages[{place}].content is missing, but must be text")
    text = content_of(place, one.content or "")
    if one.role == "tool":
        return Message("user", f"<tool_response>\n{text}\n</tool_response>")
    for number, call in enumerate(one.tool_calls or ()):
        try:
            told = {"name": call.function.name, "arguments": json.loads(call.function.arguments or "{}", parse_constant=_refuse_constant)}
        except (ValueError, RecursionError):
            where = f"messages[{place}].tool_calls[{number}].function.arguments"
            raise refused(where, f"{where} is {shown(call.function.arguments)}, but must be JSON") from None
        text += f"\n<tool_call>\n{json.dumps(told, ensure_ascii=False)}\n</tool_call>"
    return Message("system" if one.role == "developer" else one.role, text.strip("\n") if one.tool_calls else text)


def content_of(place: int, content: str | list[dict[str, Any]]) -> str:
    """Return the text of a message's content.

    Raises:
        ApiError: 400, a part is an image, a sound or a file.
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for number, part in enumerate(content):
        where = f"messages[{place}].content[{number}]"
        if part.get("type") not in ("text", "refusal"):
            raise refused(where, f"{where} is of type {shown(part.get('type'))}, but this server reads text alone", "unsupported")
        text = part.get(part["type"])
        if not isinstance(text, str):
            raise refused(f"{where}.{part['type']}", f"{where}.{part['type']} is {shown(text)}, but must be text")
        texts.append(text)
    return "".join(texts)

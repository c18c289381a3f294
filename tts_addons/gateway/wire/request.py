"""The request for a search and the events that answer it, whichever API they come by."""

from __future__ import annotations

import base64
import binascii
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tts._common.sections import field_path, main_fault, refusal
from tts.errors import ConfigError, quote
from tts.types import Message, Part, Picture, ToolCall, ToolResult
from tts_addons.gateway.config import BudgetGiven, GatewayLimits
from tts_addons.gateway.failures import ApiError, api_error, refuse_field, too_long
from tts_addons.gateway.server_events import PING
from tts_addons.gateway.wire.fields import NO_THOUGHTS

Body = TypeVar("Body", bound=BaseModel)
EffortWord = Annotated[str, Field(max_length=100)]  # any word: servers have words of their own
Bias = Annotated[float, Field(ge=-100, le=100)]
_MOST_BIASES = 1024  # the most token ids in `logit_bias`
MOST_VALUES = 100_000  # of a body
_MOST_PART_VALUES = 10_000  # of the arguments of a call, or a schema, that stand in a text
_DIGITS = 9  # the most digits of a token id
Finish = Literal["stop", "stop text", "length", "calls", "refusal"]
# Fields of bodies that are parameters of `Sampling`.
_DRAWS = ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "logit_bias")
_DATA_URL = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")
_TEXTS = ("text", "input_text", "output_text", "refusal")  # kinds of parts
_THOUGHTS = ("thinking", "redacted_thinking", "tool_reference")  # kinds of parts that are no part of the history
_FILES = ("input_audio", "audio", "input_file", "file", "input_video", "video_url")  # kinds of parts that are refused
# keys of items whose texts are no words for a model, and texts that are data
_UNREAD = re.compile(r"(?:\w+_)?(?:id|type)|status|caller|cache_control|citations|\w*(?:encrypted|signature)\w*")
_DATA = re.compile(r"(?:data:[^,]{1,100},)?[\w+/=-]{200,}\Z", re.ASCII)
_AS_TEXT, _LEFT_OUT = "reaches the model as text", "has no text for the model and was left out"
_NO_ARGUMENTS = "is no JSON object: the model is shown the call without arguments"
_INPUT_SCHEMA: Mapping[str, Any] = {  # this object itself marks a tool that takes free text
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


class BodyPart(BaseModel):
    """A part of a body. `FieldRules` reports its unknown keys."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TtsOptions(BaseModel):
    """Settings of the search in a request; an unknown field is refused.

    Args:
        strategy: The strategy in place of the preset's.
        verifier: The verifier in place of the preset's.
        budget: The tokens of the search, or its limits by unit.
        account: The account that pays in place of the key's own.
        seed: The seed of the search.
        n: The number of answers.
        distinct: Whether equal answers are given only once.
        stop: The texts that end an answer.
        vote: The members that vote, of an answer with a JSON schema.
        trace: Whether the trace is kept.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    strategy: str | None = Field(default=None, max_length=4000)
    budget: BudgetGiven | None = None
    account: str | None = Field(default=None, max_length=200)
    verifier: str | None = Field(default=None, max_length=4000)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    n: int | None = Field(default=None, ge=1)
    distinct: bool = False
    stop: str | list[str] | None = None
    vote: list[str] | None = Field(default=None, min_length=1, max_length=100)
    trace: bool = True


class SharedFields(BaseModel):
    """Fields that requests of all APIs have, and further fields of servers of open models."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, Bias] | None = Field(default=None, max_length=_MOST_BIASES)
    enable_thinking: bool | None = None
    chat_template_kwargs: Any = None
    tts: TtsOptions | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model may think before its answer."""
        return self.enable_thinking is not False and self.chat_template_kwargs not in NO_THOUGHTS

    @property
    def draws(self) -> dict[str, Any]:
        """The parameters of `Sampling` that the request gives.

        The temperature and the length of a row are not among them.

        Raises:
            ApiError: 400, a key of `logit_bias` is no token id.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in _DRAWS}
        parameters = {name: value for name, value in values.items() if value is not None}
        if self.top_k == -1:  # vLLM's word for no limit, which is 0 in `Sampling`
            parameters["top_k"] = 0
        if self.logit_bias is not None:
            biases = [(_token_id(key), bias) for key, bias in self.logit_bias.items()]
            parameters["logit_bias"] = tuple(sorted(biases))
        return parameters

    def request(self, history: History, notes: Sequence[str], **fields: Any) -> SearchRequest:
        """Return the request of a body.

        Args:
            history: The history.
            notes: The notes of the reply, beside those on the history.
            fields: The other fields of the request, by name.

        Raises:
            ApiError: 400, a field is not valid.
        """
        shared: dict[str, Any] = {"thinks": self.thinks, "options": self.tts or TtsOptions(), **fields}
        return SearchRequest(
            model=self.model,
            messages=history.messages(),
            stream=bool(self.stream),
            temperature=self.temperature,
            draws=self.draws,
            notes=(*notes, *history.notes),
            **shared,
        )


def _token_id(name: str) -> int:
    """Return the token id of a key of `logit_bias`.

    Raises:
        ApiError: 400, the key is no token id.
    """
    if not name.isdecimal() or len(name) > _DIGITS:
        raise api_error(ConfigError(f"a key of logit_bias is {quote(name)}, but must be a token id"), "logit_bias")
    return int(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A request for a search.

    Args:
        model: The name of a model or preset.
        messages: The history; texts of equal roles in a row are one message.
        stream: Whether the client asks for events as they come.
        choices: The number of answers.
        seed: The seed of the search; None: it is drawn.
        temperature: The temperature of the candidates; None: the model's.
        draws: Further parameters of the candidates' `Sampling`, by name, in place of the model's.
        max_tokens: The most tokens of a candidate; None: the rest of the context.
        stops: Texts that end an answer.
        effort: The word for a budget; "": no word is given.
        thinking_tokens: The tokens that the search may spend beside `max_tokens`; None: not limited by the request.
        thinks: Whether the model may think before its answer.
        tools: The functions that an answer may call, in the form of OpenAI's chat completions.
        tool_choice: "auto", "none", "required", or the function that must be called, in that form too.
        parallel: Whether an answer may have several calls.
        form: The form of the answer, as `response_format` of chats has it; None: free text.
        logprobs: Whether the client asks for the log-probabilities of the answers' tokens.
        options: The object `tts` of the body.
        notes: The notes of the reply on fields without effect.
        fields: The API's names of fields by the names of chat completions, where these differ.
        echo: The values of the body that the API repeats in its replies.
    """

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    choices: int = 1
    seed: int | None = None
    temperature: float | None = None
    draws: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    effort: str = ""
    thinking_tokens: int | None = None
    thinks: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    parallel: bool = True
    form: Mapping[str, Any] | None = None
    logprobs: bool = False
    options: TtsOptions = field(default_factory=TtsOptions)
    notes: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    echo: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def takes_text(self, name: str) -> bool:
        """Return whether a function stands for a tool that takes free text."""
        functions = [tool["function"] for tool in self.tools]
        return any(takes_text(function) for function in functions if function["name"] == name)

    def name_of(self, name: str) -> str:
        """Return the API's name of a field."""
        return self.fields.get(name, name)


# Answers to a request -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call of a tool in an answer.

    Args:
        id: The name of the call.
        name: The name of the tool.
        arguments: The arguments as JSON text.
    """

    id: str
    name: str
    arguments: str

    @property
    def input(self) -> str:
        """The input of a tool that takes free text."""
        return json.loads(self.arguments)["input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """One answer of a reply.

    Args:
        text: The answer's text; None: there is no text.
        thought: The thought before the text.
        calls: The calls of tools in the answer.
        refusal: The reason for which there is no answer; "": there is an answer.
        finish: The reason for the end of the answer.
        stop_text: The stop text that ended the answer; "": none did.
        tokens: The number of tokens of the answer's path.
        weight: The answer's share of the selection's weight; None: the selection weighs nothing.
        thought_share: The share of the thought in the characters of the path.
        logprobs: The tokens of the text, as `token_logprobs` gives them; None: they are not asked for, or not known.
    """

    text: str | None = None
    thought: str = ""
    calls: tuple[AnswerCall, ...] = ()
    refusal: str = ""
    finish: Finish = "stop"
    stop_text: str = ""
    tokens: int = 0
    weight: float | None = None
    thought_share: float = 0.0
    logprobs: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The tokens that a client sent and got; the report has the tokens that the search spent.

    Args:
        prompt: The tokens of the prompt, counted once, cached ones included.
        completion: The tokens of the answers of the reply, thoughts included.
        cached: The tokens of the prompt that were not computed.
        reasoning: The tokens of `completion` that are thoughts.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The part of a reply that is known before its search ends.

    Args:
        number: The name of the search.
        created: The seconds since the epoch at which the search began.
        model: The model as the client named it.
        request: The request.
    """

    number: str
    created: float
    model: str
    request: SearchRequest


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a search: its choices, counts and report.

    Args:
        choices: The answers, the best first; at least one.
        counts: The tokens.
        report: The object `tts`.
    """

    choices: tuple[AnswerChoice, ...]
    counts: Counts
    report: Mapping[str, Any]


def report_with_answers(outcome: Outcome) -> Mapping[str, Any]:
    """Return the object `tts` for an API whose replies have one answer.

    If the search gives several answers, the object has them all.
    """
    if len(outcome.choices) == 1:
        return outcome.report
    answers = [
        {
            "text": choice.text,
            "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in choice.calls],
            "finish": choice.finish,
            "weight": choice.weight,
        }
        for choice in outcome.choices
    ]
    return {**outcome.report, "answers": answers}


class Frames(ABC):
    """Writes the events of one search as bytes of a stream.

    Args:
        head: The head of the reply.
    """

    def __init__(self, head: ReplyHead) -> None:
        self.head = head
        self.sent_thought = ""
        self.sent_text = ""

    @abstractmethod
    def begin(self) -> bytes:
        """Return the beginning of a stream."""

    @abstractmethod
    def progress(self, line: str) -> bytes:
        """Return a line of progress."""

    def thought(self, piece: str) -> bytes:
        """Return a piece of the first answer's thought, while it is written."""
        self.sent_thought += piece
        return self.progress(piece)

    def text(self, piece: str) -> bytes:
        """Return a piece of the first answer's text, while it is written; its thought has ended."""
        is_first = not self.sent_text
        self.sent_text += piece
        return self.text_piece(piece, is_first=is_first)

    @abstractmethod
    def text_piece(self, piece: str, *, is_first: bool) -> bytes:
        """Return a piece of the first answer's text, as the API has it."""

    def ping(self) -> bytes:
        """Return a ping, which keeps the connection open."""
        return PING

    @abstractmethod
    def end(self, outcome: Outcome) -> bytes:
        """Return the answers beyond the pieces of the first, the usage and the end."""

    @abstractmethod
    def fail(self, error: ApiError) -> bytes:
        """Return the end of a search that failed."""


class Wire(Protocol):
    """An API: pure functions between its bodies and requests, and between events and its frames."""

    def read(self, value: Any, limits: GatewayLimits) -> SearchRequest:
        """Return the request in a body.

        Raises:
            ApiError: 400, a field is not valid or cannot be honoured.
        """
        ...

    def reply(self, head: ReplyHead, outcome: Outcome) -> dict[str, Any]:
        """Return the whole reply."""
        ...

    @property
    def frames(self) -> type[Frames]:
        """The writer of a stream."""
        ...


# Bodies ---------------------------------------------------------------------------------------------------------------


def has_many_values(text: bytes, most: int) -> bool:
    """Return whether a text in JSON has more values than `most`, without building them."""

    def count(part: bytes) -> int:
        return 1 + sum(map(part.count, (b",", b"[", b"{")))

    if count(text) <= most:
        return False
    text = text.replace(rb"\\", b"").replace(rb"\"", b"")  # then a quote begins or ends a string
    return text.count(b'"') > 4 * most or count(b"".join(text.split(b'"')[::2])) > most


def parse_json(raw: bytes, most: int = MOST_VALUES) -> Any:
    """Return the value of a body in JSON.

    Args:
        raw: The body.
        most: The most values in it.

    Raises:
        ApiError: 400, the body is not UTF-8, not JSON, or no object, or a text in it has half of a character, or it has
            too many values.
    """
    if has_many_values(raw, most):
        raise ApiError(400, f"the body has more than {most:,} values in JSON; send less", code="invalid_json")
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\ud" in raw or b"\\uD" in raw:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as failure:
        raise ApiError(400, f"the body is not UTF-8: byte {failure.start} is not valid", code="invalid_json") from None
    except UnicodeEncodeError:
        raise ApiError(
            400, "the body holds half of a character (a lone surrogate); write whole ones", code="invalid_value"
        ) from None
    except json.JSONDecodeError as failure:
        raise ApiError(
            400,
            f"the body is not JSON at line {failure.lineno}, column {failure.colno}: {failure.msg}",
            code="invalid_json",
        ) from None
    except (ValueError, RecursionError) as failure:
        why = "it is nested too deeply" if isinstance(failure, RecursionError) else str(failure)
        raise ApiError(400, f"the body is not JSON: {why}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is {quote(value)}, but must be a JSON object", code="invalid_json")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def validate_body(kind: type[Body], value: Any) -> Body:
    """Return a body's value as its schema.

    Raises:
        ApiError: 400, a field is missing, unknown or not valid.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as failure:
        fault = main_fault(failure)
        raise api_error(refusal(fault, kind), field_path(fault["loc"]) or None) from None


def stop_texts(given: str | Sequence[str] | None, field: str, most: int) -> tuple[str, ...]:
    """Return the texts that end an answer.

    Raises:
        ApiError: 400, a text is empty, or there are more than `most` texts.
    """
    texts = (given,) if isinstance(given, str) else tuple(given or ())
    if not all(texts) or len(texts) > most:
        raise refuse_field(field, f"is {quote(given)}, but must be at most {most} texts, none empty")
    return texts


# Histories ------------------------------------------------------------------------------------------------------------


class History:
    """The turns of a request, checked, and joined: neighbouring turns of one role become one message.

    Templates of models take system turns only before all others. So a later system turn becomes a marked part of the
    user's turn, where it leaves the messages before it as they were. An empty one is left out.

    Args:
        field: The name of the field that has the turns.
        limits: The operator's limits.
    """

    def __init__(self, field: str, limits: GatewayLimits) -> None:
        self._field, self.limits = field, limits
        self._places: dict[str, list[str]] = {}  # the places of what was changed, by the words for the change
        self._turns: list[tuple[str, list[Part]]] = []
        self._calls: set[str] = set()
        self._num_turns = 0

    def add(self, role: str, parts: Iterable[Part], where: str) -> None:
        """Add a turn; its parts are joined to the last turn if both have the same role.

        Args:
            role: "system", "user" or "assistant".
            parts: The parts of the turn.
            where: The place in the body, for errors.

        Raises:
            ApiError: 400, there are too many turns, or the result of a tool has no call.
        """
        self._num_turns += 1
        if self._num_turns > self.limits.messages:
            raise too_long(
                self._field, f"more than {self.limits.messages} messages", self.limits.messages, "shorten the history"
            )
        parts = list(parts)
        if role == "system" and not "".join(map(str, parts)).strip():
            return
        if role == "system" and any(earlier != "system" for earlier, _parts in self._turns):
            role, parts = "user", ["<system>\n", *parts, "\n</system>"]
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall):
                self._calls.add(part.id)
            elif isinstance(part, ToolResult) and part.id not in self._calls:
                if _LEFT_OUT not in self._places:
                    raise refuse_field(
                        where, f"is the result of the call {quote(part.id)}, but no earlier turn makes that call"
                    )
                parts[index] = str(part)  # its call may be among the items that were left out
        if self._turns and self._turns[-1][0] == role:
            _role, last_parts = self._turns[-1]
            call_kinds = (ToolCall, ToolResult)
            joins_calls = isinstance(last_parts[-1], call_kinds) and isinstance(parts[0], call_kinds)
            if not joins_calls:
                last_parts.append("\n\n")
            last_parts += parts
        else:
            self._turns.append((role, parts))

    def call(self, name: Any, arguments: Any, number: str, place: str, key: str = "arguments") -> ToolCall:
        """Return the call of an assistant's turn.

        Arguments that are no JSON object, such as those of a call that was cut, become an empty object.

        Args:
            name: The name of the tool.
            arguments: JSON text, or the arguments as an object; None: there are none.
            number: The name of the call.
            place: The place of the call in the body, for errors.
            key: The key of the arguments there.

        Raises:
            ApiError: 400, a value has another type, or there are too many values.
        """
        where = f"{place}.{key}"
        if not isinstance(arguments, str | dict | None):
            raise refuse_field(where, f"is {quote(arguments)}, but must be JSON")
        value: Any = arguments or {}
        if isinstance(value, str) and has_many_values(value.encode(), _MOST_PART_VALUES):
            raise too_long(where, "too many values", _MOST_PART_VALUES, "send less")
        text = "{}"
        try:
            if isinstance(value, str):
                value = json.loads(value, parse_constant=_refuse_constant)
            text = json.dumps({**value}, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            self._note(where, _NO_ARGUMENTS)
        return ToolCall(text_of(name, f"{place}.name"), text, number)

    def result(self, number: str, content: Any, where: str, *, failed: bool = False) -> list[Part]:
        """Return the result of a call, with its pictures behind it.

        Args:
            number: The name of the call.
            content: The content of the result.
            where: The place of the content in the body, for errors.
            failed: Whether the tool failed.
        """
        parts = self.parts(content, where)
        text = "".join(part for part in parts if isinstance(part, str))
        pictures = [part for part in parts if not isinstance(part, str)]
        return [ToolResult(number, f"Error: {text}" if failed else text), *pictures]

    def parts(self, content: Any, where: str) -> list[Part]:
        """Return the texts and pictures of a content, without thoughts.

        Args:
            content: A text, or the parts as any of the APIs has them.
            where: The place of the content in the body, for errors.

        Raises:
            ApiError: 400, a part cannot be read.
        """
        if isinstance(content, str):
            return [content]
        if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
            raise refuse_field(where, f"is {quote(content)}, but must be text or a list of parts")
        return [part for index, block in enumerate(content) for part in self.part(block, f"{where}[{index}]")] or [""]

    def part(self, block: Mapping[str, Any], place: str) -> list[Part]:
        """Return the text or picture of a part; empty: it is a thought, or has none."""
        kind = block.get("type")
        if kind in _TEXTS:
            key = "refusal" if kind == "refusal" else "text"
            return [text_of(block.get(key), f"{place}.{key}")]
        if kind in ("image_url", "input_image", "image"):
            return [_picture_in(block, place, self.limits)]
        return [] if kind in _THOUGHTS else ["\n", self.foreign_text(block, place) or f"[{kind}]", "\n"]

    def foreign_text(self, block: Mapping[str, Any], where: str) -> str:
        """Return the text of an item or part of a kind that models do not read; "": it has none.

        Such an item is the search of a vendor, or of a type that is newer than this code. A note tells its place.

        Raises:
            ApiError: 400, it has no type, or is a sound or a file.
        """
        kind = text_of(block.get("type"), f"{where}.type")
        if kind in _FILES:
            fault = f"is of type {quote(kind)}, but this server reads text and pictures alone"
            raise refuse_field(where, fault, "unsupported")
        text = text_in(block)
        self._note(where, _AS_TEXT if text else _LEFT_OUT)
        return f"[{kind[:80]}]\n{text}" if text else ""

    def _note(self, where: str, change: str) -> None:
        self._places.setdefault(change, []).append(where)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the reply: the first place of each change, and the number of others."""
        return tuple(
            f"{places[0]} {change}" + (f"; so it is with {len(places) - 1} more" if places[1:] else "")
            for change, places in self._places.items()
        )

    def messages(self) -> tuple[Message, ...]:
        """Return the messages.

        Raises:
            ApiError: 400, there is no message, or the messages are too long.
        """
        if not self._turns:
            raise refuse_field(self._field, "has no turn, but must have one at least")
        messages = tuple(Message.of(role, _merge(parts)) for role, parts in self._turns)
        size = sum(len(message.content) for message in messages)
        if size > self.limits.characters:
            raise too_long(self._field, f"{size} characters", self.limits.characters, "shorten the history")
        return messages


def _merge(parts: Sequence[Part]) -> list[Part]:
    """Return parts with neighbouring texts joined, and without empty texts."""
    merged: list[Part] = []
    for part in parts:
        last_part = merged[-1] if merged else None
        if isinstance(part, str) and isinstance(last_part, str):
            merged[-1] = last_part + part
        elif part:
            merged.append(part)
    return merged


def text_in(block: Any) -> str:
    """Return the texts in an item or part of any kind, a line each, without names, states and data."""
    texts: list[str] = []
    values = [block]
    while values:
        value = values.pop()
        if isinstance(value, str) and value.strip() and not _DATA.match(value):
            texts.append(value)
        elif isinstance(value, list):
            values += reversed(value)
        elif isinstance(value, dict):
            values += [inner for key, inner in reversed(value.items()) if not _UNREAD.fullmatch(key[:80])]
    return "\n".join(texts)


def text_of(value: Any, where: str) -> str:
    """Return a value that must be text; `where` is its place in the body, for errors.

    Raises:
        ApiError: 400, it is no text.
    """
    if not isinstance(value, str):
        raise refuse_field(where, f"is {quote(value)}, but must be text")
    return value


def flat(value: Any) -> Any:
    """Return a tool, or a choice of tools, with the fields that chats nest under its type on top."""
    kind = value.get("type") if isinstance(value, dict) else None
    inner = value.get(kind) if isinstance(kind, str) else None
    return {**inner, "type": kind} if isinstance(inner, dict) else value


def function_of(tool: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a flat tool as a function of chats.

    A tool that takes free text becomes a function with the text as its argument `input`.

    Args:
        tool: The tool.
        name: Its name for the model.
    """
    details = {key: tool[key] for key in ("description", "parameters") if tool.get(key) is not None}
    if tool.get("type") == "custom":
        form = flat(tool.get("format"))
        grammar = form.get("definition") if isinstance(form, dict) else None
        lines = [str(details.get("description") or ""), f"The input has the grammar:\n{grammar}" if grammar else ""]
        details = {"description": "\n".join(filter(None, lines)), "parameters": _INPUT_SCHEMA}
    return {"type": "function", "function": {"name": name, **details}}


def takes_text(function: Mapping[str, Any]) -> bool:
    """Return whether a function stands for a tool that takes free text (see `function_of`)."""
    return function.get("parameters") is _INPUT_SCHEMA


def choose_tools(
    tools: tuple[Mapping[str, Any], ...], choice: str | Mapping[str, Any] | None, names: Mapping[str, str]
) -> tuple[tuple[Mapping[str, Any], ...], str | Mapping[str, Any]]:
    """Return the functions that may be called, and the tool choice, as chat completions have them.

    Args:
        tools: The functions of the body.
        choice: The choice in the body.
        names: The names of functions for the model by those in the choice, where they differ.

    Raises:
        ApiError: 400, the choice asks for a tool that cannot be served.
    """
    if choice is None or isinstance(choice, str):
        return tools, choice or "auto"

    def name_of(one: Any) -> str:
        one = flat(one)
        name: Any = one.get("name") if isinstance(one, dict) and one.get("type") in ("function", "custom") else None
        if not isinstance(name, str):
            fault = f"asks for {quote(one)}, but this server calls functions alone; their vendor runs other tools"
            raise refuse_field("tool_choice", fault, "unsupported")
        return names.get(name, name)

    flat_choice = flat(choice)
    if flat_choice.get("type") == "allowed_tools":
        allowed: Any = flat_choice.get("tools")
        allowed_names = [name_of(one) for one in allowed] if isinstance(allowed, list) else []
        mode = flat_choice.get("mode", "auto")
        chosen_tools = tuple(tool for tool in tools if flat(tool).get("name") in allowed_names)
        return chosen_tools, mode if isinstance(mode, str) else "auto"
    return tools, {"type": "function", "function": {"name": name_of(choice)}}


def _picture_in(block: Mapping[str, Any], place: str, limits: GatewayLimits) -> Picture:
    """Return the picture of a part, as any of the APIs has it; `place` is its place in the body, for errors."""
    url, detail, place = block.get("image_url"), block.get("detail"), f"{place}.image_url"
    if block.get("type") == "image_url":
        picture: Any = url if isinstance(url, dict) else {}
        url, detail, place = picture.get("url"), picture.get("detail"), f"{place}.url"
    if block.get("type") == "image":
        place, source = place.replace("image_url", "source"), block.get("source")
        found: Any = source if isinstance(source, dict) else {}
        kind = found.get("type")
        if kind not in ("base64", "url"):
            raise refuse_field(place, f"is {quote(source)}, but must be of type base64 or url", "unsupported")
        data_url = f"data:{found.get('media_type')};base64,{found.get('data')}"
        url, place = (data_url, f"{place}.data") if kind == "base64" else (found.get("url"), f"{place}.url")
    return picture_of(url, detail, place, limits)


def picture_of(url: Any, detail: Any, where: str, limits: GatewayLimits) -> Picture:
    """Return a picture of a body.

    Args:
        url: The data url, or an https url at a host that the operator lists.
        detail: The resolution at which the picture is read; None: the server's default.
        where: The place in the body, for errors.
        limits: The operator's limits.

    Raises:
        ApiError: 400, the url is none of these, or the picture is too large.
    """
    if not isinstance(url, str) or not url:
        raise refuse_field(where, f"is {quote(url)}, but must be a url")
    size = len(url)
    max_size = limits.image_bytes * 4 // 3 + 100  # base64 takes 4 characters for 3 bytes; 100 for the head of the url
    if size > max_size:
        raise refuse_field(
            where,
            f"has {size} characters, but limits.image_bytes is {limits.image_bytes}, {max_size} characters",
            "too_long",
        )
    picture = Picture(url, detail if isinstance(detail, str) else "")
    data_url_head = _DATA_URL.match(url)
    if data_url_head:
        data = url[data_url_head.end() :]
        try:
            base64.b64decode(data, validate=True)
        except binascii.Error:
            raise refuse_field(where, f"is {quote(url)}, but its data is not valid base64") from None
        return picture
    scheme, host = _scheme_and_host(url) or ("", "")
    if scheme != "https" or host not in limits.image_hosts:
        raise refuse_field(
            where, f"is {quote(url)}, but this server takes pictures as data urls (png, jpeg, gif, webp) alone"
        )
    return picture


def _scheme_and_host(url: str) -> tuple[str, str] | None:
    """Return the scheme and host of a url; None: the url has credentials or a port, or is not valid."""
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and parts.port is None and parts.hostname == parts.netloc.lower()
    except ValueError:
        return None
    return (parts.scheme, parts.hostname or "") if is_plain else None

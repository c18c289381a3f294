"""Responses: `POST /v1/responses`, as OpenAI's newer clients speak it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from tts.errors import quote
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError, refuse_field
from tts_addons.gateway.server_events import named_event
from tts_addons.gateway.wire.fields import RESPONSES
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
    TtsOptions,
    choose_tools,
    function_of,
    report_with_answers,
    stop_texts,
    takes_text,
    text_in,
    text_of,
    validate_body,
)

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # the words that a reply of the API may repeat
_LOGPROBS = "message.output_text.logprobs"  # the item of `include` that asks for log-probabilities
_MOST_STOPS = 16
_FIELDS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "n": "tts.n",
    "seed": "tts.seed",
    "stop": "tts.stop",
    "logprobs": "include",
}
# the field of a call with its input, and the name of the events that stream it
_INPUTS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
_CALL_KEYS = ("type", "id", "call_id", "status", "name", "namespace")  # all others of a vendor's call are its arguments
_LISTS = ("additional_tools", "tool_search_output")  # kinds of items that list tools
PREFIX: Final = "resp_"  # the beginning of the names of responses


class TextOptions(BodyPart):
    """The form of the answer."""

    format: dict[str, Any] | None = None


class ReasoningOptions(BodyPart):
    """The word for a budget."""

    effort: EffortWord | None = None


class ResponsesBody(SharedFields):
    """A request for a response."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None


def read(value: Any, limits: GatewayLimits) -> SearchRequest:
    """Return the request in a body.

    Raises:
        ApiError: 400, a field is not valid or cannot be honoured.
    """
    body = validate_body(ResponsesBody, value)
    notes = list(RESPONSES.check(value))
    tools, namespaces = _tools(body.tools or (), _tools_in(items_of(body.input)), notes)
    names = {name: unique_name for unique_name, (_space, name) in namespaces.items()}
    tools, tool_choice = choose_tools(tools, body.tool_choice, names)
    options = body.tts or TtsOptions()
    text = body.text or TextOptions()
    reasoning = body.reasoning or ReasoningOptions()
    is_parallel = body.parallel_tool_calls is not False
    shown_effort = reasoning.effort if reasoning.effort in _EFFORTS else None
    is_mode = isinstance(tool_choice, str)
    shown_choice = tool_choice if is_mode else {"type": "function", "name": tool_choice["function"]["name"]}
    return body.request(
        _history(body, namespaces, limits),
        notes,
        max_tokens=body.max_output_tokens,
        stops=stop_texts(options.stop, "tts.stop", _MOST_STOPS),
        effort=reasoning.effort or "",
        tools=tools,
        tool_choice=tool_choice,
        parallel=is_parallel,
        form=_form(text.format),
        logprobs=_LOGPROBS in (body.include or ()),
        fields=_FIELDS,
        echo={
            "instructions": body.instructions,
            "metadata": body.metadata or {},
            "temperature": body.temperature,
            "top_p": body.top_p,
            "max_output_tokens": body.max_output_tokens,
            "previous_response_id": body.previous_response_id,
            "store": body.store is not False,
            "parallel_tool_calls": is_parallel,
            "reasoning": {"effort": shown_effort, "summary": None},
            "text": {"format": text.format or {"type": "text"}},
            "truncation": "disabled",
            "tools": [_flat(tool, namespaces) for tool in tools],
            "tool_choice": shown_choice,
            "namespaces": namespaces,
        },
    )


def items_of(given: Any) -> list[Any]:
    """Return the input of a body as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _tools_in(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools in items of the input, where some clients list their tools."""
    lists: list[Any] = [item.get("tools") for item in items if item.get("type") in _LISTS]
    return [tool for tools in lists if isinstance(tools, list) for tool in tools if isinstance(tool, dict)]


def _flat(tool: Mapping[str, Any], namespaces: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a tool as the replies of this API have it, with its name inside of its namespace."""
    function = tool["function"]
    name = function["name"]
    if name in namespaces:
        _space, name = namespaces[name]
    description = {"description": function["description"]} if "description" in function else {}
    if takes_text(function):
        return {"type": "custom", "name": name, **description}
    return {"type": "function", "name": name, **description, "parameters": function.get("parameters"), "strict": None}


def _form(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the form of the answer as chat completions have it; None: the request gives no form."""
    if given is None or given.get("type") != "json_schema":
        return given
    return {
        "type": "json_schema",
        "json_schema": {name: given[name] for name in ("name", "schema", "strict") if name in given},
    }


def _tools(
    given: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], notes: list[str]
) -> tuple[tuple[Mapping[str, Any], ...], dict[str, tuple[str, str]]]:
    """Return the functions as chat completions have them, and the origin of each function in a namespace.

    A note is added on tools that are left out.

    Args:
        given: The tools of the body, each of another name.
        found: The tools in items of the input, which may be given again; the last one counts.
        notes: The notes of the reply, to which this function adds.

    Returns:
        The functions, and for each function in a namespace its (namespace, name there) by its unique name.
    """
    listed: dict[tuple[str, str], Mapping[str, Any]] = {}  # by (namespace or "", name); an item may repeat a tool
    vendor_tools: list[str] = []  # the names of tools that only their vendor runs
    for place, tool in enumerate((*given, *found)):
        is_named_list = isinstance(tool.get("tools"), list) and isinstance(tool.get("name"), str)
        is_space = tool.get("type") == "namespace" and is_named_list
        inner_tools: list[Any] = tool["tools"] if is_space else [tool]
        for inner_tool in inner_tools:
            if not isinstance(inner_tool, dict) or inner_tool.get("type") not in ("function", "custom"):
                vendor_tools.append(_name(inner_tool))
                continue
            if not isinstance(inner_tool.get("name"), str):
                raise refuse_field(f"tools[{place}].name", f"is {quote(inner_tool.get('name'))}, but must be text")
            key = (tool["name"] if is_space else "", inner_tool["name"])
            if key in listed and place < len(given):
                raise refuse_field(f"tools[{place}].name", f"is {quote(key[1])}, which is there twice")
            listed[key] = inner_tool
    if vendor_tools:
        notes.append(f"tools that only their vendor runs are left out: {', '.join(sorted(vendor_tools))[:300]}")
    name_counts = Counter(name for _space, name in listed)
    functions: list[Mapping[str, Any]] = []
    namespaces: dict[str, tuple[str, str]] = {}
    for (space, name), tool in listed.items():
        unique_name = f"{space}__{name}" if space and name_counts[name] > 1 else name
        if space:
            namespaces[unique_name] = (space, name)
        functions.append(function_of(tool, unique_name))
    return tuple(functions), namespaces


def _name(tool: Any) -> str:
    return str(tool.get("name") or tool.get("type")) if isinstance(tool, dict) else str(tool)[:80]


def _history(body: ResponsesBody, namespaces: Mapping[str, tuple[str, str]], limits: GatewayLimits) -> History:
    """Return the instructions and the input items of a body.

    Calls of tools that clients of the vendor run, such as `local_shell_call`, are calls like others. Their names and
    arguments are those of the item. Items that models do not read become text.

    Args:
        body: The body.
        namespaces: The (namespace, name there) of each function in a namespace, by its unique name.
        limits: The operator's limits.

    Raises:
        ApiError: 400, an item cannot be read.
    """
    history = History("input", limits)
    if body.instructions:
        history.add("system", [body.instructions], "instructions")
    unique_names = {origin: unique_name for unique_name, origin in namespaces.items()}
    for index, item in enumerate(items_of(body.input)):
        where = f"input[{index}]"
        kind = str(item.get("type") or ("message" if "role" in item else None))
        if kind == "message":
            role = _ROLES.get(str(item.get("role")))
            if role is None:
                raise refuse_field(f"{where}.role", f"is {quote(item.get('role'))}, but must be {', '.join(_ROLES)}")
            history.add(role, history.parts(item.get("content"), f"{where}.content"), where)
        elif kind.endswith("_call") and (kind == "function_call" or "call_id" in item):
            name = str(item.get("name", kind.removesuffix("_call")))
            name = unique_names.get((str(item.get("namespace")), name), name)
            call = history.call(name, _arguments(item, where), str(item.get("call_id")), where)
            history.add("assistant", [call], where)
        elif kind.endswith("_output"):
            is_vendors = kind not in ("function_call_output", "custom_tool_call_output")
            output = text_in(item.get("output")) if is_vendors else item.get("output")
            number = str(item.get("call_id", item.get("id")))
            history.add("user", history.result(number, output, f"{where}.output"), f"{where}.call_id")
        elif kind not in ("reasoning", "additional_tools"):
            text = history.foreign_text(item, where)
            if text:
                history.add("assistant", [text], where)
    return history


def _arguments(item: Mapping[str, Any], where: str) -> Any:
    """Return the arguments of a call; `where` is its place in the body, for errors."""
    if item["type"] == "function_call":
        return item.get("arguments")
    if item["type"] == "custom_tool_call":
        text_of(item.get("input"), f"{where}.input")
    return {key: value for key, value in item.items() if key not in _CALL_KEYS}


# Replies --------------------------------------------------------------------------------------------------------------


def reply(head: ReplyHead, outcome: Outcome) -> dict[str, Any]:
    """Return the whole reply: the best answer."""
    return _reply(head, outcome, _output(head, outcome))


def _reply(head: ReplyHead, outcome: Outcome, output: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole response with given output items."""
    is_cut = outcome.choices[0].finish == "length"
    return {
        **opening(head, "incomplete" if is_cut else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": output,
        "usage": usage_of(outcome.counts),
        "tts": report_with_answers(outcome),
    }


def opening(
    head: ReplyHead, status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
) -> dict[str, Any]:
    """Return a response without output."""
    echo = {name: value for name, value in head.request.echo.items() if name != "namespaces"}
    return {
        "id": PREFIX + head.number,
        "object": "response",
        "created_at": int(head.created),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": head.model,
        **echo,
        "output": [],
        "usage": None,
    }


def failure(head: ReplyHead, error: ApiError) -> dict[str, Any]:
    """Return the response of a search that failed or was cancelled."""
    if error.code == "cancelled":
        return opening(head, "cancelled")
    if error.code == "context_length_exceeded":  # a word of its own to clients, which then shorten the history
        code = error.code
    elif error.status == 429:
        code = "rate_limit_exceeded"
    elif error.status < 500:
        code = "invalid_prompt"
    else:
        code = "server_error"
    return {**opening(head, "failed"), "error": {"code": code, "message": error.message}}


def _output(head: ReplyHead, outcome: Outcome) -> list[dict[str, Any]]:
    """Return the items of the best answer: its thought, its message and its calls."""
    choice, number = outcome.choices[0], head.number
    status = "incomplete" if choice.finish == "length" else "completed"
    items: list[dict[str, Any]] = []
    if choice.thought:
        items.append(_reasoning(number, choice.thought))
    if choice.text or not choice.calls:
        part = {"type": "refusal", "refusal": choice.refusal} if choice.refusal else _text_part(choice)
        items.append(
            {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": status, "content": [part]}
        )
    for place, call in enumerate(choice.calls):
        space, name = head.request.echo["namespaces"].get(call.name, ("", call.name))
        names = {"name": name, "namespace": space} if space else {"name": name}
        item = {"id": f"fc_{number}_{place}", "type": "function_call", "call_id": call.id, **names, "status": status}
        if head.request.takes_text(call.name):
            item |= {"id": f"ctc_{number}_{place}", "type": "custom_tool_call", "input": call.input}
        else:
            item["arguments"] = call.arguments
        items.append(item)
    return items


def _reasoning(number: str, text: str) -> dict[str, Any]:
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _text_part(choice: AnswerChoice) -> dict[str, Any]:
    return {"type": "output_text", "text": choice.text or "", "annotations": [], "logprobs": choice.logprobs or []}


def usage_of(counts: Counts) -> dict[str, Any]:
    """Return counts of tokens in the API's terms."""
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.completion,
    }


class ResponseFrames(Frames):
    """Writes a stream: progress, then the items of the answer, and the whole response.

    Progress is written as the summary of a reasoning item.
    """

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._number = -1  # the number of the last event
        self._reasoning_text = ""  # the sent text of the reasoning item: progress and thoughts

    def begin(self) -> bytes:
        """Return the response without output."""
        empty = opening(self.head, "in_progress")
        return self._event("created", response=empty) + self._event("in_progress", response=empty)

    def progress(self, line: str) -> bytes:
        """Return a line of progress."""
        item_start = b"" if self._reasoning_text else self._begin_reasoning()
        self._reasoning_text += line
        return item_start + self._event("reasoning_summary_text.delta", **self._summary(), delta=line)

    def text_piece(self, piece: str, *, is_first: bool) -> bytes:
        """See `Frames.text_piece`; the first piece ends the reasoning item and begins the message."""
        item_start = b""
        if is_first:
            end_of_reasoning = self._end_reasoning() if self._reasoning_text else b""
            empty_outcome = Outcome((AnswerChoice(text="", finish="stop"),), Counts(0, 0), {})
            (message_item,) = _output(self.head, empty_outcome)
            item_start = end_of_reasoning + b"".join(self._begin_message(message_item))
        return item_start + self._event("output_text.delta", **self._message_place(), logprobs=[], delta=piece)

    def end(self, outcome: Outcome) -> bytes:
        """Return the events that are not sent yet: the rest of the answer's items, and the whole response."""
        output = _output(self.head, outcome)
        events: list[bytes] = []
        thought = outcome.choices[0].thought
        if thought:
            unsent_thought = thought.removeprefix(self.sent_thought)
            if unsent_thought:
                events.append(self.progress(unsent_thought))
            del output[0]  # the item of the thought; the item below has the progress too
        if self._reasoning_text:
            if not self.sent_text:
                events.append(self._end_reasoning())
            output.insert(0, _reasoning(self.head.number, self._reasoning_text))
        for index, item in enumerate(output):
            if item["type"] == "message":
                events += self._message(item)
            elif item["type"] in _INPUTS:
                events += self._call(index, item)
        response = _reply(self.head, outcome, output)
        events.append(self._event(response["status"], response=response))
        return b"".join(events)

    def fail(self, error: ApiError) -> bytes:
        """Return the failed response, which ends a stream."""
        return self._event("failed", response=failure(self.head, error))

    def _summary(self) -> dict[str, Any]:
        return {"item_id": f"rs_{self.head.number}", "output_index": 0, "summary_index": 0}

    def _begin_reasoning(self) -> bytes:
        """Return the events that begin the reasoning item."""
        item = {**_reasoning(self.head.number, ""), "summary": []}
        part = {"type": "summary_text", "text": ""}
        added = self._event("output_item.added", output_index=0, item=item)
        return added + self._event("reasoning_summary_part.added", **self._summary(), part=part)

    def _end_reasoning(self) -> bytes:
        """Return the events that end the reasoning item."""
        item = _reasoning(self.head.number, self._reasoning_text)
        return b"".join(
            [
                self._event("reasoning_summary_text.done", **self._summary(), text=self._reasoning_text),
                self._event("reasoning_summary_part.done", **self._summary(), part=item["summary"][0]),
                self._event("output_item.done", output_index=0, item=item),
            ]
        )

    def _message_place(self) -> dict[str, Any]:
        """Return the place of the message: after the reasoning item, if there is one."""
        index = 1 if self._reasoning_text else 0
        return {"item_id": f"msg_{self.head.number}", "output_index": index, "content_index": 0}

    def _begin_message(self, item: Mapping[str, Any]) -> list[bytes]:
        """Return the events that begin a message item, with its part still empty."""
        (part,) = item["content"]
        place = self._message_place()
        empty_part = {**part, "refusal": ""} if part["type"] == "refusal" else {**part, "text": "", "logprobs": []}
        empty_item = {**item, "status": "in_progress", "content": []}
        return [
            self._event("output_item.added", output_index=place["output_index"], item=empty_item),
            self._event("content_part.added", **place, part=empty_part),
        ]

    def _message(self, item: Mapping[str, Any]) -> list[bytes]:
        """Return the unsent events of a message item."""
        (part,) = item["content"]
        place = self._message_place()
        if part["type"] == "refusal":
            field, kind, logprobs = "refusal", "refusal", {}
        else:
            field, kind, logprobs = "text", "output_text", {"logprobs": part["logprobs"]}
        text = part[field]
        unsent_text = text.removeprefix(self.sent_text)
        events = [] if self.sent_text else self._begin_message(item)
        if unsent_text or not self.sent_text:
            events.append(self._event(f"{kind}.delta", **place, **logprobs, delta=unsent_text))
        return [
            *events,
            self._event(f"{kind}.done", **place, **logprobs, **{field: text}),
            self._event("content_part.done", **place, part=part),
            self._event("output_item.done", output_index=place["output_index"], item=item),
        ]

    def _call(self, index: int, item: Mapping[str, Any]) -> list[bytes]:
        """Return all events of the item of a call."""
        place = {"item_id": item["id"], "output_index": index}
        field, events_name = _INPUTS[item["type"]]
        name = {"name": item["name"]} if field == "arguments" else {}
        return [
            self._event("output_item.added", output_index=index, item={**item, "status": "in_progress", field: ""}),
            self._event(f"{events_name}.delta", **place, delta=item[field]),
            self._event(f"{events_name}.done", **place, **name, **{field: item[field]}),
            self._event("output_item.done", output_index=index, item=item),
        ]

    def _event(self, kind: str, **members: Any) -> bytes:
        self._number += 1
        return named_event(f"response.{kind}", {"type": f"response.{kind}", "sequence_number": self._number, **members})


frames = ResponseFrames

"""A task with the changes of one request: texts that end an answer, and tools that an answer may call.

Tools are offered in a system message. A server that takes them natively gets them so, and its calls are written into
the path in the form below. Every other model is shown them as text, and calls are read from its text:

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>

That is the form of Hermes and Qwen models, and any model can write it. So candidates with calls are texts like others:
every strategy can draw them, and they are voted on as structured values.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError, quote
from tts.tasks.base import Task, keyed_task
from tts.tasks.schemas.limits import SchemaLimits
from tts.tasks.schemas.validation import Allowance, Schema
from tts.tasks.schemas.values import normal
from tts.thoughts import THINK
from tts.types import Message, Problem, Prompt, ToolOffer

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MARK = "tool calls: "  # begins an answer that is calls


@dataclass(frozen=True)
class Tool:
    """A function that an answer may call.

    Args:
        name: The name of the tool.
        shown: Its description as JSON text.
        schema: The schema of its arguments.
    """

    name: str
    shown: str
    schema: Schema


@dataclass(frozen=True)
class Tools:
    """The tools of a request.

    Args:
        tools: The tools by name.
        required: Whether an answer must call one.
        only: The tool that an answer must call; "": any tool.
        parallel: Whether an answer may call several tools.
    """

    tools: Mapping[str, Tool]
    required: bool = False
    only: str = ""
    parallel: bool = True

    def describe(self) -> str:
        """Return the text of the system message that shows the tools."""
        lines = "\n".join(tool.shown for tool in self.tools.values())
        which = f" Call {self.only}." if self.only else " Call at least one." if self.required else ""
        number = "" if self.parallel else " Make at most one call."
        return (
            f"You may call these functions:\n<tools>\n{lines}\n</tools>\n"
            "Write each call as a JSON object with the function's name and arguments, between tags:\n"
            f'<tool_call>\n{{"name": "…", "arguments": {{…}}}}\n</tool_call>{which}{number}'
        )

    def offer(self) -> ToolOffer:
        """Return the tools as a part of the system message.

        Servers that take tools get them natively. Elsewhere they are written as by `describe`.
        """
        choice: Any = "required" if self.required else "auto"
        if self.only:
            choice = {"type": "function", "function": {"name": self.only}}
        shown_tools = tuple(tool.shown for tool in self.tools.values())
        return ToolOffer(shown_tools, json.dumps(choice), self.parallel, self.describe())

    def calls_in(self, text: str) -> list[dict[str, Any]] | None:
        """Return the calls of a text; None: a call is not valid, or the request allows no such calls."""
        calls: list[dict[str, Any]] = []
        allowance = Allowance()
        _text_without_calls, call_texts = _split_calls(text)
        for call_text in call_texts:
            try:
                call = json.loads(call_text)
                # fails for half characters and for 1e999
                json.dumps(call, ensure_ascii=False, allow_nan=False).encode()
            except (ValueError, RecursionError):
                return None
            name: Any = call.get("name", "") if isinstance(call, dict) else None
            tool = self.tools.get(name) if isinstance(name, str) else None
            if tool is None:
                return None
            arguments: Any = call.get("arguments", {})
            if not isinstance(arguments, dict) or not tool.schema.is_valid(arguments, allowance):
                return None
            calls.append({"name": tool.name, "arguments": arguments})
        lacks_call = self.required and not calls
        calls_another = bool(self.only) and any(call["name"] != self.only for call in calls)
        has_too_many = len(calls) > 1 and not self.parallel
        return None if lacks_call or calls_another or has_too_many else calls


class RequestTask(Task):
    """A task with the stop texts and tools of one request.

    Tool calls are equal answers if their names and arguments are equal values.

    Args:
        inner: The task for answers without tool calls.
        stops: Texts that end an answer, and are not part of it.
        tools: The tools that an answer may call.
    """

    def __init__(self, inner: Task, stops: Sequence[str] = (), tools: Tools | None = None) -> None:
        self.inner, self.stops, self.tools = inner, tuple(stops), tools
        self.name = inner.name
        self.step_stop = inner.step_stop
        self.answer_cue = getattr(inner, "answer_cue", "")
        self._keyed = keyed_task(inner)

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> Prompt:
        """Return the inner task's prompt, after the system message that shows the tools."""
        if self.tools is not None:
            messages = (Message("user", problem.prompt),) if isinstance(problem.prompt, str) else problem.prompt
            has_system = bool(messages) and messages[0].role == "system"
            offer = self.tools.offer()
            system = messages[0].append("\n\n", offer) if has_system else Message.of("system", (offer,))
            problem = dataclasses.replace(problem, prompt=(system, *messages[has_system:]))
        return self.inner.prompt(problem, kind, texts)

    def split(self, text: str) -> list[str]:
        """Return the inner task's steps."""
        return self.inner.split(text)

    def is_finished(self, text: str) -> bool:
        """Whether the inner task is finished, or the answer has a stop text."""
        return self.inner.is_finished(text) or self.cut(answer := THINK.response(text)) != answer

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length of the inner task."""
        return self.inner.typical_tokens(kind)

    def cut(self, text: str) -> str:
        """Return a text up to the first of the stop texts."""
        return text[: min((at for stop in self.stops if (at := text.find(stop)) >= 0), default=len(text))]

    def calls(self, text: str, answer: str | None) -> tuple[str, list[dict[str, Any]]]:
        """Return a text without its calls, and its valid calls.

        Args:
            text: A text of the model.
            answer: The result of `extract` for this text.
        """
        text_without_calls, call_texts = _split_calls(text)
        if self.tools is None or answer is None or not answer.startswith(_MARK) or not call_texts:
            return text, []  # only a text with valid calls has both a tag and an answer with the mark
        return text_without_calls.strip(), json.loads(answer.removeprefix(_MARK))

    def is_call(self, answer: str | None) -> bool:
        """Whether an answer is calls of tools."""
        return self.tools is not None and answer is not None and answer.startswith(_MARK)

    def extract(self, text: str) -> str | None:
        """Return the calls as text, else the inner task's answer.

        None: the calls are not valid, required calls are missing, or the inner task finds no answer.
        """
        text = self.cut(text)
        if self.tools is None:
            return self.inner.extract(text)
        calls = self.tools.calls_in(text)
        if calls is None:
            return None
        return f"{_MARK}{json.dumps(calls, ensure_ascii=False)}" if calls else self.inner.extract(text)

    def canonical(self, answer: str) -> str:
        """Return calls with sorted arguments; else the inner task's form."""
        if self.tools is not None and answer.startswith(_MARK):
            return _MARK + json.dumps(normal(json.loads(answer.removeprefix(_MARK))), sort_keys=True)
        return self.inner.canonical(answer)

    def known_key(self, answer: str) -> str | None:
        """Return the key if the inner task has it without computation."""
        own = self._keyed is None or answer.startswith(_MARK)
        return self.canonical(answer) if own else self._keyed.known_key(answer)  # pyright: ignore[reportOptionalMemberAccess]

    def key(self, answer: str) -> str:
        """Return the inner task's key, or the canonical form of calls."""
        return self.canonical(answer) if self._keyed is None or answer.startswith(_MARK) else self._keyed.key(answer)

    def decide(self, a: str, b: str) -> bool | None:
        """Whether two answers are equal calls, otherwise the decision of the inner task."""
        if _MARK in (a[: len(_MARK)], b[: len(_MARK)]):
            return self.canonical(a) == self.canonical(b)
        return self.inner.decide(a, b)

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers are equal calls, otherwise whether the inner task treats them as equal."""
        return bool(self.decide(a, b)) if a.startswith(_MARK) or b.startswith(_MARK) else self.inner.equivalent(a, b)


class PairwiseRequestTask(RequestTask):
    """A `RequestTask` whose inner task has no keys, so that answers are compared by pairs."""

    decide = RequestTask.decide
    equivalent = RequestTask.equivalent


def request_task(inner: Task, stops: Sequence[str], tools: Tools | None) -> Task:
    """Return a task with stop texts and tools."""
    return (PairwiseRequestTask if keyed_task(inner) is None else RequestTask)(inner, stops, tools)


def tools_of(
    given: Sequence[Mapping[str, Any]],
    choice: str | Mapping[str, Any] | None,
    *,
    parallel: bool,
    limits: SchemaLimits | None = None,
) -> Tools | None:
    """Return the tools of a request; None: there are none, or none may be called.

    Args:
        given: The tools as the request has them.
        choice: The request's `tool_choice`.
        parallel: Whether an answer may have several calls.
        limits: The limits of all schemas of the request; None: limits for these tools alone.

    Raises:
        ConfigError: a tool is not a function with a name and a JSON schema within the limits, or the chosen tool is not
            among the tools.
    """
    limits = limits or SchemaLimits()
    listed_tools = [_tool(description, limits) for description in given]
    tools = {tool.name: tool for tool in listed_tools}
    if len(tools) < len(given):
        raise ConfigError("tools has two functions of one name, but each needs a name of its own")
    function: Any = choice.get("function") if isinstance(choice, Mapping) else None
    only: Any = function.get("name") if isinstance(function, Mapping) else ""
    if isinstance(choice, Mapping) and (not isinstance(only, str) or only not in tools):
        raise ConfigError(f"tool_choice is {quote(choice)}, but must name a function of tools")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise ConfigError(f"tool_choice is {quote(choice)}, but must be 'auto', 'none', 'required' or a function")
    if choice == "required" and not tools:
        raise ConfigError("tool_choice is 'required', but tools is empty")
    if not tools or choice == "none":
        return None
    return Tools(tools, bool(only) or choice == "required", only, parallel)


def _tool(given: Mapping[str, Any], limits: SchemaLimits) -> Tool:
    """Return the tool that a request describes.

    Raises:
        ConfigError: the tool is no function with a name and a JSON schema within the limits.
    """
    function: Any = given.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if given.get("type") != "function" or not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name):
        raise ConfigError(f"a tool is {quote(given)}, but must be a function with a name of letters, digits, _ and -")
    schema = function.get("parameters") or {"type": "object"}
    if not isinstance(schema, Mapping):
        raise ConfigError(f"parameters of {name} is {quote(schema)}, but must be a JSON schema")
    keys = ("name", "description", "parameters")
    shown_function = {key: function[key] for key in keys if function.get(key) is not None}
    shown = json.dumps({"type": "function", "function": shown_function}, ensure_ascii=False)
    return Tool(name, shown, limits.schema(dict(schema)))


def _split_calls(text: str) -> tuple[str, list[str]]:
    """Return a text without its calls and their tags, and the texts of the calls, in linear time."""
    pieces, calls = list[str](), list[str]()
    position = 0
    while True:
        begin = text.find(_OPEN, position)
        end = -1 if begin < 0 else text.find(_CLOSE, begin)
        if end < 0:
            break
        pieces.append(text[position:begin])
        calls.append(text[begin + len(_OPEN) : end].strip())
        position = end + len(_CLOSE)
    return "".join([*pieces, text[position:]]), calls

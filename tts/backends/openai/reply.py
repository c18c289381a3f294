"""Parsing of a server's reply: the text and tokens of each choice, and the reported token counts.

One parser serves replies of completions and of chat, whole or as a stream of events. Every choice is validated. A
choice that is missing, doubled or without content is an error. Impossible token counts are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tts._common.characters import join_surrogates
from tts.backends.openai.errors import Key, ServerError, event_error
from tts.errors import quote
from tts.thoughts import THINK, without_marks
from tts.types import ToolCall

_ENDS = {  # reasons why a choice ended, with the servers' words for each
    "stop": (
        "stop",
        "tool_calls",
        "function_call",
        "tool_use",
        "eos",
        "eos_token",
        "end",
        "end_turn",
        "stop_sequence",
        "stop_token",
        "complete",
        "completed",
        "finished",
        "done",
    ),
    "length": ("length", "max_tokens", "max_length", "max_output_tokens", "model_length", "token_limit"),
    "content_filter": ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "sensitive"),
}
_END_OF = {word: end for end, words in _ENDS.items() for word in words}
_LESS = "\\u003c"  # "<" as an escape of JSON
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")  # fields of thoughts apart from text
_INNER = ("text", "thinking", "reasoning", "content", "summary")  # fields that have the text of a part
_ENDLESS = 1e300  # the absolute value from which on a log-probability counts as infinite


@dataclass(slots=True)
class Choice:
    """One continuation, as far as it has been received.

    Attributes:
        pieces: The texts of the choice, in order.
        ids: The ids of the tokens, as far as the server shows them.
        logprobs: The log-probabilities of the tokens, as far as the server shows them.
        tokens: The texts of the tokens, as far as the server shows them.
        tops: The log-probabilities of the most likely tokens at each place; [] where they are not known.
        top_texts: The texts of the tokens in `tops`; "" for a token that is not named.
        finish: The reason of the end: "stop", "length", "content_filter", or a server's own word; "": no end yet.
        contents: The number of texts, empty ones included.
        thoughts: The reasoning content, in pieces.
        reasoned: Whether the model has reasoned, with or without a text to show.
        calls: The calls of tools by index, each as its name and the pieces of its arguments.
        refused: Whether the server reports a refusal of the model.
        half: The first surrogate of a character whose second one has not arrived.
    """

    pieces: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    tops: list[list[float]] = field(default_factory=list[list[float]])
    top_texts: list[list[str]] = field(default_factory=list[list[str]])
    tokens: list[str] = field(default_factory=list[str])
    calls: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    finish: str = ""
    contents: int = 0
    reasoned: bool = False
    refused: bool = False
    half: str = ""

    @property
    def thought(self) -> str:
        """The reasoning content of the choice, within the marks that a thought has in a path.

        The closing mark is there only where the text after the thought has begun, or the choice has ended.
        """
        if not self.thoughts:
            return ""
        has_ended = bool(self.pieces) or self.finish not in ("", "length")
        # an end within the thought would end the thought there
        reasoning = without_marks(join_surrogates("".join(self.thoughts))).strip()
        opened_thought = f"{THINK.open}\n{reasoning}"
        return f"{opened_thought}\n{THINK.close}\n\n" if has_ended else opened_thought

    @property
    def num_bytes(self) -> int:
        """The bytes of the texts, thoughts included."""
        return len("".join([*self.thoughts, *self.pieces]).encode(errors="replace"))

    @property
    def num_visible(self) -> int:
        """The number of tokens that the reply shows."""
        return max(len(self.ids), len(self.logprobs))


@dataclass(slots=True)
class ReportedUsage:
    """Token counts that a server reports for a call.

    Args:
        prompt: Tokens of the prompt.
        generated: Tokens that were generated, reasoning included.
        cached: The part of `prompt` that was reused; None: not reported.
        reasoning: The part of `generated` that is reasoning.
        written: The part of `prompt` that was written to a cache. Some servers ask a higher price for it.
    """

    prompt: int
    generated: int
    cached: int | None
    reasoning: int
    written: int = 0


class ServerReply:
    """The events of one call, parsed.

    Args:
        count: The number of choices that were requested.

    Attributes:
        choices: The choices by index.
        usage: The last valid token counts, or None.
        doubted: Whether the last counts were not valid.
        events: Number of events.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.choices: dict[int, Choice] = {}
        self.usage: ReportedUsage | None = None
        self.doubted = False
        self.events = 0
        self._first_other = ""  # the first event without choices, for messages

    def take(self, event: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Parse an event, and return the index and the new text of each choice in the event.

        Raises:
            ServerError: The event has not the form of a reply.
        """
        self.events += 1
        choices = event.get("choices")
        report = usage_in(event)
        if report is not None:
            self.usage = usage_of(report)
            self.doubted = self.usage is None
        if choices is None and report is not None:
            return []
        if event and "choices" not in event:  # the event keeps the connection alive, unless it is the only event
            self._first_other = self._first_other or quote(event)
            return []
        if not isinstance(choices, list):
            raise ServerError("BadReply", f"{quote(event)} where choices must be")
        return [self._choice(item) for item in choices]

    def _choice(self, item: Any) -> tuple[int, str]:
        """Add an item of an event to its choice, and return the choice's index and new text.

        Args:
            item: An item of the event's list of choices.

        Raises:
            ServerError: The item is not valid, is an error, or comes after the choice's end.
        """
        index: Any = item.get("index", 0) if isinstance(item, dict) else None
        if type(index) is not int:
            raise ServerError("BadReply", f"{quote(item)} where a choice must be")
        if not 0 <= index < self.count:
            raise ServerError("WrongCount", f"choice {index} where {self.count} were asked for")
        error = event_error({"error": item.get("error")}, 0.0, Key(), began=True)
        if error is not None:
            raise error
        choice = self.choices.setdefault(index, Choice())
        message: Any = item.get("delta", item.get("message"))
        members: dict[str, Any] = message if isinstance(message, dict) else {"content": item.get("text")}
        parts = _parts(members.get("content"))
        reasoning: Any = next((members[name] for name in _THOUGHTS if members.get(name)), None)
        thought = parts.thought + _text_of(reasoning)
        choice.reasoned = choice.reasoned or bool(reasoning) or parts.reasoned
        if thought and not choice.finish:
            choice.thoughts.append(thought)
        choice.refused = choice.refused or bool(members.get("refusal")) or parts.refused
        finish = _end(item.get("finish_reason"))
        if choice.finish and parts.text:
            raise ServerError("DuplicateChoice", f"choice {index} came again after its end")
        if parts.text is not None:
            choice.contents += 1
        if not choice.finish:
            _take_tokens(choice, item)
            _take_calls(choice, members.get("tool_calls"))
        text = _join_surrogates(choice, parts.text or "", last=bool(finish))
        if finish and not choice.finish:
            text += _text_of_calls(choice)
        choice.finish = choice.finish or finish
        if text:
            choice.pieces.append(text)
        return index, text

    @property
    def ended(self) -> bool:
        """Whether every choice has ended."""
        return len(self.choices) == self.count and all(choice.finish for choice in self.choices.values())

    def error(self, index: int) -> ServerError | None:
        """Return the error of a choice of an ended reply; None: the choice is valid."""
        choice = self.choices.get(index)
        if not self.choices and self._first_other:
            return ServerError("BadReply", f"{self._first_other} where choices must be")
        if choice is None:
            kind = "NoChoice" if not self.choices else "WrongCount"
            return ServerError(kind, f"{len(self.choices)} of the {self.count} choices that were asked for")
        if not choice.finish:
            return ServerError("Truncated", "the reply ends before its choice does")
        if choice.finish == "content_filter":
            return ServerError("ContentFilter", "the server withheld the rest")
        if choice.finish not in _ENDS:
            return ServerError("OtherEnd", f"it ended by {choice.finish}")
        if choice.refused and not choice.pieces:
            return ServerError("Refusal", "the model would not answer")
        if not choice.contents and not choice.reasoned and not choice.num_visible:
            return ServerError("NoContent", "its content is null")
        return None


@dataclass(slots=True)
class _Parts:
    """The content of a message.

    Attributes:
        text: The text; None: there is none.
        thought: The thought; "": none is shown.
        reasoned: Whether the model thought.
        refused: Whether the model refused.
    """

    text: str | None = None
    thought: str = ""
    reasoned: bool = False
    refused: bool = False


def _parts(content: Any) -> _Parts:
    """Return the parts of a content: a text, or a list of parts, each a text or an object with a type.

    Raises:
        ServerError: The content has another form.
    """
    if content is None or isinstance(content, str):
        return _Parts(content)
    parts = _Parts()
    items: list[Any] = content if isinstance(content, list) else [content]
    for part in items:
        kind: Any = None
        if isinstance(part, str):
            kind = "text"
        elif isinstance(part, dict):
            kind = part.get("type", "text")
        if not isinstance(kind, str):
            raise ServerError("BadReply", f"{quote(part)} where a text or a part of a content must be")
        if any(word in kind for word in ("think", "reason", "thought")):
            parts.thought += _text_of(part)
            parts.reasoned = True
        elif "refus" in kind:
            parts.refused = True
        elif "text" in kind:
            parts.text = (parts.text or "") + _text_of(part)
        else:
            raise ServerError("BadReply", f"a part of the kind {quote(kind)}, which is no text, in {quote(content)}")
    return parts


def _text_of(value: Any) -> str:
    """Return the text in a part of a content, at any depth of nesting; "" where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_text_of, value))
    if not isinstance(value, dict):
        return ""
    inner_value: Any = next((value[name] for name in _INNER if value.get(name)), "")
    return _text_of(inner_value) if isinstance(inner_value, str | list) else ""


def _end(reason: Any) -> str:
    """Return the reason why a choice ended, a key of `_ENDS` or a server's own word; "": it has not ended."""
    if reason is None or reason in ("", "null"):
        return ""
    if not isinstance(reason, str):
        return quote(reason)
    return _END_OF.get(reason.lower(), quote(reason))


def _join_surrogates(choice: Choice, text: str, *, last: bool) -> str:
    """Return new text in whole characters.

    A first surrogate at the end of the text waits for the second surrogate of its character. At the end of the choice,
    a lone surrogate is replaced.

    Args:
        choice: The choice, which keeps the surrogate that waits.
        text: The new text.
        last: Whether the choice ends here.
    """
    text, choice.half = choice.half + text, ""
    if not last and "\ud800" <= text[-1:] <= "\udbff":
        text, choice.half = text[:-1], text[-1]
    return join_surrogates(text)


def _take_calls(choice: Choice, items: Any) -> None:
    """Add an event's pieces of tool calls to a choice.

    Args:
        choice: The choice.
        items: The event's list of calls, each with a name and a piece of its arguments; ignored if it is no list.

    Raises:
        ServerError: A call is not valid.
    """
    calls: list[Any] = items if isinstance(items, list) else []
    for place, item in enumerate(calls):
        function: Any = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            raise ServerError("BadReply", f"{quote(item)} where a call of a tool must be")
        index: Any = item.get("index")
        if type(index) is not int:
            index = place
        call = choice.calls.setdefault(index, [""])  # the name, then the pieces of the arguments
        name, arguments = function.get("name"), function.get("arguments")
        if not call[0] and isinstance(name, str):
            call[0] = name
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments or {})
        call.append(arguments or "")
        choice.contents += 1


def _text_of_calls(choice: Choice) -> str:
    """Return the calls of tools in the text form of a path, without marks of a call in their arguments."""
    texts: list[str] = []
    for _index, (name, *pieces) in sorted(choice.calls.items()):
        arguments = "".join(pieces).strip() or "{}"
        try:
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
        except (ValueError, RecursionError):  # a call without valid JSON is no valid call
            arguments = json.dumps(arguments)
        texts.append(f"\n{ToolCall(join_surrogates(name), arguments.replace('<', _LESS))}")
    return "".join(texts)


def _take_tokens(choice: Choice, item: Mapping[str, Any]) -> None:
    """Add the token ids and log-probabilities of an event to a choice.

    The event has the form of chats or of completions, and values of other types are left out.
    """
    ids = item.get("token_ids")
    if isinstance(ids, list) and all(type(token) is int for token in ids):
        choice.ids += ids
    logprobs: Any = item.get("logprobs")
    if not isinstance(logprobs, dict):
        return
    content: Any = logprobs.get("content")
    if isinstance(content, list):  # the form of chats
        entries = [entry for entry in content if isinstance(entry, dict)]
        values: Any = [entry.get("logprob") for entry in entries]
        tops: Any = [entry.get("top_logprobs") for entry in entries]
        texts: Any = [entry.get("token") for entry in entries]
    else:  # the form of completions
        values, texts, tops = logprobs.get("token_logprobs"), logprobs.get("tokens"), logprobs.get("top_logprobs")
    if isinstance(values, list):  # an unknown value becomes NaN, so that each value keeps its place
        choice.logprobs += map(_logprob, values)
        if isinstance(tops, list) and len(tops) == len(values):
            for logprobs_of_place, texts_of_place in map(_tops, tops):
                choice.tops.append(logprobs_of_place)
                choice.top_texts.append(texts_of_place)
        if isinstance(texts, list) and len(texts) == len(values):
            choice.tokens += [join_surrogates(text) if isinstance(text, str) else "" for text in texts]


def _logprob(value: Any) -> float:
    """Return a log-probability, at most 0; NaN where the value is not one."""
    return min(0.0, float(value)) if isinstance(value, int | float) and abs(value) < _ENDLESS else math.nan


def _tops(entry: Any) -> tuple[list[float], list[str]]:
    """Return the log-probabilities and the texts of the most likely tokens at one place.

    Args:
        entry: The place's entry: a list of objects, as for chat, or log-probabilities by text, as for completions.

    Returns:
        The log-probabilities, [] if not all are known; and the texts, "" for a token without a name.
    """
    pairs: list[tuple[Any, Any]] = []  # the text and the value of each token
    if isinstance(entry, dict):
        pairs = list(entry.items())
    elif isinstance(entry, list):
        pairs = [(token.get("token") if isinstance(token, dict) else None, token) for token in entry]
    logprobs = [_logprob(value.get("logprob") if isinstance(value, dict) else value) for _text, value in pairs]
    texts = [join_surrogates(text) if isinstance(text, str) else "" for text, _value in pairs]
    return [] if any(map(math.isnan, logprobs)) else logprobs, texts


def usage_in(event: Any) -> Any:
    """Return the report of tokens in a reply or an event; None: there is none.

    Groq has it in `x_groq`, and Moonshot in the choice.
    """
    choices: Any = event.get("choices") if isinstance(event, Mapping) else None
    holders: list[Any] = [event, event.get("x_groq") if isinstance(event, Mapping) else None]
    holders += choices[:1] if isinstance(choices, list) else []
    return next((told for one in holders if isinstance(one, Mapping) and (told := one.get("usage")) is not None), None)


def usage_of(told: Any) -> ReportedUsage | None:
    """Return reported token counts, or None where they are not valid.

    The counts are read under any of the names that servers give them. Of counts that contradict each other the larger
    ones are returned. So reasoning beyond the generated tokens is added to them, and a prompt has its cached tokens.
    """
    if not isinstance(told, dict):
        return None
    prompt = _first(told, "prompt_tokens", "input_tokens")
    generated = _first(told, "completion_tokens", "output_tokens")
    reports_generated = "completion_tokens" in told or "output_tokens" in told
    if prompt is None or (generated is None and reports_generated):
        return None
    generated = generated or 0
    prompt_details = _details(told, "prompt_tokens", "input_tokens")
    generated_details = _details(told, "completion_tokens", "output_tokens")
    cached = _first(prompt_details, "cached_tokens")
    cache_read = _first(told, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    cache_written = _first(told, "cache_creation_input_tokens")
    if cache_written is None:
        cache_written = _first(prompt_details, "cache_write_tokens", "cache_creation_tokens")
    if "prompt_tokens" not in told and not prompt_details and "cache_read_input_tokens" in told:
        # Anthropic's count of input leaves out the tokens that its cache read or wrote
        prompt += (cache_read or 0) + (cache_written or 0)
    cached = cache_read if cached is None else max(cached, cache_read or 0)
    reasoning = _first(generated_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _first(told, "reasoning_tokens")
    num_unlisted = (_first(told, "total_tokens") or 0) - prompt - generated
    if num_unlisted > 0:  # the server counts reasoning apart from the answer, or in the total alone
        generated += num_unlisted
        reasoning = max(reasoning or 0, num_unlisted)
    if (reasoning or 0) > generated:  # the server counts reasoning beside the answer and the total
        generated += reasoning or 0
    prompt = max(prompt, (cached or 0) + (cache_written or 0))
    return ReportedUsage(
        prompt=prompt, generated=generated, cached=cached, reasoning=reasoning or 0, written=cache_written or 0
    )


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((details for name in names if isinstance(details := usage.get(f"{name}_details"), dict)), {})


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the first reported count among some names.

    The result is None where no count is reported, or the first reported count is not a whole number of at least 0.
    """
    value = next((usage[name] for name in names if usage.get(name) is not None), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**53 else None


def shares(total: int, weights: Sequence[int], caps: Sequence[int]) -> list[int] | None:
    """Divide a total in proportion to weights, by largest remainders, with no part above its cap.

    The reported tokens of a call of several choices are so divided among the choices, as estimates.

    Args:
        total: The total, a whole number.
        weights: The weight of each part; a weight below 1 counts as 1.
        caps: The most that each part may be.

    Returns:
        The parts, whole numbers that add up to the total; None: the sum of the caps is below the total.
    """
    if total > sum(caps):
        return None
    parts = [0] * len(caps)
    while (remaining := total - sum(parts)) > 0:
        open_indexes = [i for i, cap in enumerate(caps) if parts[i] < cap]
        sum_of_weights = sum(max(1, weights[i]) for i in open_indexes)
        exact = {i: remaining * max(1, weights[i]) / sum_of_weights for i in open_indexes}
        for i in open_indexes:
            parts[i] += min(caps[i] - parts[i], int(exact[i]))
        remaining = total - sum(parts)
        by_fraction = sorted(open_indexes, key=lambda i: (int(exact[i]) - exact[i], i))  # the largest fraction first
        for i in by_fraction:
            if remaining and parts[i] < caps[i]:
                parts[i] += 1
                remaining -= 1
    return parts

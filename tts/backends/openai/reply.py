"""Parsing of a server's reply: the text and tokens of each choice, and the reported token counts.

One parser for replies of completions and of chat, whole or as a stream of events. Every choice is validated: one that
is missing, doubled or without content is an error, and token counts that cannot be are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.backends.openai.errors import Key, ServerError, event_error
from tts.characters import join_surrogates
from tts.errors import quote
from tts.thoughts import THINK
from tts.types import ToolCall

_ENDS = {  # as servers call them
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
_LESS = "\\u003c"  # as JSON may write it
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")  # fields of what is thought apart
_INNER = ("text", "thinking", "reasoning", "content", "summary")  # fields of a part that have its text
_ENDLESS = 1e300  # of a log-probability


@dataclass(slots=True)
class Choice:
    """One continuation, as far as it has been received.

    Attributes:
        pieces: Its texts, in order.
        ids: The ids of its tokens, as far as the server shows them.
        logprobs: The log-probabilities of its tokens, as far as the server shows them.
        tokens: The texts of its tokens, as far as the server shows them.
        tops: Log-probabilities of the most likely tokens at each place; [] where they are not known.
        top_texts: The texts of these tokens; "" for one that is not named.
        finish: Why it ended: "stop", "length", "content_filter", or a reason of the server's own; "": it has not ended.
        contents: Number of texts, empty ones included.
        thoughts: Its reasoning content, in pieces.
        reasoned: Whether it has reasoning, shown as a text or not.
        calls: Calls of tools, the name and the pieces of the arguments of each, by its index.
        refused: Whether the server reports a refusal of the model.
        half: The first surrogate of a character that has not arrived.
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
        """The reasoning content of the choice within marks, as a path has it.

        The last mark is there only where a response began, or the choice has ended.
        """
        if not self.thoughts:
            return ""
        ended = self.pieces or self.finish not in ("", "length")
        # a mark within it would end it there
        told = join_surrogates("".join(self.thoughts)).replace(THINK.close, "").strip()
        return f"{THINK.open}\n{told}" + (f"\n{THINK.close}\n\n" if ended else "")

    @property
    def num_bytes(self) -> int:
        """Bytes of its texts, thoughts included."""
        return len("".join([*self.thoughts, *self.pieces]).encode(errors="replace"))

    @property
    def num_visible(self) -> int:
        """Tokens that the reply shows."""
        return max(len(self.ids), len(self.logprobs))


@dataclass(slots=True)
class ReportedUsage:
    """Token counts that a server reports for a call.

    Args:
        prompt: Tokens of the prompt.
        generated: Tokens that were generated, reasoning included.
        cached: Those tokens of `prompt` that were reused; None: not reported.
        reasoning: Those tokens of `generated` that are reasoning.
        written: Tokens of `prompt` that were written to a cache, for which some servers ask a higher price.
    """

    prompt: int
    generated: int
    cached: int | None
    reasoning: int
    written: int = 0


class ServerReply:
    """The events of one call, parsed.

    Args:
        count: Choices that were requested.

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
        self._other = ""

    def take(self, event: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Parse an event; return the new text of each choice in it.

        Raises:
            ServerError: it is not of the form of a reply.
        """
        self.events += 1
        given = event.get("choices")
        if event.get("usage") is not None:
            self.usage = usage_of(event["usage"])
            self.doubted = self.usage is None
        if given is None and event.get("usage") is not None:
            return []
        if event and "choices" not in event:  # a keep-alive, unless it is the only event
            self._other = self._other or quote(event)
            return []
        if not isinstance(given, list):
            raise ServerError("BadReply", f"{quote(event)} where choices must be")
        return [self._choice(one) for one in given]

    def _choice(self, given: Any) -> tuple[int, str]:
        index: Any = given.get("index", 0) if isinstance(given, dict) else None
        if type(index) is not int:
            raise ServerError("BadReply", f"{quote(given)} where a choice must be")
        if not 0 <= index < self.count:
            raise ServerError("WrongCount", f"choice {index} where {self.count} were asked for")
        error = event_error({"error": given.get("error")}, 0.0, Key(), began=True)
        if error is not None:
            raise error
        choice = self.choices.setdefault(index, Choice())
        told: Any = given.get("delta", given.get("message"))
        inner: dict[str, Any] = told if isinstance(told, dict) else {"content": given.get("text")}
        parts = _parts(inner.get("content"))
        apart = next((inner[name] for name in _THOUGHTS if inner.get(name)), None)
        thought = parts.thought + _text_of(apart)
        choice.reasoned = choice.reasoned or bool(apart) or parts.reasoned
        if thought and not choice.finish:
            choice.thoughts.append(thought)
        choice.refused = choice.refused or bool(inner.get("refusal")) or parts.refused
        text, finish = parts.text, _end(given.get("finish_reason"))
        if choice.finish and text:
            raise ServerError("DuplicateChoice", f"choice {index} came again after its end")
        choice.contents += text is not None
        if not choice.finish:
            _take_tokens(choice, given)
            _take_calls(choice, inner.get("tool_calls"))
        text = _join_surrogates(choice, text or "", last=bool(finish))
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
        """Return the error of a choice of a reply that has ended; None: it is valid."""
        choice = self.choices.get(index)
        if not self.choices and self._other:
            return ServerError("BadReply", f"{self._other} where choices must be")
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
    """The content of a message: its text, None where there is none, its thought, and whether the model thought or
    refused.
    """

    text: str | None = None
    thought: str = ""
    reasoned: bool = False
    refused: bool = False


def _parts(content: Any) -> _Parts:
    """Return the parts of a content: a text, or a list of parts, each a text, or an object with a type.

    Raises:
        ServerError: it is of another form.
    """
    found = _Parts()
    if content is None or isinstance(content, str):
        return _Parts(content)
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type", "text") if isinstance(part, dict) else "text" if isinstance(part, str) else None
        if not isinstance(kind, str):
            raise ServerError("BadReply", f"{quote(part)} where a text or a part of a content must be")
        if any(word in kind for word in ("think", "reason", "thought")):
            found.thought += _text_of(part)
            found.reasoned = True
        elif "refus" in kind:
            found.refused = True
        elif "text" in kind:
            found.text = (found.text or "") + _text_of(part)
        else:
            raise ServerError("BadReply", f"a part of the kind {quote(kind)}, which is no text, in {quote(content)}")
    return found


def _text_of(value: Any) -> str:
    """Return the text in a part of a content, whatever it is nested in; "" where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_text_of, value))
    inner = next((value[name] for name in _INNER if value.get(name)), "") if isinstance(value, dict) else ""
    return inner if isinstance(inner, str) else _text_of(inner) if isinstance(inner, list) else ""


def _end(told: Any) -> str:
    """Return why a choice ended; "" where it has not."""
    if told is None or told in ("", "null"):
        return ""
    return _END_OF.get(told.lower(), quote(told)) if isinstance(told, str) else quote(told)


def _join_surrogates(choice: Choice, text: str, *, last: bool) -> str:
    """Return new text in whole characters; a lone first surrogate waits for the second, or is replaced where none
    follows.
    """
    text, choice.half = choice.half + text, ""
    if not last and "\ud800" <= text[-1:] <= "\udbff":
        text, choice.half = text[:-1], text[-1]
    return join_surrogates(text)


def _take_calls(choice: Choice, given: Any) -> None:
    """Add what an event has of calls of tools."""
    calls: list[Any] = given if isinstance(given, list) else []
    for place, one in enumerate(calls):
        function: Any = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            raise ServerError("BadReply", f"{quote(one)} where a call of a tool must be")
        index = one.get("index", place)
        call = choice.calls.setdefault(index if type(index) is int else place, [""])
        name, arguments = function.get("name"), function.get("arguments")
        call[0] = call[0] or (name if isinstance(name, str) else "")
        call.append(
            arguments if isinstance(arguments, str) else json.dumps(arguments or {}) if arguments is not None else ""
        )
        choice.contents += 1


def _text_of_calls(choice: Choice) -> str:
    """Return the calls of tools as a path has them: a text that has no mark of a call within its arguments."""
    written: list[str] = []
    for _, (name, *pieces) in sorted(choice.calls.items()):
        told = "".join(pieces).strip() or "{}"
        try:
            told = json.dumps(json.loads(told), ensure_ascii=False)
        except (ValueError, RecursionError):  # what is not JSON is no valid call
            told = json.dumps(told)
        written.append(f"\n{ToolCall(join_surrogates(name), told.replace('<', _LESS))}")
    return "".join(written)


def _take_tokens(choice: Choice, given: Mapping[str, Any]) -> None:
    ids = given.get("token_ids")
    if isinstance(ids, list) and all(type(one) is int for one in ids):
        choice.ids += ids
    told: Any = given.get("logprobs")
    if not isinstance(told, dict):
        return
    content: Any = told.get("content")
    if isinstance(content, list):  # the form of chat
        content = [one for one in content if isinstance(one, dict)]
        values: Any = [one.get("logprob") for one in content]
        tops: Any = [one.get("top_logprobs") for one in content]
        texts: Any = [one.get("token") for one in content]
    else:
        values, texts, tops = told.get("token_logprobs"), told.get("tokens"), told.get("top_logprobs")
    if isinstance(values, list):  # one that is unknown keeps its place: then the row has none at all
        choice.logprobs += map(_logprob, values)
        if isinstance(tops, list) and len(tops) == len(values):
            choice.tops += map(_top_logprobs, tops)
            choice.top_texts += map(_top_texts, tops)
        if isinstance(texts, list) and len(texts) == len(values):
            choice.tokens += [join_surrogates(one) if isinstance(one, str) else "" for one in texts]


def _logprob(told: Any) -> float:
    """Return a log-probability, at most 0; NaN where it is none."""
    return min(0.0, float(told)) if isinstance(told, int | float) and abs(told) < _ENDLESS else math.nan


def _top_logprobs(told: Any) -> list[float]:
    """Return the log-probabilities of the most likely tokens at one place, in either form of the API; [] where one is
    not known.
    """
    values: Any = list(told.values()) if isinstance(told, dict) else told
    if not isinstance(values, list):
        return []
    found = [_logprob(one.get("logprob") if isinstance(one, dict) else one) for one in values]
    return [] if any(map(math.isnan, found)) else found


def _top_texts(told: Any) -> list[str]:
    """Return the texts of the most likely tokens at one place, in either form of the API; "" for one that is not
    named.
    """
    names: Any = (
        list(told)
        if isinstance(told, dict)
        else [one.get("token") if isinstance(one, dict) else None for one in (told if isinstance(told, list) else ())]
    )
    return [join_surrogates(name) if isinstance(name, str) else "" for name in names]


def usage_of(told: Any) -> ReportedUsage | None:
    """Return reported token counts, or None where they are not valid.

    They are read under any of the names that servers give them.
    """
    if not isinstance(told, dict):
        return None
    prompt, generated = (
        _first(told, "prompt_tokens", "input_tokens"),
        _first(told, "completion_tokens", "output_tokens"),
    )
    if prompt is None or (generated is None and any(name in told for name in ("completion_tokens", "output_tokens"))):
        return None
    generated = generated or 0
    inner, outer = _details(told, "prompt_tokens", "input_tokens"), _details(told, "completion_tokens", "output_tokens")
    cached = _first(inner, "cached_tokens")
    read = _first(told, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    wrote = _first(told, "cache_creation_input_tokens")
    if wrote is None:
        wrote = _first(inner, "cache_write_tokens", "cache_creation_tokens")
    if "prompt_tokens" not in told and not inner and "cache_read_input_tokens" in told:
        prompt += (read or 0) + (wrote or 0)  # Anthropic's own count of input leaves out what its cache read and wrote
    cached = read if cached is None else max(cached, read or 0)
    reasoning = _first(outer, "reasoning_tokens")
    if reasoning is None:
        reasoning = _first(told, "reasoning_tokens")
    beside = (_first(told, "total_tokens") or 0) - prompt - generated
    if beside > 0:  # a server that reports reasoning beside the answer, or in the total alone
        generated, reasoning = generated + beside, max(reasoning or 0, beside)
    if (cached or 0) + (wrote or 0) > prompt or (reasoning or 0) > generated:
        return None
    return ReportedUsage(prompt, generated, cached, reasoning or 0, wrote or 0)


def _details(told: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((found for name in names if isinstance(found := told.get(f"{name}_details"), dict)), {})


def _first(told: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of some counts that is reported; None where none is, or it is no whole number of at least 0."""
    value = next((told[name] for name in names if told.get(name) is not None), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**53 else None


def shares(total: int, weights: Sequence[int], caps: Sequence[int]) -> list[int] | None:
    """Divide a total in proportion to weights, by largest remainders, no part above its cap.

    The result is None where the caps hold less than the total.

    Idea: a call of several choices reports the sum of their tokens. The parts sum to it; each is an estimate.
    """
    if total > sum(caps):
        return None
    parts = [0] * len(caps)
    while (left := total - sum(parts)) > 0:
        open_ = [i for i, cap in enumerate(caps) if parts[i] < cap]
        scale = sum(max(1, weights[i]) for i in open_)
        ideal = {i: left * max(1, weights[i]) / scale for i in open_}
        for i in open_:
            parts[i] += min(caps[i] - parts[i], int(ideal[i]))
        left = total - sum(parts)
        for i in sorted(open_, key=lambda i: (int(ideal[i]) - ideal[i], i)):
            if left and parts[i] < caps[i]:
                parts[i], left = parts[i] + 1, left - 1
    return parts

"""A server that speaks the OpenAI API, with the toy model behind it: real HTTP on this machine, and as faulty as it is
told to be.

It counts what it generates, by call, so that tests can hold a backend's books equal to it. Every feature that servers
have or lack is a flag; every way to go wrong is a fault that a test names for each call.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.backends.openai.listening import serving
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
from tts.backends.openai.thinking import LIMITS, SWITCHES, switch_members
from tts.backends.prompt_logprobs import Top
from tts.backends.text.tokenized_text import TokenizedText
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.backends.toy.language import token_id, tokens_of
from tts.errors import ConfigError
from tts.randomness import hash64
from tts.tasks.base import find_stop

__all__ = ["ASSISTANT", "FAULTS", "Served", "ToyServer", "serving"]
ASSISTANT = "\n<assistant>\n"
FAULTS = (
    "429", "500", "503", "close", "reset", "cut", "json", "empty", "none", "extra", "twice", "hang", "drip", "usage",
    "error",
)  # fmt: skip
_WORDS = "I think. "  # of a thought, a token each


def thought_of(tokens: int, form: str, content: str) -> dict[str, Any]:
    """Return the members of a whole message that show a thought of so many tokens; `form`: the field, "content", or ""
    for none.
    """
    if form == "content":
        return {"content": f"<think>{_WORDS * tokens}</think>{content}"}
    return {form: _WORDS * tokens} if form else {}


def thought_deltas(tokens: int, form: str) -> list[dict[str, Any]]:
    """Return the deltas of a stream that show it, one a token."""
    if form == "content":
        return [{"content": "<think>" * (i == 0) + _WORDS + "</think>" * (i == tokens - 1)} for i in range(tokens)]
    return [{form: _WORDS} if form else {"content": ""} for _ in range(tokens)]


def told_usage(read: int, generated: int, hidden: int, cached: int | None) -> dict[str, Any]:
    """Return a report of tokens."""
    used: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": generated, "total_tokens": read + generated}
    used |= {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return used | ({"completion_tokens_details": {"reasoning_tokens": hidden}} if hidden else {})


@dataclass
class Served:
    """What the server did for one call: tokens it generated, whether its reply was whole, and the fault it was told to
    have.
    """

    generated: int = 0
    whole: bool = False
    fault: str = ""


# its log-probability, and the log-probabilities of all that might stand there
Token = tuple[str, float, Mapping[str, float]]
# the token, the text shown of it, how the row ends with it
Shown = tuple[str, str, float, str | None, Mapping[str, float]]


@dataclass(kw_only=True)
class ToyServer:
    """The server's features, and what it recorded.

    Args:
        prompts: texts that are whole prompts: what stands behind one is a path. fault: which one a call has, by its
            number and body.
        pause_s: between tokens. waits_s: what 429 asks for.
    """

    prompts: Sequence[str] = ()
    language: ToyLanguage = field(default_factory=lambda: ToyLanguage(accuracy=0.4, mute=0.2))
    model: str = "toy"
    others: Sequence[str] = ()
    completions: bool = True
    chat: bool = True
    ids: bool = True
    continues: bool = True
    logprobs: bool = True
    tops: bool = False  # the most likely tokens at each place, where they are asked for
    n: bool = True
    seeds: bool = True
    stops: bool = True
    streams: bool = True
    usage: bool = True
    cached: bool = True
    filters: bool = True
    tempers: bool = True
    reasoning: int = 0  # tokens thought apart before each reply
    # the field of thoughts, "reasoning", "content" for text between marks, or "" for none
    shown_as: str = "reasoning_content"
    thinking: Sequence[str] = ()  # fields by which thoughts are limited or left out, of tts.backends.openai.thinking
    opens: str = ""  # what its template puts before each reply, which none shows
    echo: bool = True  # completions show their prompts; else they pass it over
    context: int | None = None
    owner: str = "vllm"  # of the model, by which the kind of server is recognised
    longest: int | None = None  # row that may be asked for
    most: int | None = None  # rows a call
    shows_end: bool = True  # the log-probability of an end of sequence
    ignores_cap: bool = False
    key: str = ""
    shows_models: bool = False  # to everybody
    list_reply: tuple[int, Any] | None = None  # in place of the list of models
    version: str = ""
    metrics: str = ""
    strict: bool = False  # refuses parameters that the API does not have
    cap_name: str = "max_tokens"
    fault: Callable[[int, Any], str] = lambda _number, _body: ""
    most_at_once: int | None = None  # calls, beyond which it refuses with 429
    limit_headers: Sequence[str] = ()  # of every whole reply
    pause_s: float = 0.0
    waits_s: str = "0"
    served: list[Served] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    def __post_init__(self) -> None:
        self.toy = ToyBackend(self.language)
        self.words: dict[int, str] = {}
        self.calls = self.writing = self.most_writing = self.refused = 0

    # HTTP -------------------------------------------------------------------------------------------------------------

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                while await self.one(reader, writer):
                    pass
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        finally:
            self.open -= 1
            writer.transport.abort()
            await asyncio.sleep(0)  # a transport ends in a turn of its own

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        # of a whole address, for clients of a proxy
        method, path = head[0].split(" ")[0], urlsplit(head[0].split(" ")[1]).path
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"null")
        self.headers.append(headers)
        told, is_open = headers.get("authorization", "none"), self.shows_models and path == "/v1/models"
        if self.key and told != f"Bearer {self.key}" and not is_open:
            error = {"message": f"Incorrect API key provided: {told}", "code": "invalid_api_key"}
            return self.plain(writer, 401, {"error": error})
        if method == "GET":
            return self.plain(writer, *self.got(path))
        try:
            if path == "/tokenize" and self.ids:
                ids = self.encoded(self.text_of(body))
                return self.plain(writer, 200, {"tokens": ids, "max_model_len": self.context})
            if (path == "/v1/completions" and self.completions) or (path == "/v1/chat/completions" and self.chat):
                return await self.write(reader, writer, body, chat="chat" in path)
        except ConfigError as failure:
            return self.plain(writer, 400, {"error": {"message": failure.cause, "type": "BadRequestError"}})
        return self.plain(writer, 404, {"detail": "Not Found"})

    def got(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models":
            names = (self.model, *self.others)
            listed = [{"id": one, "max_model_len": self.context, "owned_by": self.owner} for one in names]
            return self.list_reply or (200, {"object": "list", "data": listed})
        if path == "/metrics" and self.metrics:
            return 200, self.metrics.encode()
        if path == "/version" and self.version:
            return 200, {"version": self.version}
        return 404, {"detail": "Not Found"}

    def plain(self, writer: asyncio.StreamWriter, status: int, told: Any, *more: str) -> bool:
        content = told if isinstance(told, bytes) else json.dumps(told).encode()
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [*more, *self.limit_headers, "", ""]
        writer.write("\r\n".join(lines).encode() + content)
        return True

    # The model --------------------------------------------------------------------------------------------------------

    def encoded(self, text: str) -> list[int]:
        ids = []
        for token in tokens_of(text):
            ids.append(token_id(token))
            self.words[ids[-1]] = token
        return ids

    def text_of(self, body: Any) -> str:
        """Return the text that a request renders to."""
        if "messages" in body:
            *turns, last = body["messages"]
            said = "\n".join(turn["content"] for turn in (*turns, last) if turn["role"] != "assistant")
            if last["role"] != "assistant":
                return said + ASSISTANT + self.opens
            path = self.opens + last["content"]
            goes_on = self.continues and body.get("continue_final_message")
            return f"{said}{ASSISTANT}{path}{'' if goes_on else ASSISTANT}"
        prompt = body["prompt"]
        if isinstance(prompt, list):
            if not self.ids:
                raise ConfigError("prompt must be a text")
            return "".join(self.words.get(one, "") for one in prompt)
        return prompt

    def divided(self, text: str) -> tuple[str, str]:
        """Return the prompt and the path that a text is made of."""
        before, marked, path = text.rpartition(ASSISTANT)
        if marked:
            return before, path
        prompt = max((one for one in self.prompts if text.startswith(one)), key=len, default=text)
        return prompt, text[len(prompt) :]

    async def rows(self, body: Any, cap: int, count: int, text: str) -> list[list[Token]]:
        """Return the tokens of each row, with their log-probabilities and laws; the end of a sequence is ""."""
        prompt, path = self.divided(text)
        handle = (await self.toy.open([prompt if any(c.isdigit() for c in prompt) else "3 + 4 - 2 + 9 - 8"]))[0].value
        for token in tokens_of(path):
            handle.write(token)
        filters = {name: max(0, body.get(name) or 0) for name in ("top_k", "min_p") if self.filters}
        temperature, top_p = body.get("temperature", 1.0), body.get("top_p", 1.0)
        sampling = Sampling(temperature=temperature, top_p=top_p, **filters)
        seeded = self.seeds and body.get("seed") is not None
        streams = [hash64("seeded", body["seed"], i) if seeded else hash64("row", self.calls, i) for i in range(count)]
        made = []
        for stream in streams:
            rows = (Row(stream, handle.num_tokens, cap),)
            sample = await self.toy.sample(SampleRequest(handle, rows, sampling, StopCondition())).row(0)
            tokens = tokens_of(sample.text) + [""] * (sample.finish == "eos")
            assert len(tokens) == len(sample.logprobs)
            scratch, laws = handle.child(), list[dict[str, float]]()
            for token in tokens:
                laws.append({top.text: top.logprob for top in self.toy._likely(scratch)})
                scratch.write(token)
            made.append(list(zip(tokens, sample.logprobs, laws, strict=True)))
        return made

    def ended(self, row: list[Token], body: Any, cap: int) -> list[Shown]:
        """Return a row's tokens with the text that each shows, up to its stop text, and how it ends."""
        stops = tuple(body.get("stop") or ())
        shown: list[Shown] = []
        text = ""
        for i, (token, logprob, law) in enumerate(row):
            text += token
            end = find_stop(text, stops)
            if end is not None:
                kept = text[:end]
                if not (self.stops and body.get("include_stop_str_in_output")):
                    kept = kept.removesuffix(next(stop for stop in stops if kept.endswith(stop)))
                before = text[: len(text) - len(token)]
                shown.append((token, kept[len(before) :], logprob, "stop", law))
                return shown
            last = "stop" if not token else "length" if i + 1 == len(row) else None
            shown.append((token, token, logprob, last, law))
        return shown or [("", "", 0.0, "length", {})]

    # Replies ----------------------------------------------------------------------------------------------------------

    async def write(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Any, *, chat: bool) -> bool:
        if self.most_at_once is not None and self.writing >= self.most_at_once:
            self.refused += 1
            return self.plain(writer, 429, {"error": {"message": "too many at once"}})
        self.writing += 1
        self.most_writing = max(self.most_writing, self.writing)
        try:
            return await self.written(reader, writer, body, chat=chat)
        finally:
            self.writing -= 1

    async def written(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Any, *, chat: bool
    ) -> bool:
        self.calls += 1
        self.bodies.append(body)
        fault = self.fault(self.calls, body)
        served = Served(fault=fault)
        self.served.append(served)
        if fault in ("429", "500", "503"):
            error = {"error": {"message": "as it was told"}}
            return self.plain(writer, int(fault), error, f"Retry-After: {self.waits_s}")
        if fault == "close":
            return False
        self.check(body)
        text, cap = self.text_of(body), body.get(self.cap_name, 500 if chat else 16)
        if self.longest is not None and cap > self.longest:
            most = f"This model supports at most {self.longest} completion tokens"
            raise ConfigError(f"{self.cap_name} is too large: {cap}. {most}")
        read = len(tokens_of(text))
        if self.context is not None and read + cap > self.context:
            most = f"This model's maximum context length is {self.context} tokens"
            raise ConfigError(f"{most}, but {read} + {cap} were asked for")
        count = body.get("n", 1) if self.n else 1
        cap = 1000 if self.ignores_cap else cap
        if body.get("echo") and self.echo:
            return await self.echoes(writer, body, served)
        rows = [self.ended(row, body, cap) for row in await self.rows(body, cap, count, text)]
        hidden = min(cap, self.thought(body)) if chat else 0
        if fault == "hang":
            await self.gone(reader)
            return False
        if not (body.get("stream") and self.streams):
            return self.whole(writer, body, rows, read, hidden, served, chat=chat)
        return await self.stream(reader, writer, body, rows, read, hidden, served, chat=chat)

    def thought(self, body: Any) -> int:
        """Return the tokens of the thought before a reply, by the fields that the server obeys."""
        length = self.reasoning
        for name in self.thinking:
            if name in SWITCHES and switch_members(name).items() <= body.items():
                return 0
            if name in LIMITS:
                outer, _, inner = name.partition(".")
                found = body.get(outer)
                limit = found.get(inner) if inner and isinstance(found, dict) else None if inner else found
                length = length if limit is None else min(length, limit)
        return length

    async def echoes(self, writer: asyncio.StreamWriter, body: Any, served: Served) -> bool:
        """Reply with the prompt and one token, and their log-probabilities."""
        text = self.text_of(body)
        if any(character.isdigit() for character in text):
            prompt = TokenizedText.of(body["prompt"]) if isinstance(body["prompt"], list) else text
            [reply] = await self.toy.prompt_logprobs([prompt], body["logprobs"])
            texts, values = list(reply.value.texts), reply.value.logprobs.tolist()
            tops, next_one = [*reply.value.tops, reply.value.behind], reply.value.behind[0]
        else:
            texts, next_one = tokens_of(text), Top("?", -0.5)
            values, tops = [math.nan, *([-1.0] * (len(texts) - 1))], [(), *([(next_one,)] * len(texts))]
        served.generated, served.whole = 1, True
        told = {
            "tokens": [*texts, next_one.text],
            "token_logprobs": [None if math.isnan(one) else max(one, -9999.0) for one in (*values, next_one.logprob)],
            "top_logprobs": [{top.text: top.logprob for top in one} or None for one in tops],
        }
        choices = [{"index": 0, "text": text + next_one.text, "finish_reason": "length", "logprobs": told}]
        return self.plain(writer, 200, {"choices": choices, "usage": self.used(len(texts), 1, 0)})

    def check(self, body: Any) -> None:
        """Refuse what the server cannot do."""
        known = {"return_token_ids", "include_stop_str_in_output", "top_k", "min_p", "continue_final_message"}
        known |= {"repetition_penalty", "repeat_penalty"}
        if not all(isinstance(turn["content"], str) for turn in body.get("messages", ())):
            raise ConfigError("Input should be a valid string: this model reads text alone")
        fields, obeyed = ({name.partition(".")[0] for name in names} for names in ((*LIMITS, *SWITCHES), self.thinking))
        known |= fields - obeyed - {"reasoning_effort"}
        if self.strict and known & body.keys():
            raise ConfigError(f"Unrecognized request argument supplied: {sorted(known & body.keys())[0]}")
        if {"max_tokens", "max_completion_tokens"} & body.keys() - {self.cap_name}:
            raise ConfigError(f"Unsupported parameter: use {self.cap_name!r}")
        for name in ("temperature", "top_p"):
            if not self.tempers and body.get(name, 1) != 1:
                raise ConfigError(f"Unsupported value: '{name}' does not support this value with this model")
        count = body.get("n", 1) if self.n else 1
        if count > 1 and not body.get("temperature", 1.0):
            raise ConfigError(f"n must be 1 when using greedy sampling, got {count}.")
        if self.most is not None and count > self.most:
            most = f"Expected a value <= {self.most}, but got {count} instead."
            raise ConfigError(f"Invalid 'n': integer above maximum value. {most}")

    async def gone(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read(1)

    def used(self, read: int, generated: int, hidden: int) -> Any:
        return told_usage(read, generated, hidden, read // 2 if self.cached else None) if self.usage else None

    def choice(self, body: Any, index: int, shown: Sequence[Any], *, chat: bool, delta: bool) -> dict[str, Any]:
        """Return some tokens of a row as a choice."""
        text = "".join(one[1] for one in shown)
        made: dict[str, Any] = {"index": index, "finish_reason": shown[-1][3] if shown else None}
        made |= {("delta" if delta else "message"): {"role": "assistant", "content": text}} if chat else {"text": text}
        shown = shown if self.shows_end else [one for one in shown if one[0]]
        if self.logprobs and body.get("logprobs") is not None and body["logprobs"] is not False:
            most = (body.get("top_logprobs", 0) if chat else body["logprobs"]) if self.tops else 0
            tops = [list(one[4].items())[:most] for one in shown]
            if chat:
                likely = [[{"token": text, "logprob": p} for text, p in top] for top in tops]
                pairs = zip(shown, likely, strict=True)
                content = [{"token": one[0], "logprob": one[2], "top_logprobs": top} for one, top in pairs]
                made["logprobs"] = {"content": content}
            else:
                made["logprobs"] = {"tokens": [one[0] for one in shown], "token_logprobs": [one[2] for one in shown]}
                made["logprobs"] |= {"top_logprobs": list(map(dict, tops))} if self.tops and body["logprobs"] else {}
        if self.ids and body.get("return_token_ids"):
            for one in shown:
                self.words[token_id(one[0])] = one[0]
            made["token_ids"] = [token_id(one[0]) for one in shown]
        return made

    def whole(
        self, writer: asyncio.StreamWriter, body: Any, rows: Any, read: int, hidden: int, served: Served, *, chat: bool
    ) -> bool:
        choices = [self.choice(body, i, row, chat=chat, delta=False) for i, row in enumerate(rows)]
        for choice in choices if hidden else ():
            choice["message"] |= thought_of(hidden, self.shown_as, choice["message"]["content"])
        served.generated, served.whole = sum(map(len, rows)) + hidden * len(rows), True
        return self.plain(writer, 200, {"choices": choices, "usage": self.used(read, served.generated, hidden)})

    async def stream(  # noqa: C901 - the faults, where they happen
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        body: Any,
        rows: Any,
        read: int,
        hidden: int,
        served: Served,
        *,
        chat: bool,
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

        def say(event: Any) -> None:
            data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        fault = served.fault
        if fault == "empty":
            rows = []
        for told in thought_deltas(hidden, self.shown_as):
            served.generated += 1
            say({"choices": [{"index": 0, "delta": told, "finish_reason": None}]})
        longest = max(map(len, rows), default=0)
        for place in range(longest):
            if fault in ("reset", "cut", "json", "error") and place == longest // 2:
                return await self.breaks(writer, say, fault)
            if reader.at_eof():
                return False  # the client has gone: nothing more is generated
            for index, row in enumerate(rows):
                if place < len(row):
                    served.generated += 1
                    made = self.choice(body, index, row[place : place + 1], chat=chat, delta=True)
                    if fault == "none":
                        made = {"index": index, "finish_reason": made["finish_reason"], "text": None}
                    say({"choices": [made]})
            await writer.drain()
            await asyncio.sleep(0.2 if fault == "drip" else self.pause_s)
        if fault in ("extra", "twice"):
            index = len(rows) if fault == "extra" else 0
            say({"choices": [self.choice(body, index, [("9", "9", 0.0, "stop", {})], chat=chat, delta=True)]})
        used = self.used(read, served.generated, hidden)
        if fault == "usage":
            used = {"prompt_tokens": -3, "completion_tokens": "many"}
        if used and (body.get("stream_options") or {}).get("include_usage"):
            say({"choices": [], "usage": used})
        served.whole = True  # before the client can know
        say(b"[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def breaks(self, writer: asyncio.StreamWriter, say: Callable[[Any], None], fault: str) -> bool:
        if fault == "json":
            say(b'{"choices": [{"index": 0, "te')
        if fault == "error":
            say({"error": {"message": "the engine is no more", "code": 500}})
        await writer.drain()
        if fault == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return False

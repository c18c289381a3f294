"""Probe a server before it is used.

The kind of the server (`tts.backends.openai.known_servers`) declares most of its capabilities. A probe finds the
others by a few short requests: the mode in which the model is called, the parameters that every request has, and
whether log-probabilities, several rows, tools and JSON schemas work. What is not known counts as absent. No problem is
charged for a probe.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tts._core.logs import get_logger
from tts.backends.base import TEMPLATE_TOKENS
from tts.backends.openai.capabilities import MODES, Capabilities, Mode
from tts.backends.openai.errors import Key, ServerError
from tts.backends.openai.http import HttpClient, Timeouts, roots
from tts.backends.openai.known_servers import NEUTRAL, recognise
from tts.backends.openai.prompt import CONTINUE, native_members
from tts.backends.openai.reaching import PROBE_TIMEOUT_S, TURNS, reach_model, refusal, run_apart
from tts.backends.openai.reply import ServerReply
from tts.errors import CapabilityError, ConfigError, EngineError
from tts.thoughts import THINK
from tts.types import TOP_TOKENS, AnswerForm, Message

LOG = get_logger("tts.servers")
_NO_ANSWERS = ("RateLimited", "Unavailable", "QuotaExceeded")  # refusals that say nothing of what a server can do
_TEXT = "One, two, three, four, five,"
_BEGUN = "One, two, three,"
_TOKENS = 8
_CALL_TOKENS = 32  # tokens of a row for a call without arguments
_REPLY_S = 60.0  # the most seconds of a reply of a few tokens
_MOST_EVENTS = 1000  # events of a stream of a few tokens
_CAPS = (  # limits of a row, in the order in which they are tried
    {"max_tokens": _TOKENS},
    {"max_completion_tokens": _TOKENS},
    {"max_completion_tokens": 32 * _TOKENS},  # of models that must end a thought
)
_CAP_NAMES = re.compile("max_(?:completion_)?tokens")
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
_NEARLY_GREEDY = {"top_p": {"top_p": 0.001}, "temperature": {"temperature": 0.3}}
_SEEDLESS = "seeds end vLLM's server on CPUs in this version; rows are drawn without"


def probe_server(
    url: str,
    model: str,
    key: Key,
    mode: Mode | Literal["auto"] = "auto",
    timeout_s: float = PROBE_TIMEOUT_S,
    extra: str = "",
    most_s: float = math.inf,
) -> Capabilities:
    """Return the capabilities of a server for a model, and log the cost of the probe.

    Args:
        url: The url of the server.
        model: The model's name on the server; "": the only model that is served.
        key: The key of the server.
        mode: The mode in which the model is called; "auto": the best mode that works.
        timeout_s: The most seconds until the first reply.
        extra: Further members of every request, as JSON; "": none.
        most_s: The most seconds of the whole probe. After this time plain chat is assumed.

    Raises:
        ConfigError: The url, the key, the model or the mode is wrong, or no such server answers.
        CapabilityError: The mode does not work on the server.
        EngineError: The server cannot serve now.
    """
    url = url.strip()
    if mode != "auto" and mode not in MODES:
        raise ConfigError(f"mode is {mode!r}, but must be auto, {', '.join(MODES)}")
    root = roots(url)[0]
    try:
        return run_apart(asyncio.wait_for(_probe(url, model, key, mode, timeout_s, extra), min(most_s, 1e6)))
    except TimeoutError:
        LOG.warning("the probe of %s was stopped after %.1f s, its time limit: plain chat is assumed", url, most_s)
        return Capabilities(root=root, model=model, mode="chat" if mode == "auto" else mode, extra=extra)


async def _probe(
    url: str, model: str, key: Key, mode: Mode | Literal["auto"], timeout_s: float, extra: str
) -> Capabilities:
    """See `probe_server`."""
    start = time.monotonic()
    http, entry, served = await reach_model(url, model, key, timeout_s)
    LOG.info(
        "probing %s for what it can do: three to twenty requests of some 50 tokens each, charged to no problem", url
    )
    http.timeouts = Timeouts(tries=4, first_s=_REPLY_S, gap_s=_REPLY_S, call_s=_REPLY_S, longest_wait_s=20.0)
    probe = _Probe(http, entry, served, extra)
    try:
        return await probe.capabilities(mode)
    finally:
        await http.close()
        LOG.info(
            "probed %s: %d requests, %d tokens reported, %.1f s; charged to no problem",
            url,
            probe.num_requests,
            probe.num_tokens,
            time.monotonic() - start,
        )


class _Probe:
    """The requests of a probe, to one server that serves the model.

    Attributes:
        num_requests: The number of requests, with that for the list of models.
        num_tokens: The tokens that replies reported, of prompts and texts.
    """

    def __init__(self, http: HttpClient, entry: Mapping[str, Any], served: tuple[str, ...], extra: str) -> None:
        self._http = http
        self._entry = entry
        self._served = served
        self._extra = extra
        self._always: dict[str, Any] = {"model": entry["id"], **json.loads(extra or "{}")}  # members of every request
        self._site = http.root.removesuffix("/v1")  # base url of endpoints outside the API
        self._server = recognise(entry)
        self._refusal = ServerError("Refused", "")  # the last refusal
        self._denied: ServerError | None = None  # the last refusal of the key
        self._taken: dict[str, dict[str, Any]] = {}  # the optional members that the server takes, by name
        self._cap: dict[str, int] = {}  # the member that limits a row
        self._takes_both = True  # whether a request may have a temperature and a top_p
        self._is_cached_reported = False
        self.num_requests, self.num_tokens = 1, 0

    async def capabilities(self, wanted_mode: Mode | Literal["auto"]) -> Capabilities:
        """Find the mode of calls, and what depends on the model, and return the capabilities.

        Raises:
            ConfigError: The model writes neither by completions nor by chat, or the key is refused.
            CapabilityError: The mode does not work.
            EngineError: The server does not answer, from which nothing can be concluded.
        """
        chat_start = {"messages": list(TURNS)}
        chat = None if wanted_mode == "text" else await self._try("/chat/completions", chat_start)
        first, path, start = chat, "/chat/completions", chat_start
        if first is None:
            path, start = "/completions", {"prompt": _TEXT}
            first = await self._try(path, start)
        if first is None:
            raise self._nothing_written()
        reasoning = _is_reasoning(first)
        ids: Sequence[int] = ()
        if wanted_mode == "tokens" or (wanted_mode == "auto" and self._server.takes_ids and not reasoning):
            ids = await self._tokenize(start if chat else {"prompt": _TEXT})
        greedy: ServerReply | None = None
        if ids:
            greedy = await self._write_greedy("/completions", {"prompt": list(ids), "return_token_ids": True})
            ids = ids if greedy is not None and greedy.choices[0].ids else ()
        mode = await self._mode(wanted_mode, chat, ids)
        if not ids:
            greedy = await self._write_greedy(path, start)
        return await self._describe(mode, first, greedy, template=chat is not None, ids=ids)

    async def _describe(
        self, mode: Mode, first: ServerReply, greedy: ServerReply | None, ids: Sequence[int], *, template: bool
    ) -> Capabilities:
        """Return the capabilities that two replies show, with the capabilities of the kind of server.

        Args:
            mode: The mode in which the model is called.
            first: The reply to the first request, of which the server takes the optional members.
            greedy: A whole reply at temperature 0.
            ids: The tokens of a rendered prompt, where the model is called by tokens.
            template: Whether the server renders messages.
        """
        reasoning = _is_reasoning(first)
        version, seed_note = await self._version()
        context = self._entry.get("max_model_len")
        whole_usage = None if greedy is None else greedy.usage
        grows = "stream" in self._taken and first.events > 2 * len(first.choices)
        has_logprobs, has_tops = _compare_logprobs(first, greedy) if "temperature" in self._taken else (False, False)
        declared = dict(self._server.declared)
        if mode != "chat" or not reasoning:
            declared = {**declared, "thought_limit": "", "thought_switch": ""}
        if template and "tools" not in declared:
            declared["tools"] = await self._takes_tools()
        if template and "forms" not in declared:
            declared["forms"] = await self._takes_forms()
        found: dict[str, Any] = {
            "context": context if type(context) is int and context > 0 else None,
            "template_tokens": max(TEMPLATE_TOKENS, first.usage.prompt if template and first.usage else 0),
            "cap_name": next(iter(self._cap)),
            "usage": bool(first.usage or whole_usage),
            # a whole reply with a report is better than a stream without
            "streams": grows and bool(first.usage or not whole_usage),
            "cached": self._is_cached_reported,
            "logprobs": has_logprobs,
            "tops": has_tops,
            "n": "n" in self._taken and len(first.choices) == 2 and _is_valid(first, 1),
            "neutral": tuple((name, value) for name, value in self._neutral.items() if name in self._taken),
            "tempers": "temperature" in self._taken,
            "cuts": "top_p" in self._taken or not self._takes_both,
            "both": self._takes_both,
            "opened": bool(ids) and template and await self._opens_thought(ids),
            "limited": self._http.limited,
        }
        found |= declared
        # the server may be unable to obey the seeds, filters and stop texts that its kind obeys
        found["seeds"] = found.get("seeds", False) and not seed_note and found["tempers"]
        found["filters"] = found.get("filters", False) and {"top_k", "min_p"} <= self._taken.keys()
        found["stops"] = found.get("stops", False) and mode != "chat" and found["tempers"]
        return Capabilities(
            root=self._http.root,
            model=self._entry["id"],
            mode=mode,
            served=self._served,
            server=self._server.name,
            version=version,
            template=template and mode != "text",
            reasoning=reasoning,
            efforts=reasoning,
            penalties=True,
            biases=True,
            seed_note=seed_note,
            extra=self._extra,
            **found,
        )

    def _nothing_written(self) -> ConfigError:
        """Return the error of a model that does not write."""
        if self._denied is not None:  # some servers list their models without a key
            return refusal(self._http.root, self._denied, self._http.key)
        return ConfigError(
            f"{self._http.root} lists {self._entry['id']!r}, but writes neither by completions nor by chat "
            f"({self._refusal.cause})",
            hint="is it a model that writes text? One that answers problems of one kind alone is used without a "
            "probe: --model-option probe=never, or probe: never in its record",
        )

    # Requests ---------------------------------------------------------------------------------------------------------

    async def _request(self, path: str, body: Mapping[str, Any] | None, take: Any) -> bool:
        """Send a request, and return whether it is answered. The reason why it is not is kept.

        Raises:
            EngineError: The server does not answer, from which nothing can be concluded.
        """
        self.num_requests += 1
        try:
            await self._http.post(path, body, take, stream=0, position=self.num_requests)
        except ServerError as error:
            self._refusal = error
            if error.status in (401, 403):
                self._denied = error
            is_answer = error.kind == "BadReply" or (error.status and error.kind not in _NO_ANSWERS)
            streams = body is not None and "stream" in body  # a stream that breaks is a stream that does not work
            if is_answer or (streams and not error.again):
                return False
            raise EngineError(
                f"{self._http.root} failed while it was probed: {error.kind}: {error.cause}",
                hint="pay for more" if error.kind == "QuotaExceeded" else "try again when it is idle",
                kind=error.kind,
                retry_s=error.after_s,
            ) from None
        return True

    async def _get(self, url: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return the JSON of an endpoint outside the API; {}: there is none."""
        events: list[Mapping[str, Any]] = [{}]
        await self._request(url, body, events.append)
        return events[-1]

    async def _write(self, path: str, body: Mapping[str, Any], count: int = 1) -> ServerReply | None:
        """Return a reply of the model; None: the server refuses the request, or the reply has no valid row.

        Args:
            path: The path below the root.
            body: The body of the request.
            count: The number of rows that are asked for.
        """
        reply = ServerReply(count)

        def take(event: Any) -> bool:
            reply.take(event)
            if reply.events > _MOST_EVENTS:
                raise ServerError("BadReply", "a stream that does not end")
            return False

        if not await self._request(path, {**self._always, **body}, take):
            return None
        if reply.usage is not None:
            self.num_tokens += reply.usage.prompt + reply.usage.generated
            self._is_cached_reported = self._is_cached_reported or reply.usage.cached is not None
        if not _is_valid(reply, 0):
            self._refusal = reply.error(0) or self._refusal
            return None
        return reply

    @property
    def _neutral(self) -> Mapping[str, int | float]:
        return {**NEUTRAL, **self._server.neutral}

    async def _try(self, path: str, start: Mapping[str, Any]) -> ServerReply | None:
        """Return the reply to a request with as many optional members as the server takes; None: it takes none.

        The members are those that every request has, or would have. Members that a refusal names are left out. After a
        refusal that names none, the members that the fewest servers take are left out.

        Args:
            path: The endpoint.
            start: The prompt of the request.
        """
        self._taken = {name: {name: value} for name, value in self._neutral.items()}
        if path == "/completions":
            self._taken |= {"n": {"n": 2}, "logprobs": {"logprobs": TOP_TOKENS}}
        else:
            self._taken |= {"n": {"n": 2}, "top_logprobs": {"top_logprobs": TOP_TOKENS}, "logprobs": {"logprobs": True}}
        self._taken |= {"stream": _STREAM, **_NEARLY_GREEDY}
        caps = list(_CAPS)
        while True:
            self._cap = caps[0]
            body: dict[str, Any] = {**start, **self._cap}
            for members in self._taken.values():
                body |= members
            reply = await self._write(path, body, body.get("n", 1))
            if reply is not None or self._refusal.status in (401, 403, 404, 405):
                return reply
            if len(caps) > 1 and (not self._taken or _CAP_NAMES.search(self._refusal.cause)):
                caps.pop(0)
            elif self._taken:
                self._leave_out(self._refusal)
            else:
                return None

    def _leave_out(self, error: ServerError) -> None:
        """Leave out the optional members that a refusal names, or those that the fewest servers take."""
        named = [name for name in self._taken if re.search(rf"\b{name}\b", error.cause)]
        if {"temperature", "top_p"} <= {*named}:
            self._takes_both, named = False, ["top_p"]
        if not error.status and "stream" in self._taken:  # a stream that broke, or did not end
            named = ["stream"]
        if not named:
            named = [name for name in self._taken if name in NEUTRAL] or [next(iter(self._taken))]
        for name in named:
            del self._taken[name]

    async def _write_greedy(self, path: str, start: Mapping[str, Any]) -> ServerReply | None:
        """Return a whole reply at temperature 0, with log-probabilities if the server takes these members."""
        members: dict[str, Any] = {"temperature": 0.0} if "temperature" in self._taken else {}
        if "logprobs" in self._taken:
            members["logprobs"] = TOP_TOKENS if path == "/completions" else True
        return await self._write(path, {**start, **self._cap, **members})

    # What is found ----------------------------------------------------------------------------------------------------

    async def _mode(self, wanted_mode: Mode | Literal["auto"], chat: ServerReply | None, ids: Sequence[int]) -> Mode:
        """Return the mode in which the model is called.

        Args:
            wanted_mode: The requested mode; "auto": the best mode that works.
            chat: The reply of a chat; None: there is no chat.
            ids: The tokens of a prompt, if completions take and return tokens.

        Raises:
            CapabilityError: The wanted mode does not work.
        """
        mode: Mode = "text"
        if ids:
            mode = "tokens"
        elif chat is not None:
            mode = "chat"
            # reasoning apart from the answer cannot be continued
            may_continue = wanted_mode == "auto" and not _is_reasoning(chat)
            if (may_continue or wanted_mode == "continued chat") and await self._continues():
                mode = "continued chat"
        if wanted_mode not in ("auto", mode):
            raise CapabilityError(
                f"mode is {wanted_mode!r}, but {self._http.root} does not offer that for {self._entry['id']!r}",
                hint=f"leave the mode out: {mode} works",
            )
        return mode

    async def _tokenize(self, body: Mapping[str, Any]) -> Sequence[int]:
        """Return the tokens of a prompt; (): the server gives none."""
        reply = await self._get(f"{self._site}/tokenize", {"model": self._entry["id"], **body})
        ids: Any = reply.get("tokens")
        return ids if isinstance(ids, list) and all(type(token) is int for token in ids) else ()

    async def _opens_thought(self, ids: Sequence[int]) -> bool:
        """Whether a prompt ends, by the model's template, with the opening mark of a thought."""
        body = {"model": self._entry["id"], "tokens": list(ids[-_TOKENS:])}
        text = (await self._get(f"{self._site}/detokenize", body)).get("prompt")
        return isinstance(text, str) and THINK.continue_prompt(text).opened

    async def _continues(self) -> bool:
        """Whether chat continues the assistant's message.

        If so, the continued prompt has fewer tokens than a prompt that ends the message and opens a new one. It also
        has fewer tokens than a continued prompt with more line ends. The latter shows that the template does not trim
        messages.
        """
        continued_tokens = await self._prompt_tokens(_BEGUN, CONTINUE)
        if continued_tokens is None:
            return False
        for text, members in ((_BEGUN, {}), (f"{_BEGUN}\n\n", CONTINUE)):
            num_tokens = await self._prompt_tokens(text, members)
            if num_tokens is None or num_tokens <= continued_tokens:
                return False
        return True

    async def _prompt_tokens(self, text: str, members: Mapping[str, Any]) -> int | None:
        """Return the prompt's tokens of a chat whose last message, the assistant's, is `text`; None: not reported."""
        messages = [*TURNS, {"role": "assistant", "content": text}]
        cap = dict.fromkeys(self._cap, 1)
        reply = await self._write("/chat/completions", {"messages": messages, **cap, **members})
        return None if reply is None or reply.usage is None else reply.usage.prompt

    async def _takes_tools(self) -> bool:
        """Whether a chat that must call a function calls it, and a chat that may call the function is not refused."""
        tool = {
            "type": "function",
            "function": {"name": "ready", "description": "Report.", "parameters": {"type": "object", "properties": {}}},
        }
        cap = {name: max(most, _CALL_TOKENS) for name, most in self._cap.items()}
        body = {"messages": list(TURNS), **cap, "tools": [tool]}
        forced_choice = {"type": "function", "function": {"name": "ready"}}
        forced = await self._write("/chat/completions", {**body, "tool_choice": forced_choice})
        if forced is None or "ready" not in [name for name, *_ in forced.choices[0].calls.values()]:
            return False
        return await self._write("/chat/completions", {**body, "tool_choice": "auto"}) is not None

    async def _takes_forms(self) -> bool:
        """Whether a chat that is asked for words writes the object that a JSON schema demands."""
        form = AnswerForm('{"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]}')
        members = native_members((Message("user", "", (form,)),), tools=False, forms=True)
        cap = {name: max(most, _CALL_TOKENS) for name, most in self._cap.items()}
        reply = await self._write("/chat/completions", {"messages": list(TURNS), **cap, **members})
        return reply is not None and bool(re.match(r'\s*\{\s*"ready"\s*:', "".join(reply.choices[0].pieces)))

    async def _version(self) -> tuple[str, str]:
        """Return the version of vLLM, and the reason why no seeds are sent to it; "": there is none.

        Requests with a seed end the engine of vLLM before 0.33 on CPUs, if their prompt is read in parts. The use of a
        CPU is seen from the blocks of the cache. They have at least 32 tokens on CPUs, and by default 16 elsewhere.
        """
        if self._server.name != "vLLM":
            return "", ""
        reply = await self._get(f"{self._site}/version")
        version = str(reply["version"]) if "version" in reply else ""
        match = re.match(r"(\d+)\.(\d+)", version)
        if match is None or not (0, 6) <= (int(match[1]), int(match[2])) <= (0, 32):
            return version, ""
        self.num_requests += 1
        metrics = await self._http.request_text(f"{self._site}/metrics")
        block = re.search(r'cache_config_info\{[^}]*\bblock_size="(\d+)"', metrics)
        return version, _SEEDLESS if block is None or int(block[1]) >= 32 else ""


def _is_valid(reply: ServerReply, index: int) -> bool:
    """Whether a reply has a row, or a row whose few tokens are all part of a hidden thought."""
    error = reply.error(index)
    return error is None or (error.kind == "NoContent" and reply.choices[index].finish == "length")


def _is_reasoning(reply: ServerReply) -> bool:
    """Whether a reply shows, counts or hides a thought apart from its text."""
    counts_thought = reply.usage is not None and bool(reply.usage.reasoning)
    return counts_thought or any(choice.reasoned or not choice.contents for choice in reply.choices.values())


def _compare_logprobs(warm: ServerReply, greedy: ServerReply | None) -> tuple[bool, bool]:
    """Return whether tokens have log-probabilities from before the temperature, and whether `tops` have them.

    Such log-probabilities are equal at two temperatures that both draw the most likely token.

    Args:
        warm: The reply at another temperature.
        greedy: The reply at temperature 0.
    """
    if greedy is None or len(warm.choices[0].logprobs) != len(greedy.choices[0].logprobs):
        return False, False
    logprobs, tops = warm.choices[0].logprobs, warm.choices[0].tops
    differences = [abs(one - other) for one, other in zip(logprobs, greedy.choices[0].logprobs, strict=True)]
    # after temperature 0, or a cut to one token, all log-probabilities would be 0
    if not all(difference < 0.05 for difference in differences) or not min(logprobs, default=0.0) < -1e-6:
        return False, False
    return True, len(tops) == len(logprobs) and all(tops) and max(map(len, tops)) > 1

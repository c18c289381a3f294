"""Probe a server before it is used.

A probe finds which models a server has, in which modes they may be called, and which parameters the server obeys.

Every capability is tried with a few tokens: 250 to 500 in all. A model that writes no text in so few tokens may take
5,000. No problem is charged for them. The capabilities are kept on disk (`tts.backends.openai.kept_capabilities`).
Nothing is concluded from a server's address or name, with one exception: vLLM before 0.33 on CPUs. A request with a
seed ends that server, so seeds are not tried on it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from tts.backends.base import TEMPLATE_TOKENS
from tts.backends.openai.capabilities import MODES, Capabilities, Mode
from tts.backends.openai.echo import echo_members, read_echo
from tts.backends.openai.errors import Key, ServerError
from tts.backends.openai.http import roots
from tts.backends.openai.probe_client import ProbeClient, ProbeEnded
from tts.backends.openai.prompt import CONTINUE
from tts.backends.openai.reaching import PROBE_TIMEOUT_S, TURNS, owner_of, reach_model, refusal
from tts.backends.openai.reply import ServerReply
from tts.backends.openai.thinking import LIMITS, SWITCHES, limit_members, switch_members, with_members
from tts.errors import CapabilityError, ConfigError, EngineError
from tts.thoughts import THINK
from tts.types import TOP_TOKENS

T = TypeVar("T")
_TEXT = "One, two, three, four, five,"
_BEGUN = "One, two, three,"
_TOKENS = 8
_THOUGHTS = 256  # tokens of a row where a model writes no text in `_TOKENS`
# `repeat_penalty` is llama.cpp's parameter, whose default there is 1.1
_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
_EFFORT = {"reasoning_effort": "low"}
_PENALTIES = {"presence_penalty": 0.1, "frequency_penalty": 0.1}
_BIASES = {"logit_bias": {"0": 1}}
_NO_TOP_K = -1  # the neutral top_k of servers that refuse 0
_NOT_TAKEN = re.compile(
    "un(?:recognized|known|supported|expected)|extra|not (?:supported|permitted|allowed|recognized)", re.IGNORECASE
)
_CALL_TOKENS = 32  # tokens of a row for a call without arguments, or for a short object
_PIXEL = (  # a picture of one point
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_LONG_THOUGHT = "How many prime numbers lie between one hundred and two hundred? Think it through step by step."
_THOUGHT_ROOM = 512  # tokens of a row in which a thought is limited
_THOUGHT_LIMIT = 24  # tokens of a limited thought
_THOUGHT_SLACK = 1.5  # factor, since servers end a thought a few tokens late, or add a sentence of their own
_SHORT_THOUGHTS = "not known: its thoughts are short"
_BYTES_A_TOKEN = 4  # an estimate, where tokens are not reported
_CONTROLS = 8  # the most rows without filters that are compared; one is mostly enough
_ALIKE = "not known: without them it writes the same; refused if asked for"
_SEEDLESS = "not tried: seeds end vLLM's server on CPUs in this version; rows are drawn without"


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """The cost of a probe.

    Args:
        requests: The number of requests.
        tokens: The tokens that the server reported.
        seconds: The seconds that the probe took.
        whole: Whether the probe ended within its time limit.
    """

    requests: int
    tokens: int
    seconds: float
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.requests} requests, {self.tokens} tokens reported, {self.seconds:.1f} s; charged to no problem"


def probe_server(  # noqa: PLR0913 - conditions of a probe, by name
    url: str,
    model: str,
    key: Key,
    mode: Mode | Literal["auto"] = "auto",
    timeout_s: float = PROBE_TIMEOUT_S,
    told: Callable[[ProbeCost], None] = lambda _: None,
    extra: str = "",
    most_s: float = math.inf,
    *,
    begun: Callable[[], None] = lambda: None,
) -> Capabilities:
    """Return the capabilities of a server for a model.

    Args:
        url: The url of the server.
        model: The model's name on the server; "": the only model that is served.
        key: The key of the server.
        mode: The mode in which the model is called; "auto": the best mode that works.
        timeout_s: The most seconds until the first reply.
        told: Called with the cost of the probe, even if the probe fails after the first reply.
        extra: Further members of every request, as JSON; "": none.
        most_s: The most seconds of the whole probe. A capability that was not found by then counts as absent. If no
            mode was found, plain chat is assumed.
        begun: Called once the server is reached, before the requests that take time.

    Raises:
        ConfigError: The url, the key, the model or the mode is wrong, or no such server answers.
        CapabilityError: The mode does not work on the server.
    """
    url = url.strip()
    if mode != "auto" and mode not in MODES:
        raise ConfigError(f"mode is {mode!r}, but must be auto, {', '.join(MODES)}")
    start = time.monotonic()
    try:
        client, entry, served = reach_model(url, model, key, timeout_s, start + most_s)
    except ProbeEnded:
        told(ProbeCost(requests=1, tokens=0, seconds=time.monotonic() - start, whole=False))
        return _assume(roots(url)[0], model, (), mode, extra)
    begun()
    probe = _Probe(client, entry, served, extra)
    try:
        return probe.capabilities(mode)
    except ProbeEnded:
        return _assume(client.root, entry["id"], served, mode, extra)
    finally:
        client.close()
        seconds = time.monotonic() - start
        told(ProbeCost(client.requests, client.tokens, seconds, whole=probe.whole))


def _assume(root: str, model: str, served: tuple[str, ...], mode: Mode | Literal["auto"], extra: str) -> Capabilities:
    """Return the capabilities that are assumed where a probe found no mode in its time."""
    return Capabilities(root=root, model=model, mode="chat" if mode == "auto" else mode, served=served, extra=extra)


class _Probe:
    """The requests of a probe, to one server that serves the model.

    Attributes:
        whole: Whether every request of the probe was made in time.
    """

    def __init__(self, client: ProbeClient, entry: Mapping[str, Any], served: tuple[str, ...], extra: str) -> None:
        self._client = client
        self._model: str = entry["id"]
        self._extra = extra
        self._always: dict[str, Any] = {"model": self._model, **json.loads(extra or "{}")}  # members of every request
        self._served = served
        self._entry = entry
        self._site = client.root.removesuffix("/v1")  # base url of endpoints outside the API
        self._cap_name = "max_tokens"
        self._chat_tokens = _TOKENS
        self._thinks_little = False  # whether a thought ended within a few tokens, with text after it
        self._chat_refusal: ServerError | None = None
        self.whole = False

    def capabilities(self, wanted_mode: Mode | Literal["auto"]) -> Capabilities:
        """Find the mode in which the model is called, try all parameters, and return the capabilities.

        Raises:
            ConfigError: The model writes neither by completions nor by chat, or the key is refused.
            CapabilityError: The mode does not work.
        """
        version_reply = self._client.request_json(f"{self._site}/version")
        chat, completions = self._endpoints(wanted_mode)
        self.whole = True  # set to False when a request finds the time limit passed
        if chat is None and completions is None:
            if self._client.denied is not None:  # some servers list their models without a key
                raise refusal(self._client.root, self._client.denied, self._client.key)
            cause = "" if self._chat_refusal is None else f" ({self._chat_refusal.cause})"
            raise ConfigError(
                f"{self._client.root} lists {self._model!r}, but writes neither by completions nor by chat{cause}",
                hint="is it a model that writes text? One that answers problems of one kind alone is used without a "
                "probe: --no-probe, "
                "or probe: never in its record",
            )
        template = chat is not None
        reasoning = _is_reasoning(chat)
        # a model that reasons apart writes only whole solutions, so that no other mode need be tried
        is_apart = reasoning and wanted_mode == "auto"
        ids, takes_ids = None, False
        if completions is not None and not is_apart:
            ids = self._call_in_time(self._tokenize, {"prompt": _TEXT})
        if ids:
            takes_ids = bool(self._call_in_time(self._takes_ids, ids))
        is_decided = is_apart or (takes_ids and wanted_mode in ("auto", "tokens"))
        works: dict[Mode, bool] = {
            "tokens": takes_ids,
            "text": completions is not None,
            "continued chat": template and not is_decided and bool(self._call_in_time(self._continues)),
            "chat": template,
        }
        mode = self._mode(wanted_mode, works, reasoning=reasoning)
        if mode in ("tokens", "text"):
            path, first_reply = "/completions", completions
            start = {"prompt": ids if mode == "tokens" else _TEXT, self._cap_name: _TOKENS}
        else:
            path, first_reply = "/chat/completions", chat
            start = {"messages": list(TURNS), self._cap_name: self._chat_tokens}
        context = self._entry.get("max_model_len")
        base = Capabilities(
            root=self._client.root,
            model=self._model,
            mode=mode,
            served=self._served,
            version=_version_in(version_reply),
            owner=owner_of(self._entry),
            context=context if type(context) is int and context > 0 else None,
            template=template and mode != "text",
            template_tokens=self._template_tokens(chat),
            cap_name=self._cap_name,
            usage=bool(first_reply and first_reply.usage),
            reasoning=reasoning,
            opened=mode == "tokens" and template and bool(self._call_in_time(self._opens_thought)),
            extra=self._extra,
        )
        return self._try_settings(base, path, start)

    def _try_settings(self, base: Capabilities, path: str, start: Mapping[str, Any]) -> Capabilities:
        """Return capabilities completed by requests for single parameters, which mostly run at once.

        Args:
            base: The capabilities that are found so far.
            path: The endpoint of the mode.
            start: The members of every request.
        """
        effort = _EFFORT if base.reasoning else {}
        takes_all = bool(self._call_in_time(self._takes_all, path, start, effort))
        neutral: Mapping[str, float] = _NEUTRAL
        tempers = cuts = takes_both = True  # this also holds if no time was left to try temperature and top_p
        if not takes_all:
            neutral = self._call_in_time(self._neutral, path, start) or {}
            tempers, cuts, takes_both = self._call_in_time(self._tempering, path, start) or (True, True, True)
        may_try_filters = tempers and {"top_k", "min_p"} <= neutral.keys()
        metrics = self._call_in_time(self._client.text, f"{self._site}/metrics") if _may_crash(base.version) else ""
        seeds_crash = _seeds_crash(base.version, metrics or "")
        # this request runs alone, since llama.cpp's Python server ends a stream when another request arrives
        grows, reports = self._call_in_time(self._client.grows, path, {**self._always, **start}) or (False, False)
        streams = grows and (reports or not base.usage)  # a whole reply with a report is better than a stream without
        tries: dict[str, Callable[[], Any]] = {
            "logprobs": lambda: self._logprobs(path, start, cuts=cuts and takes_both) if tempers else (False, False),
            "draws": lambda: self._draws(
                path, start, neutral if may_try_filters else None, seeds=not seeds_crash and tempers
            ),
            "n": lambda: takes_all or self._write(path, {**start, "n": 2}, 2) is not None,
            "stops": lambda: base.mode != "chat" and tempers and self._stops(path, start),
            "changes": lambda: self._changes(path, start),
            "echo": lambda: path == "/completions" and self._echoes(start),
            "tools": lambda: base.template and self._takes_tools(),
            "forms": lambda: base.template and self._obeys_forms(),
            "pictures": lambda: base.template and self._sees(),
            "efforts": lambda: base.reasoning and (takes_all or self._write(path, {**start, **_EFFORT}) is not None),
            "thoughts": lambda: self._thought_fields() if base.chats and base.reasoning else None,
        }
        with ThreadPoolExecutor(8) as pool:
            results = dict(zip(tries, pool.map(self._call_in_time, tries.values()), strict=True))
        # a result is None where the time limit passed
        results["seeds"], obeys_filters, filter_note = results.pop("draws") or (False, False, "")
        results["logprobs"], results["tops"] = results["logprobs"] or (False, False)
        results["penalties"], results["biases"] = results.pop("changes") or (False, False)
        thought_limit, thought_switch, thought_note = results.pop("thoughts") or ("", "", "")
        return dataclasses.replace(
            base,
            neutral=tuple(neutral.items()),
            seed_note=_SEEDLESS if seeds_crash else "",
            filters=obeys_filters,
            filter_note=filter_note,
            streams=streams,
            limited=self._client.limited,
            tempers=tempers,
            cuts=cuts,
            both=takes_both,
            cached=self._client.cached,
            thought_limit=thought_limit,
            thought_switch=thought_switch,
            thought_note=thought_note,
            **{name: bool(result) for name, result in results.items()},
        )

    def _call_in_time(self, fn: Callable[..., T], *args: Any) -> T | None:
        """Return the result of a function; None where the probe's time limit passes before the function's end."""
        try:
            return fn(*args)
        except ProbeEnded:
            self.whole = False
            return None

    def _write(self, path: str, body: Mapping[str, Any], count: int = 1) -> ServerReply | None:
        return self._client.generate(path, {**self._always, **body}, count)

    def _text(self, path: str, body: Mapping[str, Any]) -> str | None:
        reply = self._write(path, body)
        return None if reply is None else "".join(reply.choices[0].pieces)

    def _words(self, path: str, body: Mapping[str, Any]) -> str | None:
        """Return the thought and the text of a reply, joined; None where the reply is not valid."""
        reply = self._write(path, body)
        return None if reply is None else "".join([*reply.choices[0].thoughts, *reply.choices[0].pieces])

    def _endpoints(self, wanted_mode: Mode | Literal["auto"]) -> tuple[ServerReply | None, ServerReply | None]:
        """Return the replies of chat and of completions, each None where it is refused.

        The parameter that limits a chat is kept, with a limit that leaves room for text. Completions are not tried if
        the mode is "auto" and a chat shows thoughts apart, since chat is the mode then.
        """
        chat = None
        for num_tokens, name in itertools.product((_TOKENS, _THOUGHTS), ("max_tokens", "max_completion_tokens")):
            chat = self._write("/chat/completions", {"messages": list(TURNS), name: num_tokens})
            self._chat_refusal = self._client.refusal if chat is None else None
            if chat is not None:
                self._cap_name, self._chat_tokens = name, num_tokens
                break
        if chat is not None and chat.usage is not None:
            self._thinks_little = bool(chat.choices[0].pieces) and 0 < chat.usage.reasoning < _TOKENS
        if wanted_mode == "auto" and _is_reasoning(chat):
            return chat, None
        return chat, self._write("/completions", {"prompt": _TEXT, "max_tokens": _TOKENS})

    def _tokenize(self, body: Mapping[str, Any]) -> list[int] | None:
        reply = self._client.request_json(f"{self._site}/tokenize", {"model": self._model, **body})
        ids = reply.get("tokens") if isinstance(reply, dict) else None
        is_valid = isinstance(ids, list) and bool(ids) and all(type(token) is int for token in ids)
        return ids if is_valid else None

    def _takes_ids(self, ids: Sequence[int]) -> bool:
        """Whether completions take a prompt's tokens, and return tokens."""
        reply = self._write("/completions", {"prompt": ids, "max_tokens": _TOKENS, "return_token_ids": True})
        return reply is not None and bool(reply.choices[0].ids)

    def _opens_thought(self) -> bool:
        """Whether a prompt ends, by the model's template, with the opening mark of a thought."""
        ids = self._tokenize({"messages": list(TURNS)})
        if ids is None:
            return False
        body = {"model": self._model, "tokens": ids[-_TOKENS:]}
        reply = self._client.request_json(f"{self._site}/detokenize", body)
        text = reply.get("prompt") if isinstance(reply, dict) else None
        return isinstance(text, str) and THINK.continue_prompt(text).opened

    def _continues(self) -> bool:
        """Whether chat continues the assistant's message.

        If so, the continued prompt has fewer tokens than a prompt that ends the message and opens a new one. It also
        has fewer tokens than a continued prompt with more line ends. The latter shows that the template does not trim
        messages.
        """
        continued_tokens = self._prompt_tokens(_BEGUN, CONTINUE)
        if continued_tokens is None:
            return False
        for text, members in ((_BEGUN, {}), (f"{_BEGUN}\n\n", CONTINUE)):
            num_tokens = self._prompt_tokens(text, members)
            if num_tokens is None or num_tokens <= continued_tokens:
                return False
        return True

    def _prompt_tokens(self, text: str, members: Mapping[str, Any]) -> int | None:
        """Return the prompt's tokens of a chat whose last message, the assistant's, is `text`; None: not reported."""
        messages = [*TURNS, {"role": "assistant", "content": text}]
        reply = self._write("/chat/completions", {"messages": messages, self._cap_name: 1, **members})
        return None if reply is None or reply.usage is None else reply.usage.prompt

    def _mode(self, wanted_mode: Mode | Literal["auto"], works: Mapping[Mode, bool], *, reasoning: bool) -> Mode:
        """Return the mode in which the model is called.

        Args:
            wanted_mode: The requested mode; "auto": the best mode that works.
            works: Whether each mode works.
            reasoning: Whether the model reasons apart from its answer.

        Raises:
            CapabilityError: The wanted mode does not work.
        """
        if reasoning and wanted_mode == "auto":
            return "chat"  # reasoning apart from the answer cannot be continued
        order: tuple[Mode, ...] = ("tokens", "continued chat", "chat", "text")
        for mode in order if wanted_mode == "auto" else (wanted_mode,):
            if works[mode]:
                return mode
        offered_modes = ", ".join(mode for mode, mode_works in works.items() if mode_works)
        raise CapabilityError(
            f"mode is {wanted_mode!r}, but {self._client.root} does not offer that for {self._model!r}",
            hint=f"it offers: {offered_modes}",
        )

    def _template_tokens(self, chat: ServerReply | None) -> int:
        """Return a bound on the tokens that the template adds: the tokens of a short chat, if that is more."""
        if chat is None or chat.usage is None:
            return TEMPLATE_TOKENS
        return max(TEMPLATE_TOKENS, chat.usage.prompt)

    def _takes_all(self, path: str, start: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
        """Whether one request may have all neutral values, a temperature, a top_p, two rows, and further members."""
        body = {**start, **_NEUTRAL, "temperature": 0.7, "top_p": 0.9, "n": 2, **members}
        return self._write(path, body, 2) is not None

    def _neutral(self, path: str, start: Mapping[str, Any]) -> dict[str, float]:
        """Return the neutral parameters that the server takes, with values that change nothing.

        Parameters that a refusal names are left out. After a refusal that names no parameter, each parameter is tried
        alone. A top_k of 0 that is refused is tried as -1, too.
        """
        candidates: dict[str, float] = dict(_NEUTRAL)
        while candidates:
            if self._write(path, {**start, **candidates}) is not None:
                return candidates
            cause = self._client.refusal.cause if self._client.refusal is not None else ""
            refused_names = [name for name in candidates if re.search(rf"\b{name}\b", cause)]
            if not refused_names:
                break
            may_refuse_value = "top_k" in refused_names and not _NOT_TAKEN.search(cause)
            if may_refuse_value and candidates["top_k"] != _NO_TOP_K:
                candidates["top_k"] = _NO_TOP_K
            else:
                candidates = {name: value for name, value in candidates.items() if name not in refused_names}
        if not candidates:
            return {}
        accepted: dict[str, float] = {}
        for name, value in (*candidates.items(), ("top_k", _NO_TOP_K)):
            if name not in accepted and self._write(path, {**start, name: value}) is not None:
                accepted[name] = value
        return accepted

    def _tempering(self, path: str, start: Mapping[str, Any]) -> tuple[bool, bool, bool]:
        """Return whether the server takes a temperature, whether a top_p, and whether both in one request."""
        temperature, top_p = {"temperature": 0.7}, {"top_p": 0.9}
        if self._write(path, {**start, **temperature, **top_p}) is not None:
            return True, True, True
        takes_temperature = self._write(path, {**start, **temperature}) is not None
        takes_top_p = self._write(path, {**start, **top_p}) is not None
        return takes_temperature, takes_top_p, False

    def _changes(self, path: str, start: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether the server takes penalties, and whether it takes biases."""
        if self._write(path, {**start, **_PENALTIES, **_BIASES}) is not None:
            return True, True
        takes_penalties = self._write(path, {**start, **_PENALTIES}) is not None
        takes_biases = self._write(path, {**start, **_BIASES}) is not None
        return takes_penalties, takes_biases

    def _logprobs(self, path: str, start: Mapping[str, Any], *, cuts: bool) -> tuple[bool, bool]:
        """Return whether tokens have log-probabilities from before the temperature, and whether `tops` have them.

        Such log-probabilities are equal at two temperatures that both draw the most likely token.

        Args:
            path: The endpoint.
            start: The members of every request.
            cuts: Whether a request may have a temperature and a top_p.
        """
        if path == "/completions":
            plain: dict[str, Any] = {"logprobs": 0}
            with_tops: dict[str, Any] = {"logprobs": TOP_TOKENS}
        else:
            plain = {"logprobs": True}
            with_tops = {"logprobs": True, "top_logprobs": TOP_TOKENS}
        greedy_reply = self._write(path, {**start, "temperature": 0.0, **plain})
        if greedy_reply is None or not greedy_reply.choices[0].logprobs:
            return False, False
        greedy_logprobs = greedy_reply.choices[0].logprobs
        nearly_greedy = {"temperature": 0.3, "top_p": 0.001} if cuts else {"temperature": 0.01}
        warm_reply = self._write(path, {**start, **nearly_greedy, **with_tops})
        if warm_reply is None:
            warm_reply = self._write(path, {**start, **nearly_greedy, **plain})
        if warm_reply is None or len(warm_reply.choices[0].logprobs) != len(greedy_logprobs):
            return False, False
        logprobs, tops = warm_reply.choices[0].logprobs, warm_reply.choices[0].tops
        differences = [abs(warm - greedy) for warm, greedy in zip(logprobs, greedy_logprobs, strict=True)]
        are_equal = all(difference < 0.05 for difference in differences)
        # after temperature 0, or a cut to one token, all log-probabilities would be 0
        if not are_equal or not min(greedy_logprobs) < -1e-6:
            return False, False
        return True, len(tops) == len(logprobs) and all(tops) and max(map(len, tops)) > 1

    def _echoes(self, start: Mapping[str, Any]) -> bool:
        """Whether a completion shows the log-probabilities of its prompt, from before the temperature."""
        prompt = start["prompt"]
        completion = self._client.request_json("/completions", {**self._always, **echo_members(prompt, 1)})
        ids = prompt if isinstance(prompt, list) else ()
        try:
            reply = read_echo(completion, ids, 1)
        except ServerError:
            return False
        self._client.tokens += reply.computed + (reply.reused or 0)
        # after temperature 0, all log-probabilities would be 0
        return bool(np.nanmin([0.0, *reply.value.logprobs]) < -1e-6)

    def _draws(
        self, path: str, start: Mapping[str, Any], neutral: Mapping[str, float] | None, *, seeds: bool
    ) -> tuple[bool, bool, str]:
        """Return whether seeds are obeyed, whether filters are obeyed, and a note on the filters.

        The note says why it is not known whether filters are obeyed; "": this is known.

        Args:
            path: The endpoint.
            start: The members of every request.
            neutral: The values that switch every filter off; None: filters are not tried.
            seeds: Whether seeds are tried.
        """
        unfiltered_texts: list[str] = []
        obeys_seeds = seeds and self._seeds(path, start, unfiltered_texts)
        if neutral is None:
            return obeys_seeds, False, ""
        obeys_filters, filter_note = self._filters(path, start, neutral, unfiltered_texts)
        return obeys_seeds, obeys_filters, filter_note

    def _seeds(self, path: str, start: Mapping[str, Any], texts: list[str]) -> bool:
        """Whether equal seeds give equal texts, and other seeds other texts.

        The seeds are 7 and 8, each of which is tried twice. If both give the same text, the seed 9 must give another. A
        model that writes no text in so few tokens counts as not obeying seeds. The texts are added to `texts`.
        """
        for seed in (7, 7, 8, 8, 9):
            text = self._words(path, {**self._long_request(start), "temperature": 1.5, "seed": seed})
            if not text or (len(texts) == 1 and text != texts[0]):
                return False
            texts.append(text)
            if len(texts) == 3 and text != texts[0]:
                return True
        return texts[2] == texts[3] and len(set(texts)) > 1

    def _long_request(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of a request with four times the usual tokens."""
        return {**start, self._cap_name: max(4 * _TOKENS, start[self._cap_name])}

    def _filters(
        self, path: str, start: Mapping[str, Any], neutral: Mapping[str, Any], unfiltered: Sequence[str]
    ) -> tuple[bool, str]:
        """Return whether top_k and min_p are obeyed, and a note why this is not known; "": it is known.

        Filters are obeyed if, at a high temperature, top_k=1 and a min_p just below 1 give the same text, and rows
        without filters give another text. Rows are longer here, so that a row without filters is hardly greedy by
        chance.

        Args:
            path: The endpoint.
            start: The members of every request.
            neutral: The values that switch every filter off.
            unfiltered: Texts of rows without filters.
        """
        warm = {**self._long_request(start), **neutral, "temperature": 2.0}
        filtered_texts = set[str]()
        for filter_ in ({"top_k": 1}, {"min_p": 0.999}):
            text = self._words(path, {**warm, **filter_})
            if text is None:
                return False, ""
            if not text:  # there is no text to compare
                return False, _ALIKE
            filtered_texts.add(text)
        if len(filtered_texts) > 1:
            return False, ""
        if any(text and text not in filtered_texts for text in unfiltered):
            return True, ""
        for _ in range(_CONTROLS):
            text = self._words(path, warm)
            if text is not None and text not in filtered_texts:
                return True, ""
        return False, _ALIKE

    def _thought_fields(self) -> tuple[str, str, str]:
        """Return the field that limits thoughts, the field that switches thoughts off, and a note.

        A field that is not found is "". The note says why it is not known which fields work; "": this is known. If the
        model thinks on in spite of a request with all fields of a kind, no field of this kind works.
        """
        if self._thinks_little:
            return "", "", _SHORT_THOUGHTS
        most_limited = _THOUGHT_SLACK * _THOUGHT_LIMIT
        limits = {name: limit_members(name, _THOUGHT_LIMIT) for name in LIMITS}
        switches = {name: switch_members(name) for name in SWITCHES}
        all_limits: dict[str, Any] = functools.reduce(with_members, limits.values(), {})
        all_switches: dict[str, Any] = functools.reduce(with_members, switches.values(), {})
        may_limit = self._fits_thought(all_limits, most_limited, refused=True)
        may_switch = self._fits_thought(all_switches, 1, refused=True)
        if not (may_limit or may_switch):
            return "", "", ""
        num_plain = self._thought_tokens({})
        if num_plain is None or num_plain < 2 * most_limited:
            return "", "", _SHORT_THOUGHTS
        limit = self._first_fitting(limits, most_limited) if may_limit else ""
        switch = self._first_fitting(switches, 1) if may_switch else ""
        return limit, switch, ""

    def _first_fitting(self, fields: Mapping[str, Mapping[str, Any]], most: float) -> str:
        """Return the first field with which a thought has at most `most` tokens; "": no field works."""
        return next((name for name, members in fields.items() if self._fits_thought(members, most)), "")

    def _fits_thought(self, members: Mapping[str, Any], most: float, *, refused: bool = False) -> bool:
        """Whether a thought has at most `most` tokens in a request with further members.

        Args:
            members: The further members.
            most: The most tokens.
            refused: The result where the server refuses the members.
        """
        length = self._thought_tokens(members)
        return refused if length is None else length <= most

    def _thought_tokens(self, members: Mapping[str, Any]) -> float | None:
        """Return the tokens of a long thought; None: the request is refused.

        Where the tokens are not reported, they are estimated by the thought's share of the reply's bytes. A thought
        that leaves no text counts as infinite.
        """
        body = {"messages": [{"role": "user", "content": _LONG_THOUGHT}], self._cap_name: _THOUGHT_ROOM}
        reply = self._write("/chat/completions", with_members(body, members))
        if reply is None:
            return None
        choice, usage = reply.choices[0], reply.usage
        if not choice.pieces:
            return math.inf
        if usage is not None and usage.reasoning:
            return usage.reasoning
        thought_bytes = len("".join(choice.thoughts).encode())
        num_bytes = thought_bytes + len("".join(choice.pieces).encode())
        num_tokens = num_bytes / _BYTES_A_TOKEN if usage is None else usage.generated
        return num_tokens * thought_bytes / max(1, num_bytes)

    def _takes_tools(self) -> bool:
        """Whether a chat that must call a function calls it, and a chat that may call the function is not refused."""
        tool = {
            "type": "function",
            "function": {"name": "ready", "description": "Report.", "parameters": {"type": "object", "properties": {}}},
        }
        body = {"messages": list(TURNS), self._cap_name: max(self._chat_tokens, _CALL_TOKENS), "tools": [tool]}
        forced_choice = {"type": "function", "function": {"name": "ready"}}
        forced_reply = self._write("/chat/completions", {**body, "tool_choice": forced_choice})
        if forced_reply is None:
            return False
        called_names = [name for name, *_ in forced_reply.choices[0].calls.values()]
        if "ready" not in called_names:
            return False
        return self._write("/chat/completions", {**body, "tool_choice": "auto"}) is not None

    def _obeys_forms(self) -> bool:
        """Whether a chat obeys a schema that allows one value alone, which the question does not suggest."""
        schema = {
            "type": "object",
            "properties": {"color": {"enum": ["violet"]}},
            "required": ["color"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        body = {"messages": list(TURNS), self._cap_name: max(self._chat_tokens, _CALL_TOKENS), "response_format": form}
        text = self._text("/chat/completions", body)
        try:
            return json.loads(text or "null") == {"color": "violet"}
        except (ValueError, RecursionError):
            return False

    def _sees(self) -> bool:
        """Whether a chat takes a picture, and, if tokens are reported, reads more tokens with the picture."""
        text_part = {"type": "text", "text": _TEXT}
        picture_part = {"type": "image_url", "image_url": {"url": _PIXEL}}
        prompt_tokens: list[int | None] = []
        for content in ([text_part, picture_part], [text_part]):
            body = {"messages": [{"role": "user", "content": content}], self._cap_name: self._chat_tokens}
            try:
                reply = self._write("/chat/completions", body)
            except EngineError:  # servers of text alone may break on a picture
                reply = None
            if reply is None:
                return False
            prompt_tokens.append(None if reply.usage is None else reply.usage.prompt)
        with_picture, without_picture = prompt_tokens
        return without_picture is None or with_picture is None or with_picture > without_picture

    def _stops(self, path: str, start: Mapping[str, Any]) -> bool:
        """Whether a row ends right after a stop text, which the row must include."""
        greedy = {**start, "temperature": 0.0}
        text = self._text(path, greedy) or ""
        if len(text) < 4:
            return False
        middle = len(text) // 2
        stop = text[middle : middle + 2]
        text_to_stop = text[: text.index(stop) + len(stop)]
        stopped_text = self._text(path, {**greedy, "stop": [stop], "include_stop_str_in_output": True})
        return stopped_text == text_to_stop


def _is_reasoning(chat: ServerReply | None) -> bool:
    """Whether a reply of a chat shows or counts a thought apart from its text."""
    if chat is None:
        return False
    shows_thought = any(choice.reasoned for choice in chat.choices.values())
    counts_thought = chat.usage is not None and bool(chat.usage.reasoning)
    return shows_thought or counts_thought


def _version_in(reply: Any) -> str:
    """Return the version in a reply of the server's endpoint for versions; "": the reply states none."""
    return str(reply["version"]) if isinstance(reply, dict) and "version" in reply else ""


def _may_crash(version: str) -> bool:
    """Whether requests with a seed may end the engine of a vLLM of this version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (0, 6) <= (int(match[1]), int(match[2])) <= (0, 32)


def _seeds_crash(version: str, metrics: str) -> bool:
    """Whether a request with a seed may end a server's engine, as in vLLM before 0.33 on CPUs.

    The engine ends if the prompt of such a request is read in parts. The use of a CPU is seen from the blocks of the
    cache. They have at least 32 tokens on CPUs, and by default 16 elsewhere. Without their size a CPU is assumed.

    Args:
        version: The version of vLLM.
        metrics: The metrics that the server reports, as text.
    """
    block_match = re.search(r'cache_config_info\{[^}]*\bblock_size="(\d+)"', metrics)
    may_use_cpu = block_match is None or int(block_match[1]) >= 32
    return _may_crash(version) and may_use_cpu

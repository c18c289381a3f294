"""Any server that speaks the OpenAI API as a backend: vLLM, SGLang, llama.cpp, a hosted one.

What it can do is found out by one look (`tts.backends.openai_probe`), which `tts doctor --url` shows; capabilities follow from that.
Where the server takes token ids, a path goes on exactly where it ended; else by its text, or by a continued message of a chat. Where
chat is all there is, or the model thinks apart from what it says, a path cannot be continued, and methods that need steps are
refused before anything is spent. Charges: `tts.backends.openai_call`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Reply, RowSet, Sample, SampleRequest
from tts.backends.batching import closed_error
from tts.backends.facts import Spelled
from tts.backends.lengths import check_prompt, check_text
from tts.backends.openai_call import Call, explained
from tts.backends.openai_findings import Findings, Mode
from tts.backends.openai_http import Fault, Http, Key, Patience
from tts.backends.openai_probe import LOOK_S, look
from tts.backends.openai_prompt import input_bound, joined, messages
from tts.backends.openai_rows import Handle, Rows
from tts.budget import Rates
from tts.errors import CapabilityError, ConfigError, EngineError
from tts.models.registry import ModelRecord, rates
from tts.types import Prompt

T = TypeVar("T")
_MOST_ROWS = 32  # of one call with `n`
_PATIENCE = Patience()


class OpenAIBackend:
    """A model on a server.

    Rows of one request are calls of their own, each with its seed, where the server obeys seeds; else rows with one cap share a
    call, where the server gives several continuations. A row that failed is counted by kind and is no candidate. Nothing is read
    before rows are asked for: every row reads its prompt and path, of which the server may reuse what it remembers.

    Args:
        findings: of the server. key: that is sent. patience: how much is asked at once, and how long it is waited for.
        rates: what tokens cost. context: most tokens of prompt and path; None: as found.

    Attributes:
        faults: of all calls, by kind, those that another try made good included.
    """

    name = "openai"
    caps = Caps(fork="emulated", stop_predicate=True)  # of every server; the rest is found out
    context = None  # a prompt cannot be counted before it is sent; what passes the server's limit is refused there, or cut here
    kv_bytes_per_token = None

    def __init__(
        self,
        findings: Findings,
        *,
        key: Key | None = None,
        patience: Patience | None = None,
        rates: Rates | None = None,
        context: int | None = None,
    ) -> None:
        self.findings = findings
        self.caps = findings.caps
        self.rates = rates or Rates()
        self.template_tokens = findings.template_tokens
        self.identity = f"openai {findings.root} {findings.model} {findings.mode} {findings.version}".rstrip()
        self.counters = Counters()
        self.faults: Counter[str] = Counter()
        self._limit = context or findings.context
        self._key = key or Key()
        self._patience = patience or Patience()
        self._http: Http | None = None
        self._live: set[Rows] = set()
        self._closed = False

    @classmethod
    def from_record(  # noqa: PLR0913 - options of a record, by name
        cls,
        record: ModelRecord,
        *,
        mode: Mode | Literal["auto"] = "auto",
        served_as: str = "",
        key_variable: str = "",
        key_file: str = "",
        concurrency: int = _PATIENCE.concurrency,
        tries: int = _PATIENCE.tries,
        connect_s: float = _PATIENCE.connect_s,
        first_s: float = _PATIENCE.first_s,
        gap_s: float = _PATIENCE.gap_s,
        call_s: float = _PATIENCE.call_s,
    ) -> OpenAIBackend:
        """Return the backend of a model that a server runs, after one look at it.

        Args:
            mode: how it is asked: "tokens", "text", "continued chat", "chat"; "auto": the first of these that works.
            served_as: the model's name on the server; "": the record's.
            key_variable, key_file: where the key is; "": `TTS_API_KEY`, or the file that `TTS_API_KEY_FILE` names, if there is one.
            concurrency, tries, connect_s, first_s, gap_s, call_s: as in `Patience`.

        Raises:
            ConfigError: `tts.backends.openai_probe.look`, or there is no url.
        """
        if record.url is None:
            raise ConfigError(
                f"the backend 'openai' calls a server, but the model {record.name!r} has no url",
                hint="give one: --url http://localhost:8000, or url= in solve and in the record",
            )
        patience = Patience(concurrency=concurrency, tries=tries, connect_s=connect_s, first_s=first_s, gap_s=gap_s, call_s=call_s)
        key = Key.find(key_variable, key_file)
        findings = look(record.url, served_as or record.name, key, mode, min(connect_s, LOOK_S))
        return cls(findings, key=key, patience=patience, rates=rates(record), context=record.context)

    def lacking(self, capability: str) -> str:
        """Return what still works here without a capability, for the hint of the error that refuses."""
        if capability in ("steps", "extend") and not self.findings.continues:
            why = "its model thinks apart from what it says" if self.findings.reasoning else "it cannot continue a path"
            return f"{why}; best_of_n, self_consistency and other methods of whole solutions work there (see tts doctor --url)"
        return "see tts doctor --url for what works there, or use the backend engine"

    def count(self, prompt: Prompt) -> int:
        """Return the most tokens that a prompt can be: its bytes, and what a template adds; the server alone knows better."""
        return input_bound(prompt, "", self.template_tokens)

    # Reads ----------------------------------------------------------------------------------------------------------------------

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles of prompts, as tokens where the server takes them; nothing is computed until a row is asked for.

        Raises:
            PromptTooLong: a prompt leaves no room. EngineError: the server does not say what its tokens are.
        """
        if self.findings.mode != "tokens":
            return [Reply(Handle(prompt, (), "", ""), 0) for prompt in prompts]
        bodies: list[Any] = []
        for prompt in prompts:
            spelled = prompt.ids if isinstance(prompt, Spelled) else None
            chat = self.findings.template and not isinstance(prompt, str)
            bodies.append(spelled or ({"messages": messages(prompt)} if chat else {"prompt": joined(prompt)}))
        all_ids = await self._in_order([self._tokens(body) for body in bodies])
        for ids in all_ids:
            if self._limit is not None:
                check_prompt(len(ids), self._limit)
        return [Reply(Handle(prompt, ids, "", ""), 0) for prompt, ids in zip(prompts, all_ids, strict=True)]

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next row reads.

        Raises:
            CapabilityError: paths cannot be continued here. PromptTooLong: a path would pass the context.
        """
        if not self.findings.continues:
            raise self._absent("extend")
        if self.findings.mode != "tokens":
            made = [Handle(handle.prompt, (), handle.text + text, "") for handle, text in zip(handles, texts, strict=True)]
            return [Reply(Extension(handle, ()), 0) for handle in made]
        asked = [text.ids if isinstance(text, Spelled) else {"prompt": text, "add_special_tokens": False} if text else () for text in texts]
        all_ids = await self._in_order([self._tokens(one) for one in asked])
        replies: list[Reply[Extension]] = []
        for handle, ids in zip(handles, all_ids, strict=True):
            if self._limit is not None:
                check_text(len(handle.ids), len(ids), self._limit)
            replies.append(Reply(Extension(Handle(handle.prompt, handle.ids + ids, "", ""), ids), 0))
        return replies

    async def _tokens(self, asked: Any) -> tuple[int, ...]:
        """Return the tokens of what the server is asked about, or those that are known."""
        if isinstance(asked, tuple):
            return asked
        why = Fault("BadReply", "no list of tokens")
        for _ in range(self._patience.tries):
            try:
                told = await self._told("/tokenize", {"model": self.findings.model, **asked})
            except Fault as fault:
                why = fault
                if fault.kind not in ("BadReply", "ConnectionLost"):  # the others were tried again, or cannot get better
                    break
            else:
                ids = told.get("tokens")
                if isinstance(ids, list) and all(type(one) is int for one in ids):
                    return tuple(ids)
        kind, _, cause = explained(why).partition(": ")
        raise EngineError(f"the server {self.findings.root} does not give the tokens of a text: {kind}: {cause}", kind=kind) from None

    async def _told(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the server says beside its API, where it answers at once or not at all.

        Raises:
            Fault: it says nothing.
        """
        told: list[Any] = []
        http = self._opened()
        try:
            async with http.gate, asyncio.timeout(self._patience.connect_s):
                await http.post(f"{self.findings.site}{path}", body, lambda event: told.append(event) is None, 0, len(str(body)))
        except TimeoutError:
            raise Fault("TimedOut", f"no word within {self._patience.connect_s:g} s") from None
        return told[0] if told else {}

    async def _in_order(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        """Return the results of calls that run at once; the first failure is raised when all have ended."""
        ends = await asyncio.gather(*calls, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [end for end in ends if not isinstance(end, BaseException)]

    # Rows -----------------------------------------------------------------------------------------------------------------------

    def sample(self, request: SampleRequest) -> RowSet:
        """Ask for rows.

        Raises:
            EngineError: the backend was closed. CapabilityError: the request needs what the server cannot do.
        """
        http = self._opened()
        self._check(request)
        rows = Rows(request, self.counters)
        self._live.add(rows)
        for indexes in self._groups(request):
            call = asyncio.get_running_loop().create_task(Call(http, self.findings, rows, indexes, self._limit).run())
            rows.calls.add(call)
            call.add_done_callback(self._ended(rows, indexes))
        return rows

    def _check(self, request: SampleRequest) -> None:
        sampling = request.sampling
        if (sampling.top_k or sampling.min_p) and not self.findings.filters:
            raise CapabilityError(
                f"top_k is {sampling.top_k} and min_p is {sampling.min_p:g}, but {self.findings.root} does not obey them",
                hint="leave them out, or use top_p",
            )
        if not self.findings.tempers and (sampling.temperature != 1 or sampling.top_p != 1):
            raise CapabilityError(
                f"temperature is {sampling.temperature:g} and top_p is {sampling.top_p:g}, but {self.findings.root} takes 1 alone for both",
                hint="ask for temperature=1 and top_p=1",
            )
        if request.handle.text and not self.findings.continues:
            raise self._absent("steps")

    def _groups(self, request: SampleRequest) -> list[tuple[int, ...]]:
        """Return which rows share a call: those with one cap, where no row has a seed of its own; greedy ones are refused several."""
        if self.findings.seeds or not self.findings.n or not request.sampling.temperature:
            return [(index,) for index in range(len(request.rows))]
        by_cap: dict[int, list[int]] = {}
        for index, row in enumerate(request.rows):
            by_cap.setdefault(row.max_tokens, []).append(index)
        return [tuple(some[i : i + _MOST_ROWS]) for some in by_cap.values() for i in range(0, len(some), _MOST_ROWS)]

    def _ended(self, rows: Rows, indexes: Sequence[int]) -> Callable[[asyncio.Task[None]], None]:
        def ended(call: asyncio.Task[None]) -> None:
            rows.calls.discard(call)
            failure = None if call.cancelled() else call.exception()
            if isinstance(failure, Exception):
                rows.fail(failure)
            for index in indexes:  # cancelled before it began
                rows.settle(index, Sample("", (), (), "cancelled", None, 0))
            if not rows.calls:
                self._live.discard(rows)

        return ended

    def _absent(self, capability: str) -> CapabilityError:
        return CapabilityError(
            f"the server {self.findings.root} has no capability {capability!r} for {self.findings.model!r}", hint=self.lacking(capability)
        )

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Refuse: no server scores a text without reading its path again, which would be charged."""
        del handles, texts
        raise self._absent("score")

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Refuse, as `score`."""
        del handles, texts, tokens
        raise self._absent("next_logprobs")

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Refuse."""
        del handles, head
        raise self._absent("value")

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Refuse."""
        del handles
        raise self._absent("hidden")

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return the handle: it is a value."""
        return [handle] * count

    def release(self, handles: Sequence[Any]) -> None:
        """Do nothing: handles are values."""

    # Life -----------------------------------------------------------------------------------------------------------------------

    def _opened(self) -> Http:
        if self._closed:
            raise closed_error()
        if self._http is None:
            self._http = Http(self.findings.root, self._key, self._patience)
            self._http.faults = self.faults
        return self._http

    async def close(self) -> None:
        """Fail every row that is under way with an EngineError, and close every connection."""
        self._closed = True
        calls = [call for rows in self._live for call in rows.calls]
        for rows in list(self._live):
            rows.fail(closed_error())
        await asyncio.gather(*calls, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

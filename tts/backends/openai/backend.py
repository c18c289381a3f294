"""Any server of the OpenAI API as a backend: vLLM, SGLang, llama.cpp, a hosted one.

A probe finds its capabilities (`tts.backends.openai.probe`), and `tts doctor --url` shows them. Where the server takes
token ids, a path continues exactly where it ended. Elsewhere a path continues by its text, or by a continued message of
a chat. A path cannot be continued where there is only chat, or where the model reasons apart from its answer. There,
methods that need steps are refused before anything is spent. `tts.backends.openai.call` has the rules of charges.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, TypeVar

from tts.backends.base import Backend, Caps, Extension, OpenTemperature, Reply, RowSet, Sample, SampleRequest, Sampling
from tts.backends.batching import closed_error
from tts.backends.metadata import BackendMetadata
from tts.backends.openai.access import MOST_PROBE_S, Probe, ServerAccess
from tts.backends.openai.batch_book import BatchBook, BatchClient
from tts.backends.openai.batches import BatchApi
from tts.backends.openai.call import SIZE_STATUSES, ServerCall, explain_error
from tts.backends.openai.capabilities import Capabilities, Mode
from tts.backends.openai.echo import echo_members, read_echo
from tts.backends.openai.errors import Key, ServerError, no_room
from tts.backends.openai.http import HttpClient, Timeouts
from tts.backends.openai.probe import LOG
from tts.backends.openai.prompt import input_bound, messages, native_members
from tts.backends.openai.rows import ServerHandle, ServerRows, check_sampling, row_groups
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.text.lengths import check_prompt, check_read, check_some, check_text
from tts.backends.text.tokenized_text import TokenizedText
from tts.budget.budget import Rates
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong
from tts.models.registry import ModelRecord, rates, thought_marks
from tts.thoughts import THINK, ThoughtMarks
from tts.types import DIVIDED_SUM, Prompt, Usage, prompt_text

T = TypeVar("T")
_TIMEOUTS = Timeouts()
_IN_WORDS = "%s is asked for JSON in words alone: if its chats take response_format, use mode=chat, or declare `forms`"


def _price(rates: Rates) -> str:
    """Return the part of an identity that states prices and FLOPs, since results of budgets depend on them."""
    stated = {name: value for name, value in dataclasses.asdict(rates).items() if value is not None}
    return f" {json.dumps(stated, sort_keys=True)}" if stated else ""


class OpenAIBackend(Backend):
    """A model on a server.

    Where the server obeys seeds, each row is a call of its own with its own seed. Elsewhere rows with equal caps share
    a call, if the server can give several continuations. A failed row is counted by kind and is no candidate. Nothing
    is computed before rows are requested. Every row reads its prompt and path, and the server may reuse a cached part
    of them.

    Args:
        capabilities: The capabilities of the server.
        key: The API key, sent with each request; None: none.
        timeouts: The timeouts of requests, and the most requests in flight; None: the defaults of `Timeouts`.
        rates: The cost of tokens; None: not stated.
        context: Most tokens of prompt and path; None: as the server reports it.
        thoughts: Marks of the model's thoughts in its text; None: as the probe found them. A server that shows thoughts
            apart needs none.
        others: Base urls of further servers of the same model, to which calls go while the first one fails.
        prices_writes: Whether the rates price the tokens that are written to the server's cache.
        batch: Whether calls are answered from a book of replies that batches fill, and not by the server.

    Attributes:
        book: The book of replies, with `batch`; None: it is not known yet.
        errors: The errors of all calls, by kind. Errors that a later try made good are included.
    """

    name = "openai"
    caps = Caps(fork="emulated", stop_predicate=True)  # the capabilities of every server; a probe finds the others
    context: int | None = None  # the server counts prompts, and refuses prompts that are too long

    def __init__(  # noqa: PLR0913 - its parts, by name
        self,
        capabilities: Capabilities,
        *,
        key: Key | None = None,
        timeouts: Timeouts | None = None,
        rates: Rates | None = None,
        context: int | None = None,
        thoughts: ThoughtMarks | None = None,
        others: Sequence[str] = (),
        prices_writes: bool = False,
        batch: bool = False,
    ) -> None:
        self.book: BatchBook | None = None
        self.batch = batch
        if batch:  # replies in a book do not stream
            capabilities = dataclasses.replace(capabilities, streams=False)
        self.capabilities = capabilities
        self.caps = dataclasses.replace(capabilities.caps, thoughts=True) if thoughts else capabilities.caps
        self.rates = rates or Rates()
        marks = None
        if capabilities.reasoning:
            marks = THINK
        elif self.caps.thoughts:
            marks = dataclasses.replace(thoughts or THINK, opened=capabilities.opened)
        self.metadata = BackendMetadata(
            template_tokens=capabilities.template_tokens,
            picture_tokens=capabilities.picture_tokens,
            thoughts=marks,
            arrivals=True,
            capability_hint=self._capability_hint,
            notes=self._notes,
        )
        facts = (
            "openai",
            capabilities.root,
            capabilities.model,
            capabilities.mode,
            capabilities.version,
            capabilities.extra,
        )
        self.identity = " ".join(filter(None, facts)) + _price(self.rates)
        self.errors: Counter[str] = Counter()
        self._limit = context or capabilities.context
        self._key = key or Key()
        self._others = tuple(others)
        self._prices_writes = prices_writes
        self._timeouts = timeouts or Timeouts()
        self._http: HttpClient | None = None
        self._live: set[ServerRows] = set()
        self._closed = False
        self._form_noted = False

    @classmethod
    def from_record(  # noqa: PLR0913 - options of a record, by name
        cls,
        record: ModelRecord,
        *,
        mode: Mode | Literal["auto"] = "auto",
        served_as: str = "",
        key_variable: str = "",
        key_file: str = "",
        probe: Probe = "always",
        probe_s: float = MOST_PROBE_S,
        concurrency: int = _TIMEOUTS.concurrency,
        rpm: int | None = None,
        tpm: int | None = None,
        tries: int = _TIMEOUTS.tries,
        connect_s: float = _TIMEOUTS.connect_s,
        first_s: float = _TIMEOUTS.first_s,
        gap_s: float = _TIMEOUTS.gap_s,
        call_s: float = _TIMEOUTS.call_s,
        reasoning_effort: str = "",
        chat_template_kwargs: str | Mapping[str, Any] = "",
        extra_body: str | Mapping[str, Any] = "",
        batch: bool = False,
    ) -> OpenAIBackend:
        """Return the backend of a model on a server.

        Its capabilities are declared in the record, or probed now.

        Args:
            record: The record of the model.
            mode: The mode of calls: "tokens", "continued chat", "chat" or "text". "auto": the first mode that works, or
                "chat" for a model that reasons apart from its answer.
            served_as: The model's name on the server; "": the record's name.
            key_variable: The variable of the environment that holds the key; "": `TTS_API_KEY`.
            key_file: The file that holds the key. "": the file that `TTS_API_KEY_FILE` names, if no variable is named
                and `TTS_API_KEY` is not set.
            probe: Whether the server is probed, "always" or "never". "never": assume plain chat.
            probe_s: Most seconds of the probe. After this time, plain chat is assumed.
            concurrency: As in `Timeouts`.
            rpm: As in `Timeouts`.
            tpm: As in `Timeouts`.
            tries: As in `Timeouts`.
            connect_s: As in `Timeouts`.
            first_s: As in `Timeouts`.
            gap_s: As in `Timeouts`.
            call_s: As in `Timeouts`.
            reasoning_effort: The effort of the model's thoughts in every request ("low", "high"); "": none is sent.
            chat_template_kwargs: Arguments of the chat template in every request, as JSON or a mapping, such as
                {"enable_thinking": false}.
            extra_body: Other members of every request, as JSON or a mapping. Members that a search sets are refused.
            batch: Whether batches answer the calls, at the prices `usd_batch_in` and `usd_batch_out` (see
                `tts sample --batch`).

        Raises:
            ConfigError: The probe fails (`tts.backends.openai.probe.probe_server`), there is no url, or batches have no
                prices.
        """
        options = {name: value for name, value in locals().items() if name not in ("cls", "record")}
        limits = {name: options[name] for name in options.keys() & {field.name for field in fields(Timeouts)}}
        access = ServerAccess.of(record, options)
        capabilities = access.capabilities()
        return cls(
            dataclasses.replace(capabilities, picture_tokens=record.tokens_per_image),
            key=access.key,
            timeouts=Timeouts(**limits),
            rates=rates(record, batch=batch),
            context=record.context,
            thoughts=thought_marks(record),
            others=access.other_roots(capabilities.root),
            prices_writes=record.usd_cache_write is not None,
            batch=batch,
        )

    def _notes(self, usage: Usage) -> list[str]:
        """Return notes on a solution's costs: why rows were charged by estimates, and which tokens have no price."""
        http = self._http
        if http is None:
            return []
        several = usage.samples > 1
        causes = [one for one in http.estimates if usage.estimated or (several and one.startswith(DIVIDED_SUM))]
        notes = [f"{self.capabilities.root}: {cause}" for cause in causes]
        if usage.usd and http.cache_writes and self.rates.usd_in and not self._prices_writes:
            notes.append(
                f"{self.capabilities.root} wrote {http.cache_writes:,} tokens to its cache, which are priced as "
                "usd_in: "
                "if it asks for more, give usd_cache_write in the model's record"
            )
        if http.ignores_thought_field:
            notes.append(
                f"{self.capabilities.root} wrote longer thoughts than thought_tokens allows: it ignores its field"
            )
        if http.own_temperature:
            notes.append(f"no temperature is sent to {self.capabilities.root}: {http.own_temperature}")
        return notes

    def _capability_hint(self, capability: str) -> str:
        """Return a hint on methods that work on this server without a capability; "": the general hint holds."""
        if capability in ("thought_limits", "thought_switch"):
            return "no field for thoughts is known of it: declare thought_limit or thought_switch in its record"
        if capability in ("thoughts", "efforts"):
            return ""
        if capability in ("steps", "extend") and not self.capabilities.continues:
            cause = "it cannot continue a path"
            if self.capabilities.reasoning:
                cause = "its model reasons apart from its answer"
            methods = "best_of_n, self_consistency"
            if self.capabilities.thought_limit:
                methods = "best_of_n(thought_tokens=…)"
            elif self.capabilities.efforts:
                methods = "best_of_n(effort='low')"
            return f"{cause}; {methods} and other methods of whole solutions work there (see tts doctor --url)"
        return "see tts doctor --url for what works there, or use the backend engine"

    def count(self, prompt: Prompt) -> int:
        """Return the most tokens of a prompt: its bytes, its pictures, and the tokens that a template adds."""
        return input_bound(prompt, "", self.capabilities.template_tokens, self.capabilities.picture_tokens)

    # Reads ------------------------------------------------------------------------------------------------------------

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles of prompts, as tokens where the server takes them.

        Nothing is computed until a row is requested.

        Raises:
            PromptTooLong: A prompt leaves no room in the context.
            EngineError: The server does not return the tokens of a prompt.
        """
        if not (self._form_noted or (self.capabilities.chats and self.capabilities.forms)):
            self._form_noted = any(native_members(prompt, tools=False, forms=True) for prompt in prompts)
            if self._form_noted:
                LOG.warning(_IN_WORDS, self.capabilities.root)
        if self.capabilities.mode != "tokens":
            return [Reply(ServerHandle(prompt, (), "", ""), 0) for prompt in prompts]
        all_ids = await self._render(prompts)
        for ids in all_ids:
            if self._limit is not None:
                check_prompt(len(ids), self._limit)
        return [Reply(ServerHandle(prompt, ids, "", ""), 0) for prompt, ids in zip(prompts, all_ids, strict=True)]

    async def _render(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Return the tokens of prompts, as the server renders them."""
        bodies: list[Any] = []
        for prompt in prompts:
            ids = prompt.ids if isinstance(prompt, TokenizedText) else ()
            if ids:
                bodies.append(ids)
            elif self.capabilities.template and not isinstance(prompt, str):
                bodies.append({"messages": messages(prompt)})
            else:
                bodies.append({"prompt": prompt_text(prompt)})
        return await self._gather([self._tokens(body) for body in bodies])

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts.

        The values are read from completions that repeat the prompts (`tts.backends.openai.echo`).

        Raises:
            CapabilityError: The server does not show log-probabilities of prompts.
            PromptTooLong: A prompt passes the context.
            ConfigError: A prompt has no token.
            EngineError: The server fails.
        """
        if self.caps.prompt_logprobs == "absent":
            raise self._refusal("prompt_logprobs")
        if self.capabilities.token_ids:
            inputs = await self._render(prompts)
            for ids in inputs:
                check_some(ids)
                if self._limit is not None:
                    check_read(len(ids), self._limit - 1)
        else:
            inputs = [prompt_text(prompt) for prompt in prompts]
            for text in inputs:
                check_some(text)
        replies = await self._gather([self._echo(text_or_ids, top) for text_or_ids in inputs])
        for reply in replies:
            self.counters.prompt_tokens += reply.computed
            self.counters.reused_tokens += reply.reused or 0
        return replies

    async def _echo(self, prompt: str | tuple[int, ...], top: int) -> Reply[PromptLogprobs]:
        """Return the log-probabilities of a prompt from a completion that repeats the prompt.

        Args:
            prompt: The text or the tokens of the prompt.
            top: The number of most likely tokens for each place.

        Raises:
            PromptTooLong: The server refuses the length of the prompt.
            EngineError: The server fails.
        """
        body = {"model": self.capabilities.model, **self.capabilities.extra_body, **echo_members(prompt, top)}
        http, clock = self._open_client(), asyncio.get_running_loop().time
        start = clock()
        try:
            async with http.gate:
                completion = await http.request_json("/completions", body, tokens=len(prompt))
            reply = read_echo(completion, () if isinstance(prompt, str) else prompt, top)
        except ServerError as error:
            if error.status in SIZE_STATUSES and no_room(error.cause):
                raise PromptTooLong(f"the server {self.capabilities.root} refuses the prompt: {error.cause}") from None
            raise self._server_failure("does not read a prompt", error) from None
        return dataclasses.replace(reply, seconds=clock() - start)

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next row reads.

        Raises:
            CapabilityError: Paths cannot be continued here.
            PromptTooLong: A path would pass the context.
        """
        if not self.capabilities.continues:
            raise self._refusal("extend")
        if self.capabilities.mode != "tokens":
            extended = [
                ServerHandle(handle.prompt, (), handle.whole_text + text, "")
                for handle, text in zip(handles, texts, strict=True)
            ]
            return [Reply(Extension(handle, ()), 0) for handle in extended]
        inputs: list[Any] = []
        for text in texts:
            if isinstance(text, TokenizedText):
                inputs.append(text.ids)
            elif text:
                inputs.append({"prompt": text, "add_special_tokens": False})
            else:
                inputs.append(())
        all_ids = await self._gather([self._tokens(ids_or_body) for ids_or_body in inputs])
        replies: list[Reply[Extension]] = []
        for handle, ids in zip(handles, all_ids, strict=True):
            if self._limit is not None:
                check_text(len(handle.ids), len(ids), self._limit)
            replies.append(Reply(Extension(ServerHandle(handle.prompt, handle.ids + ids, "", ""), ids), 0))
        return replies

    async def _tokens(self, ids_or_body: Any) -> tuple[int, ...]:
        """Return the tokens of an input: token ids as they are, or a request for the server's tokenizer."""
        if isinstance(ids_or_body, tuple):
            return ids_or_body
        http, most_s = self._open_client(), self._timeouts.connect_s
        body = {"model": self.capabilities.model, **ids_or_body}
        failing = "does not give the tokens of a text"
        try:
            async with http.gate, asyncio.timeout(most_s):  # a tokenizer answers at once or not at all
                reply = await http.request_json(f"{self.capabilities.site}/tokenize", body, len(str(body)))
        except TimeoutError:
            raise self._server_failure(failing, ServerError("TimedOut", f"no word within {most_s:g} s")) from None
        except ServerError as error:
            raise self._server_failure(failing, error) from None
        ids: Any = reply.get("tokens") if reply else None
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise self._server_failure(failing, ServerError("BadReply", "no list of tokens"))
        return tuple(ids)

    def _server_failure(self, failing: str, error: ServerError) -> EngineError:
        """Return a server's error as an EngineError.

        Args:
            failing: The failed task in words, such as "does not read a prompt".
            error: The server's error.
        """
        message = explain_error(error)
        return EngineError(
            f"the server {self.capabilities.root} {failing}: {message}",
            kind=message.partition(": ")[0],
            retry_s=error.after_s,
        )

    async def _gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        """Return the results of calls that run at once, in order. The first failure is raised when all have ended."""
        results: list[T] = []
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
        return results

    # Rows -------------------------------------------------------------------------------------------------------------

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Raises:
            EngineError: The backend was closed.
            CapabilityError: The request needs a capability that the server lacks.
        """
        http = self._open_client()
        request = dataclasses.replace(request, sampling=self._temper(request.sampling))
        check_sampling(request.sampling, self.capabilities)
        if request.handle.whole_text and not self.capabilities.continues:
            raise self._refusal("steps")
        rows = ServerRows(request, self.counters)
        self._live.add(rows)
        for indexes in row_groups(request, self.capabilities):
            call = ServerCall(http, self.capabilities, rows, indexes, self._limit)
            task = asyncio.get_running_loop().create_task(call.run())
            rows.tasks.add(task)
            task.add_done_callback(partial(self._end_call, rows, indexes))
        return rows

    def check_sampling(self, sampling: Sampling) -> None:
        """Raise CapabilityError where the server does not obey a parameter."""
        check_sampling(self._temper(sampling), self.capabilities)

    def _temper(self, sampling: Sampling) -> Sampling:
        """Return parameters whose temperature is 1 if nobody named one and the server takes its own alone."""
        is_fixed = isinstance(sampling.temperature, OpenTemperature) and not self.capabilities.tempers
        return dataclasses.replace(sampling, temperature=1.0) if is_fixed else sampling

    def _end_call(self, rows: ServerRows, indexes: Sequence[int], task: asyncio.Task[None]) -> None:
        """Forget the task of a call that has ended, and settle its rows that still wait."""
        rows.tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, Exception):
            rows.fail(failure)
        for index in indexes:  # rows still wait if the call was cancelled before it began
            rows.settle(index, Sample.empty("cancelled"))
        if not rows.tasks:
            self._live.discard(rows)

    def _refusal(self, method: str) -> CapabilityError:
        return CapabilityError(
            f"the server {self.capabilities.root} has no capability {method!r} for {self.capabilities.model!r}",
            hint=self._capability_hint(method),
        )

    # Life -------------------------------------------------------------------------------------------------------------

    def _open_client(self) -> HttpClient:
        """Return the client of the server or of the book, which is made for the first call.

        Raises:
            EngineError: The backend was closed.
            ConfigError: Batches answer the calls (`batch`), and there is no book.
        """
        if self._closed:
            raise closed_error()
        if self._http is None and self.batch:
            if self.book is None:
                raise ConfigError(
                    f"the model {self.capabilities.model!r} is answered by batches, which only tts sample and tts run "
                    "send",
                    hint="add --batch there, or leave the option batch out",
                )
            self._http = BatchClient(self.capabilities.root, self._key, self._timeouts, self.book)
            self._http.errors = self.errors
        if self._http is None:
            self._http = HttpClient(
                self.capabilities.root,
                self._key,
                self._timeouts,
                cautious=self.capabilities.limited,
                others=self._others,
            )
            self._http.errors = self.errors
        return self._http

    def batch_api(self) -> BatchApi:
        """Return a client of the server's API for batches, which the caller closes."""
        return BatchApi(self.capabilities.root, self._key)

    async def close(self) -> None:
        """Fail every row under way with an EngineError, and close every connection."""
        self._closed = True
        tasks = [task for rows in self._live for task in rows.tasks]
        for rows in list(self._live):
            rows.fail(closed_error())
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

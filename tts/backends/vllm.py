"""vLLM in this process: any model that it runs, with prefixes remembered, and rows that obey their own streams."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Finish, Reply, RowSet, Sample, SampleRequest, Stop
from tts.backends.batching import closed_error
from tts.backends.facts import Counting
from tts.backends.lengths import check_known, check_prompt, check_text
from tts.backends.row_state import PathText, RowState, failed_row, said
from tts.backends.sampling import top_spread
from tts.backends.vllm_engine import imported
from tts.background import in_thread
from tts.budget import Rates
from tts.errors import CapabilityError, EngineError
from tts.models.registry import ModelRecord
from tts.types import TOP_TOKENS, Prompt

if TYPE_CHECKING:
    from tts.backends.rendering import Renderer
    from tts.backends.vllm_engine import Engine

_MOST_ENDS = 256  # tokens that end a step by themselves, told to vLLM with every request

DRAWS = "tts_draws"  # the extra argument of a request that holds the address and the law of its draws

Deliver = Callable[..., None]


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A path by its tokens, prompt included, and where its text stands."""

    ids: tuple[int, ...]
    text: PathText


class Rows(RowSet):
    """Rows whose requests end in vLLM as soon as they are cancelled."""

    __slots__ = ("stop", "tasks")

    def __init__(self, request: SampleRequest, stop: Callable[[Rows], None]) -> None:
        super().__init__(request)
        self.stop = stop
        self.tasks: set[asyncio.Task[Any]] = set()  # in the engine's loop, of rows that have begun; others see that they are cancelled

    def cancel(self) -> None:
        """End the requests; rows resolve with what was received."""
        super().cancel()
        self.stop(self)

    def fail(self, failure: Exception) -> None:
        """Fail every row, and end the requests."""
        super().fail(failure)
        self.stop(self)


class VLLMBackend(Counting):
    """Opens, continues and scores paths of a model in vLLM.

    Idea: a path is its tokens, and whatever continues it is a request with these as its prompt; vLLM's prefix cache remembers the
        blocks that it has computed. Each token is drawn from vLLM's logits by the row's own stream (`tts.backends.vllm_processor`),
        so a path drawn step by step is one plain sample, and no seed is sent: seeds for single requests end vLLM 0.32 on CPUs, and
        begin anew with every request elsewhere. Logits still depend on the batch by their rounding: in float32 a draw in a million
        may fall to another token for it, in 16 bits one in hundreds (estimates, from the rounding of a CDF). So rows are said to obey
        their streams in float32, or where vLLM's own mode for it is on (VLLM_BATCH_INVARIANT=1); elsewhere solutions say that they
        are not reproducible.

    Accounting: nothing is read before rows or readings are asked for. Each reads its prompt and path, of which vLLM reports what it
        reused; the rest is charged as computed. A row that ended before its first token is charged its whole input. What
        vLLM writes behind a row's end, a token or two where a predicate ends it, is not reported and not charged; steps that end in
        a token which holds their stop text end in vLLM itself. `score` reads its path anew: vLLM has no cache for it.

    Args:
        engine: that runs the model. renderer: between text and tokens. context: most tokens of prompt and path. vocab: tokens that
            the model knows. identity: what results depend on. streams: whether rows obey their streams whatever else is under way.
        rates: of a token. kv_bytes_per_token: the size of one token's state; None: not known.
    """

    name = "vllm"
    caps = Caps(
        steps="emulated",
        extend="emulated",
        fork="emulated",  # by the prefix cache, which may forget
        score="emulated",
        next_logprobs="emulated",
        logprobs=True,
        tops=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
    )

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        context: int,
        vocab: int,
        identity: str,
        streams: bool = True,
        rates: Rates | None = None,
        kv_bytes_per_token: int | None = None,
    ) -> None:
        self.caps = dataclasses.replace(type(self).caps, streams=streams)
        self.context: int | None = context
        self.kv_bytes_per_token = kv_bytes_per_token
        self.rates = rates or Rates()
        self.identity = identity
        self.counters = Counters()
        self._engine = engine
        self._renderer = renderer
        self._room = context
        self._vocab = vocab
        self._ends: dict[tuple[str, ...], list[int]] = {}
        self._live: set[Rows] = set()
        self._reads: set[asyncio.Future[Any]] = set()
        self._closed = False

    @classmethod
    def from_record(cls, record: ModelRecord, **options: Any) -> VLLMBackend:
        """Start vLLM with a model, which takes from seconds to minutes; the options are those of `tts.backends.vllm_build.build`.

        Raises:
            ConfigError: the model cannot be had, vLLM does not run it, or an option is not valid.
            MissingDependency: vLLM is not installed.
        """
        imported("vllm")
        from tts.backends.vllm_build import build

        return build(record, **options)

    # Reads ----------------------------------------------------------------------------------------------------------------------

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles of prompts; nothing is computed until a row is asked for.

        Raises:
            PromptTooLong: a prompt leaves no room for one more token. ConfigError: a prompt cannot be rendered.
        """
        self._check_open()
        rendered = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in rendered:
            check_prompt(len(ids), self._room)
            check_known(ids, self._vocab)
        return [Reply(Handle(ids, PathText.behind(ids)), 0) for ids in rendered]

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next row reads. What its path's last token carried stays at the head of the next row's text.

        Raises:
            PromptTooLong: a path with its text passes the context.
        """
        replies: list[Reply[Extension]] = []
        for handle, ids in self._with_text(handles, texts, self._room):
            longer = handle.ids + ids
            behind = Handle(longer, PathText.behind(longer, handle.text.carry)) if ids else handle
            replies.append(Reply(Extension(behind, ids), 0))
        return replies

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each token of a text behind its handle, untempered.

        Raises:
            PromptTooLong: a path with its text fills the context, in which vLLM wants room for one more token.
        """

        async def scored(handle: Handle, ids: tuple[int, ...]) -> Reply[NDArray[np.float64]]:
            if not ids:
                return Reply(np.empty(0), 0)
            output, reply = await self._read(handle.ids + ids, prompt_logprobs=0)
            found = output.prompt_logprobs[len(handle.ids) :]
            values = [law[token].logprob for law, token in zip(found, ids, strict=True)]
            return dataclasses.replace(reply, value=np.minimum(values, 0.0))

        return await self._asked([scored(*pair) for pair in self._with_text(handles, texts, self._room - 1)])

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probabilities, untempered, that each of `tokens` comes next behind handle and text.

        Raises:
            ConfigError: one of `tokens` is not exactly one token.
            PromptTooLong: a path with its text fills the context, in which vLLM wants room for one more token.
        """
        wanted = [self._renderer.single(token) for token in tokens]
        check_known(wanted, self._vocab)

        async def found(handle: Handle, ids: tuple[int, ...]) -> Reply[NDArray[np.float64]]:
            output, reply = await self._read(handle.ids + ids, logprob_token_ids=sorted(set(wanted)))
            law = output.outputs[0].logprobs[0]
            return dataclasses.replace(reply, value=np.minimum([law[token].logprob for token in wanted], 0.0))

        return await self._asked([found(*pair) for pair in self._with_text(handles, texts, self._room - 1)])

    async def _read(self, ids: tuple[int, ...], **settings: Any) -> tuple[Any, Reply[Any]]:
        """Return vLLM's output for a prompt, in the engine's loop; the one token that it must write is read by nobody."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with aclosing(self._engine.outputs(ids, streams=False, max_tokens=1, **settings)) as outputs:
            output = [output async for output in outputs][-1]
        cached = output.num_cached_tokens or 0
        return output, Reply(None, len(ids) - cached, cached, loop.time() - began)

    async def _asked(self, reads: Sequence[Coroutine[Any, Any, Reply[Any]]]) -> list[Reply[Any]]:
        """Return what the engine's loop reads; what was read is counted, though another failed."""
        futures = [asyncio.wrap_future(self._engine.submit(read)) for read in reads]
        self._reads.update(futures)
        try:
            ends = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            self._reads.difference_update(futures)
        replies = [end for end in ends if not isinstance(end, BaseException)]
        for reply in replies:
            self.counters.prompt_tokens += reply.computed
            self.counters.reused_tokens += reply.reused or 0
        for end in ends:
            if isinstance(end, BaseException):
                raise closed_error() if self._closed else end
        return replies

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Refuse, by a CapabilityError: vLLM runs models that write, or models that score, not both in one."""
        del handles
        raise CapabilityError(f"value head {head!r} was asked for, but the backend {self.name!r} has no value heads")

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Refuse, by a CapabilityError: vLLM gives no hidden states of a model that writes."""
        del handles
        raise CapabilityError(f"hidden states were asked for, but the backend {self.name!r} gives none")

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return the handle: it is a value."""
        return [handle] * count

    def release(self, handles: Sequence[Any]) -> None:
        """Do nothing: handles are values, and vLLM forgets by itself."""

    # Rows -----------------------------------------------------------------------------------------------------------------------

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Raises:
            EngineError: the backend was closed.
        """
        self._check_open()
        loop = asyncio.get_running_loop()

        def deliver(fn: Callable[..., None], *args: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(fn, *args)

        rows = Rows(request, lambda cancelled: self._engine.soon(_stop, cancelled))
        self._live.add(rows)
        self._engine.soon(self._start, rows, deliver)
        return rows

    def _start(self, rows: Rows, deliver: Deliver) -> None:
        """Begin every row, in the engine's loop."""
        for index in range(len(rows.request.rows)):
            asyncio.get_running_loop().create_task(self._write(rows, index, deliver))

    async def _write(self, rows: Rows, index: int, deliver: Deliver) -> None:
        """Write a row, in the engine's loop, and deliver it, whatever happens."""
        handle: Handle = rows.request.handle
        told, task = _Told(), asyncio.current_task()
        assert task is not None, "rows are written in tasks"
        rows.tasks.add(task)
        behind: Handle | None = None
        try:
            state = RowState(
                rows, index, handle.text, len(handle.ids), decode=self._renderer.decode, eos=self._renderer.eos, context=self._room
            )
            began = asyncio.get_running_loop().time()
            try:
                finish: Finish = state.at_once() or await self._drawn(state, handle, told)
                error = ""
            except asyncio.CancelledError:
                finish, error = "cancelled", ""
            except Exception as failure:  # noqa: BLE001 - vLLM's, or of the row's own predicate: this row's alone
                finish, error = "error", said(failure)
            state.seconds = asyncio.get_running_loop().time() - began
            sample = state.sample(finish, error=error)
            if finish not in ("cancelled", "error"):
                behind = Handle((*handle.ids, *state.ids), state.path_text())
        except Exception as failure:  # noqa: BLE001 - it could not even begin
            sample = failed_row(failure)
        rows.tasks.discard(task)
        computed = (len(handle.ids) - told.reused) if told.began else 0
        deliver(self._resolve, rows, index, dataclasses.replace(sample, handle=behind), computed, told.reused)

    async def _drawn(self, state: RowState, handle: Handle, told: _Told) -> Finish:
        """Let vLLM write until the row ends; return how it ended."""
        request, row = state.rows.request, state.row
        law = request.sampling
        draws = [row.stream, row.position, row.word, law.temperature, law.top_p, law.top_k, law.min_p]
        settings = {
            "max_tokens": min(row.max_tokens, self._room - len(handle.ids)),
            "stop_token_ids": self._ending(request.stop),
            "logprobs": min(TOP_TOKENS, self._vocab) if request.spreads else 0,  # of these many, and of the token itself
            "extra_args": {DRAWS: draws} if law.temperature else None,  # else it is greedy, as vLLM is asked to be
        }
        told.began = True
        outputs = self._engine.outputs(handle.ids, streams=True, **settings)
        async with aclosing(outputs):
            async for output in outputs:
                told.reused = output.num_cached_tokens or 0
                some = output.outputs[0]
                for token, law in zip(some.token_ids, some.logprobs, strict=True):
                    logprob = law[token].logprob
                    if not logprob > -math.inf:  # NaN as well
                        raise EngineError(f"the logits of token {len(state.ids)} are no law", hint="try dtype float32")
                    spread = top_spread([one.logprob for one in law.values()]) if request.spreads else None
                    finish = state.append(token, min(0.0, logprob), spread)
                    if finish is not None:
                        return finish
        raise EngineError("vLLM ended the row without a reason that it was given")

    def _ending(self, stop: Stop) -> list[int]:
        """Return tokens that end a row wherever they stand: ends of sequence, and those that hold a step's stop text."""
        eos = sorted(self._renderer.eos)
        if not stop.at_step or not stop.step:
            return eos
        if stop.step not in self._ends:
            decode = self._renderer.decode
            holding = [token for token in range(self._vocab) if any(text in decode((token,)) for text in stop.step)]
            self._ends[stop.step] = holding if len(holding) <= _MOST_ENDS else []
        return [*eos, *self._ends[stop.step]]

    def _resolve(self, rows: Rows, index: int, sample: Sample, computed: int, reused: int) -> None:
        """Count and resolve a row, in the loop of who asked."""
        if rows.done:  # the backend was closed
            return
        self.counters.prompt_tokens += computed
        self.counters.reused_tokens += reused
        self.counters.generated_tokens += sample.num_tokens
        rows.prompt_tokens += computed
        rows.reused_tokens = (rows.reused_tokens or 0) + reused
        rows.resolve(index, sample)
        if rows.done:
            self._live.discard(rows)

    # Life -----------------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _with_text(self, handles: Sequence[Any], texts: Sequence[str], room: int) -> list[tuple[Handle, tuple[int, ...]]]:
        self._check_open()
        pairs = [(handle, self._renderer.text(text)) for handle, text in zip(handles, texts, strict=True)]
        for handle, ids in pairs:
            check_text(len(handle.ids), len(ids), room)
            check_known(ids, self._vocab)
        return pairs

    async def close(self) -> None:
        """End vLLM; what is under way fails with an EngineError, and so does what is asked later."""
        self._closed = True
        for rows in list(self._live):
            rows.fail(closed_error())
        self._live.clear()
        for read in list(self._reads):
            read.cancel()
        await in_thread(self._engine.close)


@dataclass(slots=True)
class _Told:
    """What is known of a row's input: whether vLLM was given it, and how many tokens of it were reused."""

    began: bool = False
    reused: int = 0


def _stop(rows: Rows) -> None:
    for task in rows.tasks:
        task.cancel()

"""vLLM in this process as a backend: any model that vLLM runs, with its prefix cache.

Rows obey their own streams.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tts._core.threads import run_in_thread
from tts.backends.base import (
    Caps,
    Counters,
    Extension,
    Finish,
    Reply,
    RowSet,
    Sample,
    SampleRequest,
    StopCondition,
    TaskRows,
)
from tts.backends.batching import closed_error
from tts.backends.local import RenderingBackend
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.sampling import top_sampling_logprob, top_spread
from tts.backends.text.lengths import check_known, check_prompt, check_read, check_text
from tts.backends.text.row_state import PathText, RowState, error_line, failed_row
from tts.backends.text.stops import ends_of
from tts.backends.vllm.engine import import_module
from tts.budget.budget import Rates
from tts.errors import EngineError
from tts.models.registry import ModelRecord, thought_marks
from tts.thoughts import ThoughtMarks
from tts.types import TOP_TOKENS, Prompt

if TYPE_CHECKING:
    from tts.backends.text.rendering import Renderer
    from tts.backends.vllm.engine import VLLMEngine

_MOST_STOP_TOKENS = 256  # tokens with a stop text that are sent with every request

DRAWS = "tts_draws"  # the extra argument of a request that holds the address and the sampling of its draws

Deliver = Callable[..., None]


@dataclass(frozen=True, slots=True, eq=False)
class VLLMHandle:
    """A path: its tokens, prompt included, and the state of its text."""

    ids: tuple[int, ...]
    text: PathText


class VLLMRows(TaskRows):
    """Rows whose requests end in vLLM as soon as they are cancelled; their tasks run in the engine's loop."""

    __slots__ = ("_soon",)

    def __init__(self, request: SampleRequest, counters: Counters, soon: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(request, counters)
        self._soon = soon

    def _stop(self) -> None:
        self._soon(super()._stop)


class VLLMBackend(RenderingBackend):
    """Opens, continues and scores paths of a model in vLLM.

    Idea: a path is its tokens, and a continuation is a request with these as its prompt, whose computed blocks vLLM's
        prefix cache keeps. Each token is drawn from vLLM's logits by the row's own stream
        (`tts.backends.vllm.processor`), so that a path drawn step by step is one plain sample. No seed is sent: seeds
        of single requests end vLLM 0.32 on CPUs, and begin anew with every request elsewhere. The rounding of logits
        still depends on the batch: in float32 about one draw in a million may give another token, in 16 bits one in
        hundreds (estimates, from the rounding of a CDF). So `caps.streams` is True in float32, or with vLLM's
        batch-invariant mode (VLLM_BATCH_INVARIANT=1); elsewhere solutions are not reproducible.

    Accounting: nothing is computed before rows or readings are requested. Each reads its prompt and path, of which vLLM
        reports the reused tokens; the other tokens are charged as computed. A row that ended before its first token is
        charged its whole input. Tokens that vLLM generates after a row's end, one or two where a predicate ends the
        row, are neither reported nor charged. Steps whose stop text is within one token end in vLLM itself. `score`
        reads its path anew, since vLLM does not cache prompt log-probabilities.

    Args:
        engine: The engine of the model.
        renderer: The renderer between text and tokens.
        context: Most tokens of prompt and path.
        vocab: Size of the vocabulary.
        identity: The identity of the model and its setting, on which results depend.
        streams: Whether rows obey their streams whatever the batch.
        rates: The rates of a token.
        kv_bytes_per_token: Size of one token's state; None: not known.
    """

    name = "vllm"
    caps = Caps(
        steps="emulated",
        extend="emulated",
        fork="emulated",  # by the prefix cache, which may evict
        score="emulated",
        next_logprobs="emulated",
        prompt_logprobs="emulated",
        logprobs=True,
        tops=True,
        sampling_logprobs=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
    )

    def __init__(  # noqa: PLR0913 - the parts of a model in vLLM, by name
        self,
        engine: VLLMEngine,
        renderer: Renderer,
        *,
        context: int,
        vocab: int,
        identity: str,
        streams: bool = True,
        rates: Rates | None = None,
        kv_bytes_per_token: int | None = None,
        thoughts: ThoughtMarks | None = None,
    ) -> None:
        super().__init__(renderer, thoughts)
        self.caps = dataclasses.replace(self.caps, streams=streams)
        self.context: int | None = context
        self.kv_bytes_per_token = kv_bytes_per_token
        self.rates = rates or Rates()
        self.identity = identity
        self._engine = engine
        self._room = context
        self._vocab = vocab
        self._stop_tokens_of: dict[tuple[str, ...], list[int]] = {}  # by stop texts
        self._live: set[VLLMRows] = set()
        self._reads: set[asyncio.Future[Any]] = set()

    @classmethod
    def from_record(cls, record: ModelRecord, **options: Any) -> VLLMBackend:
        """Start vLLM with a model, which takes from seconds to minutes.

        The options are those of `tts.backends.vllm.loading.load_parts`.

        Raises:
            ConfigError: the model cannot be found or is not run by vLLM, or an option is not valid.
            MissingDependency: vLLM is not installed.
        """
        import_module("vllm")
        from tts.backends.vllm.loading import load_parts

        return cls(**load_parts(record, **options), thoughts=thought_marks(record))

    # Reads ------------------------------------------------------------------------------------------------------------

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles of prompts; nothing is computed until a row is requested.

        Raises:
            PromptTooLong: a prompt leaves no room for one more token.
            ConfigError: a prompt cannot be rendered.
        """
        self._check_open()
        prompt_ids = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in prompt_ids:
            check_prompt(len(ids), self._room)
            check_known(ids, self._vocab)
        return [Reply(VLLMHandle(ids, PathText.skip(ids)), 0) for ids in prompt_ids]

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append text, which the next row reads.

        The last token of a path may carry text into the continuation. The next row's text begins with that text.

        Raises:
            PromptTooLong: a path with its text passes the context.
        """
        replies: list[Reply[Extension]] = []
        for handle, ids in self._with_text(handles, texts, self._room):
            all_ids = handle.ids + ids
            continuation = VLLMHandle(all_ids, PathText.skip(all_ids, handle.text.carry)) if ids else handle
            replies.append(Reply(Extension(continuation, ids), 0))
        return replies

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Score texts.

        Raises:
            PromptTooLong: a path with its text fills the context, in which vLLM needs room for one more token.
        """

        async def score_row(handle: VLLMHandle, ids: tuple[int, ...]) -> Reply[NDArray[np.float64]]:
            if not ids:
                return Reply(np.empty(0), 0)
            output, reply = await self._read(handle.ids + ids, prompt_logprobs=0)
            text_logprobs = output.prompt_logprobs[len(handle.ids) :]
            values = [logprobs[token].logprob for logprobs, token in zip(text_logprobs, ids, strict=True)]
            return dataclasses.replace(reply, value=np.minimum(values, 0.0))

        pairs = self._with_text(handles, texts, self._room - 1)
        return await self._await_replies([score_row(handle, ids) for handle, ids in pairs])

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return log-probabilities of next tokens.

        Raises:
            ConfigError: one of `tokens` is not exactly one token.
            PromptTooLong: a path with its text fills the context, in which vLLM needs room for one more token.
        """
        token_ids = [self._renderer.single(token) for token in tokens]
        check_known(token_ids, self._vocab)

        async def read_next(handle: VLLMHandle, ids: tuple[int, ...]) -> Reply[NDArray[np.float64]]:
            output, reply = await self._read(handle.ids + ids, logprob_token_ids=sorted(set(token_ids)))
            logprobs = output.outputs[0].logprobs[0]
            values = [logprobs[token].logprob for token in token_ids]
            return dataclasses.replace(reply, value=np.minimum(values, 0.0))

        pairs = self._with_text(handles, texts, self._room - 1)
        return await self._await_replies([read_next(handle, ids) for handle, ids in pairs])

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts, each of which vLLM reads anew.

        Raises:
            PromptTooLong: a prompt fills the context, in which vLLM needs room for one more token.
            ConfigError: a prompt has no token, or an unknown token. Nothing has been computed.
        """
        self._check_open()
        prompt_ids = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in prompt_ids:
            check_read(len(ids), self._room - 1)
            check_known(ids, self._vocab)

        async def read_prompt(ids: tuple[int, ...]) -> Reply[PromptLogprobs]:
            num_tops = min(top, self._vocab)
            output, reply = await self._read(ids, prompt_logprobs=num_tops, logprobs=num_tops)
            # entries by token at each place; the first token has none
            entries_in_prompt = output.prompt_logprobs[1:]
            entries_after = output.outputs[0].logprobs[0]
            read_tokens = zip(ids[1:], entries_in_prompt, strict=True)
            logprobs = [math.nan, *(min(0.0, entries[token].logprob) for token, entries in read_tokens)]
            likely = [(), *(_rank(entries)[:top] for entries in (*entries_in_prompt, entries_after))]
            return dataclasses.replace(reply, value=self._renderer.prompt_logprobs(ids, logprobs, likely))

        return await self._await_replies([read_prompt(ids) for ids in prompt_ids])

    async def _read(self, ids: tuple[int, ...], **settings: Any) -> tuple[Any, Reply[Any]]:
        """Return vLLM's output for a prompt, and a reply with its cost but without a value.

        This runs in the engine's loop. vLLM always generates a token, which is ignored.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with aclosing(self._engine.outputs(ids, streams=False, max_tokens=1, **settings)) as outputs:
            all_outputs = [output async for output in outputs]
        output = all_outputs[-1]
        num_cached = output.num_cached_tokens or 0
        cost = Reply(None, computed=len(ids) - num_cached, reused=num_cached, seconds=loop.time() - began)
        return output, cost

    async def _await_replies(self, reads: Sequence[Coroutine[Any, Any, Reply[Any]]]) -> list[Reply[Any]]:
        """Run reads in the engine's loop, count the tokens of all replies, and return the replies.

        Raises:
            Exception: the first failure of a read.
        """
        futures = [asyncio.wrap_future(self._engine.submit(read)) for read in reads]
        self._reads.update(futures)
        try:
            results = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            self._reads.difference_update(futures)
        replies = [result for result in results if not isinstance(result, BaseException)]
        for reply in replies:
            self.counters.prompt_tokens += reply.computed
            self.counters.reused_tokens += reply.reused or 0
        for result in results:
            if isinstance(result, BaseException):
                raise closed_error() if self._closed else result
        return replies

    # Rows -------------------------------------------------------------------------------------------------------------

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Raises:
            EngineError: the backend was closed.
        """
        self._check_open()
        loop = asyncio.get_running_loop()

        def deliver(fn: Callable[..., None], *args: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(fn, *args)

        rows = VLLMRows(request, self.counters, self._engine.call_in_loop)
        self._live.add(rows)
        self._engine.call_in_loop(self._start, rows, deliver)
        return rows

    def _start(self, rows: VLLMRows, deliver: Deliver) -> None:
        """Begin every row of a request, in the engine's loop."""
        for index in range(len(rows.request.rows)):
            asyncio.get_running_loop().create_task(self._write(rows, index, deliver))

    async def _write(self, rows: VLLMRows, index: int, deliver: Deliver) -> None:
        """Generate a row, in the engine's loop, and deliver the row even if it failed."""
        handle: VLLMHandle = rows.request.handle
        use = _InputUse()
        task = asyncio.current_task()
        assert task is not None, "rows are written in tasks"
        rows.tasks.add(task)
        continuation: VLLMHandle | None = None
        try:
            state = RowState(
                rows,
                index,
                handle.text,
                len(handle.ids),
                decode=self._renderer.decode,
                eos=self._renderer.eos,
                context=self._room,
            )
            began = asyncio.get_running_loop().time()
            try:
                finish: Finish = state.early_finish() or await self._generate_row(state, handle, use)
                error = ""
            except asyncio.CancelledError:
                finish, error = "cancelled", ""
            except Exception as failure:  # noqa: BLE001 - a failure of vLLM or of the predicate fails this row only
                finish, error = "error", error_line(failure)
            state.seconds = asyncio.get_running_loop().time() - began
            sample = state.sample(finish, error=error)
            if finish not in ("cancelled", "error"):
                continuation = VLLMHandle((*handle.ids, *state.ids), state.path_text())
        except Exception as failure:  # noqa: BLE001 - the row could not begin
            sample = failed_row(failure)
        rows.tasks.discard(task)
        computed = (len(handle.ids) - use.reused) if use.began else 0
        sample = dataclasses.replace(sample, handle=continuation)
        deliver(self._resolve, rows, index, sample, computed, use.reused)

    async def _generate_row(self, state: RowState, handle: VLLMHandle, use: _InputUse) -> Finish:
        """Let vLLM generate until the row ends, and return the row's finish."""
        request, row = state.rows.request, state.row
        sampling = request.sampling
        draws = [
            row.stream,
            row.position,
            row.word,
            sampling.temperature,
            sampling.top_p,
            sampling.top_k,
            sampling.min_p,
        ]
        # most likely tokens to report at each place; vLLM adds the drawn token itself
        num_tops = min(TOP_TOKENS, self._vocab) if request.spreads or request.sampling_logprobs else 0
        settings = {
            "max_tokens": min(row.max_tokens, self._room - len(handle.ids)),
            "stop_token_ids": self._stop_tokens(request.stop),
            "logprobs": num_tops,
            "extra_args": {DRAWS: draws} if sampling.temperature else None,  # else vLLM draws greedily
        }
        use.began = True
        outputs = self._engine.outputs(handle.ids, streams=True, **settings)
        async with aclosing(outputs):
            async for output in outputs:
                use.reused = output.num_cached_tokens or 0
                completion = output.outputs[0]
                for token, logprobs in zip(completion.token_ids, completion.logprobs, strict=True):
                    logprob = logprobs[token].logprob
                    if not logprob > -math.inf:  # NaN as well
                        raise EngineError(f"the logits of token {len(state.ids)} are no law", hint="try dtype float32")
                    top_logprobs = [entry.logprob for entry in logprobs.values()]
                    spread = top_spread(top_logprobs) if request.spreads else None
                    sampling_logprob: float | None = None
                    if request.sampling_logprobs:
                        sampling_logprob = top_sampling_logprob(top_logprobs, logprob, sampling)
                    finish = state.append(token, min(0.0, logprob), spread, sampling_logprob)
                    if finish is not None:
                        return finish
        raise EngineError("vLLM ended the row without a reason that it was given")

    def _stop_tokens(self, stop: StopCondition) -> list[int]:
        """Return the tokens that always end a row: ends of sequence, and tokens with a step's stop text."""
        eos = sorted(self._renderer.eos)
        stop_texts = ends_of(stop)
        if not stop_texts:
            return eos
        if stop_texts not in self._stop_tokens_of:
            tokens: list[int] = []
            for token in range(self._vocab):
                token_text = self._renderer.decode((token,))
                if any(stop_text in token_text for stop_text in stop_texts):
                    tokens.append(token)
            # of too many tokens none is sent, and rows are ended here
            self._stop_tokens_of[stop_texts] = tokens if len(tokens) <= _MOST_STOP_TOKENS else []
        return [*eos, *self._stop_tokens_of[stop_texts]]

    def _resolve(self, rows: VLLMRows, index: int, sample: Sample, computed: int, reused: int) -> None:
        """Count a row's tokens, and give the row its sample, in the caller's loop."""
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

    # Life -------------------------------------------------------------------------------------------------------------

    def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], room: int
    ) -> list[tuple[VLLMHandle, tuple[int, ...]]]:
        """Return the handles with the tokens of their texts, checked to fit `room` tokens."""
        self._check_open()
        pairs = [(handle, self._renderer.text(text)) for handle, text in zip(handles, texts, strict=True)]
        for handle, ids in pairs:
            check_text(len(handle.ids), len(ids), room)
            check_known(ids, self._vocab)
        return pairs

    async def close(self) -> None:
        """End vLLM. Calls under way and later ones fail with an EngineError."""
        self._closed = True
        for rows in list(self._live):
            rows.fail(closed_error())
        self._live.clear()
        for read in list(self._reads):
            read.cancel()
        await run_in_thread(self._engine.close)


@dataclass(slots=True)
class _InputUse:
    """A row's input: whether vLLM got the input, and how many of its tokens were reused."""

    began: bool = False
    reused: int = 0


def _rank(entries: Mapping[int, Any]) -> list[tuple[int, float]]:
    """Return the tokens that vLLM shows at a place, with their log-probabilities.

    The most likely token comes first, and the lowest id among equals.
    """
    logprobs = {token: min(0.0, entry.logprob) for token, entry in entries.items()}
    ranked_tokens = sorted(logprobs, key=lambda token: (-logprobs[token], token))
    return [(token, logprobs[token]) for token in ranked_tokens]

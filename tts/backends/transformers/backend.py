"""The reference backend: any decoder-only model of the transformers library. Slow, obvious, correct."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts._core.threads import run_after_fork
from tts.backends.base import Caps, Extension, Reply, RowSet, SampleRequest
from tts.backends.batching import BatchQueue, LoopQueue
from tts.backends.local import StateBackend, with_flops
from tts.backends.prompt_logprobs import PromptLogprobs, most_likely
from tts.backends.sampling import log_softmax
from tts.backends.text.lengths import check_known, check_prompt, check_read, check_text
from tts.backends.text.row_state import PathText, as_engine_error
from tts.budget.budget import Rates
from tts.errors import ConfigError, EngineError, require_extra
from tts.models.registry import ModelRecord, rates, refuse_url, thought_marks
from tts.thoughts import ThoughtMarks
from tts.types import Prompt

with require_extra("", "engine", "the transformers backend"):
    import torch

    from tts.backends.loading.cpu import check_bfloat16
    from tts.backends.loading.digests import weights_digest
    from tts.backends.loading.models import load
    from tts.backends.text.rendering import Renderer, eos_ids
    from tts.backends.transformers.causal_model import CausalModel, Segment
    from tts.backends.transformers.decoding import CachedPath, FinishedRow, RowDecoder, RowRequest


_READ = 64  # the most tokens of a prompt whose logits are in memory at once


@dataclass(frozen=True, slots=True)
class _Call:
    """One item of a call: `compute` runs in the worker, and `wrap` in the event loop's thread."""

    compute: Callable[[], Any]
    wrap: Callable[[Any], Any]
    computed: int
    reused: int
    future: asyncio.Future[Reply[Any]]


_Job = _Call | RowRequest


class TransformersBackend(StateBackend[CachedPath]):
    """Opens, continues and scores paths of a transformers model.

    Idea: everything is computed path by path and row by row, nothing in batches. Rows of all requests take turns of one
    token. New requests join between two turns, so that none waits for another's end. All shapes follow from the row
    alone, and so do all bits: tokens and log-probabilities do not depend on the batch or its order. This holds for one
    machine, number of threads and version of torch. Forks share keys and values. A row under way copies the keys
    and values of its path.

    Accounting: opening a prompt computes all its tokens. A row reuses all tokens of its path and computes none of them.
    `extend`, `score` and `next_logprobs` compute the tokens of their texts and reuse the path's. The last token of a
    path is read by the next call. This token was counted when it was opened, appended or generated, and is not counted
    again.

    Args:
        model: A decoder-only model, which is switched to evaluation and to eager attention.
        tokenizer: The model's (fast) tokenizer.
        name: The backend's name.
        identity: A text that names what results depend on; None: a checksum of the weights, the dtype and the device.
        rates: The cost of a token. FLOPs that are None are computed from the model.
        max_rows: Most rows under way at once, at least 1; others wait.
        thoughts: Marks of the model's thoughts; None: the marks in the chat template.

    Raises:
        ConfigError: The model has layers whose state is not keys and values of the whole path, or `max_rows` is below
            1.
    """

    caps = Caps(
        steps="native",
        extend="native",
        fork="native",
        score="native",
        next_logprobs="native",
        hidden="native",
        prompt_logprobs="native",
        logprobs=True,
        spreads=True,
        sampling_logprobs=True,
        tops=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
    )

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "transformers",
        identity: str | None = None,
        rates: Rates | None = None,
        max_rows: int = 64,
        thoughts: ThoughtMarks | None = None,
    ) -> None:
        if max_rows < 1:
            raise ConfigError(f"max_rows is {max_rows!r}, but must be at least 1")
        self._model = CausalModel(model)
        self.name = name
        self.identity = identity or _identity(weights_digest(model), self._model)
        self.context: int | None = self._model.context
        self.kv_bytes_per_token: int | None = self._model.kv_bytes_per_token
        self.rates = with_flops(rates or Rates(), self._model.parameters)
        eos = eos_ids(getattr(model, "generation_config", None), model.config, tokenizer)
        super().__init__(Renderer(tokenizer, eos), thoughts)
        self._decoder = RowDecoder(self._model, self._renderer.decode, eos, max_rows=max_rows)
        self._queue = LoopQueue(self._execute, self._fail)
        self._computing = threading.Lock()

    @classmethod
    def from_record(
        cls, record: ModelRecord, *, device: str | None = None, dtype: str | None = None, max_rows: int = 64
    ) -> TransformersBackend:
        """Load a model by its record.

        Args:
            record: The record of the model, whose weights are in a package, in a folder or on the Hub.
            device: A torch device; None: "cuda" where there is a GPU, else "cpu".
            dtype: "float32", "bfloat16" (a CPU needs instructions for it) or "float16"; None: float32 on a CPU,
                bfloat16 elsewhere.
            max_rows: See the class.

        Raises:
            ConfigError: The model is not available, this backend cannot run it, an option is not valid, or the record
                has a url.
        """
        refuse_url(record)
        torch_device = device
        if not torch_device:
            torch_device = "cuda" if torch.cuda.is_available() else "cpu"
        default_dtype = "float32" if torch_device == "cpu" else "bfloat16"
        precision = dtype or default_dtype
        if precision not in ("float32", "bfloat16", "float16"):
            raise ConfigError(f"dtype is {dtype!r}, but must be float32, bfloat16 or float16")
        if torch_device == "cpu" and precision == "bfloat16":
            check_bfloat16("dtype", "'float32'")

        def make() -> TransformersBackend:
            """Load the model, and return its backend."""
            loaded = load(record, device=torch_device, dtype=getattr(torch, precision))
            backend = cls(
                loaded.model,
                loaded.tokenizer,
                identity="?",  # set below from the checksum that the loader computed
                rates=rates(record),
                max_rows=max_rows,
                thoughts=thought_marks(record),
            )
            backend.identity = _identity(loaded.weights, backend._model)
            backend._model.check()
            return backend

        return run_after_fork(make)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Render and read prompts; the values are handles.

        Raises:
            PromptTooLong: A prompt leaves no room for one more token. Nothing has been computed.
            ConfigError: A prompt cannot be rendered.
        """
        rendered = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in rendered:
            check_prompt(len(ids), self._model.context)
        calls = [self._call(partial(self._open_path, ids), self._keep, computed=len(ids), reused=0) for ids in rendered]
        return await self._gather(calls)

    def _open_path(self, ids: tuple[int, ...]) -> CachedPath:
        """Read all tokens of a prompt but the last."""
        state: tuple[Segment, ...] = ()
        if len(ids) > 1:
            segment, _ = self._model.read((), ids[:-1])
            state = (segment,)
        return CachedPath(ids, state, PathText.skip(ids))

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Token number i of a row is drawn by `uniform(stream, position + i, word)`. The end-of-sequence token counts, and
        its text is "". A row ends with "length" at its cap or where its path fills the context, and with "error" if the
        model failed.

        Raises:
            EngineError: The handle has been released.
        """
        rows = RowSet(request)
        self._queue.submit((rows, self._state_of(request.handle)))
        return rows

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text.

        The last token of a path may carry text into the continuation. The next row's text begins with that text.

        Raises:
            PromptTooLong: A path with its text passes the context. Nothing has been computed.
        """
        return await self._with_text(handles, texts, self._extend, lambda path, ids: Extension(self._keep(path), ids))

    def _extend(self, path: CachedPath, ids: tuple[int, ...]) -> CachedPath:
        if not ids:
            return path
        segment, _ = self._model.read(path.state, (path.ids[-1], *ids[:-1]))
        new_ids = (*path.ids, *ids)
        return CachedPath(new_ids, (*path.state, segment), PathText.skip(new_ids, path.text.carry))

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probabilities of texts after their paths.

        Raises:
            PromptTooLong: A path with its text passes the context. Nothing has been computed.
        """
        return await self._with_text(handles, texts, self._scores)

    def _scores(self, path: CachedPath, ids: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the log-probabilities of a text's tokens after a path."""
        if not ids:
            return np.empty(0)
        _, logits = self._model.read(path.state, (path.ids[-1], *ids[:-1]), logits=len(ids))
        return np.array([log_softmax(row)[token] for row, token in zip(logits, ids, strict=True)])

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return log-probabilities of next tokens.

        Raises:
            ConfigError: One of `tokens` is not exactly one token.
            PromptTooLong: A path with its text passes the context. Nothing has been computed.
        """
        token_ids = [self._renderer.single(token) for token in tokens]
        return await self._with_text(handles, texts, lambda path, ids: self._next_logprobs(path, ids)[token_ids])

    def _next_logprobs(self, path: CachedPath, ids: tuple[int, ...]) -> NDArray[np.float64]:
        _, logits = self._model.read(path.state, (path.ids[-1], *ids), logits=1)
        return log_softmax(logits[0])

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts, each read alone.

        Raises:
            PromptTooLong: A prompt passes the context. Nothing has been computed.
            ConfigError: A prompt has no token, or an unknown one. Nothing has been computed.
        """
        self._check_open()
        rendered = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in rendered:
            check_read(len(ids), self._model.context)
            check_known(ids, self._model.vocab)
        calls = [
            self._call(partial(self._prompt_logprobs, ids, top), _same, computed=len(ids), reused=0) for ids in rendered
        ]
        return await self._gather(calls)

    def _prompt_logprobs(self, ids: tuple[int, ...], top: int) -> PromptLogprobs:
        """Read a prompt in chunks, and return the log-probabilities of its tokens."""
        state: tuple[Segment, ...] = ()
        logprobs: list[float] = [np.nan]  # the first token follows nothing
        likely: list[list[tuple[int, float]]] = [[]]  # the most likely tokens at each place
        num_read = len(ids) if top else len(ids) - 1  # the last token is read only for the tokens that may follow
        for start in range(0, num_read, _READ):
            chunk = ids[start : min(start + _READ, num_read)]
            segment, logits = self._model.read(state, chunk, logits=len(chunk))
            state = (*state, segment)
            for row in map(log_softmax, logits):
                if len(logprobs) < len(ids):
                    next_token = ids[len(logprobs)]
                    logprobs.append(float(row[next_token]))
                likely.append([(token, float(row[token])) for token in most_likely(row, min(top, len(row)))])
        return self._renderer.prompt_logprobs(ids, logprobs, likely if top else [()] * (len(ids) + 1))

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Return the last hidden state, as the output layer reads it, at the last token of each handle."""
        return await self._with_text(
            handles, [""] * len(handles), lambda path, _: self._model.hidden(path.state, path.ids[-1])
        )

    async def close(self) -> None:
        """Release every handle and stop the worker. Calls under way and later ones fail with an EngineError."""
        self._queue.close()
        await super().close()

    async def _with_text(
        self,
        handles: Sequence[Any],
        texts: Sequence[str],
        compute: Callable[[CachedPath, tuple[int, ...]], Any],
        wrap: Callable[[Any, tuple[int, ...]], Any] = lambda value, _: value,
    ) -> list[Reply[Any]]:
        """Return the replies with the wrapped results of `compute`, for each path and the tokens of its text.

        Args:
            handles: The handles of the paths.
            texts: The text after each path.
            compute: Called in the worker with a path and the tokens of its text.
            wrap: Called in the event loop's thread with the result of `compute` and the tokens.
        """
        pairs = [
            (self._state_of(handle), self._renderer.text(text)) for handle, text in zip(handles, texts, strict=True)
        ]
        for path, ids in pairs:
            check_text(len(path.ids), len(ids), self._model.context)
        calls = [
            self._call(
                partial(compute, path, ids),
                lambda value, ids=ids: wrap(value, ids),
                computed=len(ids),
                reused=len(path.ids),
            )
            for path, ids in pairs
        ]
        return await self._gather(calls)

    def _call(self, compute: Callable[[], Any], wrap: Callable[[Any], Any], *, computed: int, reused: int) -> _Call:
        return _Call(compute, wrap, computed, reused, asyncio.get_running_loop().create_future())

    async def _gather(self, calls: Sequence[_Call]) -> list[Reply[Any]]:
        for call in calls:
            self._queue.submit(call)
        return await asyncio.gather(*(call.future for call in calls))

    def _execute(self, queue: BatchQueue, jobs: list[_Job], deliver: Callable[..., None]) -> None:
        with self._computing, torch.inference_mode():
            more = lambda: self._read(queue.take(_is_done), deliver)  # noqa: E731 - bound to this batch
            self._decoder.run(self._read(jobs, deliver), more, lambda end: deliver(self._resolve, end))

    def _read(self, jobs: list[_Job], deliver: Callable[..., None]) -> list[RowRequest]:
        """Compute the calls among jobs, and return the requests of rows.

        `jobs` is emptied, so that only the decoder holds paths.
        """
        rows: list[RowRequest] = []
        for job in jobs:
            if not isinstance(job, _Call):
                rows.append(job)
            elif not _is_done(job):
                start = time.perf_counter()
                try:
                    value = job.compute()
                except Exception as failure:  # noqa: BLE001 - errors of torch and lack of memory fail only this call
                    deliver(_refuse, job.future, _engine_error(failure))
                else:
                    deliver(self._answer, job, value, time.perf_counter() - start)
        jobs.clear()
        return rows

    def _answer(self, call: _Call, value: Any, seconds: float) -> None:
        self.counters.prompt_tokens += call.computed
        self.counters.reused_tokens += call.reused
        if not call.future.done():
            call.future.set_result(Reply(call.wrap(value), call.computed, call.reused, seconds))

    def _resolve(self, end: FinishedRow) -> None:
        """Count the tokens of an ended row, and give the row its sample with a handle of the path after it."""
        self.counters.reused_tokens += end.reused
        self.counters.generated_tokens += end.sample.num_tokens
        end.rows.reused_tokens = (end.rows.reused_tokens or 0) + end.reused
        handle = None if end.path is None else self._keep(end.path)
        end.rows.resolve(end.index, dataclasses.replace(end.sample, handle=handle))

    def _fail(self, jobs: list[_Job], failure: Exception) -> None:
        """Fail calls and requests of rows."""
        error = _engine_error(failure)
        for job in jobs:
            if isinstance(job, _Call):
                _refuse(job.future, error)
            else:
                rows, _ = job
                rows.fail(error)


def _is_done(job: _Job) -> bool:
    if isinstance(job, _Call):
        return job.future.done()
    rows, _ = job
    return rows.done


def _same(value: Any) -> Any:
    return value


def _refuse(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _engine_error(failure: Exception) -> EngineError:
    return as_engine_error(failure, "the transformers backend")


def _identity(weights: str, model: CausalModel) -> str:
    dtype = str(model.dtype).removeprefix("torch.")
    return f"transformers weights={weights} dtype={dtype} device={model.device.type} rows=alone"

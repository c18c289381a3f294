"""What stands in for vLLM in quick tests: an engine with a law of its own, in a thread of its own, that remembers
blocks of prompts.
"""

from __future__ import annotations

import asyncio
import runpy
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.guard import LIMIT_S
from tts.backends.base import Sampling
from tts.backends.sampling import draw, log_softmax
from tts.backends.vllm.backend import DRAWS, VLLMBackend
from tts.errors import EngineError
from tts.randomness import hash64, uniform

BLOCK = 4


class FakeEngine:
    """Writes by a law of the last three tokens.

    Args:
        vocab: tokens. fault: called with a row's tokens so far before each; what it raises breaks the row, what it
            returns, if not None, is the token's log-probability.
    """

    def __init__(self, vocab: int, fault: Callable[[Sequence[int]], float | None] = lambda _: None) -> None:
        self.vocab = vocab
        self.fault = fault
        self.asked: list[dict[str, Any]] = []
        self.live = 0
        self._known: set[tuple[int, ...]] = set()
        self._thread: threading.Thread | None = None

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def run() -> None:
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        return loop

    def submit(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_in_loop(self, fn: Any, *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(fn, *args)

    async def outputs(self, ids: Sequence[int], *, streams: bool, **settings: Any) -> AsyncGenerator[Any]:
        self.asked.append({"ids": tuple(ids), **settings})
        self.live += 1
        cached = 0 if "prompt_logprobs" in settings else self._remembered(tuple(ids))
        try:
            path = list(ids)
            for number in range(settings["max_tokens"]):
                await asyncio.sleep(0)
                told = self.fault(path[len(ids) :])
                token = self._drawn(path, number, settings.get("extra_args"))
                law = log_softmax(self._logits(path))
                path.append(token)
                told_of = (
                    *np.argsort(-law)[: settings.get("logprobs") or 0].tolist(),
                    *settings.get("logprob_token_ids", ()),
                )
                laws = {one: SimpleNamespace(logprob=law[one]) for one in (token, *told_of)}
                if told is not None:
                    laws[token].logprob = told
                told_top = settings.get("prompt_logprobs")
                scores = (
                    None
                    if told_top is None
                    else [None, *(self._scored(ids, at, told_top) for at in range(1, len(ids)))]
                )
                some = SimpleNamespace(token_ids=[token], logprobs=[laws])
                yield SimpleNamespace(outputs=[some], num_cached_tokens=cached, prompt_logprobs=scores)
                if token in settings.get("stop_token_ids", ()):
                    return
        finally:
            self.live -= 1

    def _remembered(self, ids: tuple[int, ...]) -> int:
        whole = [ids[:end] for end in range(BLOCK, len(ids), BLOCK)]
        cached = sum(part in self._known for part in whole) * BLOCK
        self._known.update(whole)
        return cached

    def _logits(self, path: Sequence[int]) -> Any:
        logits = np.random.default_rng(hash64(*path[-3:])).normal(size=self.vocab).astype(np.float32) * 2
        logits[0] += 3  # the end of sequence, now and then
        return logits

    def _drawn(self, path: Sequence[int], number: int, extra: Any) -> int:
        if not extra:
            return int(np.argmax(self._logits(path)))
        stream, position, word, temperature, top_p, top_k, min_p = extra[DRAWS]
        law = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
        return draw(self._logits(path), law, uniform(stream, position + number, word)).token

    def _scored(self, ids: Sequence[int], at: int, top: int) -> Any:
        law = log_softmax(self._logits(ids[:at]))
        return {
            one: SimpleNamespace(logprob=law[one]) for one in (ids[at], *np.argsort(-law, kind="stable")[:top].tolist())
        }

    def close(self) -> None:
        async def end() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        if self._thread is not None and self._thread.is_alive():
            self.submit(end()).result(LIMIT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)


def faked(context: int = 256, **options: Any) -> tuple[VLLMBackend, FakeEngine]:
    """Return a backend on a fake engine, with a byte-level tokenizer."""
    pytest.importorskip("transformers")
    from tts.backends.text.rendering import Renderer

    tokenizer = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))["tiny_tokenizer"]()
    engine: Any = FakeEngine(len(tokenizer), **options)
    renderer = Renderer(tokenizer, frozenset({0}))
    return VLLMBackend(engine, renderer, context=context, vocab=len(tokenizer), identity="fake"), engine


def broken(_: Sequence[int]) -> None:
    raise EngineError("vLLM failed: EngineDeadError: it is gone")

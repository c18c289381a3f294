"""What is refused of completions, and parts of their replies."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from tts.backends.base import Reply, Sampling
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.text.tokenized_text import TokenizedText
from tts.backends.toy.language import ToyTokenizer
from tts.errors import ConfigError, EngineError
from tts_addons.gateway.completions import work
from tts_addons.gateway.completions.endpoint import CompletionStream
from tts_addons.gateway.completions.replies import prompt_text
from tts_addons.gateway.searches import Job
from tts_addons.gateway.server_events import PING


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (["1 + 2", "2 + 3", "3 + 4"], "prompt has 3 prompts, but this server takes 2; send fewer at once"),
        (["1 + 2", "1 + " * 10], "prompt has 45 characters or tokens, but this server takes 40; send fewer at once"),
        (
            [list(range(20)), list(range(21))],
            "prompt has 41 characters or tokens, but this server takes 40; send fewer at once",
        ),
    ],
)
def test_prompts_are_bounded_in_number_and_length(client, prompt, told):
    gateway = client(limits={"messages": 2, "characters": 40})
    error = gateway.post("/v1/completions", json={"model": "toy", "prompt": prompt}).json()["error"]
    assert (error["message"], error["param"], error["code"]) == (told, "prompt", "too_long")


def test_a_stream_of_a_completion_keeps_alive_while_nothing_is_written():
    async def run() -> list[bytes]:
        order = SimpleNamespace(echo=False, top=None)
        config = SimpleNamespace(ping_s=0.001)
        call: Any = SimpleNamespace(number="n", config=config, heading=lambda: {"id": "n"}, order=order)
        stream, parts = CompletionStream(call, usage=False), list[bytes]()
        stream._first, stream._last = (0, "a"), lambda: b"end"
        async for part in stream._chunks():
            parts.append(part)
            if part == PING and len(parts) == 3:
                stream._pieces.put_nowait(None)
        return parts

    first, *pings, last = asyncio.run(run())
    assert b'"choices":[{"index":0,"text":"a"' in first
    assert set(pings) == {PING}
    assert last == b"end"


def test_a_backend_that_gives_no_next_token_is_an_error_of_the_model(monkeypatch):
    async def logprobs(*_: Any) -> list[Reply[PromptLogprobs]]:
        return [Reply(PromptLogprobs((1,), ("3",), np.zeros(1)), computed=1)]

    monkeypatch.setattr(work, "_logprobs", logprobs)
    backend: Any = SimpleNamespace(name="silent")
    order = work.CompletionOrder(
        prompts=("3",), choices=1, max_tokens=1, sampling=Sampling(temperature=0, max_tokens=1), seed=0, top=1
    )
    with pytest.raises(EngineError, match=r"'silent'.*after"):
        asyncio.run(work.complete(backend, order, work.CompletionCost()))


@pytest.mark.parametrize(
    ("field", "value"), [("prompt", "3 + 4"), ("messages", [{"role": "user", "content": "3 + 4"}])]
)
def test_a_text_that_the_tokenizer_refuses_is_named_by_its_field(client, monkeypatch, field, value):
    def refuses(*_: Any) -> None:
        raise ConfigError("the text is no sum")

    monkeypatch.setattr(ToyTokenizer, "prompt", refuses)
    error = client().post("/tokenize", json={field: value}).json()["error"]
    assert (error["message"], error["param"], error["code"]) == ("the text is no sum", field, "invalid_value")


def test_work_that_is_cancelled_before_it_begins_is_not_begun():
    begun: list[bool] = []

    async def work() -> bool:
        begun.append(True)
        return True

    async def run() -> None:
        job = Job(work)
        assert await job.run() is True
        cancelled = Job(work)
        cancelled.cancel()
        assert await cancelled.run() is None

    asyncio.run(run())
    assert begun == [True]


def test_a_prompt_of_tokens_is_repeated_as_text_as_far_as_it_is_known():
    prompt = TokenizedText.of([1, 2])
    found = PromptLogprobs((1, 2), ("3", " +", " 4"), np.zeros(3))
    assert (prompt_text(prompt, found, None), prompt_text(prompt, None, None), prompt_text("3 +", None, None)) == (
        "3 +",
        "",
        "3 +",
    )


def test_a_model_without_log_probabilities_refuses_them_in_one_line(client):
    gateway = client(models={"f": {"backend": "tests.contracts.test_backends:write"}})
    ask = {"model": "f", "prompt": "a b", "max_tokens": 4}
    assert gateway.post("/v1/completions", json=ask).json()["usage"]["completion_tokens"] > 0
    error = gateway.post("/v1/completions", json={**ask, "logprobs": 1, "max_tokens": 0}).json()["error"]
    assert error["code"] == "unsupported"
    assert "prompt_logprobs" in error["message"]
    error = gateway.post("/v1/completions", json={**ask, "logprobs": 1}).json()["error"]
    assert error["code"] == "unsupported"
    assert "logprobs of more than the prompt and one token need the model's tokenizer" in error["message"]
    told = gateway.post("/tokenize", json={"prompt": "a"})
    assert (told.status_code, told.json()["error"]["code"]) == (400, "unsupported")

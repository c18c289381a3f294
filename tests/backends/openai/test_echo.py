"""Log-probabilities of prompts from a server: what a reply must show, and how prompts and servers are refused that do
not.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.backends.openai.making import PROMPT, using
from tests.backends.openai.server import ToyServer
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.echo import read_echo
from tts.backends.openai.errors import ServerError
from tts.backends.toy.language import tokens_of
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong

TEXT: dict[str, Any] = {"mode": "text", "echo": True}


def reply(tokens: list[Any], logprobs: list[Any], prompt: int, **more: Any) -> dict[str, Any]:
    shown = {"tokens": tokens, "token_logprobs": logprobs, **more}
    return {"choices": [{"logprobs": shown}], "usage": {"prompt_tokens": prompt, "completion_tokens": 1}}


def test_a_reply_shows_each_token_of_the_prompt_and_what_may_follow() -> None:
    tops = [None, {"b": -0.5, "c": -0.1}, {"x": -0.2}]
    found = read_echo(reply(["a", "b", "x"], [None, -0.5, -0.2], 2, top_logprobs=tops), (), 2)
    assert found.value.texts == ("a", "b")
    assert math.isnan(found.value.logprobs[0])
    assert [top.text for top in found.value.tops[1]] == ["c", "b"]
    assert [top.text for top in found.value.behind] == ["x"]
    assert (found.computed, found.reused) == (3, None)


@pytest.mark.parametrize(
    ("told", "ids", "cause"),
    [
        (None, (), "no report of the prompt's tokens"),
        ({"choices": [], "usage": {"prompt_tokens": 1}}, (), "no log-probabilities of the prompt"),
        (reply(["a"], ["much"], 1), (), "no log-probabilities of the prompt"),
        (reply(["a", "b"], [None], 2), (), "1 log-probabilities for a prompt of 2 tokens"),
        (reply(["a"], [None], 1), (7, 8), "1 log-probabilities for a prompt of 2 tokens"),
        (reply([], [], 0), (), "0 log-probabilities for a prompt of 0 tokens"),
    ],
)
def test_a_reply_that_does_not_show_the_prompt_is_none(told: Any, ids: tuple[int, ...], cause: str) -> None:
    with pytest.raises(ServerError, match=cause):
        read_echo(told, ids)


def test_prompts_are_texts_where_a_server_takes_no_tokens() -> None:
    server = ToyServer(ids=False)

    async def check(backend: OpenAIBackend) -> None:
        [found] = await backend.prompt_logprobs([PROMPT])
        assert server.bodies[-1]["prompt"] == PROMPT
        assert "".join(found.value.texts) == PROMPT
        assert found.computed + (found.reused or 0) == backend.counters.prompt_tokens + backend.counters.reused_tokens
        with pytest.raises(ConfigError, match=r"renders.*token"):
            await backend.prompt_logprobs([PROMPT, ""])
        assert len(server.bodies) == 1

    using(server, check, **TEXT)


def test_a_prompt_that_passes_the_context_is_refused_here_or_by_the_server() -> None:
    size = len(tokens_of(PROMPT))
    server = ToyServer(context=size)  # which needs room for one more token

    async def by_server(backend: OpenAIBackend) -> None:
        with pytest.raises(PromptTooLong, match=r"prompt:.*400:.*model's maximum"):
            await backend.prompt_logprobs([PROMPT])

    async def here(backend: OpenAIBackend) -> None:
        with pytest.raises(PromptTooLong, match=f"the prompt has {size} tokens, but the model's context is {size - 1}"):
            await backend.prompt_logprobs([PROMPT])

    using(server, by_server, **TEXT)
    using(server, here, echo=True, context=size)


def test_a_server_that_shows_no_prompts_is_not_asked() -> None:
    server = ToyServer(echo=False)

    async def refused(backend: OpenAIBackend) -> None:
        with pytest.raises(CapabilityError, match=r"capability 'prompt_logprobs'.*'toy'"):
            await backend.prompt_logprobs([PROMPT])
        assert server.bodies == []

    async def broken(backend: OpenAIBackend) -> None:
        with pytest.raises(EngineError, match=r"prompt: BadReply: 1.*prompt") as failed:
            await backend.prompt_logprobs([PROMPT])
        assert failed.value.kind == "BadReply"

    using(server, refused, mode="chat")
    using(server, broken, logprobs=False, **TEXT)

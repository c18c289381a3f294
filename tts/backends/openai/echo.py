"""Log-probabilities of prompts by completions that repeat their prompt.

The requests use `echo` with `logprobs`, which vLLM's server and others offer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tts.backends.base import Reply
from tts.backends.openai.errors import ServerError
from tts.backends.openai.reply import usage_in, usage_of
from tts.backends.prompt_logprobs import PromptLogprobs, Top


def echo_members(prompt: str | Sequence[int], top: int) -> dict[str, Any]:
    """Return the members of a request for the log-probabilities of a prompt, except for the model.

    The request asks for one token, since servers must generate one.
    """
    text_or_ids = prompt if isinstance(prompt, str) else list(prompt)
    return {"prompt": text_or_ids, "echo": True, "logprobs": max(1, top), "max_tokens": 1, "temperature": 0}


def read_echo(told: Any, ids: Sequence[int] = (), top: int = 0) -> Reply[PromptLogprobs]:
    """Return the log-probabilities of a prompt from a reply.

    The token that the server had to generate is charged as input.

    Args:
        told: The reply of the server, as JSON values.
        ids: The ids of the prompt, where they are known.
        top: The number of most likely tokens for each place.

    Raises:
        ServerError: The reply is not valid, or does not report its tokens.
    """
    usage = usage_of(usage_in(told))
    if usage is None:
        raise ServerError("BadReply", "no report of the prompt's tokens")
    num_prompt = usage.prompt
    try:
        members = told["choices"][0]["logprobs"]
        texts = [str(text) for text in members["tokens"]]
        values = [_value(logprob) for logprob in members["token_logprobs"]]
        given_tops = members.get("top_logprobs") or [None] * len(texts)
        tops = [_tops(place_tops, top) for place_tops in given_tops]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ServerError("BadReply", "no log-probabilities of the prompt") from None
    # the generated token, which follows the prompt's tokens, may be left out
    is_whole = len(texts) == len(values) == len(tops) and num_prompt <= len(texts) <= num_prompt + 1
    if not is_whole or (ids and len(ids) != num_prompt) or not num_prompt:
        raise ServerError(
            "BadReply", f"{len(values)} log-probabilities for a prompt of {len(ids) or num_prompt} tokens"
        )
    logprobs = PromptLogprobs(
        token_ids=tuple(ids),
        texts=tuple(texts[:num_prompt]),
        logprobs=np.array(values[:num_prompt]),
        tops=tuple(tops[:num_prompt]) if top else (),
        behind=tops[num_prompt] if top and len(tops) > num_prompt else (),
    )
    num_computed = num_prompt - (usage.cached or 0) + usage.generated
    return Reply(logprobs, computed=num_computed, reused=usage.cached)


def _value(value: Any) -> float:
    return math.nan if value is None else min(0.0, float(value))


def _tops(members: Mapping[str, Any] | None, top: int) -> tuple[Top, ...]:
    tops = [Top(str(text), _value(value)) for text, value in (members or {}).items()]
    return tuple(sorted(tops, key=lambda token: -token.logprob)[:top])

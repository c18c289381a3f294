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
from tts.backends.openai.reply import usage_of
from tts.backends.prompt_logprobs import PromptLogprobs, Top


def echo_members(prompt: str | Sequence[int], top: int) -> dict[str, Any]:
    """Return the members of a request for the log-probabilities of a prompt, except for the model.

    The request asks for one token, since servers must generate one.
    """
    text_or_ids = prompt if isinstance(prompt, str) else list(prompt)
    return {"prompt": text_or_ids, "echo": True, "logprobs": max(1, top), "max_tokens": 1, "temperature": 0}


def read_echo(told: Any, ids: Sequence[int] = (), top: int = 0) -> Reply[PromptLogprobs]:
    """Return the log-probabilities of a prompt from a reply. The generated token is charged as input.

    Args:
        told: The reply of the server, as JSON values.
        ids: The ids of the prompt, where they are known.
        top: The number of most likely tokens for each place.

    Raises:
        ServerError: The reply is not valid, or does not report its tokens.
    """
    usage = usage_of(told.get("usage")) if isinstance(told, dict) else None
    if usage is None:
        raise ServerError("BadReply", "no report of the prompt's tokens")
    count = usage.prompt
    try:
        members = told["choices"][0]["logprobs"]
        texts, values = [str(one) for one in members["tokens"]], [_value(one) for one in members["token_logprobs"]]
        tops = [_tops(one, top) for one in members.get("top_logprobs") or [None] * len(texts)]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ServerError("BadReply", "no log-probabilities of the prompt") from None
    is_whole = len(texts) == len(values) == len(tops) and count <= len(texts) <= count + 1
    if not is_whole or (ids and len(ids) != count) or not count:
        raise ServerError("BadReply", f"{len(values)} log-probabilities for a prompt of {len(ids) or count} tokens")
    next_tops = tops[count] if top and len(tops) > count else ()
    logprobs = PromptLogprobs(
        tuple(ids), tuple(texts[:count]), np.array(values[:count]), tuple(tops[:count]) if top else (), next_tops
    )
    return Reply(logprobs, count - (usage.cached or 0) + usage.generated, usage.cached)


def _value(value: Any) -> float:
    return math.nan if value is None else min(0.0, float(value))


def _tops(members: Mapping[str, Any] | None, top: int) -> tuple[Top, ...]:
    tops = [Top(str(text), _value(value)) for text, value in (members or {}).items()]
    return tuple(sorted(tops, key=lambda one: -one.logprob)[:top])

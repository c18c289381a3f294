"""Log-probabilities of prompts by completions that repeat their prompt.

They use `echo` with `logprobs`, as vLLM's server and others offer them.
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
    """Return the members of a request for the log-probabilities of a prompt, beside the model.

    Servers must generate one token.
    """
    asked = prompt if isinstance(prompt, str) else list(prompt)
    return {"prompt": asked, "echo": True, "logprobs": max(1, top), "max_tokens": 1, "temperature": 0}


def read_echo(told: Any, ids: Sequence[int] = (), top: int = 0) -> Reply[PromptLogprobs]:
    """Return what a reply shows of its prompt. The token that the server generated is charged as input.

    Args:
        told: The reply of the server, as JSON values.
        ids: The ids of the prompt, where they are known.
        top: The number of most likely tokens for each place.

    Raises:
        ServerError: the reply is not valid, or does not report its tokens.
    """
    usage = usage_of(told.get("usage")) if isinstance(told, dict) else None
    if usage is None:
        raise ServerError("BadReply", "no report of the prompt's tokens")
    count = usage.prompt
    try:
        shown = told["choices"][0]["logprobs"]
        texts, values = [str(one) for one in shown["tokens"]], [_value(one) for one in shown["token_logprobs"]]
        tops = [_tops(one, top) for one in shown.get("top_logprobs") or [None] * len(texts)]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ServerError("BadReply", "no log-probabilities of the prompt") from None
    whole = len(texts) == len(values) == len(tops) and count <= len(texts) <= count + 1
    if not whole or (ids and len(ids) != count) or not count:
        raise ServerError("BadReply", f"{len(values)} log-probabilities for a prompt of {len(ids) or count} tokens")
    behind = tops[count] if top and len(tops) > count else ()
    found = PromptLogprobs(
        tuple(ids), tuple(texts[:count]), np.array(values[:count]), tuple(tops[:count]) if top else (), behind
    )
    return Reply(found, count - (usage.cached or 0) + usage.generated, usage.cached)


def _value(told: Any) -> float:
    return math.nan if told is None else min(0.0, float(told))


def _tops(told: Mapping[str, Any] | None, top: int) -> tuple[Top, ...]:
    found = [Top(str(text), _value(value)) for text, value in (told or {}).items()]
    return tuple(sorted(found, key=lambda one: -one.logprob)[:top])

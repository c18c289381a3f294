"""Replies of `/v1/completions`: choices, log-probabilities, usage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from tts.backends.finite import LEAST_LOGPROB
from tts.backends.metadata import Tokenizer
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.text.tokenized_text import TokenizedText
from tts_addons.gateway.completions.work import CompletionCost, CompletionOrder, Written
from tts_addons.gateway.wire.chat import usage_of as usage_report
from tts_addons.gateway.wire.request import Counts


def choice_of(place: int, order: CompletionOrder, written: Written, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return one choice of a reply.

    Args:
        place: The index of the choice in the reply.
        order: The order of the request.
        written: The choice as the model wrote it.
        tokenizer: The model's tokenizer; None: it is not known.
    """
    echoed_prompt = prompt_text(order.prompts[written.prompt], written.found, tokenizer) if order.echo else ""
    text = echoed_prompt + written.text
    logprobs = None
    if written.found is not None:
        logprobs = shown_logprobs(written.found, written.from_token, order.top or 0, text)
    return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": written.finish}


def prompt_text(prompt: str, found: PromptLogprobs | None, tokenizer: Tokenizer | None) -> str:
    """Return the text of a prompt, for an echo.

    Args:
        prompt: The prompt: a text, or token ids as `TokenizedText`.
        found: The log-probabilities of the prompt, which give the texts of its tokens; None: there are none.
        tokenizer: The tokenizer that writes token ids; None: it is not known.
    """
    if not isinstance(prompt, TokenizedText):
        return prompt
    if tokenizer is not None:
        return tokenizer.write(prompt.ids)
    return "" if found is None else "".join(found.texts[: len(prompt.ids)])


def shown_logprobs(found: PromptLogprobs, start: int, top: int, text: str) -> dict[str, Any]:
    """Return the log-probabilities of tokens from `start` on.

    Each place has the `top` most likely tokens and the token itself.

    Args:
        found: The log-probabilities of the prompt and of the choice's tokens.
        start: The first token to show.
        top: The number of most likely tokens for each place.
        text: The text of the choice, in which offsets are counted. Tokens that the tokenizer adds in front of the text
            have the offset 0.
    """
    texts, logprobs = found.texts[start:], found.logprobs[start:].tolist()
    tops = found.tops[start:] if found.tops else ((),) * len(texts)
    num_added_chars = max(0, "".join(texts).find(text))  # the characters of the added tokens
    *token_begins, _last_end = accumulate(map(len, texts), initial=0)
    return {
        "tokens": list(texts),
        "token_logprobs": [_number(logprob) for logprob in logprobs],
        "top_logprobs": [
            _tops(token_text, logprob, token_tops[:top])
            for token_text, logprob, token_tops in zip(texts, logprobs, tops, strict=True)
        ],
        "text_offset": [max(0, begin - num_added_chars) for begin in token_begins],
    }


def _tops(text: str, logprob: float, tops: Sequence[Any]) -> dict[str, float | None] | None:
    """Return the log-probabilities at one place, by the texts of tokens; None: they are not known.

    Args:
        text: The text of the token at the place.
        logprob: The log-probability of that token; NaN: unknown.
        tops: The most likely tokens, best first.
    """
    if math.isnan(logprob):
        return None
    by_text: dict[str, float | None] = {}
    for top in tops:  # where two tokens have the same text, the first, more likely one is kept
        by_text.setdefault(top.text, _number(top.logprob))
    by_text.setdefault(text, _number(logprob))
    return by_text


def _number(value: float) -> float | None:
    return None if math.isnan(value) else max(value, LEAST_LOGPROB)


def usage_of(cost: CompletionCost) -> dict[str, Any]:
    """Return the usage of a request.

    A token of a prompt counts as cached where it was not computed anew: another prompt of the request shares it, or
    the server had it in its cache.
    """
    return usage_report(Counts(cost.prompt, cost.generated, cached=max(0, cost.prompt - cost.computed)))


def report_of(
    order: CompletionOrder, cost: CompletionCost, notes: Sequence[str], *, reproducible: bool
) -> Mapping[str, Any]:
    """Return the field `tts` of a reply.

    Args:
        order: The order of the request.
        cost: The cost of the completion.
        notes: The notes on fields without effect.
        reproducible: Whether the seed gives the same texts again.
    """
    usage = {
        "prompt_tokens": cost.computed,
        "reused_tokens": cost.reused,
        "generated_tokens": cost.generated,
        "read_tokens": cost.read,
    }
    return {"strategy": None, "seed": order.seed, "reproducible": reproducible, "usage": usage, "warnings": list(notes)}

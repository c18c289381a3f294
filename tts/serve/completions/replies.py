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
from tts.serve.completions.work import CompletionCost, CompletionOrder, Written
from tts.serve.wire.chat import usage_of as usage_report
from tts.serve.wire.request import Counts


def choice_of(place: int, order: CompletionOrder, written: Written, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return one choice of a reply."""
    prompt = prompt_text(order.prompts[written.prompt], written.found, tokenizer) if order.echo else ""
    text = prompt + written.text
    logprobs = None
    if written.found is not None:
        logprobs = shown_logprobs(written.found, written.from_token, order.top or 0, text)
    return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": written.finish}


def prompt_text(prompt: str, found: PromptLogprobs | None, tokenizer: Tokenizer | None) -> str:
    """Return the text of a prompt that is repeated: as it was given, else of its tokens."""
    if not isinstance(prompt, TokenizedText):
        return prompt
    if tokenizer is not None:
        return tokenizer.write(prompt.ids)
    return "" if found is None else "".join(found.texts[: len(prompt.ids)])


def shown_logprobs(found: PromptLogprobs, start: int, top: int, text: str) -> dict[str, Any]:
    """Return the log-probabilities of tokens from `start` on.

    Each place has the `top` most likely tokens and the token itself.

    Args:
        found: The log-probabilities of the prompt.
        start: The first token to show.
        top: The number of most likely tokens for each place.
        text: The text of the choice, in which offsets are counted. A token that the tokenizer adds in front of it has
            the offset 0.
    """
    texts, logprobs = found.texts[start:], found.logprobs[start:].tolist()
    tops = found.tops[start:] if found.tops else ((),) * len(texts)
    num_added = max(0, "".join(texts).find(text))  # characters in front of the text
    *begins, _end = accumulate(map(len, texts), initial=0)
    return {
        "tokens": list(texts),
        "token_logprobs": [_number(logprob) for logprob in logprobs],
        "top_logprobs": [
            _tops(token_text, logprob, token_tops[:top])
            for token_text, logprob, token_tops in zip(texts, logprobs, tops, strict=True)
        ],
        "text_offset": [max(0, begin - num_added) for begin in begins],
    }


def _tops(text: str, logprob: float, tops: Sequence[Any]) -> dict[str, float | None] | None:
    """Return the log-probabilities at one place by the text of the token; None: they are not known.

    Args:
        text: The text of the token itself.
        logprob: Its log-probability; NaN: unknown.
        tops: The most likely tokens, best first.
    """
    if math.isnan(logprob):
        return None
    by_text: dict[str, float | None] = {}
    for top in tops:  # of two tokens with one text, the first is more likely
        by_text.setdefault(top.text, _number(top.logprob))
    by_text.setdefault(text, _number(logprob))
    return by_text


def _number(value: float) -> float | None:
    return None if math.isnan(value) else max(value, LEAST_LOGPROB)


def usage_of(cost: CompletionCost) -> dict[str, Any]:
    """Return the usage of a request.

    A prompt's token counts as cached where another prompt of the request shares it, or a server had it.
    """
    return usage_report(Counts(cost.prompt, cost.generated, cached=max(0, cost.prompt - cost.computed)))


def report_of(
    order: CompletionOrder, cost: CompletionCost, notes: Sequence[str], *, reproducible: bool
) -> Mapping[str, Any]:
    """Return the field `tts`: the seed, the usage, and the notes on fields without effect."""
    spent = {
        "prompt_tokens": cost.computed,
        "reused_tokens": cost.reused,
        "generated_tokens": cost.generated,
        "read_tokens": cost.read,
    }
    return {"strategy": None, "seed": order.seed, "reproducible": reproducible, "usage": spent, "warnings": list(notes)}

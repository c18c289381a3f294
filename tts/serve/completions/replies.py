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
    return {
        "index": place,
        "text": text,
        "logprobs": None
        if written.found is None
        else shown_logprobs(written.found, written.from_token, order.top or 0, text),
        "finish_reason": written.finish,
    }


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
    texts, values = found.texts[start:], found.logprobs[start:].tolist()
    tops = found.tops[start:] if found.tops else ((),) * len(texts)
    added = max(0, "".join(texts).find(text))
    offsets = [max(0, at - added) for at in accumulate(map(len, texts), initial=0)][:-1]
    return {
        "tokens": list(texts),
        "token_logprobs": [_number(value) for value in values],
        "top_logprobs": [_tops(one, value, some[:top]) for one, value, some in zip(texts, values, tops, strict=True)],
        "text_offset": offsets,
    }


def _tops(text: str, value: float, tops: Sequence[Any]) -> dict[str, float | None] | None:
    if math.isnan(value):
        return None
    shown: dict[str, float | None] = {}
    for top in tops:  # best first: of two tokens of one text, the better one
        shown.setdefault(top.text, _number(top.logprob))
    shown.setdefault(text, _number(value))
    return shown


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
    """Return the field `tts`: the seed, all that was computed, and what had no effect."""
    spent = {
        "prompt_tokens": cost.computed,
        "reused_tokens": cost.reused,
        "generated_tokens": cost.generated,
        "read_tokens": cost.read,
    }
    return {"strategy": None, "seed": order.seed, "reproducible": reproducible, "usage": spent, "warnings": list(notes)}

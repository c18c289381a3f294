"""The body of `/v1/completions`: its fields, their ranges, and its prompts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tts.backends.prompt_logprobs import MOST_TOPS
from tts.backends.text.tokenized_text import TokenizedText
from tts.errors import quote
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import refuse_field, too_long
from tts_addons.gateway.wire.chat import RequestBody


class CompletionBody(RequestBody):
    """A request for a completion.

    Args:
        prompt: A text, its token ids, or a list of texts or of lists of ids.
        max_tokens: The most tokens of each choice; 16 by default, as OpenAI has it. With 0 nothing is written.
        logprobs: How many of the most likely tokens each place shows, beside its token's own log-probability.
        echo: Whether the prompt, and its log-probabilities, stand in front of what is written.
    """

    prompt: Any
    max_tokens: int | None = Field(default=None, ge=0)
    logprobs: int | None = Field(default=None, ge=0, le=MOST_TOPS)
    echo: bool | None = None


def prompts_of(given: Any, limits: GatewayLimits) -> tuple[str, ...]:
    """Return the prompts of a request: texts, or token ids as `TokenizedText`.

    Raises:
        ApiError: 400, a prompt is something else or empty, or the prompts are too many or too long.
    """
    is_one_prompt = not isinstance(given, list) or all(type(item) is int for item in given)  # a text, or token ids
    places = {"prompt": given} if is_one_prompt else {f"prompt[{place}]": one for place, one in enumerate(given)}
    prompts = tuple(_prompt(prompt, where) for where, prompt in places.items())
    if len(prompts) > limits.messages:
        raise too_long("prompt", f"{len(prompts)} prompts", limits.messages)
    size = sum(len(prompt.ids) if isinstance(prompt, TokenizedText) else len(prompt) for prompt in prompts)
    if size > limits.characters:
        raise too_long("prompt", f"{size} characters or tokens", limits.characters)
    return prompts


def _prompt(given: Any, where: str) -> str:
    """Return one prompt of a request; `where` is its place in the body, for errors."""
    if isinstance(given, str) and given:
        return given
    if isinstance(given, list) and given and all(type(token) is int for token in given):
        return TokenizedText.of(given)
    raise refuse_field(where, f"is {quote(given)}, but must be a text or a list of token ids, not empty")

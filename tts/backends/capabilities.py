"""Questions about any backend: capabilities, value heads, counts of texts, readings of prompts."""

from __future__ import annotations

from collections.abc import Sequence

from tts.backends.base import Backend, OpenTemperature, Reply, Sampling, whole_count
from tts.backends.metadata import ValueHeadMetadata, capability_hint, metadata_of
from tts.backends.prompt_logprobs import PromptLogprobs, check_top
from tts.backends.text.tokenized_text import TokenizedText
from tts.errors import CapabilityError, quote
from tts.types import Prompt


async def prompt_logprobs(backend: Backend, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
    """Return the log-probabilities of all tokens of prompts, in order.

    Each reply states the input tokens that it cost. A `TokenizedText` is read as its tokens. Values depend on the
    prompt alone. No handle stays open, and the prompt may fill the context. A backend may compute a common beginning of
    prompts once. Then the first prompt is charged for this beginning, and the other prompts reuse it.

    Args:
        backend: The backend that reads the prompts.
        prompts: The prompts, texts or chats.
        top: Most likely tokens to return for each place, from 0 to 20.

    Raises:
        CapabilityError: The backend cannot read log-probabilities of prompts.
        ConfigError: `top` is out of range, or a prompt has no token, or a token that the model lacks.
        PromptTooLong: A prompt passes the context. When any of these errors is raised, nothing has been computed.
    """
    require(backend, ("prompt_logprobs",), "reading the log-probabilities of a prompt")
    return await backend.prompt_logprobs(prompts, check_top(top))


def require(backend: Backend, capabilities: Sequence[str], needed_by: str) -> None:
    """Raise CapabilityError where a backend lacks one of `capabilities`.

    The hint of the error names backends that have the capability.
    """
    for name in capabilities:
        if getattr(backend.caps, name) in ("absent", False):
            raise CapabilityError(
                f"{needed_by} needs the capability {name!r}, which the backend {backend.name!r} lacks",
                hint=capability_hint(backend.name, metadata_of(backend), name),
            )


def require_sampling(backend: Backend, sampling: Sampling) -> None:
    """Raise CapabilityError where `sampling` sets a parameter, or a value, that a backend does not obey."""
    for name, capability in sampling.needs.items():
        if not getattr(backend.caps, capability):
            raise CapabilityError(
                f"{name} is {quote(getattr(sampling, name))}, but the backend {backend.name!r} does not take it",
                hint="leave it out, or use a server that takes it (tts doctor --url)",
            )
    temperature = sampling.temperature
    if not (backend.caps.tempers or temperature == 1 or isinstance(temperature, OpenTemperature)):
        raise CapabilityError(
            f"temperature is {temperature:g}, but the backend {backend.name!r} takes 1 alone",
            hint="leave it out, or ask for temperature=1",
        )
    backend.check_sampling(sampling)


def value_head_metadata(backend: Backend, head: str, needed_by: str) -> ValueHeadMetadata | None:
    """Return a backend's metadata of a value head; None where the backend does not list its heads.

    Raises:
        CapabilityError: The backend lists its heads, but not this head.
    """
    heads = metadata_of(backend).value_heads
    if heads is None:
        return None
    if head not in heads:
        raise CapabilityError(
            f"{needed_by} needs the value head {head!r}, but the model on the backend {backend.name!r} has "
            f"{', '.join(heads) or 'none'}",
            hint="name the head's file, or a process model, in the model's record",
        )
    return heads[head]


def counts_texts(backend: Backend) -> bool:
    """Whether `text_bound` is exact."""
    return metadata_of(backend).count_text is not None


def count_tokens(backend: Backend, prompt: Prompt) -> int:
    """Return the number of tokens that a prompt renders to.

    Raises:
        EngineError: The backend counts no whole number of at least 0.
    """
    return whole_count("count(prompt)", backend.count(prompt))


def text_bound(backend: Backend, text: str) -> int:
    """Return the most tokens that a text can be after a path.

    The number is exact where the backend's metadata has `count_text`. Otherwise two numbers are computed: the tokens of
    the text as a prompt, and the text's bytes. The larger is returned, since neither is a bound for every tokenizer.
    """
    if not text and not isinstance(text, TokenizedText):
        return 0
    count_text = metadata_of(backend).count_text
    if count_text is not None:
        return whole_count("count_text(text)", count_text(text))
    return max(count_tokens(backend, text), len(text.encode()))

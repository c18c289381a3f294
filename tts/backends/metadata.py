"""Optional facts about a backend, in one declared object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tts.backends import backends_with
from tts.budget.budget import Rates
from tts.errors import ConfigError, quote
from tts.thoughts import ThoughtMarks
from tts.types import PatchTarget, Prompt, Usage


@dataclass(frozen=True, slots=True)
class ValueHeadMetadata:
    """Facts about a value head that are known before a call.

    Args:
        step: Texts that end a step, at which the head is read.
        rates: The rates of a token that is computed for the head.
        own_model: Whether a separate model reads the path, after the prompt; else the head reads states that the policy
            computed.
    """

    step: tuple[str, ...]
    rates: Rates
    own_model: bool


class Tokenizer(Protocol):
    """A translation between the texts of a model and its tokens."""

    def prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the tokens of a prompt, messages rendered by the model's template."""
        ...

    def text(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text, with nothing added."""
        ...

    def write(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, with special tokens by their names."""
        ...

    def special(self) -> Mapping[str, str | None]:
        """Return the tokenizer's class, special tokens and chat template.

        Special tokens are texts by their names in the transformers library.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendMetadata:
    """Facts that a backend states about itself beyond the required members. Every field is optional.

    Args:
        value_heads: The value heads, by name; None: not known, so that any name may be tried.
        count_text: Returns the exact number of tokens of a text after a path; None: the number is bounded by `count`
            and by bytes.
        text_of: Returns the text of the first tokens of a path, given the whole text and these tokens, with "" for ends
            of sequence. If the tokens end within a character, the result is no beginning of the whole text. None:
            tokens cannot be told apart in the text.
        picture_tokens: Most input tokens of a picture; None: not known.
        template_tokens: Most tokens that a chat template adds to a message; `TEMPLATE_TOKENS` is assumed where it is
            less.
        resumes: Returns whether a row that met its token cap can be continued, as far as is known; see `Caps.steps`.
        tokenizer: The tokenizer of the model; None: not known.
        thoughts: The marks of thoughts (`Caps.thoughts`); None: not known. A text that begins with `<think>` has a
            thought in any case.
        finishes_reads: Whether a read is computed to its end, and counted, even if the caller no longer awaits it. A
            cancelled search waits for such a read, and books its cost; other reads it gives up at once.
        arrivals: Whether rows of finish order are taken as they arrive. To write them all to one length would read
            prompts again.
        capability_hint: Returns the hint of the error that refuses a capability. Without this function, or where it
            returns None or "", the hint names backends that have the capability.
        target: The object that answers are applied to (`Solution.apply`); None: answers change nothing.
        task: The name of the default task of problems; None: the task of the model's record, or free text.
        programs: The most rows at once, where a row is a program that calls models within a lease
            (`SampleRequest.lease`); 0: rows are written token by token.
        notes: Returns notes on the costs of a solution, given its usage, one line each, such as why rows were charged
            by estimates.
    """

    value_heads: Mapping[str, ValueHeadMetadata] | None = None
    count_text: Callable[[str], int] | None = None
    text_of: Callable[[str, Sequence[int]], str] | None = None
    template_tokens: int = 0
    picture_tokens: int | None = None
    resumes: Callable[[], bool] = lambda: True
    tokenizer: Tokenizer | None = None
    thoughts: ThoughtMarks | None = None
    finishes_reads: bool = False
    arrivals: bool = False
    capability_hint: Callable[[str], str | None] | None = None
    target: PatchTarget | None = None
    task: str | None = None
    programs: int = 0
    notes: Callable[[Usage], Sequence[str]] = lambda _usage: ()


_EMPTY = BackendMetadata()


def metadata_of(backend: object) -> BackendMetadata:
    """Return a backend's attribute `metadata`, or empty metadata where there is none.

    Raises:
        ConfigError: `metadata` is of another type.
    """
    metadata = getattr(backend, "metadata", _EMPTY)
    if not isinstance(metadata, BackendMetadata):
        raise ConfigError(
            f"metadata of {type(backend).__name__} is {quote(metadata)}, but must be a BackendMetadata",
            hint="see tts.backends.metadata",
        )
    return metadata


def capability_hint(name: str, metadata: BackendMetadata, capability: str) -> str:
    """Return the hint of the error that refuses a capability.

    Args:
        name: The name of the backend.
        metadata: The metadata of the backend.
        capability: The refused capability.
    """
    hint = None if metadata.capability_hint is None else metadata.capability_hint(capability)
    if hint:
        return hint
    if capability == "thoughts":
        return (
            "for a model that thinks, its record states the marks: thought=('<think>', '</think>'); others take "
            "best_of_n"
        )
    if capability == "efforts":
        return (
            "only servers take it, for some models (see tts doctor --url); budget_forcing limits thoughts where "
            "text can be continued"
        )
    if capability in ("thought_limits", "thought_switch"):
        return (
            "only servers have it, by fields that a probe finds (see tts doctor --url); budget_forcing limits "
            "thoughts of other models"
        )
    capable_backends = backends_with(lambda caps: getattr(caps, capability) not in ("absent", False))
    if name in capable_backends:  # the backend has the capability, but not for this model
        return "it has it for models whose record names a process model or value heads"
    return f"backends that have it: {', '.join(capable_backends) or 'none that is installed'}"

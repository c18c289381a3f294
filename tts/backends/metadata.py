"""Optional backend metadata: one declared object instead of attributes that callers look for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tts.budget.meter import Rates
from tts.errors import ConfigError, shown


@dataclass(frozen=True, slots=True)
class ValueHeadMetadata:
    """What is known of a value head before it is called.

    Args:
        step: texts that end a step where it is read. rates: cost of a token that is computed for it.
        own_model: whether a model of its own reads the path, after the prompt; else it reads states that the policy computed.
    """

    step: tuple[str, ...]
    rates: Rates
    own_model: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendMetadata:
    """What a backend states about itself beyond the required members. Every field is optional.

    Args:
        value_heads: its value heads, by name; None: not known, so that any name may be tried.
        count_text: returns the exact number of tokens of a text behind a path; None: that number is bounded by `count` and by bytes.
        text_of: returns the text of the first tokens of a path, given its whole text and those tokens, ends of sequence as "";
            None: tokens cannot be told apart in its text. Inside of a character that text is no beginning of the whole one.
        template_tokens: most tokens that a chat template adds to a message; `TEMPLATE_TOKENS` is assumed where it is less.
        resumes: returns whether a row that met its token cap can be continued, as far as is known; see `Caps.steps`.
        capability_hint: returns the hint of the error that refuses a capability; None: the hint names backends that have it.
    """

    value_heads: Mapping[str, ValueHeadMetadata] | None = None
    count_text: Callable[[str], int] | None = None
    text_of: Callable[[str, Sequence[int]], str] | None = None
    template_tokens: int = 0
    resumes: Callable[[], bool] = lambda: True
    capability_hint: Callable[[str], str] | None = None


_EMPTY = BackendMetadata()


def metadata_of(backend: object) -> BackendMetadata:
    """Return a backend's attribute `metadata`; an empty one where there is none.

    Raises:
        ConfigError: `metadata` is of another type.
    """
    found = getattr(backend, "metadata", _EMPTY)
    if not isinstance(found, BackendMetadata):
        raise ConfigError(
            f"metadata of {type(backend).__name__} is {shown(found)}, but must be a BackendMetadata", hint="see tts.backends.metadata"
        )
    return found

"""What a backend may say of itself beyond the protocol: its value heads before one is asked, and how many tokens a text is.

Both are attributes that a backend has or has not: `value_heads`, a mapping of names to `ValueFacts`, and `count_text(text)`.
A text may also bring the tokens that it is to be read as (`Spelled`), which backends with a tokenizer obey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tts.backends.base import Backend
from tts.budget import Rates
from tts.errors import CapabilityError
from tts.types import Prompt

if TYPE_CHECKING:
    from tts.backends.rendering import Renderer


class Spelled(str):
    """A text, as a prompt or behind a path, with the tokens that it is to be read as, where encoding it alone would give others."""

    __slots__ = ("ids",)
    ids: tuple[int, ...]

    @classmethod
    def of(cls, ids: Sequence[int]) -> Spelled:
        """Return tokens of which no text is known."""
        made = cls()
        made.ids = tuple(ids)
        return made


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """What a backend says of one of its value heads before it is asked.

    Args:
        step: texts that end a step where it is read. rates: what a token costs that is computed for it.
        own_model: whether a model of its own reads the path, after the prompt; else it reads states that are there anyway.
    """

    step: tuple[str, ...]
    rates: Rates
    own_model: bool


def value_facts(backend: Backend, head: str, needed_by: str) -> ValueFacts | None:
    """Return what a backend says of a value head (its attribute `value_heads`, by name); None where it says nothing of any.

    Raises:
        CapabilityError: it names its heads, and this is none of them.
    """
    known: Mapping[str, ValueFacts] | None = getattr(backend, "value_heads", None)
    if known is None:
        return None
    if head not in known:
        raise CapabilityError(
            f"{needed_by} needs the value head {head!r}, but the model on the backend {backend.name!r} has {', '.join(known) or 'none'}",
            hint="name the head's file, or a process model, in the model's record",
        )
    return known[head]


class Counting:
    """The counts of a backend with a tokenizer.

    Attributes:
        _renderer: between text and tokens.
    """

    _renderer: Renderer

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens a prompt renders to (see `Renderer.prompt`); nothing is computed.

        Raises:
            ConfigError: the chat template refuses the messages, or the prompt renders to no token.
        """
        return len(self._renderer.prompt(prompt))

    def count_text(self, text: str) -> int:
        """Return the number of tokens that a text is behind a path."""
        return len(self._renderer.text(text))


def counts_texts(backend: Backend) -> bool:
    """Whether `text_bound` is exact."""
    return getattr(backend, "count_text", None) is not None


def text_bound(backend: Backend, text: str) -> int:
    """Return the most tokens that a text can be behind a path: exact where the backend has `count_text`.

    Elsewhere neither the count of the text as a prompt nor its bytes bound every tokenizer alone.
    """
    if not text and not isinstance(text, Spelled):
        return 0
    count_text: Callable[[str], int] | None = getattr(backend, "count_text", None)
    return max(backend.count(text), len(text.encode())) if count_text is None else count_text(text)

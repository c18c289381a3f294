"""A text that brings its tokens."""

from __future__ import annotations

from collections.abc import Sequence


class TokenizedText(str):
    """A prompt, or a text after a path, together with its tokens.

    Use it where encoding the text would give other tokens. Backends with a tokenizer read the tokens, and other
    backends read the text.
    """

    __slots__ = ("ids",)
    ids: tuple[int, ...]

    @classmethod
    def of(cls, ids: Sequence[int]) -> TokenizedText:
        """Return a text of unknown characters with these tokens; as a string it is empty."""
        text = cls()
        text.ids = tuple(ids)
        return text

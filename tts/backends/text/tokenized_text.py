"""A text that brings its tokens."""

from __future__ import annotations

from collections.abc import Sequence


class TokenizedText(str):
    """A prompt or a text after a path, with the tokens that it is to be read as.

    It serves where encoding the text would give other tokens. Backends with a tokenizer read these tokens; others read
    the text.
    """

    __slots__ = ("ids",)
    ids: tuple[int, ...]

    @classmethod
    def of(cls, ids: Sequence[int]) -> TokenizedText:
        """Return tokens whose text is not known."""
        made = cls()
        made.ids = tuple(ids)
        return made

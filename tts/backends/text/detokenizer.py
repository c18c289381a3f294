"""Incremental detokenizing: the text that each new token adds, with unfinished characters held back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_CONTEXT = 5  # tokens decoded before the new ones, so that a tokenizer keeps the space between two pieces
_UNFINISHED = "\ufffd"


def context_start(length: int) -> int:
    """Return the index of the first token of context, after `length` tokens have been emitted."""
    return max(0, length - _CONTEXT)


class Detokenizer:
    """Decodes the tokens of one path incrementally.

    Idea: a token's text is decode(context and new tokens) minus decode(context). Text that ends in U+FFFD may be part
    of a character, and waits for the next token. So text is emitted only where a character ends. The pieces of a path
    join to the decoding of its tokens, wherever the path was cut into rows.

    Args:
        decode: Turns token ids into text, ends of sequence into "".
        ids: Tokens of the path so far.
        start: The index of the first token of context. `start` and `read` continue an earlier detokenizer of the path.
        read: The number of tokens whose text has been emitted.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int], start: int, read: int) -> None:
        self._decode = decode
        self._ids = list(ids[start:])
        self._offset = start
        self.start = start
        self.read = read

    def push(self, token: int) -> str:
        """Append a token and return the text that it completes; "" while a character is unfinished."""
        self._ids.append(token)
        text = self._new_text()
        return "" if text.endswith(_UNFINISHED) else self._give(text)

    def flush(self) -> str:
        """Return the text held back, at the end of the path."""
        return self._give(self._new_text())

    def tail(self) -> tuple[int, ...]:
        """Return the tokens from the first token of context on, for the detokenizer of a continuation."""
        return tuple(self._ids[self.start - self._offset :])

    def _new_text(self) -> str:
        """Return the text of the tokens after the context."""
        start, end = self.start - self._offset, self.read - self._offset
        context_text = self._decode(self._ids[start:end])
        return self._decode(self._ids[start:])[len(context_text) :]

    def _give(self, text: str) -> str:
        self.start, self.read = self.read, self._offset + len(self._ids)
        return text

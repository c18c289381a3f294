"""Where a row's text ends: step boundaries inside and across tokens.

One scanner serves every backend that sees tokens. Tokens are kept whole, since a model's state consists of whole
tokens; text is cut. The text of a last token beyond the boundary is the *carry*: it opens the text of the continuation.
So the pieces of a path join to its text, and are the pieces of `Task.split`, whatever the tokenizer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from tts.backends.base import StopCondition
from tts.tasks.base import find_stop

_ALL_ASKED = 65_536


@lru_cache(maxsize=1024)
def _reach(stops: tuple[str, ...]) -> tuple[frozenset[str], int]:
    """Return the last characters of the stop texts, one of which a boundary needs, and the length of the longest."""
    return frozenset(text[-1] for text in stops), max(map(len, stops), default=0)


def ends_of(stop: StopCondition) -> tuple[str, ...]:
    """Return the texts at which a row ends."""
    return () if not stop.at_step else stop.step if stop.at is None else stop.at


class StopScanner:
    """Scans a row's text as it grows for the end of the row.

    A stop text may begin in the text before the row, since a cap may cut a row inside one.

    Args:
        stop: The conditions.
        before: The text of the path before this row, after the prompt.
        carry: The carry of the parent's last token.
    """

    def __init__(self, stop: StopCondition, before: str, carry: str) -> None:
        self._stop = stop
        self._before = before
        self._last, self._longest = _reach(stop.step)
        self._lead = _open_end(before, stop.step, self._longest)  # where a stop text may begin before the row
        self._boundary = 0  # index of the last boundary in the lead and the row's text
        self.text = ""
        self.carry = ""
        self.ended: Literal["", "stop", "answer"] = ""
        if carry:
            self.feed(carry)

    def feed(self, piece: str) -> bool:
        """Append a token's text; True when the row has ended: then `ended`, `text` and `carry` are final."""
        old = len(self._lead) + len(self.text)
        self.text += piece
        if self._last.isdisjoint(piece):
            return False
        seen = self._lead + self.text
        look = max(self._boundary, old - self._longest + 1)
        while (end := find_stop(seen, self._stop.step, look)) is not None:
            if self._ends_at(end - len(self._lead), self._boundary - len(self._lead)):
                self.text, self.carry = seen[len(self._lead) : end], seen[end:]
                return True
            self._boundary = look = end
        return False

    def _ends_at(self, end: int, last: int) -> bool:
        """Whether the row ends at a boundary; `last`: the one before it."""
        length = len(self._before)
        asked = self._stop.finished is not None and is_asked(length + last, length + end)
        if asked and self._stop.finished is not None and self._stop.finished(self._before + self.text[:end]):
            self.ended = "answer"
        elif self._stop.at_step and (self._stop.at is None or self._tail(end).endswith(self._stop.at)):
            self.ended = "stop"
        return bool(self.ended)

    def _tail(self, end: int) -> str:
        """Return the end of the path's text up to a place in the row's, at least as long as the longest stop text."""
        tail = self.text[max(0, end - self._longest) : end]
        return tail if len(tail) == self._longest else self._before[-self._longest :] + tail


def is_asked(last: int, end: int) -> bool:
    """Whether `StopCondition.finished` is asked at a boundary.

    It is asked at all boundaries in the first 65,536 characters, then at 256 in each doubling.

    Args:
        last: Characters of the path up to the boundary before.
        end: Characters of the path up to this boundary.
    """
    coarse = max(0, end.bit_length() - 8)
    return end <= _ALL_ASKED or last >> coarse != end >> coarse


def _open_end(text: str, stops: tuple[str, ...], longest: int) -> str:
    """Return the end of a text that a stop text may begin in: after its last boundary, and shorter than the longest
    one.
    """
    if longest < 2:
        return ""
    boundary = 0
    while (end := find_stop(text, stops, boundary)) is not None:
        boundary = end
    return text[max(boundary, len(text) - longest + 1) :]

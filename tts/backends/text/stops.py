"""The ends of rows: step boundaries inside and across tokens.

One scanner serves every backend that sees tokens. Text is cut at a boundary, but tokens stay whole, since a model's
state consists of whole tokens. The text of the last token beyond the boundary is the *carry*, which opens the text of
the continuation. So the pieces of a path join to its text, and are the pieces of `Task.split`, whatever the tokenizer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from tts.backends.base import StopCondition
from tts.tasks.base import find_stop

_ALL_ASKED = 65_536


@lru_cache(maxsize=1024)
def _reach(stops: tuple[str, ...]) -> tuple[frozenset[str], int]:
    """Return the last characters of the stop texts, and the length of the longest stop text.

    A boundary ends with one of these characters.
    """
    return frozenset(text[-1] for text in stops), max(map(len, stops), default=0)


def ends_of(stop: StopCondition) -> tuple[str, ...]:
    """Return the texts at which a row ends by `stop`, apart from `StopCondition.finished`."""
    if not stop.at_step:
        return ()
    return stop.step if stop.at is None else stop.at


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
        # the text before the row in which a stop text may begin
        self._lead = _open_end(before, stop.step, self._longest)
        self._boundary = 0  # index of the last boundary in the lead and the row's text
        self.text = ""
        self.carry = ""
        self.ended: Literal["", "stop", "answer"] = ""
        if carry:
            self.feed(carry)

    def feed(self, piece: str) -> bool:
        """Append a token's text; return whether the row has ended, so that all attributes are final."""
        num_before = len(self._lead) + len(self.text)
        self.text += piece
        if self._last.isdisjoint(piece):
            return False
        scanned = self._lead + self.text
        begin = max(self._boundary, num_before - self._longest + 1)
        while (end := find_stop(scanned, self._stop.step, begin)) is not None:
            if self._ends_at(end - len(self._lead), self._boundary - len(self._lead)):
                self.text, self.carry = scanned[len(self._lead) : end], scanned[end:]
                return True
            self._boundary = begin = end
        return False

    def _ends_at(self, end: int, previous: int) -> bool:
        """Whether the row ends at a boundary; sets `ended`.

        Args:
            end: The place of the boundary in the row's text.
            previous: The place of the boundary before.
        """
        length = len(self._before)
        is_due = self._stop.finished is not None and is_asked(length + previous, length + end)
        if is_due and self._stop.finished is not None and self._stop.finished(self._before + self.text[:end]):
            self.ended = "answer"
        elif self._stop.at_step and (self._stop.at is None or self._tail(end).endswith(self._stop.at)):
            self.ended = "stop"
        return bool(self.ended)

    def _tail(self, end: int) -> str:
        """Return the end of the path's text up to a place in the row's text.

        It has the length of the longest stop text, if the path is that long.
        """
        tail = self.text[max(0, end - self._longest) : end]
        return tail if len(tail) == self._longest else self._before[-self._longest :] + tail


def is_asked(last: int, end: int) -> bool:
    """Whether `StopCondition.finished` is called at a boundary.

    The function is called at all boundaries in the first 65,536 characters, and then at 256 of them in each doubling.

    Args:
        last: Characters of the path up to the previous boundary.
        end: Characters of the path up to this boundary.
    """
    coarse = max(0, end.bit_length() - 8)
    return end <= _ALL_ASKED or last >> coarse != end >> coarse


def _open_end(text: str, stops: tuple[str, ...], longest: int) -> str:
    """Return the end of a text in which a stop text may begin.

    It lies after the text's last boundary, and is shorter than the longest stop text.
    """
    if longest < 2:
        return ""
    boundary = 0
    while (end := find_stop(text, stops, boundary)) is not None:
        boundary = end
    return text[max(boundary, len(text) - longest + 1) :]

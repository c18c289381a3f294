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
        self._last_characters, self._longest = _reach(stop.step)
        # the text before the row in which a stop text may begin
        self._lead = _open_end(before, stop.step, self._longest)
        self._boundary = 0  # index of the last boundary in the lead and the row's text
        self.text = ""
        self.carry = ""
        self.ended: Literal["", "stop", "answer"] = ""
        if carry:
            self.feed(carry)

    def feed(self, piece: str) -> bool:
        """Append a token's text, and return whether the row has ended, so that all attributes are final."""
        num_lead, num_old = len(self._lead), len(self.text)
        self.text += piece
        if self._last_characters.isdisjoint(piece):
            return False
        scanned_text = self._lead + self.text
        begin = max(self._boundary, num_lead + num_old - self._longest + 1)
        while (end := find_stop(scanned_text, self._stop.step, begin)) is not None:
            if self._ends_at(end - num_lead, self._boundary - num_lead):
                self.text, self.carry = scanned_text[num_lead:end], scanned_text[end:]
                return True
            self._boundary = begin = end
        return False

    def _ends_at(self, end: int, previous: int) -> bool:
        """Set `ended` if the row ends at a boundary, and return whether it ends.

        Args:
            end: The place of the boundary in the row's text.
            previous: The place of the boundary before; negative in the text before the row.
        """
        stop, num_before = self._stop, len(self._before)
        is_due = stop.finished is not None and is_asked(num_before + previous, num_before + end)
        if is_due and stop.finished is not None and stop.finished(self._before + self.text[:end]):
            self.ended = "answer"
        elif stop.at_step and (stop.at is None or self._tail(end).endswith(stop.at)):
            self.ended = "stop"
        return bool(self.ended)

    def _tail(self, end: int) -> str:
        """Return the end of the path's text up to a place in the row's text.

        The result is as long as the longest stop text, if the path is that long.
        """
        begin = max(0, end - self._longest)
        tail = self.text[begin:end]
        return tail if len(tail) == self._longest else self._before[-self._longest :] + tail


def is_asked(last: int, end: int) -> bool:
    """Whether `StopCondition.finished` is called at a boundary.

    The function is called at all boundaries in the first 65,536 characters. Later it is called at a boundary if the 8
    highest bits of the path's length have changed since the boundary before: up to 128 times for each doubling.

    Args:
        last: Characters of the path up to the previous boundary.
        end: Characters of the path up to this boundary.
    """
    if end <= _ALL_ASKED:
        return True
    shift = max(0, end.bit_length() - 8)  # leaves the 8 highest bits of `end`
    return last >> shift != end >> shift


def _open_end(text: str, stops: tuple[str, ...], longest: int) -> str:
    """Return the end of a text in which a stop text may begin.

    This end lies after the text's last boundary, and is shorter than the longest stop text.

    Args:
        text: The text.
        stops: The stop texts.
        longest: The length of the longest stop text.
    """
    if longest < 2:
        return ""
    boundary = 0
    while (end := find_stop(text, stops, boundary)) is not None:
        boundary = end
    begin = max(boundary, len(text) - longest + 1)
    return text[begin:]

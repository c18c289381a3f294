"""Where a row's text ends: step boundaries inside and across tokens, one scanner for every backend that sees tokens.

Tokens are kept whole, since a model's state is made of whole tokens; text is cut. What a last token carries beyond the
boundary is the *carry*: it opens the text of the continuation. So the pieces of a path join to its text, and they are the
pieces that `Task.split` makes of it, whatever the tokenizer.
"""

from __future__ import annotations

from typing import Literal

from tts.backends.base import Stop
from tts.tasks.base import find_stop


class StopScanner:
    """Reads a row's text as it grows and says where the row ends.

    A stop text may begin in the text before the row: a row that met its cap may have been cut inside of one.

    Args:
        stop: the rule. before: the text of the path before this row, after the prompt. carry: text that the parent's last
            token left over.
    """

    def __init__(self, stop: Stop, before: str, carry: str) -> None:
        self._stop = stop
        self._before = before
        self._last = {text[-1] for text in stop.step}  # no boundary ends in a piece without one of these
        self._longest = max(map(len, stop.step), default=0)
        self._boundary = 0  # index in `text` of the last boundary
        self.text = ""
        self.carry = ""
        self.ended: Literal["", "stop", "answer"] = ""
        if carry:
            self.feed(carry)

    def feed(self, piece: str) -> bool:
        """Append a token's text; True when the row has ended (`ended` says how; `text` and `carry` are final)."""
        old = len(self.text)
        self.text += piece
        if self._last.isdisjoint(piece):
            return False
        look = max(self._boundary, old - self._longest + 1)
        while (end := find_stop(self.text, self._stop.step, look)) is not None:
            if self._ends_at(end):
                self.text, self.carry = self.text[:end], self.text[end:]
                return True
            self._boundary = look = end
        return False

    def _ends_at(self, end: int) -> bool:
        if self._stop.finished is not None and self._stop.finished(self._before + self.text[:end]):
            self.ended = "answer"
        elif self._stop.at_step:
            self.ended = "stop"
        return bool(self.ended)

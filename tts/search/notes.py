"""What a strategy has to say of its search: lines that end up among the solution's warnings and in its trace."""

from __future__ import annotations


class Notes:
    """Lines in the order they were first said.

    Attributes:
        lines: each once. reasons: why the search went on as it did, for the trace alone.
        timed: whether one of them tells of a choice that time made, so that another run may differ.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reasons: list[str] = []
        self.timed = False

    def add(self, line: str, *, timed: bool = False) -> None:
        """Say something, unless it was said before; `timed`: it happened because of the time that something took."""
        self.timed = self.timed or timed
        if line not in self.lines:
            self.lines.append(line)

    def explain(self, reason: str) -> None:
        """Say why the search goes on as it does, or ends."""
        self.reasons.append(reason)

"""The progress of a search, as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tts.thoughts import THINK, ThoughtMarks
from tts.trace.trace import TraceNode
from tts.types import Problem, Solution


@dataclass(frozen=True, slots=True)
class Event:
    """Progress of one problem after each call.

    A problem that is solved alone also has events while rows are written.

    Args:
        problem: The problem as given, without its answer and metadata.
        calls: The number of calls so far.
        tokens: The tokens spent so far, as the limit `tokens` counts them. Tokens of rows under way are included, where
            the backend shows them.
        candidates: The number of candidates so far.
        answer: The most frequent answer so far; None where there is none.
        texts: The texts of the candidates since the event before, whole.
        solution: The solution in the last event of `stream`.
        nodes: A function that returns the nodes of the tree; it may be called only in the loop that calls `on_event`.
            None in the events of `stream`.
        writing: The text so far of the leading row, with the path that the row continues. The leading row is the first
            in draw order that is under way. "": there is none, or the backend does not show its text. The engine and
            servers that stream show it.
        marks: The marks of the thought that this text may begin with (`ThoughtMarks.split_settled_text`).
    """

    problem: Problem
    calls: int
    tokens: int
    candidates: int
    answer: str | None
    texts: tuple[str, ...] = ()
    solution: Solution | None = None
    nodes: Callable[[], Sequence[TraceNode]] | None = field(default=None, compare=False, repr=False)
    writing: str = ""
    marks: ThoughtMarks = field(default=THINK, compare=False, repr=False)

"""Which answers are the same: classes of equivalent answers, numbered in order of first appearance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tts.characters import in_whole_characters
from tts.errors import TTSError, shown
from tts.tasks.base import TaskProtocol
from tts.threads import in_thread
from tts.types import Trajectory


class Answers:
    """Extracts the answers of ended trajectories and sorts them into classes.

    Cheap exact rules come first; only undecided pairs go to the task's slow judgement, in a thread of its own, and not when the
    time is over: then they count as different.

    Args:
        seconds_left: of the budget; None: it does not limit them.

    Attributes:
        timed_out: whether a pair was left undecided.
    """

    def __init__(self, task: TaskProtocol, seconds_left: Callable[[], float | None] = lambda: None) -> None:
        self.timed_out = False
        self._task = task
        self._seconds_left = seconds_left
        self._first: list[str] = []  # the first answer of each class
        self._by_answer: dict[str, int] = {}  # answer as written -> class
        self._by_form: dict[str, int] = {}  # canonical form -> class
        self._of: dict[int, tuple[str | None, int | None]] = {}

    def of(self, t: Trajectory) -> tuple[str | None, int | None]:
        """Return the answer and the class of a trajectory that was classified."""
        return self._of[t.node]

    def count(self) -> int:
        """Return how many classes there are."""
        return len(self._first)

    async def add(self, ts: Sequence[Trajectory]) -> None:
        """Classify ended trajectories, in order."""
        for t in ts:
            if t.status not in ("finished", "truncated") or t.node in self._of:
                continue
            answer: Any = self._task.extract(t.full_text)
            if not isinstance(answer, str | None):
                raise TTSError(f"the task {self._task.name!r} extracted {shown(answer)}, but extract must return a text or None")
            answer = None if answer is None else in_whole_characters(answer)
            self._of[t.node] = (answer, None if answer is None else await self._class_of(answer))

    async def _class_of(self, answer: str) -> int:
        if (known := self._by_answer.get(answer)) is None:
            known = self._by_answer[answer] = await self._class_of_new(answer)
        return known

    async def _class_of_new(self, answer: str) -> int:
        form = self._task.canonical(answer)
        if (known := self._by_form.get(form)) is not None:
            return known
        for index, first in enumerate(self._first):
            same = self._task.decide(first, answer)
            if same is None:
                same = await self._judged(first, answer)
            if same:
                self._by_form[form] = index
                return index
        self._first.append(answer)
        self._by_form[form] = len(self._first) - 1
        return len(self._first) - 1

    async def _judged(self, first: str, answer: str) -> bool:
        left = self._seconds_left()
        try:
            if left is not None and left <= 0:
                raise TimeoutError
            return await asyncio.wait_for(in_thread(self._task.equivalent, first, answer), left)
        except TimeoutError:
            self.timed_out = True
            return False

"""Classes of equivalent answers, numbered in order of first appearance.

The module also counts the candidates of each class.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tts.characters import join_surrogates
from tts.errors import TTSError, quote
from tts.tasks.base import Task, keyed_task
from tts.threads import call_or_postpone, run_in_thread
from tts.types import Candidate, Trajectory

T = TypeVar("T")
# Characters of the longest text that is read in the event loop. Longer texts are read in a thread.
_SHORT = 20_000
_PAIRS_AT_ONCE = 200  # comparisons between two checks of the time
# The most characters that are read in all after the time is over, for rows that were under way.
_READ_LATE = 500_000


class Answers:
    """Extracts the answers of ended trajectories and sorts them into classes.

    Answers are compared by their keys, if the task has keys. For other tasks cheap exact rules come first, and
    undecided pairs go to the task's slow judgement. Slow work runs in threads. When the time is over, slow work is left
    out, and answers count as different.

    Args:
        task: The task. Errors of its methods are the task's own (`tts.tasks.isolation`).
        seconds_left: A function that returns the seconds left; None: time is not limited.

    Attributes:
        timed_out: Whether time kept an answer from being extracted or compared.
    """

    def __init__(self, task: Task, seconds_left: Callable[[], float | None] | None = None) -> None:
        self.timed_out = False
        self._task = task
        self._keyed = keyed_task(task)
        self._seconds_left = seconds_left
        self._read_late = 0
        self._first: list[str] = []  # the first answer of each class
        self._by_answer: dict[str, int] = {}  # answer as written -> class
        self._by_form: dict[str, int] = {}  # canonical form, or key -> class
        self._of: dict[int, tuple[str | None, int | None]] = {}

    def answer_of(self, t: Trajectory) -> tuple[str | None, int | None]:
        """Return the answer and the class of a trajectory that was classified."""
        return self._of[t.node]

    def count(self) -> int:
        """Return the number of classes."""
        return len(self._first)

    async def add(self, ts: Sequence[Trajectory]) -> None:
        """Classify ended trajectories, in order."""
        for t in ts:
            if t.status not in ("finished", "truncated") or t.node in self._of:
                continue
            answer: Any = await self._extract(t.response)
            if not isinstance(answer, str | None):
                raise TTSError(
                    f"the task {self._task.name!r} extracted {quote(answer)}, but extract must return a text or None"
                )
            answer = None if answer is None else join_surrogates(answer)
            answer_class = None if answer is None else self._by_answer.get(answer)
            if answer is not None and answer_class is None:
                answer_class = await self._class_of(answer)
            self._of[t.node] = (answer, answer_class)

    async def classes(self, answers: Sequence[str]) -> list[int]:
        """Return the class of each answer. The answers were extracted elsewhere."""
        return [await self._class_of(answer) for answer in answers]

    async def _extract(self, text: str) -> Any:
        """Return the answer in a text; None where the time is over."""
        if self._seconds_left is not None and self._seconds_left() == 0:
            self._read_late += len(text)
        try:
            if self._read_late > _READ_LATE:
                raise TimeoutError
            if len(text) > _SHORT:
                return await self._call_in_time(self._task.extract, text)
            return await call_or_postpone(self._task.extract, text, wait=self._call_in_time)
        except TimeoutError:
            self.timed_out = True
            return None

    async def _call_in_time(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread.

        Raises:
            TimeoutError: the time is over.
        """
        seconds = None if self._seconds_left is None else self._seconds_left()
        if seconds is not None and seconds <= 0:
            raise TimeoutError
        return await asyncio.wait_for(run_in_thread(fn, *args), seconds)

    async def _class_of(self, answer: str) -> int:
        if (answer_class := self._by_answer.get(answer)) is None:
            try:
                answer_class = await (
                    self._class_by_pairs(answer) if self._keyed is None else self._class_by_key(answer)
                )
            except TimeoutError:
                self.timed_out = True
                answer_class = self._new_class(answer)
            self._by_answer[answer] = answer_class
        return answer_class

    async def _class_by_key(self, answer: str) -> int:
        assert self._keyed is not None, "asked before"
        key = self._keyed.known_key(answer) if len(answer) <= _SHORT else None
        if key is None:
            key = await self._call_in_time(self._keyed.key, answer)
        if key not in self._by_form:
            self._by_form[key] = self._new_class(answer)
        return self._by_form[key]

    async def _class_by_pairs(self, answer: str) -> int:
        """Return the class of an answer by comparisons with earlier answers, where the task gives no keys.

        An answer with the same canonical form decides first, then the first equivalent answer. Without either the class
        is new.
        """
        form = (
            self._task.canonical(answer)
            if len(answer) <= _SHORT
            else await self._call_in_time(self._task.canonical, answer)
        )
        if (earlier := self._by_form.get(form)) is None:
            earlier = await self._class_like(answer)
            self._by_form[form] = self._new_class(answer) if earlier is None else earlier
        return self._by_form[form]

    async def _class_like(self, answer: str) -> int | None:
        """Return the first class whose first answer is equivalent to an answer; None without one.

        Raises:
            TimeoutError: the time is over.
        """
        for index, first in enumerate(self._first):
            if index % _PAIRS_AT_ONCE == _PAIRS_AT_ONCE - 1:
                await asyncio.sleep(0)
                if self._seconds_left is not None and (seconds := self._seconds_left()) is not None and seconds <= 0:
                    raise TimeoutError
            is_same = self._task.decide(first, answer)
            if is_same is None:
                is_same = await self._call_in_time(self._task.equivalent, first, answer)
            if is_same:
                return index
        return None

    def _new_class(self, answer: str) -> int:
        self._first.append(answer)
        return len(self._first) - 1


class AnswerCounts:
    """The number of candidates with each answer. Candidates without an answer do not vote.

    Adding a candidate takes constant time.

    Attributes:
        first: The votes of the most frequent answer; 0 without an answer.
        second: The votes of the second most frequent answer; 0 without one.
        total: The votes of all answers.
        answer: The most frequent answer, as its first candidate wrote it; None without an answer. Among equals the
            answer that reached this number first.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.first = 0
        self.second = 0
        self.total = 0
        self.answer: str | None = None
        self._leader: int | None = None
        self._written: dict[int, str | None] = {}
        self._of: Counter[int] = Counter()
        self._classes: Counter[int] = Counter()  # by number of votes: the answers that have this number
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Count a candidate."""
        kind = candidate.answer_class
        if kind is None:
            return
        self._written.setdefault(kind, candidate.answer)
        count = self._of[kind] = self._of[kind] + 1
        self.total += 1
        self._classes[count] += 1
        if count > 1:
            self._classes[count - 1] -= 1
            if not self._classes[count - 1]:
                del self._classes[count - 1]
        if kind == self._leader:
            self.first = count
        elif count > self.first:
            self.first, self.second, self._leader, self.answer = count, self.first, kind, self._written[kind]
        elif count > self.second:
            self.second = count

    @property
    def entropy(self) -> float:
        """The entropy of the answers, in nats; 0 without an answer."""
        shares = ((classes, count / self.total) for count, classes in sorted(self._classes.items()))
        return math.fsum(-classes * share * math.log(share) for classes, share in shares)


class Candidates(list[Candidate]):
    """A list of candidates that only grows, with the count of their answers.

    A candidate may be replaced by a candidate with the same answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.votes = AnswerCounts()

    def append(self, candidate: Candidate) -> None:
        """Add a candidate."""
        super().append(candidate)
        self.votes.add(candidate)


def votes_of(candidates: Sequence[Candidate]) -> AnswerCounts:
    """Return the count of the candidates' answers."""
    return candidates.votes if isinstance(candidates, Candidates) else AnswerCounts(candidates)

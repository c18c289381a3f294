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
# Longer texts are read in a thread, within the time that is left.
_SHORT = 20_000
_PAIRS_AT_ONCE = 200
# Characters that are read in all when the time is over: what was on its way.
_READ_LATE = 500_000


class Answers:
    """Extracts the answers of ended trajectories and sorts them into classes.

    Answers are compared by their keys, where the task has some. For other tasks cheap exact rules come first, and
    undecided pairs go to the task's slow judgement. What takes long runs in threads of its own, and not when the time
    is over: then answers count as different.

    Args:
        task: The task, which answers for what its methods raise (`tts.tasks.isolation`).
        seconds_left: A function that returns the seconds that are left; None: time is not limited.

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
        """Return how many classes there are."""
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
            known = None if answer is None else self._by_answer.get(answer)
            if answer is not None and known is None:
                known = await self._class_of(answer)
            self._of[t.node] = (answer, known)

    async def classes(self, answers: Sequence[str]) -> list[int]:
        """Return the class of each of some answers, which were extracted elsewhere."""
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
        left = None if self._seconds_left is None else self._seconds_left()
        if left is not None and left <= 0:
            raise TimeoutError
        return await asyncio.wait_for(run_in_thread(fn, *args), left)

    async def _class_of(self, answer: str) -> int:
        if (known := self._by_answer.get(answer)) is None:
            try:
                known = await (self._class_by_pairs(answer) if self._keyed is None else self._class_by_key(answer))
            except TimeoutError:
                self.timed_out = True
                known = self._new_class(answer)
            self._by_answer[answer] = known
        return known

    async def _class_by_key(self, answer: str) -> int:
        assert self._keyed is not None, "asked before"
        key = self._keyed.known_key(answer) if len(answer) <= _SHORT else None
        if key is None:
            key = await self._call_in_time(self._keyed.key, answer)
        if key not in self._by_form:
            self._by_form[key] = self._new_class(answer)
        return self._by_form[key]

    async def _class_by_pairs(self, answer: str) -> int:
        """Return the class of an answer by comparing it with earlier ones, where the task gives no keys.

        It is that of an answer with the same canonical form, else the first whose answer is equivalent, else a new one.
        """
        form = (
            self._task.canonical(answer)
            if len(answer) <= _SHORT
            else await self._call_in_time(self._task.canonical, answer)
        )
        if (known := self._by_form.get(form)) is None:
            known = await self._class_like(answer)
            self._by_form[form] = self._new_class(answer) if known is None else known
        return self._by_form[form]

    async def _class_like(self, answer: str) -> int | None:
        """Return the class whose first answer is equivalent to an answer, or None.

        Raises:
            TimeoutError: the time is over.
        """
        for index, first in enumerate(self._first):
            if index % _PAIRS_AT_ONCE == _PAIRS_AT_ONCE - 1:
                await asyncio.sleep(0)
                if self._seconds_left is not None and (left := self._seconds_left()) is not None and left <= 0:
                    raise TimeoutError
            same = self._task.decide(first, answer)
            if same is None:
                same = await self._call_in_time(self._task.equivalent, first, answer)
            if same:
                return index
        return None

    def _new_class(self, answer: str) -> int:
        self._first.append(answer)
        return len(self._first) - 1


class AnswerCounts:
    """How many candidates have each answer; those without one do not vote. Adding one takes constant time.

    Attributes:
        first: Votes of the most frequent answer, 0 without any.
        second: The second of the next one, 0 where there is none.
        total: The total of all.
        answer: The most frequent answer, as its first candidate wrote it; the one that had so many first, None without
            any.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.first = 0
        self.second = 0
        self.total = 0
        self.answer: str | None = None
        self._leader: int | None = None
        self._written: dict[int, str | None] = {}
        self._of: Counter[int] = Counter()
        self._classes: Counter[int] = Counter()  # by votes: how many answers have so many
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
        """The entropy of the answers, in nats; 0 without any."""
        shares = ((classes, count / self.total) for count, classes in sorted(self._classes.items()))
        return math.fsum(-classes * share * math.log(share) for classes, share in shares)


class Candidates(list[Candidate]):
    """A list of candidates that only grows, with the count of their answers.

    An item may be replaced by one with the same answer.
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

"""Classes of equivalent answers, numbered in order of first appearance.

The module also counts the candidates of each class.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tts._common.characters import join_surrogates
from tts._core.threads import call_or_postpone, run_in_thread
from tts.errors import TTSError, quote
from tts.tasks.base import Task, keyed_task
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
        self._late_characters = 0  # characters of the texts that came after the time was over
        self._first_answers: list[str] = []  # by class: its first answer
        self._class_by_answer: dict[str, int] = {}  # by answer as written
        self._class_by_form: dict[str, int] = {}  # by canonical form, or by key where the task has keys
        self._answer_and_class: dict[int, tuple[str | None, int | None]] = {}  # by node

    def answer_of(self, t: Trajectory) -> tuple[str | None, int | None]:
        """Return the answer and the class of a trajectory that was classified."""
        return self._answer_and_class[t.node]

    def count(self) -> int:
        """Return the number of classes."""
        return len(self._first_answers)

    async def add(self, ts: Sequence[Trajectory]) -> None:
        """Classify ended trajectories, in order."""
        for t in ts:
            if t.status not in ("finished", "truncated") or t.node in self._answer_and_class:
                continue
            answer: Any = await self._extract(t.response)
            if not isinstance(answer, str | None):
                raise TTSError(
                    f"the task {self._task.name!r} extracted {quote(answer)}, but extract must return a text or None"
                )
            answer_class = None
            if answer is not None:
                answer = answer if answer.isascii() else join_surrogates(answer)
                answer_class = self._class_by_answer.get(answer)
                if answer_class is None:
                    answer_class = await self._class_of(answer)
            self._answer_and_class[t.node] = (answer, answer_class)

    async def classes(self, answers: Sequence[str]) -> list[int]:
        """Return the class of each of these answers, which the caller has extracted."""
        return [await self._class_of(answer) for answer in answers]

    async def _extract(self, text: str) -> Any:
        """Return the answer in a text; None without an answer, or where the time is over.

        After the time, texts are still read up to `_READ_LATE` characters in all. Long texts are not.
        """
        if self._seconds_left is not None and self._seconds_left() == 0:
            self._late_characters += len(text)
        try:
            if self._late_characters > _READ_LATE:
                raise TimeoutError
            if len(text) > _SHORT:
                return await self._call_in_time(self._task.extract, text)
            return await call_or_postpone(self._task.extract, text, wait=self._call_in_time)
        except TimeoutError:
            self.timed_out = True
            return None

    async def _call_in_time(self, fn: Callable[..., T], *args: Any) -> T:
        """Return the result of a function that runs in a thread, for at most the seconds left.

        Raises:
            TimeoutError: the time is over.
        """
        seconds = None if self._seconds_left is None else self._seconds_left()
        if seconds is not None and seconds <= 0:
            raise TimeoutError
        return await asyncio.wait_for(run_in_thread(fn, *args), seconds)

    async def _class_of(self, answer: str) -> int:
        """Return the class of an answer. When the time is over, the class is new."""
        if answer in self._class_by_answer:
            return self._class_by_answer[answer]
        try:
            if self._keyed is None:
                answer_class = await self._find_class_by_pairs(answer)
            else:
                answer_class = await self._find_class_by_key(answer)
        except TimeoutError:
            self.timed_out = True
            answer_class = self._new_class(answer)
        self._class_by_answer[answer] = answer_class
        return answer_class

    async def _find_class_by_key(self, answer: str) -> int:
        """Return the class of the answers with the same key, where the task gives keys."""
        assert self._keyed is not None, "asked before"
        key = self._keyed.known_key(answer) if len(answer) <= _SHORT else None
        if key is None:
            key = await self._call_in_time(self._keyed.key, answer)
        if key not in self._class_by_form:
            self._class_by_form[key] = self._new_class(answer)
        return self._class_by_form[key]

    async def _find_class_by_pairs(self, answer: str) -> int:
        """Return the class of an answer by comparisons with earlier answers, where the task gives no keys.

        An answer with the same canonical form decides first, then the first equivalent answer. Without either the class
        is new.
        """
        if len(answer) <= _SHORT:
            form = self._task.canonical(answer)
        else:
            form = await self._call_in_time(self._task.canonical, answer)
        if form not in self._class_by_form:
            equivalent_class = await self._class_like(answer)
            self._class_by_form[form] = self._new_class(answer) if equivalent_class is None else equivalent_class
        return self._class_by_form[form]

    async def _class_like(self, answer: str) -> int | None:
        """Return the first class whose first answer is equivalent to an answer; None without such a class.

        Raises:
            TimeoutError: the time is over.
        """
        for class_index, first_answer in enumerate(self._first_answers):
            if class_index % _PAIRS_AT_ONCE == _PAIRS_AT_ONCE - 1:
                await asyncio.sleep(0)
                seconds = None if self._seconds_left is None else self._seconds_left()
                if seconds is not None and seconds <= 0:
                    raise TimeoutError
            is_same = self._task.decide(first_answer, answer)
            if is_same is None:
                is_same = await self._call_in_time(self._task.equivalent, first_answer, answer)
            if is_same:
                return class_index
        return None

    def _new_class(self, answer: str) -> int:
        """Begin a class with an answer, and return the number of the class."""
        self._first_answers.append(answer)
        return len(self._first_answers) - 1


class AnswerCounts:
    """The number of candidates with each answer. Candidates without an answer do not vote.

    Adding a candidate takes constant time.

    Attributes:
        first: The votes of the most frequent answer; 0 without an answer.
        second: The votes of the second most frequent answer; 0 without one.
        total: The votes of all answers.
        answer: The most frequent answer, as its first candidate wrote it; None without an answer. Among answers with
            equal votes, the answer that reached this number first.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.first = 0
        self.second = 0
        self.total = 0
        self.answer: str | None = None
        self._leading_class: int | None = None
        self._first_answers: dict[int, str | None] = {}  # by class: the answer as its first candidate wrote it
        self._votes: dict[int, int] = {}  # by class
        self._classes_with: dict[int, int] = {}  # by number of votes: the number of classes with so many votes
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Count a candidate as a vote for its answer; a candidate without an answer does not count."""
        answer_class = candidate.answer_class
        if answer_class is None:
            return
        self._first_answers.setdefault(answer_class, candidate.answer)
        votes = self._votes[answer_class] = self._votes.get(answer_class, 0) + 1
        self.total += 1
        self._classes_with[votes] = self._classes_with.get(votes, 0) + 1
        if votes > 1:
            self._classes_with[votes - 1] -= 1
        if answer_class == self._leading_class:
            self.first = votes
        elif votes > self.first:
            self.second = self.first
            self.first = votes
            self._leading_class = answer_class
            self.answer = self._first_answers[answer_class]
        elif votes > self.second:
            self.second = votes

    @property
    def entropy(self) -> float:
        """The entropy of the answers, in nats; 0 without an answer."""
        terms: list[float] = []  # the terms of classes with equal votes, together
        for votes, num_classes in sorted(self._classes_with.items()):
            if not num_classes:
                continue
            share = votes / self.total
            terms.append(-num_classes * share * math.log(share))
        return math.fsum(terms)


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

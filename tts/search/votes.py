"""The candidates of a search, and the count of their answers, kept up to date as they come."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tts.types import Candidate


class AnswerCounts:
    """How many candidates have each answer; those without one do not vote. Adding one takes constant time.

    Attributes:
        first: votes of the most frequent answer, 0 without any. second: of the next one, 0 where there is none. total: of all.
        answer: the most frequent answer, as its first candidate wrote it; the one that had so many first, None without any.
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
    """A list of candidates that only grows, with the count of their answers. An item may be replaced by one with the same answer."""

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

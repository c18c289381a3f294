"""Parts that are named by their place, as an author's own module would have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tts

NUMBER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(tts.Strategy):
    n: int = 2
    word: str = ""

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root], n=self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough(tts.StopRule):
    k: int = 2

    def should_stop(self, candidates: Sequence[tts.Candidate]) -> tts.StopDecision | None:
        return tts.StopDecision("enough") if len(candidates) >= self.k else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest(tts.Selection):
    async def select(self, candidates: Sequence[tts.Candidate], search: tts.Search) -> tts.Selected:
        ranked = tuple(reversed(candidates))
        return tts.Selected(tuple(c.answer for c in ranked[:1] if c.answer is not None), ranked, 1.0)


class Init(tts.Strategy):
    """Its parameters are those of a method, not fields."""

    def __init__(self, n: int = 1) -> None:
        self.n = n

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root], n=self.n)


class Few(tts.StopRule):
    def __init__(self, k: int = 1) -> None:
        self.k = k

    def should_stop(self, candidates: Sequence[tts.Candidate]) -> tts.StopDecision | None:
        return tts.StopDecision("few") if len(candidates) >= self.k else None


class Nth(tts.Selection):
    def __init__(self, place: int = 0) -> None:
        self.place = place

    async def select(self, candidates: Sequence[tts.Candidate], search: tts.Search) -> tts.Selected:
        chosen = candidates[self.place]
        return tts.Selected((chosen.answer or "",), tuple(candidates), 1.0)


def init(n: int = 2, **more: int) -> Init:
    return Init(n + sum(more.values()))


def ours(n: int = 2) -> tts.BestOfN:
    return tts.BestOfN(n=n)


def local(n: int = 2) -> tts.Strategy:
    @dataclass(frozen=True, slots=True)
    class Local(Pair):
        pass

    return Local(n=n)


class Outer:
    class Inner(Init):
        pass


class BestOfN(tts.BestOfN):
    """A copy: its registered name is that of another class."""

    registered_as = "best_of_n"


class Bare(tts.Strategy):
    """A strategy with another default selection."""

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root], n=2)

    def default_selection(self, *, verified: bool) -> tts.Selection:
        return Newest()


class Single(tts.Strategy):
    """Its name in snake case is that of another class."""

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root])


class Runless(tts.Strategy):
    async def runs(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return search.candidates


class Spoken(tts.Task):
    """The answer is the last word."""

    def extract(self, text: str) -> str | None:
        words = text.split()
        return words[-1].strip(".") if words else None


@dataclass(frozen=True)
class Constant(tts.Verifier):
    """Scores every path alike."""

    score_of_all: float = 0.5

    async def score(self, problem: tts.Problem, trajectories: Sequence[Any], calls: Any) -> list[tts.StepScores]:
        return [tts.StepScores(whole=self.score_of_all) for _ in trajectories]


def likes_length(problem: tts.Problem, text: str) -> float:
    return min(1.0, len(text) / 100)


def writes(ask: tts.Ask) -> str:
    return f"It is {ask.seed % 2}."


def writes_no(ask: tts.Ask) -> str:
    return f"No, {ask.seed % 2}."


def no_part() -> int:
    return NUMBER

"""What a search of `auto` shows of its problem, and the rounds that it is given for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tts.types import Candidate


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a problem has shown.

    Args:
        samples: drawn. leader, second: of them, those that gave the answers of most and second most weight; see `of`.
        agreeing: that gave the most frequent answer. solved: whether a checker has accepted one. checked: whether there is a checker.
        logprob: mean over the samples of their tokens' mean log-probability. probe: the reading of the prompt alone. NaN: unknown.
        beside: candidates that other models wrote, which are none of the samples.
    """

    samples: int = 0
    leader: int = 0
    second: int = 0
    agreeing: int = 0
    solved: bool = False
    checked: bool = False
    logprob: float = math.nan
    probe: float = math.nan
    beside: int = 0

    @classmethod
    def of(cls, candidates: Sequence[Candidate], weights: Sequence[float] | None = None) -> Evidence:
        """Count the votes of candidates, where one without an answer agrees with nothing.

        Args:
            weights: of each, at least 0, 0 where unknown: then an answer has the votes of its share of all weight, rounded; None, or all
                unknown: equal.
        """
        n = len(candidates)
        votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
        agreeing = max(votes.values(), default=0)
        weight: Counter[int] = Counter(votes)
        if weights is not None:
            weight = Counter()
            for candidate, each in zip(candidates, weights, strict=True):
                if candidate.answer_class is not None:
                    weight[candidate.answer_class] += each  # type: ignore[assignment]
        total = float(n) if weights is None else sum(weights)
        first, other = (*(mass for _, mass in weight.most_common(2)), 0, 0)[:2]
        leader = max(min(agreeing, 1), round(n * first / total)) if total > 0 else min(agreeing, 1)
        second = min(round(n * other / total), leader, n - leader) if total > 0 else 0
        return cls(n, leader, second, agreeing)


@dataclass(frozen=True, slots=True)
class Round:
    """What to do next. samples: how many more to draw. plan: 0 as plain samples, else the number of a strategy. why: in words."""

    samples: int
    plan: int = 0
    why: str = ""

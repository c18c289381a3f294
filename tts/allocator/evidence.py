"""What a search of `auto` shows of its problem, and the rounds that it is given for it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tts.types import Candidate


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a problem has shown.

    Args:
        samples: Plain samples of the policy that were drawn.
        leader: The samples that gave the answer of most weight; see `of`.
        second: The samples that gave the answer of second most weight; see `of`.
        agreeing: The samples that gave the most frequent answer.
        solved: Whether a checker has accepted one.
        checked: Whether there is a checker.
        logprob: Mean over the samples of their tokens' mean log-probability.
        probe: The reading of the prompt alone. NaN: unknown.
        beside: Candidates of other strategies and models, which are none of the samples: those of a search depend on
            each other.
        weighted: Whether a verifier's scores weigh the votes.
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
    weighted: bool = False

    @classmethod
    def of(cls, candidates: Sequence[Candidate], weights: Sequence[float] | None = None) -> Evidence:
        """Count the votes of candidates, where one without an answer agrees with nothing.

        An answer has the votes that were given for it. Beyond those it has the votes of its share of all weight as far
        as its greatest weight goes: with the weight 1 all of them, with small weights none. So a constant weight
        changes nothing, and an answer that is merely less doubted than others gets no votes of theirs. This is our
        choice.

        Args:
            candidates: The candidates.
            weights: The weight of each in [0, 1], 0 where unknown; None, or all unknown: votes alone.
        """
        n = len(candidates)
        votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
        agreeing = max(votes.values(), default=0)
        if weights is None or sum(weights) <= 0:
            first, other = (*(mass for _, mass in votes.most_common(2)), 0, 0)[:2]
            counted = weights is None
            return cls(n, first if counted else min(agreeing, 1), min(other, n - first) if counted else 0, agreeing)
        total, mass, most = sum(weights), defaultdict[int, float](float), defaultdict[int, float](float)
        for candidate, weight in zip(candidates, weights, strict=True):
            if (kind := candidate.answer_class) is not None:
                mass[kind] += weight
                most[kind] = max(most[kind], weight)
        shares = {kind: n * each / total for kind, each in mass.items()}
        found = sorted(
            (min(share, votes[kind] + max(0.0, share - votes[kind]) * most[kind]) for kind, share in shares.items()),
            reverse=True,
        )
        first, other = (*found, 0.0, 0.0)[:2]
        leader = max(min(agreeing, 1), round(first))
        return cls(n, leader, min(round(other), leader, n - leader), agreeing)


@dataclass(frozen=True, slots=True)
class Round:
    """The next step of a search: the number of samples, the plan, and the reason.

    `samples` is the number of further samples. `plan` is 0 for plain samples, else the number of a strategy. `why` is
    the reason in words.
    """

    samples: int
    plan: int = 0
    why: str = ""

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
        """Count the votes of candidates; a candidate without an answer agrees with none.

        Weights move votes between answers. The share of an answer is the number of votes in proportion to its summed
        weight. A share below its plain votes replaces them. A share above its votes adds the difference, times the
        greatest weight of the answer: at the weight 1 all of it, at small weights nearly nothing. So a constant weight
        changes nothing, and an answer that is merely less doubted than others gets few votes of theirs. This is our
        choice.

        Args:
            candidates: The candidates.
            weights: The weight of each candidate in [0, 1], 0 where unknown. If all are 0, the leading answer counts as
                one vote. None: votes alone.
        """
        n = len(candidates)
        votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
        agreeing = max(votes.values(), default=0)
        if weights is None:
            plain_votes = sorted(votes.values(), reverse=True)
            leader, second, *_ = *plain_votes, 0, 0
            return cls(samples=n, leader=leader, second=second, agreeing=agreeing)
        total_weight = sum(weights)
        if total_weight <= 0:
            return cls(samples=n, leader=min(agreeing, 1), second=0, agreeing=agreeing)
        weight_sums, greatest_weights = defaultdict[int, float](float), defaultdict[int, float](float)  # by answer
        for candidate, weight in zip(candidates, weights, strict=True):
            answer_class = candidate.answer_class
            if answer_class is not None:
                weight_sums[answer_class] += weight
                greatest_weights[answer_class] = max(greatest_weights[answer_class], weight)
        weighted_votes: list[float] = []
        for answer_class, weight_sum in weight_sums.items():
            share = n * weight_sum / total_weight
            excess = max(0.0, share - votes[answer_class])
            weighted_votes.append(min(share, votes[answer_class] + excess * greatest_weights[answer_class]))
        first_votes, second_votes, *_ = *sorted(weighted_votes, reverse=True), 0.0, 0.0
        leader = max(min(agreeing, 1), round(first_votes))
        second = min(round(second_votes), leader, n - leader)
        return cls(samples=n, leader=leader, second=second, agreeing=agreeing)


@dataclass(frozen=True, slots=True)
class Round:
    """The next step of a search: the number of samples, the plan, and the reason.

    `samples` is the number of further samples. `plan` is 0 for plain samples, else the number of a strategy. `why` is
    the reason in words.
    """

    samples: int
    plan: int = 0
    why: str = ""

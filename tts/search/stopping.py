"""When to stop before the budget does: rules over the candidates so far, in index order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.aggregation import check_aggregate
from tts.search.base import Named, Stop, nonempty_text, number, whole
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Never(Named):
    """Stops never: the strategy and the budget decide."""

    registered_as = "never"

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return None."""
        del candidates
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanimous(Named):
    """Stops at the first window of candidates that all agree, and returns that window's answer, whatever was seen before.

    Windows do not overlap; a candidate without an answer keeps its window from agreeing.

    Source: ESC, Li et al., "Escape Sky-high Cost" (2401.10480, ICLR 2024); the authors' code returns the window's answer too.

    Args:
        window: candidates in a window (w in the paper), at least 1.

    Cost: expected samples w [sum_{i<m-1} q (1-q)^i (i+1) + (1-q)^(m-1) m] for m windows, q = sum_a p_a^w.
    """

    registered_as = "unanimous"
    window: int = 5

    def __post_init__(self) -> None:
        whole("window", self.window, 1, optional=False)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the last candidate completes a unanimous window."""
        if not candidates or len(candidates) % self.window:
            return None
        last = candidates[-self.window :]
        if last[0].answer_class is None or any(c.answer_class != last[0].answer_class for c in last):
            return None
        return Stop("unanimous", last[0].answer, slice(len(candidates)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(Named):
    """Stops when the most frequent answer is unlikely to be overtaken by the second.

    With a votes for the one and b for the other it stops once Pr[X > 1/2] >= threshold, X ~ Beta(a + 1, b + 1). Candidates without
    an answer do not vote. The selection chooses the answer.

    Source: ASC, algorithm B1, Aggarwal et al., "Let's Sample Step by Step: Adaptive-Consistency" (2305.11860), its Beta rule,
    verified in the paper and its code; 40 samples at most there (give the strategy n=40). The test is sequential, so the threshold
    is no error rate.

    Args:
        threshold: in [0, 1]; 1 stops never. At 0.95 four equal answers stop.
    """

    registered_as = "posterior"
    threshold: float = 0.95

    def __post_init__(self) -> None:
        number("threshold", self.threshold, 0, 1, optional=False)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the leader is safe."""
        votes = [count for _, count in _votes(candidates).most_common(2)]
        if not votes or self.threshold == 1 or overtaken(votes[0], sum(votes[1:])) > 1 - self.threshold:
            return None
        return Stop("posterior")


def overtaken(first: int, second: int) -> float:
    """Return Pr[X < 1/2], X ~ Beta(first + 1, second + 1): the chance that the second answer is the likelier one. Exact."""
    tosses = first + second + 1
    ways, term = 0, 1
    for heads in range(second + 1):
        ways, term = ways + term, term * (tosses - heads) // (heads + 1)
    return ways / 2**tosses


@dataclass(frozen=True, slots=True, kw_only=True)
class InARow(Named):
    """Stops when the last k candidates have the same answer, and returns it; one without an answer breaks the row.

    Source: the rule of algorithm B9 (answers that have stopped changing), over samples; here it is ours to decide.

    Args:
        k: equal answers in a row, at least 1.
    """

    registered_as = "in_a_row"
    k: int = 3

    def __post_init__(self) -> None:
        whole("k", self.k, 1, optional=False)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the last candidate completes a row."""
        last = candidates[-self.k :]
        if len(last) < self.k or last[-1].answer_class is None or any(c.answer_class != last[-1].answer_class for c in last):
            return None
        return Stop("in a row", last[0].answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entropy(Named):
    """Stops when the answers so far agree well: their entropy, as a share of the greatest possible, is at most the threshold.

    The share is H / ln k over the k candidates with an answer: 0 where all agree, 1 where all differ. The selection chooses.

    Source: the entropy rule in the code of ASC (algorithm B1, 2305.11860: at most .75); its normaliser, and `least`, are ours.

    Args:
        threshold: in [0, 1]; 0 stops only where all agree. least: answers before it may stop, at least 2.
    """

    registered_as = "entropy"
    threshold: float = 0.75
    least: int = 4

    def __post_init__(self) -> None:
        number("threshold", self.threshold, 0, 1, optional=False)
        whole("least", self.least, 2, optional=False)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the entropy is low enough."""
        votes = list(_votes(candidates).values())
        if sum(votes) < self.least or answer_entropy(votes) > self.threshold * math.log(sum(votes)) + 1e-12:
            return None
        return Stop("entropy")


def answer_entropy(votes: Sequence[int]) -> float:
    """Return the entropy, in nats, of the answers with so many votes each; 0 without any."""
    total = sum(votes)
    return math.fsum(-count / total * math.log(count / total) for count in votes if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreThreshold(Named):
    """Stops at the first candidate with an answer whose score reaches the threshold; the selection chooses.

    With the verifier `self_evaluation` the model itself says when a fresh start would do no better. Each candidate is scored when
    it has ended; a score that cannot be paid then, or is unknown, stops nothing.

    Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute" (2410.02725); the rule itself is from memory.

    Args:
        threshold: in the verifier's range (theta). verifier: the role that scores. aggregate: step scores to one.

    Cost: one verifier call a candidate. Whole solutions are drawn one after another, since each may be the last.
    """

    registered_as = "score_threshold"
    threshold: float = 0.9
    verifier: str = "main"
    aggregate: str = "last"

    def __post_init__(self) -> None:
        number("threshold", self.threshold, optional=False)
        nonempty_text("verifier", self.verifier)
        check_aggregate(self.aggregate)

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a stop when the last candidate is good enough."""
        if not candidates or candidates[-1].answer_class is None:
            return None
        good = candidates[-1].scores.get(self.verifier, math.nan) >= self.threshold
        return Stop("score") if good else None


def _votes(candidates: Sequence[Candidate]) -> Counter[int]:
    return Counter(c.answer_class for c in candidates if c.answer_class is not None)

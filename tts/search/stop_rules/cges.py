"""CGES: one answer is likely enough, by the confidence of each sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import Proportion, Text, whole
from tts.errors import ConfigError
from tts.search.ends import StopDecision
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.parts import StopRule
from tts.types import Candidate

_SURE = 1e-9  # a confidence is kept so far from 0 and 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CGES(StopRule):
    """Stops when the posterior probability of one answer reaches the threshold, and returns this answer.

    A score c is read as the probability that its candidate is right. Under answer a, a candidate that gave a has the
    likelihood c, and any other (1 - c) / (K - 1), with K possible answers and an even prior. Candidates without an
    answer or a known score do not count.

    Guarantee: none. Suppose that scores were calibrated, candidates independent given the right answer, and wrong
    answers spread evenly over `answers`. Then at most 1 - threshold of the stops would be wrong. Samples of one model
    repeat the same wrong answers, so they are not independent. With `answers=None` the bound does not hold even then,
    since K grows with what is seen.

    Source: CGES, Aghazadeh et al. (2511.02603): the abstract; its algorithm 1 from a third-party implementation, the
    paper's own text was not read. There the unseen answer may stop the search too; here only a seen one can. `answers`
    is ours.

    Args:
        threshold: The threshold in [0, 1].
        answers: How many answers are possible, at least 2; None: those seen, and one more.
        verifier: The role that scores, in [0, 1].
        aggregate: How the scores of steps become one.

    Raises:
        ConfigError: a score outside [0, 1].

    Cost: one verifier call a candidate. Whole solutions are drawn one after another, since each may be the last.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="best_of_n(n=16) | cges | majority",
        ...     verifier="toy(error=0.1)",
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 3, 'cges')
    """

    registered_as = "cges"
    threshold: Proportion = 0.95
    answers: Annotated[int, whole(2)] | None = None
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: scores of the candidates."""
        return Needs(verifiers=(self.verifier,), aggregate=self.aggregate)

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when one answer is likely enough."""
        known = [
            (c, score) for c in candidates if c.answer_class is not None and not math.isnan(score := self._score(c))
        ]
        if not known:
            return None
        chances = answer_posterior([c.answer_class or 0 for c, _ in known], [score for _, score in known], self.answers)
        kind = max(chances, key=lambda each: (chances[each], -each))
        if chances[kind] < self.threshold:
            return None
        return StopDecision("cges", next(c.answer for c, _ in known if c.answer_class == kind))

    def _score(self, candidate: Candidate) -> float:
        score = candidate.scores.get(self.verifier, math.nan)
        if not math.isnan(score) and not 0 <= score <= 1:
            raise ConfigError(
                f"a score of the role {self.verifier!r} is {score}, but cges reads scores as probabilities in [0, 1]",
                hint="give a verifier of that range, such as confidence",
            )
        return score


def answer_posterior(kinds: Sequence[int], scores: Sequence[float], answers: int | None = None) -> dict[int, float]:
    """Return the posterior probability of each answer that was seen.

    Args:
        kinds: The answer of each candidate.
        scores: The probability that it is right, in [0, 1].
        answers: As in `CGES`.
    """
    seen = list(dict.fromkeys(kinds))
    possible = len(seen) + 1 if answers is None else max(answers, len(seen), 2)
    gains = dict.fromkeys(seen, 0.0)  # over an answer that was not seen
    for kind, score in zip(kinds, scores, strict=True):
        chance = min(max(score, _SURE), 1 - _SURE)
        gains[kind] += math.log(chance * (possible - 1) / (1 - chance))
    most = max(0.0, *gains.values())
    weights = {kind: math.exp(gain - most) for kind, gain in gains.items()}
    unseen = (possible - len(seen)) * math.exp(-most)
    everything = math.fsum([*weights.values(), unseen])
    return {kind: weight / everything for kind, weight in weights.items()}

"""CGES: one answer is likely enough, by the confidences of all samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import Proportion, Text, whole
from tts.errors import ConfigError
from tts.search.ends import StopDecision
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.parts import StopRule
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown

_LEAST_DISTANCE = 1e-9  # least distance of a confidence from 0 and 1, so that its odds are finite


@dataclass(frozen=True, slots=True, kw_only=True)
class CGES(StopRule):
    """Stops when the posterior probability of one answer reaches the threshold, and returns this answer.

    A score c is read as the probability that its candidate is right. Under answer a, a candidate that gave a has the
    likelihood c, and any other (1 - c) / (K - 1), with K possible answers and an even prior. Candidates without an
    answer do not count. An unknown score is the mean of the known ones.

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
        classes: list[int] = []  # of the candidates that count
        scores: list[float] = []
        first_answers: dict[int, str | None] = {}  # by class: the answer as its first candidate wrote it
        for candidate in candidates:
            if candidate.answer_class is not None:
                classes.append(candidate.answer_class)
                scores.append(self._score(candidate))
                first_answers.setdefault(candidate.answer_class, candidate.answer)
        scores = estimate_unknown(np.array(scores)).tolist()
        if not classes or any(map(math.isnan, scores)):
            return None
        posterior = answer_posterior(classes, scores, self.answers)
        likeliest = max(posterior, key=lambda answer_class: (posterior[answer_class], -answer_class))
        if posterior[likeliest] < self.threshold:
            return None
        return StopDecision("cges", first_answers[likeliest])

    def _score(self, candidate: Candidate) -> float:
        """Return a candidate's score; NaN if it is unknown.

        Raises:
            ConfigError: the score is outside [0, 1].
        """
        score = candidate.scores.get(self.verifier, math.nan)
        if not math.isnan(score) and not 0 <= score <= 1:
            raise ConfigError(
                f"a score of the role {self.verifier!r} is {score}, but cges reads scores as probabilities in [0, 1]",
                hint="give a verifier of that range, such as confidence",
            )
        return score


def answer_posterior(kinds: Sequence[int], scores: Sequence[float], answers: int | None = None) -> dict[int, float]:
    """Return the posterior probability of each class of answers that was seen (see `CGES`).

    Args:
        kinds: The class of each candidate's answer.
        scores: The probability that each candidate is right, in [0, 1].
        answers: As in `CGES`.
    """
    log_odds = dict.fromkeys(kinds, 0.0)  # of each seen answer against an answer that was not seen
    num_seen = len(log_odds)
    # a wrong answer must be possible beside the right one, so there are at least 2 answers
    num_possible = num_seen + 1 if answers is None else max(answers, num_seen, 2)
    for answer_class, score in zip(kinds, scores, strict=True):
        confidence = min(max(score, _LEAST_DISTANCE), 1 - _LEAST_DISTANCE)
        # the answer has the likelihood c if it is right, and (1 - c) / (K - 1) if another answer is right
        likelihood_ratio = confidence * (num_possible - 1) / (1 - confidence)
        log_odds[answer_class] += math.log(likelihood_ratio)
    greatest = max(0.0, *log_odds.values())  # taken away, so that no exponential is too large
    weights = {answer_class: math.exp(value - greatest) for answer_class, value in log_odds.items()}
    unseen_weight = (num_possible - num_seen) * math.exp(-greatest)
    total_weight = math.fsum([*weights.values(), unseen_weight])
    return {answer_class: weight / total_weight for answer_class, weight in weights.items()}

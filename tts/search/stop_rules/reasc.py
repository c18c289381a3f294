"""ReASC: the leading answer is unlikely to be overtaken, where confident candidates count for more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from tts.checks import Amount, Proportion, Text, check_number, number
from tts.errors import ConfigError
from tts.search.ends import StopDecision
from tts.search.needs import Needs
from tts.search.parameters import Aggregate
from tts.search.parts import StopRule
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown

_LARGEST = 700.0  # the greatest exponent of a weight


@dataclass(frozen=True, slots=True, kw_only=True)
class ReASC(StopRule):
    """Stops when the leading answer is unlikely to be overtaken, and returns it.

    It also stops at a first candidate of score `gate`.

    A candidate of score s has the weight max(1, exp(pull (s - mean) / spread)). An unknown score is the mean of the
    known ones; without one the weight is 1. With the
    summed weights a of the leading answer and b of the next, it stops once Pr[X > 1/2] >= threshold, X ~ Beta(a + 1, b
    + 1).

    Guarantee: none. Weights above 1 count one candidate for several, and the test is repeated, so that the threshold is
    no error rate. With the defaults and scores in [0, 1] every weight is 1, which is the rule `posterior`.
    `ReASC.calibrate` sets mean, spread and gate.

    Source: ReASC, Kim et al. (2601.02970): the abstract, and the authors' code, whose pull is 0.7. Their score is
    `confidence(measure='certainty', over='bottom', window=128)`. Their online form sets the gate by two normal laws
    without verdicts; here it is the offline form, with verdicts.

    Args:
        threshold: The threshold in [0, 1]; 1 stops never but at the gate.
        gate: Score at which a first candidate is enough; None: none is.
        mean: The mean of the scores of first candidates over problems.
        spread: The spread of the scores of first candidates over problems.
        pull: How strongly a score changes its candidate's weight (λ in the paper), at least 0.
        verifier: The role that scores.
        aggregate: How the scores of steps become one.

    Cost: one verifier call a candidate. Whole solutions are drawn one after another, since each may be the last.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9",
        ...     400,
        ...     model="toy",
        ...     strategy="best_of_n(n=16) | reasc(gate=0.9) | majority",
        ...     verifier="toy(error=0.1)",
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 7, 'reasc')
    """

    registered_as = "reasc"
    threshold: Proportion = 0.95
    gate: Annotated[float, number()] | None = None
    mean: Annotated[float, number()] = 1.0
    spread: Annotated[float, number(1e-12)] = 1.0
    pull: Amount = 0.7
    verifier: Text = "main"
    aggregate: Aggregate = "last"

    def needs(self) -> Needs:
        """Return the needs: scores of the candidates."""
        return Needs(verifiers=(self.verifier,), aggregate=self.aggregate)

    @classmethod
    def calibrate(cls, scores: ArrayLike, right: ArrayLike, *, precision: float = 0.9) -> ReASC:
        """Return the rule for the scores and verdicts of one candidate a problem.

        Mean, spread and gate are set as in the authors' offline code. The gate is the lowest score at and above which a
        share of `precision` is right, and at least the mean score of right candidates.

        Args:
            scores: The score of the candidate of each problem [problems], finite.
            right: Whether the candidate of each problem is right [problems].
            precision: The precision in [0, 1]; where no score reaches this precision, the best precision counts.

        Raises:
            ConfigError: fewer than two scores, one that is not finite, or lengths that differ.
        """
        values, verdicts = np.asarray(scores, np.float64), np.asarray(right, np.bool_)
        if values.ndim != 1 or values.shape != verdicts.shape or len(values) < 2 or not np.isfinite(values).all():
            raise ConfigError(
                f"scores is of shape {values.shape} and right of {verdicts.shape}, but must be finite, of 2 problems "
                "or more"
            )
        check_number("precision", precision, 0, 1, optional=False)
        spread = float(values.std())
        gate = _gate(values, verdicts, precision)
        return cls(gate=gate, mean=float(values.mean()), spread=spread if spread > 0 else 1.0)

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the evidence is enough."""
        weights: dict[int, float] = {}  # by class of answers
        known_scores = np.array([candidate.scores.get(self.verifier, math.nan) for candidate in candidates])
        for candidate, score in zip(candidates, estimate_unknown(known_scores).tolist(), strict=True):
            answer_class = candidate.answer_class
            if answer_class is not None:
                weights[answer_class] = weights.get(answer_class, 0.0) + self._weight(score)
        if not weights:
            return None
        if len(candidates) == 1 and self.gate is not None:
            first_score = candidates[0].scores.get(self.verifier, math.nan)
            if first_score >= self.gate:
                return StopDecision("reasc: gate", candidates[0].answer)
        leader = max(weights, key=lambda answer_class: (weights[answer_class], -answer_class))
        second_weight = max((weight for kind, weight in weights.items() if kind != leader), default=0.0)
        overtaking_chance = betainc(weights[leader] + 1, second_weight + 1, 0.5)
        if self.threshold == 1 or overtaking_chance > 1 - self.threshold:
            return None
        return StopDecision("reasc", next(c.answer for c in candidates if c.answer_class == leader))

    def _weight(self, score: float) -> float:
        """Return the weight of a candidate by its score, at least 1."""
        if math.isnan(score):
            return 1.0
        exponent = min(_LARGEST, self.pull * (score - self.mean) / self.spread)
        return max(1.0, math.exp(exponent))


def _gate(scores: np.ndarray, right: np.ndarray, precision: float) -> float | None:
    """Return the gate of a calibration (see `ReASC.calibrate`); None where no candidate is right."""
    if not right.any():
        return None
    gates = np.unique(scores)  # sorted
    precisions = np.array([right[scores >= gate].mean() for gate in gates])
    precise = np.flatnonzero(precisions >= precision)
    chosen = precise[0] if len(precise) else precisions.argmax()
    return float(max(gates[chosen], scores[right].mean()))

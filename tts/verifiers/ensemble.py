"""An ensemble: the scores of several verifiers combined.

An optional penalty is taken for disagreement, or log-odds are summed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend
from tts.checks import Amount, check_parameters, choice
from tts.errors import ConfigError, VerifierError, quote
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import (
    Calls,
    Composition,
    PairComparison,
    StepScores,
    Traits,
    Verifier,
    most_requests,
    to_unit,
    traits_of,
)
from tts.verifiers.making import make_verifier
from tts.verifiers.ranges import check_scale

_LEAST_DISTANCE = 1e-6  # a score is kept so far from 0 and 1 before its log-odds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble(Verifier):
    """Combines the scores of several verifiers.

    The score is their weighted mean minus a penalty for disagreement, or their minimum.

    The scores of each member are mapped to [0, 1] first. If all members score steps, they are combined step by step.
    Otherwise there is one score of the whole, to which a member that scores steps contributes the score of its last
    step. Members whose score is NaN are left out; if all are, the result is NaN.

    With "log_odds" the result is a weighted sum on the scale of log-odds, without bounds. Members with a finite range
    give their log-odds, others their scores as they are. The result is NaN where any member's is. With the members
    `process` and `confidence(measure='logprob', over='sum')` it is the log-probability of a path plus the log-odds that
    it is right.

    Source: Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2310.02743): mean, worst case, and
    mean minus a multiple of the variance, UNVERIFIED (from memory). Differs:
        - the standard deviation replaces the variance, so that the penalty has the scale of the scores; our choice.

    Args:
        members: Verifiers, or texts such as "probe" or "module:name(width=2)"; at least one, all with the same `model`.
        weights: One for each member, at least 0, not all 0; None: equal. "min" uses only the members with a weight
            above 0.
        how: "mean", "min" or "log_odds".
        caution: Weighted standard deviations among the members that are subtracted from the mean; the result is at
            least 0. Of "mean" only.

    Cost: that of its members, each at its own rates; one verifier call a trajectory.

    Example:
        >>> import tts
        >>> both = "ensemble(members=['toy(error=0.1)', 'confidence'])"
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", verifier=both, strategy="best_of_n(n=4) | weighted")
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [0.93, 0.93, 0.93, 0.47]
    """

    members: tuple[Verifier, ...] = ("process", "probe", "confidence")  # type: ignore[assignment]
    weights: tuple[float, ...] | None = None
    how: Annotated[str, choice("mean", "min", "log_odds")] = "mean"
    caution: Amount = 0.0
    range: tuple[float, float] = field(init=False, repr=False)
    oracle: bool = field(init=False, repr=False)
    needs: tuple[str, ...] = field(init=False, repr=False)
    model: str = field(init=False, repr=False)
    name = "ensemble"

    def __post_init__(self) -> None:
        stated_members: Any = self.members
        members = stated_members if isinstance(stated_members, tuple | list) else ()
        if not members or not all(isinstance(member, str | Verifier) for member in members):
            raise ConfigError(
                f"members is {quote(stated_members)}, but must be names of verifiers, or verifiers, at least one",
                hint="for example ensemble(members=('process', 'probe'))",
            )
        verifiers = tuple(map(_member, members))
        roles = sorted({member.model for member in verifiers})
        if len(roles) > 1:
            raise ConfigError(f"members is {quote(stated_members)}, but must ask one model, not {' and '.join(roles)}")
        object.__setattr__(self, "members", verifiers)
        object.__setattr__(self, "model", roles[0])
        object.__setattr__(self, "oracle", any(member.oracle for member in verifiers))
        needs = dict.fromkeys(capability for member in verifiers for capability in member.needs)
        object.__setattr__(self, "needs", tuple(needs))
        self._check_numbers(len(verifiers))
        object.__setattr__(self, "range", (-math.inf, math.inf) if self.how == "log_odds" else (0.0, 1.0))

    def _check_numbers(self, count: int) -> None:
        """Refuse weights that are not one number for each of `count` members, and a wrong `how` or `caution`."""
        weights: Any = self.weights
        if weights is not None:
            is_sequence = isinstance(weights, tuple | list)
            if not is_sequence or len(weights) != count or not all(map(_is_number, weights)) or not any(weights):
                raise ConfigError(
                    f"weights is {quote(weights)}, but must be {count} numbers of at least 0, one a member, not all 0"
                )
            object.__setattr__(self, "weights", tuple(weights))
        check_parameters(self)
        if self.caution and self.how != "mean":
            raise ConfigError(
                f"caution is {quote(self.caution)}, but must be 0 with how={self.how!r}", hint="use how='mean'"
            )

    @property
    def traits(self) -> Traits:
        """Its members, their bounds, how they compare, and their parameters that depend on the model."""
        bounds = [comparison.pair_bound for _, comparison in self._comparisons]
        requests = sum(comparison.most_requests for _, comparison in self._comparisons)
        return Traits(
            composition=Composition(self.members, self.with_members),
            requests=sum(map(most_requests, self.members)),
            comparison=PairComparison(self.compare, sum(bounds), requests=requests) if bounds else None,
            prompt_bound=self.prompt_bound,
            filled=self.fill,
        )

    @property
    def _comparisons(self) -> list[tuple[Verifier, PairComparison]]:
        """The members that compare pairs, each with how it compares."""
        found = [(member, traits_of(member).comparison) for member in self.members]
        return [(member, comparison) for member, comparison in found if comparison is not None]

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        """Return for each pair the weighted mean of the verdicts of the members that compare, as `judge` does."""
        visible = problem if self.oracle else problem.without_answer()
        verdicts = [await how.compare(visible, pairs, calls.part(member)) for member, how in self._comparisons]
        weight_of = dict(zip(map(id, self.members), self._shares[:, 0], strict=True))
        weights = np.array([weight_of[id(member)] for member, _ in self._comparisons])
        return weighted_moments(np.array(verdicts, np.float64), weights)[0].tolist()

    def with_members(self, members: Sequence[Verifier]) -> Ensemble:
        """Return the same ensemble with other members in their places."""
        return dataclasses.replace(self, members=tuple(members))

    def fill(self, record: ModelRecord | None, backend: Backend) -> Ensemble:
        """Return the ensemble with all parameters of its members set; see `Traits.filled`."""
        members: list[Verifier] = []
        for member in self.members:
            if self.how != "log_odds":
                check_scale(member)
            filled = traits_of(member).filled
            members.append(member if filled is None else filled(record, backend))
        return self.with_members(members)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score for each step if all members score steps, else one of the whole."""
        scores_by_member: list[Sequence[StepScores]] = []
        for member in self.members:
            visible = problem if member.oracle else problem.without_answer()
            scores_by_member.append(await member.score(visible, trajectories, calls.part(member)))
        # rows are members, columns are trajectories
        member_wholes = np.array([list(map(_whole, member_scores)) for member_scores in scores_by_member], np.float64)
        wholes = self._combine(member_wholes).tolist()
        scores_by_trajectory = zip(*scores_by_member, strict=True)
        return [self._join(scores, whole) for scores, whole in zip(scores_by_trajectory, wholes, strict=True)]

    def _join(self, scores: Sequence[StepScores], whole: float) -> StepScores:
        """Return the score of one trajectory from its scores by all members; `whole` is their combined whole."""
        step_rows = [score.steps for score in scores if score.steps is not None]  # [members, steps]
        note = "\n".join(score.note for score in scores if score.note)
        if len(step_rows) < len(scores):
            return StepScores(whole=whole, note=note)
        steps = self._combine(np.array(step_rows, np.float64)).tolist()
        return StepScores(steps=tuple(steps), note=note)

    def _combine(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one score for each column of [members, columns]; columns are independent."""
        rows = list(zip(self.members, table, strict=True))
        if self.how == "log_odds":
            log_odds = np.stack([_log_odds(row, _bounds(member, row)) for member, row in rows])
            return _sum_columns(log_odds * self._shares)
        units = np.stack([to_unit(row, _bounds(member, row)) for member, row in rows])  # [members, columns]
        weights = self._shares[:, 0]
        if self.how == "min":
            weighted_units = units[weights > 0]
            minima = np.where(np.isnan(weighted_units), np.inf, weighted_units).min(axis=0)
            return np.where(np.isinf(minima), math.nan, minima)
        mean, spread = weighted_moments(units, weights)
        return np.clip(mean - self.caution * spread, 0.0, 1.0)

    @property
    def _shares(self) -> NDArray[np.float64]:
        """The weights, [members, 1]."""
        return np.array(self.weights or (1.0,) * len(self.members))[:, None]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the sum of the bounds of its members."""
        return sum(member.bound(prefix_tokens, new_tokens) for member in self.members)

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return the sum of the prompt bounds of its members."""
        bounds = [traits_of(member).prompt_bound for member in self.members]
        return sum(bound(prompt_tokens) for bound in bounds if bound is not None)


def weighted_moments(
    units: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted mean and standard deviation of each column of [members, columns].

    NaN entries are left out. In a column of NaN entries alone, mean and deviation are NaN.
    """
    entry_weights = np.where(np.isnan(units), 0.0, weights[:, None])
    entries = np.nan_to_num(units, nan=0.0)
    with np.errstate(invalid="ignore"):
        total_weight = _sum_columns(entry_weights)
        mean = _sum_columns(entry_weights * entries) / total_weight
        variance = _sum_columns(entry_weights * (entries - mean) ** 2) / total_weight
    return mean, np.sqrt(variance)


def _sum_columns(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of columns, added row by row, so that rounding does not depend on the number of columns."""
    total = np.zeros(table.shape[1])
    for row in table:
        total = total + row
    return total


def _log_odds(scores: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Return scores on the scale of log-odds; scores without a finite range are taken as they are."""
    if any(map(math.isinf, bounds)):
        return scores
    units = np.clip(to_unit(scores, bounds), _LEAST_DISTANCE, 1 - _LEAST_DISTANCE)
    return np.log(units / (1 - units))


def _whole(scores: StepScores) -> float:
    if scores.steps is not None:
        return scores.steps[-1] if scores.steps else math.nan
    return math.nan if scores.whole is None else scores.whole


def _member(given: str | Verifier) -> Verifier:
    try:
        return make_verifier(given)
    except ConfigError as failure:
        raise ConfigError(f"members has {quote(given)}: {failure.cause}", hint=failure.hint) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def _bounds(member: Verifier, scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of a member.

    A function without a range must score in [0, 1]. A range by its scores would make each score depend on the others.

    Raises:
        VerifierError: a score of such a function is outside of [0, 1].
    """
    if not traits_of(member).range_by_scores:
        return member.range
    if bool(((scores < 0) | (scores > 1)).any()):
        raise VerifierError(
            f"the member {member.name!r} of an ensemble scores outside of [0, 1]", hint="give a verifier with a range"
        )
    return 0.0, 1.0

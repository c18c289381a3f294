"""Computes a plan's means over runs of best-of-n on the samples of one pool.

Means are exact where there is a closed form (majority, best, measures such as pass@k), where all orders are enumerated,
and on the first samples only. Other means are over random orders. Every plan and size gets the same random orders, so
that differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedScores, RecordedSearch, ReplayOutcome, usd_of
from tts.experiments.analysis.scoring_cost import cost_of, mean_costs
from tts.randomness import generator, hash64
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.statistics import max_at_k, pass_at_k, pass_hat_k
from tts.statistics.selection import Averaged, best_at_k, majority_at_k, weighted_at_k
from tts.verifiers.base import to_unit
from tts.verifiers.ranges import range_of

Unit = Literal["samples", "tokens"]
# a function from an order of samples, and counts of its first samples, to an outcome for each count
_Outcomes = Callable[[Sequence[int], Sequence[int]], list[ReplayOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The parameters of a replay.

    Args:
        sizes: The limits of a run.
        unit: The unit of the sizes: samples, or tokens including verifier tokens.
        first: Whether runs take only the first samples, in the order of drawing.
        draws: The number of random subsets of a pool, where needed.
        seed: The seed of the subsets.
        shared: Whether `auto` divides the sum of all problems' sizes.
    """

    sizes: tuple[int, ...]
    unit: Unit = "samples"
    first: bool = False
    draws: int
    seed: int
    shared: bool = False

    def rng(self, pool: ProblemPool) -> np.random.Generator:
        """Return the generator of a pool, in its initial state."""
        return generator(self.seed, hash64(pool.cell.dataset, pool.cell.problem), "replay", pool.cell.seed)

    def orders(self, pool: ProblemPool) -> list[Whole]:
        """Return random orders of a pool's samples, the same for every plan."""
        rng = self.rng(pool)
        return [rng.permutation(len(pool.drawn)) for _ in range(self.draws)]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a run's samples that needs no selection.

    Args:
        at_k: A function from n, c and k to the mean over subsets of k of n samples, c of which are right.
        of_run: A function from the share of right samples of a run to its value.
        oracle: Whether the measure sees which samples are right.
    """

    at_k: Callable[[int, int, Sequence[int]], Floats]
    of_run: Callable[[float], float]
    oracle: bool = True


MEASURES: Final[Mapping[str, Measure]] = {
    "pass@k": Measure(pass_at_k, lambda share: float(share > 0)),
    "pass^k": Measure(pass_hat_k, lambda share: float(share == 1)),
    "random choice": Measure(
        lambda n, c, k: np.where(np.isnan(pass_at_k(n, c, k)), math.nan, c / n), lambda share: share, oracle=False
    ),
}  # measures by their name in a replay


class RunMeans(NamedTuple):
    """Means over runs; all NaN: the pool is too small.

    `error` is the standard error of `right` from random subsets.
    """

    right: float
    error: float
    samples: float
    generated_tokens: float
    verifier_tokens: float
    path_tokens: float
    usd: float


_UNKNOWN: Final = RunMeans(*[math.nan] * len(RunMeans._fields))


def means_of(pool: ProblemPool, plan: Plan | Measure, reading: ReplaySettings) -> list[RunMeans]:
    """Return the means of one pool at each size.

    Args:
        pool: The recorded samples of one problem.
        plan: The plan with its selection, or a measure.
        reading: The settings of the replay.

    Raises:
        ConfigError: the plan needs a score that was not recorded.
    """
    selection, stopping = (plan, None) if isinstance(plan, Measure) else (plan.selection, plan.stopping)
    verified = isinstance(plan, Plan) and any(
        needs_of(part).verifiers for part in (selection, stopping) if part is not None
    )
    closed_form = (
        _CLOSED.get(type(selection)) if stopping is None and getattr(selection, "temperature", None) is None else None
    )
    if closed_form is not None and not reading.first and reading.unit == "samples":
        averages = closed_form(pool, selection, reading)
        scoring = mean_costs(pool.drawn, reading.sizes) if verified else np.zeros(len(reading.sizes))
        tokens = [drawn.tokens for drawn in pool.drawn]
        usd = float(np.mean([usd_of(drawn) for drawn in pool.drawn]))
        mean, longest = float(np.mean(tokens)), max_at_k(tokens, reading.sizes)
        columns = (reading.sizes, averages.value.tolist(), averages.error.tolist(), scoring.tolist(), longest.tolist())
        return [
            _UNKNOWN if math.isnan(right) else RunMeans(right, error, n, n * mean, cost, path, n * usd)
            for n, right, error, cost, path in zip(*columns, strict=True)
        ]
    outcomes = (
        partial(_measure_counts, pool, plan) if isinstance(plan, Measure) else RecordedSearch(pool, plan).prefixes
    )
    return _means(pool, reading, outcomes, verified=verified)


def tokens_of(pool: ProblemPool, *, verified: bool) -> Floats:
    """Return the tokens of each sample; `verified` adds the tokens of scoring the sample alone."""
    return np.array(
        [sample.tokens + (cost_of(pool.drawn, [i]) if verified else 0) for i, sample in enumerate(pool.drawn)],
        np.float64,
    )


def mean_of(outcomes: Sequence[ReplayOutcome], *, exact: bool) -> RunMeans:
    """Return the means of runs at one size.

    `exact` states whether these outcomes are of all possible runs, so that `error` is 0.
    """
    if len(outcomes) == 1:
        (outcome,) = outcomes
        costs = (
            outcome.samples,
            outcome.generated_tokens,
            outcome.verifier_tokens,
            outcome.path_tokens,
            math.nan if outcome.usd is None else outcome.usd,
        )
        return RunMeans(float(outcome.right or 0), 0.0, *map(float, costs))
    table = np.array(
        [
            [
                outcome.right,
                outcome.samples,
                outcome.generated_tokens,
                outcome.verifier_tokens,
                outcome.path_tokens,
                outcome.usd,
            ]
            for outcome in outcomes
        ],
        np.float64,
    )
    error = 0.0 if exact else float(table[:, 0].std(ddof=1)) / math.sqrt(len(outcomes))
    right, *costs = table.mean(axis=0).tolist()
    return RunMeans(right, error, *costs)


def _means(pool: ProblemPool, reading: ReplaySettings, outcomes: _Outcomes, *, verified: bool) -> list[RunMeans]:
    """Return the means over runs at each size.

    Runs are all ordered subsets where these are few, else the beginnings of random orders. Subsets in the recorded
    order are not enough: a stop rule depends on the order of samples, and so does a selection among equals.

    A limit in tokens ends a run before the first sample that does not fit. A pool that fits as a whole therefore does
    not show where a run ends.
    """
    num, costs = len(pool.drawn), tokens_of(pool, verified=verified)
    means: dict[int, RunMeans] = {}
    for size in reading.sizes:
        if size > (num if reading.unit == "samples" else costs.sum()):
            means[size] = _UNKNOWN
        elif reading.unit == "samples" and not reading.first and math.perm(num, size) <= reading.draws:
            means[size] = mean_of(
                [outcomes(subset, [size])[0] for subset in permutations(range(num), size)], exact=True
            )
    remaining = [size for size in reading.sizes if size not in means]
    if remaining:
        orders = [np.arange(num)] if reading.first else reading.orders(pool)
        by_order = [outcomes(order.tolist(), _counts(costs[order], remaining, reading.unit)) for order in orders]
        means |= {
            size: mean_of([runs[i] for runs in by_order], exact=reading.first) for i, size in enumerate(remaining)
        }
    return [means[size] for size in reading.sizes]


def _counts(costs: Floats, sizes: Sequence[int], unit: Unit) -> list[int]:
    """Return the number of samples of a run at each size, by the costs of samples in the run's order."""
    return list(sizes) if unit == "samples" else np.searchsorted(np.cumsum(costs), sizes, side="right").tolist()


def _measure_counts(
    pool: ProblemPool, measure: Measure, order: Sequence[int], counts: Sequence[int]
) -> list[ReplayOutcome]:
    """Return the outcomes of a measure on the first samples of an order, one outcome for each count."""
    outcomes: list[ReplayOutcome] = []
    for count in counts:
        drawn = [pool.drawn[i] for i in order[:count]]
        tokens = [sample.tokens for sample in drawn]
        dollars = (
            sum(sample.usd for sample in drawn if sample.usd is not None)
            if all(sample.usd is not None for sample in drawn)
            else None
        )
        value = measure.of_run(sum(sample.right is True for sample in drawn) / len(drawn)) if drawn else 0.0
        outcomes.append(ReplayOutcome(None, value, len(drawn), sum(tokens), 0, max(tokens, default=0), "done", dollars))
    return outcomes


def _answers(pool: ProblemPool, truncated: str) -> tuple[list[int], list[float]]:
    """Return the class of each sample's answer, -1 without a vote, and 1 for right answers, else 0."""
    is_silent = [
        drawn.answer_class is None or (truncated == "drop" and drawn.status == "truncated") for drawn in pool.drawn
    ]
    classes = [-1 if silent else drawn.answer_class or 0 for drawn, silent in zip(pool.drawn, is_silent, strict=True)]
    return classes, [float(drawn.right is True) for drawn in pool.drawn]


def _measure(pool: ProblemPool, measure: Measure, reading: ReplaySettings) -> Averaged:
    return _exact(measure.at_k(len(pool.drawn), sum(drawn.right is True for drawn in pool.drawn), reading.sizes))


def _majority(pool: ProblemPool, selection: Majority, reading: ReplaySettings) -> Averaged:
    return _exact(majority_at_k(*_answers(pool, selection.truncated), reading.sizes))


def _best(pool: ProblemPool, selection: Best, reading: ReplaySettings) -> Averaged:
    classes, right = _answers(pool, selection.truncated)
    scores = RecordedScores(pool).aggregates_of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    return _exact(best_at_k(classes, scores, right, reading.sizes))


def _weigh(pool: ProblemPool, selection: Weighted, reading: ReplaySettings) -> Averaged:
    classes, right = _answers(pool, selection.truncated)
    recorded = RecordedScores(pool)
    scores = recorded.aggregates_of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    weights = to_unit(scores, range_of(recorded.get(selection.verifier), scores))
    return weighted_at_k(classes, weights, right, reading.sizes, rng=reading.rng(pool), draws=reading.draws)


def _exact(values: Floats) -> Averaged:
    return Averaged(values, np.zeros(values.shape))


# Means of selections and measures over all subsets, without a run.
_CLOSED: Mapping[type, Callable[[ProblemPool, Any, ReplaySettings], Averaged]] = {
    Measure: _measure,
    Majority: _majority,
    Best: _best,
    Weighted: _weigh,
}

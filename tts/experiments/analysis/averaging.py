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
from typing import Any, Final, NamedTuple

import numpy as np

from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import (
    RecordedScores,
    RecordedSearch,
    ReplayOutcome,
    prefix_spends,
    usd_of,
)
from tts.experiments.analysis.scoring_cost import mean_costs
from tts.randomness import generator, hash64
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.statistics import max_at_k, pass_at_k, pass_hat_k
from tts.statistics.selection import Averaged, best_at_k, majority_at_k, weighted_at_k
from tts.verifiers.base import is_half_infinite, to_unit

# a function from an order of samples, and counts of its first samples, to an outcome for each count
_Outcomes = Callable[[Sequence[int], Sequence[int]], list[ReplayOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The parameters of a replay.

    Args:
        sizes: The numbers of samples of a run.
        first: Whether runs take only the first samples, in the order of drawing.
        draws: The number of random subsets of a pool, where needed.
        seed: The seed of the subsets.
        shared: Whether `auto` divides the sum of all problems' sizes.
    """

    sizes: tuple[int, ...]
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
    if isinstance(plan, Measure):
        selection, stop_rule, reads_scores = plan, None, False
    else:
        selection, stop_rule = plan.selection, plan.stopping
        parts = [part for part in (selection, stop_rule) if part is not None]
        reads_scores = any(needs_of(part).verifiers for part in parts)
    if not reading.first and stop_rule is None and getattr(selection, "temperature", None) is None:
        closed_form = _CLOSED.get(type(selection))
        if closed_form is not None and not _goes_by_ranks(pool, selection):
            averages = closed_form(pool, selection, reading)
            return _closed_form_means(pool, averages, reading.sizes, verified=reads_scores)
    if isinstance(plan, Measure):
        outcomes = partial(_measure_counts, pool, plan)
    else:
        outcomes = RecordedSearch(pool, plan).prefixes
    return _means(pool, reading, outcomes)


def _goes_by_ranks(pool: ProblemPool, selection: Any) -> bool:
    """Return whether scores count by their ranks among those of a run, so that no sample has a weight of its own."""
    return isinstance(selection, Weighted) and is_half_infinite(RecordedScores(pool).range_of(selection.verifier))


def _closed_form_means(
    pool: ProblemPool, averages: Averaged, sizes: Sequence[int], *, verified: bool
) -> list[RunMeans]:
    """Return the means over all subsets of a pool at each size.

    Args:
        pool: The recorded samples.
        averages: The mean and the error of right answers at each size; NaN: the pool is too small.
        sizes: The numbers of samples of a subset.
        verified: Whether verifiers score the samples.
    """
    tokens = [sample.tokens for sample in pool.drawn]
    mean_tokens = float(np.mean(tokens))
    mean_usd = float(np.mean([usd_of(sample) for sample in pool.drawn]))
    verifier_tokens = mean_costs(pool.drawn, sizes) if verified else np.zeros(len(sizes))  # [sizes]
    longest = max_at_k(tokens, sizes)  # [sizes]
    counts = np.array(sizes, np.float64)
    generated = counts * mean_tokens
    columns = (averages.value, averages.error, counts, generated, verifier_tokens, longest, counts * mean_usd)
    rows = np.stack(columns, axis=1).tolist()  # [sizes, fields of RunMeans]
    return [_UNKNOWN if math.isnan(row[0]) else RunMeans(*row) for row in rows]


def mean_of(outcomes: Sequence[ReplayOutcome], *, exact: bool) -> RunMeans:
    """Return the means of runs at one size.

    Args:
        outcomes: The outcome of each run.
        exact: Whether the outcomes are of all possible runs, so that `error` is 0.
    """
    names = [name for name in RunMeans._fields if name != "error"]
    # a row for each run and a column for each name; the conversion turns None into NaN
    table = np.array([[getattr(outcome, name) for name in names] for outcome in outcomes], np.float64)
    means = dict(zip(names, table.mean(axis=0).tolist(), strict=True))
    error = (
        0.0
        if exact or len(table) == 1
        else float(table[:, names.index("right")].std(ddof=1)) / math.sqrt(len(outcomes))
    )
    return RunMeans(error=error, **means)


def _means(pool: ProblemPool, settings: ReplaySettings, outcomes: _Outcomes) -> list[RunMeans]:
    """Return the means over runs at each size.

    Runs are all ordered subsets where these are few, else the beginnings of random orders. Subsets in the recorded
    order are not enough: a stop rule depends on the order of samples, and so does a selection among equals.

    Args:
        pool: The recorded samples.
        settings: The settings of the replay.
        outcomes: The function that runs a plan or measure on an order of samples.
    """
    num_samples = len(pool.drawn)
    means: dict[int, RunMeans] = {}
    for size in settings.sizes:
        if size > num_samples:
            means[size] = _UNKNOWN
        elif not settings.first and math.perm(num_samples, size) <= settings.draws:
            subsets = permutations(range(num_samples), size)
            means[size] = mean_of([outcomes(subset, [size])[0] for subset in subsets], exact=True)
    remaining_sizes = [size for size in settings.sizes if size not in means]
    if remaining_sizes:
        orders = [np.arange(num_samples)] if settings.first else settings.orders(pool)
        runs = [outcomes(order.tolist(), remaining_sizes) for order in orders]  # an outcome for each remaining size
        for size, size_outcomes in zip(remaining_sizes, zip(*runs, strict=True), strict=True):
            means[size] = mean_of(size_outcomes, exact=settings.first)
    return [means[size] for size in settings.sizes]


def _measure_counts(
    pool: ProblemPool, measure: Measure, order: Sequence[int], counts: Sequence[int]
) -> list[ReplayOutcome]:
    """Return the outcomes of a measure on the first samples of an order, one outcome for each count."""
    spends = prefix_spends([pool.drawn[i] for i in order], at_once=True)
    outcomes: list[ReplayOutcome] = []
    for count in counts:
        samples = [pool.drawn[i] for i in order[:count]]
        spend = spends[count]
        right_share = sum(sample.right is True for sample in samples) / len(samples)
        outcomes.append(
            ReplayOutcome(
                answer=None,
                right=measure.of_run(right_share),
                samples=count,
                generated_tokens=spend.tokens,
                verifier_tokens=0,
                path_tokens=spend.path,
                stopped_by="done",
                usd=spend.known_usd,
            )
        )
    return outcomes


def _answers(pool: ProblemPool, truncated: str) -> tuple[list[int], list[float]]:
    """Return the class of each sample's answer, and 1 for each right answer, else 0.

    Args:
        pool: The recorded samples.
        truncated: Whether truncated samples vote: "drop" gives them the class -1, which samples without an answer also
            have.
    """
    dropped_status = "truncated" if truncated == "drop" else None
    classes = [
        -1 if sample.answer_class is None or sample.status == dropped_status else sample.answer_class
        for sample in pool.drawn
    ]
    return classes, [float(sample.right is True) for sample in pool.drawn]


def _measure(pool: ProblemPool, measure: Measure, settings: ReplaySettings) -> Averaged:
    num_right = sum(sample.right is True for sample in pool.drawn)
    return _exact(measure.at_k(len(pool.drawn), num_right, settings.sizes))


def _majority(pool: ProblemPool, selection: Majority, settings: ReplaySettings) -> Averaged:
    classes, right = _answers(pool, selection.truncated)
    return _exact(majority_at_k(classes, right, settings.sizes))


def _best(pool: ProblemPool, selection: Best, settings: ReplaySettings) -> Averaged:
    classes, right = _answers(pool, selection.truncated)
    scores = RecordedScores(pool).aggregates_of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    return _exact(best_at_k(classes, scores, right, settings.sizes))


def _weigh(pool: ProblemPool, selection: Weighted, settings: ReplaySettings) -> Averaged:
    classes, right = _answers(pool, selection.truncated)
    recorded = RecordedScores(pool)
    scores = recorded.aggregates_of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    weights = to_unit(scores, recorded.range_of(selection.verifier))
    return weighted_at_k(classes, weights, right, settings.sizes, rng=settings.rng(pool), draws=settings.draws)


def _exact(values: Floats) -> Averaged:
    return Averaged(values, np.zeros(values.shape))


# Means of selections and measures over all subsets, without a run.
_CLOSED: Mapping[type, Callable[[ProblemPool, Any, ReplaySettings], Averaged]] = {
    Measure: _measure,
    Majority: _majority,
    Best: _best,
    Weighted: _weigh,
}

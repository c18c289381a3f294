"""Means over one pool: what a plan reaches on average over the runs of best-of-n that the pool's samples allow.

Means are exact where there is a closed form (majority, best, pass@k), where all subsets are enumerated, and on the first samples only.
Other means are over random subsets. These are the same for every plan and size, so that differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.experiments.analysis.pools import Pool
from tts.experiments.analysis.recorded_search import RecordedScores, RecordedSearch, ReplayOutcome, covered
from tts.experiments.analysis.scoring_cost import cost_of, mean_costs
from tts.randomness import generator, hash64
from tts.search.ends import GoesByScores
from tts.search.plan import Plan
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.statistics import pass_at_k
from tts.statistics.selection import Averaged, best_at_k, majority_at_k, weighted_at_k
from tts.verifiers.base import to_unit
from tts.verifiers.ranges import range_of

Floats = NDArray[np.float64]
Unit = Literal["samples", "tokens"]
_Runs = Sequence[Sequence[int]]  # the samples of each run, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The parameters of a replay.

    Args:
        sizes: limits of a run. unit: of them: samples, or tokens including verifier tokens.
        first: only the first samples, in the order of drawing. draws: random subsets of a pool, where needed. seed: of the subsets.
    """

    sizes: tuple[int, ...]
    unit: Unit = "samples"
    first: bool = False
    draws: int
    seed: int

    def rng(self, pool: Pool) -> np.random.Generator:
        """Return the generator of a pool, in its initial state."""
        return generator(self.seed, hash64(pool.cell.dataset, pool.cell.problem), "replay", pool.cell.seed)


class RunMeans(NamedTuple):
    """Means over runs; all NaN: the pool is too small. error: the standard error of `right` from random subsets."""

    right: float
    error: float
    samples: float
    generated_tokens: float
    verifier_tokens: float


_UNKNOWN: Final = RunMeans(*[math.nan] * 5)


def means_of(pool: Pool, plan: Plan | None, reading: ReplaySettings) -> list[RunMeans]:
    """Return the means of one pool at each size.

    Args:
        plan: with its selection; None: a perfect selection.

    Raises:
        ConfigError: the plan needs a score that was not recorded.
    """
    selection, stopping = (None, None) if plan is None else (plan.selection, plan.stopping)
    verified = selection is not None and (bool(selection.verifiers) or isinstance(stopping, GoesByScores))
    closed = _CLOSED.get(type(selection)) if stopping is None else None
    if closed is not None and not reading.first and reading.unit == "samples":
        averaged = closed(pool, selection, reading)
        scoring = mean_costs(pool.drawn, reading.sizes) if verified else np.zeros(len(reading.sizes))
        tokens = float(np.mean([drawn.tokens for drawn in pool.drawn]))
        return [
            _UNKNOWN if math.isnan(right) else RunMeans(right, error, n, n * tokens, cost)
            for n, right, error, cost in zip(reading.sizes, averaged.value.tolist(), averaged.error.tolist(), scoring.tolist(), strict=True)
        ]
    run = partial(covered, pool) if plan is None else RecordedSearch(pool, plan).run
    return [
        _UNKNOWN if runs is None else _mean(list(map(run, runs)), exact=exact) for runs, exact in _runs(pool, reading, verified=verified)
    ]


def tokens_of(pool: Pool, *, verified: bool) -> Floats:
    """Return the tokens of each sample; `verified`: including those of its score, if it were scored alone."""
    return np.array([one.tokens + (cost_of(pool.drawn, [i]) if verified else 0) for i, one in enumerate(pool.drawn)], np.float64)


def _mean(outcomes: Sequence[ReplayOutcome], *, exact: bool) -> RunMeans:
    table = np.array([[o.right, o.samples, o.generated_tokens, o.verifier_tokens] for o in outcomes], np.float64)
    error = 0.0 if exact else float(table[:, 0].std(ddof=1)) / math.sqrt(len(outcomes))
    right, *costs = table.mean(axis=0).tolist()
    return RunMeans(right, error, *costs)


def _runs(pool: Pool, reading: ReplaySettings, *, verified: bool) -> Iterator[tuple[_Runs | None, bool]]:
    """Return the runs of each size, and whether they are all possible ones; None: the pool is too small.

    A limit in tokens ends a run before the first sample that does not fit, so a pool that fits as a whole does not show where it ends.
    """
    num = len(pool.drawn)
    rng, costs = reading.rng(pool), tokens_of(pool, verified=verified)
    orders: list[list[int]] = [list(range(num))] if reading.first else [rng.permutation(num).tolist() for _ in range(reading.draws)]
    for size in reading.sizes:
        if size > (num if reading.unit == "samples" else costs.sum()):
            yield None, True
        elif reading.unit == "tokens":
            yield [order[: int(np.searchsorted(np.cumsum(costs[order]), size, side="right"))] for order in orders], reading.first
        elif not reading.first and math.comb(num, size) <= reading.draws:
            yield list(combinations(range(num), size)), True
        else:
            yield [order[:size] for order in orders], reading.first


def _answers(pool: Pool, truncated: str) -> tuple[list[int], list[float]]:
    """Return the class of each sample's answer, -1 without a vote, and whether it is right."""
    silent = [drawn.answer_class is None or (truncated == "drop" and drawn.status == "truncated") for drawn in pool.drawn]
    kinds = [-1 if mute else drawn.answer_class or 0 for drawn, mute in zip(pool.drawn, silent, strict=True)]
    return kinds, [float(drawn.right is True) for drawn in pool.drawn]


def _coverage(pool: Pool, _selection: None, reading: ReplaySettings) -> Averaged:
    return _exact(pass_at_k(len(pool.drawn), sum(drawn.right is True for drawn in pool.drawn), reading.sizes))


def _majority(pool: Pool, selection: Majority, reading: ReplaySettings) -> Averaged:
    return _exact(majority_at_k(*_answers(pool, selection.truncated), reading.sizes))


def _best(pool: Pool, selection: Best, reading: ReplaySettings) -> Averaged:
    kinds, right = _answers(pool, selection.truncated)
    scores = RecordedScores(pool).of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    return _exact(best_at_k(kinds, scores, right, reading.sizes))


def _weighted(pool: Pool, selection: Weighted, reading: ReplaySettings) -> Averaged:
    kinds, right = _answers(pool, selection.truncated)
    recorded = RecordedScores(pool)
    scores = recorded.of(range(len(pool.drawn)), selection.verifier, selection.aggregate)
    weights = to_unit(scores, range_of(recorded.get(selection.verifier), scores))
    return weighted_at_k(kinds, weights, right, reading.sizes, rng=reading.rng(pool), draws=reading.draws)


def _exact(values: Floats) -> Averaged:
    return Averaged(values, np.zeros(values.shape))


# What has averages over all subsets that need no run; None: a perfect selection.
_CLOSED: Mapping[type, Callable[[Pool, Any, ReplaySettings], Averaged]] = {
    type(None): _coverage,
    Majority: _majority,
    Best: _best,
    Weighted: _weighted,
}

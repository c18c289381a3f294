"""The effect of selection by a verifier's scores, by number of samples.

The effect has the score of the chosen sample, the accuracy of this sample, and the accuracy of the vote. The score of
the chosen sample (the proxy) rises with every sample. Where the accuracy (the gold) falls, or rises less, selection
exploits errors of the verifier. All points are exact means over subsets of the recorded samples, except weighted votes,
which use random subsets (`tts.experiments.analysis.replay`).

Source: Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization" (2022), arXiv:2210.10760, for proxy
against gold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tts.experiments.analysis.curves import Curve, Floats
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedSearch, score_of
from tts.experiments.analysis.replay import CHANCE, COVERAGE, replay
from tts.experiments.verifier_report.scores import VerifierScores
from tts.randomness import generator
from tts.search.plan import parse
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.statistics import Estimate, best_at_k, clustered_mean, paired_difference

_ENOUGH = 0.9  # share of problems whose pools must be large enough for a size


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The candidate with the highest score compared with the majority, on all samples of each pool.

    Args:
        same: The share of problems where both have the same answer.
        num: The number of pools where the two answers differ.
        by_score: The number of these pools where the highest score is right.
        by_vote: The number of these pools where the majority is right.
    """

    same: Estimate
    num: int
    by_score: int
    by_vote: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionEffect:
    """Best-of-N by a verifier's scores, at B sizes.

    Args:
        sizes: [B], the numbers of samples.
        proxy: [B], the mean score of the chosen sample.
        best: [B], accuracies of the highest score.
        majority: [B], accuracies of the vote.
        weighted: [B], accuracies of votes weighted by score.
        coverage: [B], accuracies of a perfect selection.
        chance: [B], accuracies of a random choice.
        peak: The size at which the highest score is most accurate.
        fall: The accuracy of the highest score at the largest size minus its accuracy at the peak.
        over_majority: The accuracy of the highest score minus the vote's, at the largest size, on the same problems.
        weighted_over_majority: The accuracy of the weighted vote minus the plain vote's, at the largest size, on the
            same problems.
        agreement: The comparison of both selections; see `Agreement`.
    """

    sizes: Sequence[int]
    proxy: Sequence[Estimate]
    best: Sequence[Estimate]
    majority: Sequence[Estimate]
    weighted: Sequence[Estimate]
    coverage: Sequence[Estimate]
    chance: Sequence[Estimate]
    peak: int
    fall: Estimate
    over_majority: Estimate
    weighted_over_majority: Estimate
    agreement: Agreement


def selection_effect(scored: VerifierScores, *, aggregate: str = "last", seed: int = 0) -> SelectionEffect | str:
    """Return the effect of selection by scores, or the reason why the effect cannot be computed.

    Args:
        scored: The scores of the verifier, with verdicts on the samples.
        aggregate: The aggregation of step scores.
        seed: The seed of intervals and subsets.

    Cost: of order n^3 for each pool of n samples, as `majority_at_k`.
    """
    if scored.range is None:
        return f"the verifier {scored.verifier!r} cannot be made here, which choosing by its scores needs"
    if not scored.pools:
        return "the candidates are not independent samples all of which were scored, as those of tts sample are"
    sizes = _sizes(scored.pools)
    by_score = f"{BestOfN()} | {Best(verifier=scored.role, aggregate=aggregate)}"
    by_weight = f"{BestOfN()} | {Weighted(verifier=scored.role, aggregate=aggregate)}"
    by_vote = f"{BestOfN()} | {Majority()}"
    strategies = [by_score, by_vote, by_weight, COVERAGE, CHANCE]
    best, majority, weighted, coverage, chance = (
        replayed.curve for replayed in replay(scored.pools, strategies, sizes, seed=seed)
    )
    rng = generator(seed, 0, "trust", scored.role, "choosing")
    peak = max(range(len(sizes)), key=lambda i: best.accuracy[i].value)
    return SelectionEffect(
        sizes=sizes,
        proxy=[
            clustered_mean(row[~np.isnan(row)], rng=rng)
            for row in _mean_promise(scored, best.problems, sizes, aggregate)
        ],
        best=best.accuracy,
        majority=majority.accuracy,
        weighted=weighted.accuracy,
        coverage=coverage.accuracy,
        chance=chance.accuracy,
        peak=sizes[peak],
        fall=_difference(best, best, rng, at=(len(sizes) - 1, peak)),
        over_majority=_difference(best, majority, rng),
        weighted_over_majority=_difference(weighted, majority, rng),
        agreement=_agreement(scored.pools, by_score, by_vote, rng),
    )


def _sizes(pools: Sequence[ProblemPool]) -> list[int]:
    """Return powers of two, and the largest size that nearly all problems have samples for."""
    largest_pools: dict[str, int] = {}
    for pool in pools:
        largest_pools[pool.cell.problem] = max(largest_pools.get(pool.cell.problem, 0), len(pool.drawn))
    ordered = sorted(largest_pools.values(), reverse=True)
    largest = max(1, ordered[math.ceil(_ENOUGH * len(ordered)) - 1])
    return sorted({*(2**i for i in range(largest.bit_length())), largest})


def _mean_promise(scored: VerifierScores, problems: Sequence[str], sizes: Sequence[int], aggregate: str) -> Floats:
    """Return the mean score of the chosen sample, [B, P], over a problem's pools; NaN: no score is known.

    `best_at_k` averages a value of the chosen candidate over subsets. The value is the score, scaled to [0, 1]. The
    divisor is the mean of another value, which is 1 where the score is known.
    """
    low, high = float(scored.scores.min()), float(scored.scores.max())
    column = {problem: i for i, problem in enumerate(problems)}
    sums, num = np.zeros((len(sizes), len(problems))), np.zeros((len(sizes), len(problems)))
    for pool in scored.pools:
        scores = np.array([score_of(drawn, scored.role, aggregate) for drawn in pool.drawn])
        answers = [-1 if drawn.answer_class is None else drawn.answer_class for drawn in pool.drawn]
        is_known = ~np.isnan(scores)
        scaled = np.where(is_known, (scores - low) / (high - low) if high > low else 0.0, 0.0)
        chance, total = (
            best_at_k(answers, scores, values, sizes) for values in (is_known.astype(np.float64), np.clip(scaled, 0, 1))
        )
        has_score = np.nan_to_num(chance) > 0
        sums[has_score, column[pool.cell.problem]] += low + (high - low) * total[has_score] / chance[has_score]
        num[has_score, column[pool.cell.problem]] += 1
    return np.where(num > 0, sums / np.where(num > 0, num, 1), np.nan)


def _agreement(pools: Sequence[ProblemPool], by_score: str, by_vote: str, rng: np.random.Generator) -> Agreement:
    same: dict[str, list[bool]] = {}
    differing: list[tuple[bool, bool]] = []
    for pool in pools:
        order = range(len(pool.drawn))
        best, majority = (RecordedSearch(pool, parse(text)).run(order) for text in (by_score, by_vote))
        class_of: Mapping[str | None, int | None] = {drawn.answer: drawn.answer_class for drawn in pool.drawn}
        same.setdefault(pool.cell.problem, []).append(class_of.get(best.answer) == class_of.get(majority.answer))
        if not same[pool.cell.problem][-1]:
            differing.append((best.right is True, majority.right is True))
    shares = [sum(agreements) / len(agreements) for agreements in same.values()]
    return Agreement(
        same=clustered_mean(shares, rng=rng, bounds=(0, 1)),
        num=len(differing),
        by_score=sum(best for best, _ in differing),
        by_vote=sum(majority for _, majority in differing),
    )


def _difference(first: Curve, second: Curve, rng: np.random.Generator, at: tuple[int, int] = (-1, -1)) -> Estimate:
    """Return the difference in accuracy of two points, on the problems that have both points."""
    pair = np.stack([first.shares[at[0]], second.shares[at[1]]])
    pair = pair[:, ~np.isnan(pair).any(axis=0)]
    return paired_difference(*pair, rng=rng).mean

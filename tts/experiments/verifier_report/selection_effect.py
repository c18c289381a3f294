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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.experiments.analysis.curves import Curve, Floats
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import score_of
from tts.experiments.analysis.replay import CHANCE, COVERAGE, replay
from tts.experiments.verifier_report.scores import VerifierScores
from tts.randomness import generator
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.statistics import Estimate, best_at_k, clustered_mean, paired_difference

_LEAST_POOLS = 0.9  # share of problems whose pools must be large enough for a size


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
    replayed_curves = replay(scored.pools, strategies, sizes, seed=seed)
    best, majority, weighted, coverage, chance = (replayed.curve for replayed in replayed_curves)
    rng = generator(seed, 0, "trust", scored.role, "choosing")
    peak = max(range(len(sizes)), key=lambda i: best.accuracy[i].value)  # index of the size
    mean_scores = _mean_chosen_scores(scored, best.problems, sizes, aggregate)  # [B, P]
    return SelectionEffect(
        sizes=sizes,
        proxy=[clustered_mean(size_scores[~np.isnan(size_scores)], rng=rng) for size_scores in mean_scores],
        best=best.accuracy,
        majority=majority.accuracy,
        weighted=weighted.accuracy,
        coverage=coverage.accuracy,
        chance=chance.accuracy,
        peak=sizes[peak],
        fall=_difference(best, best, rng, points=(len(sizes) - 1, peak)),
        over_majority=_difference(best, majority, rng),
        weighted_over_majority=_difference(weighted, majority, rng),
    )


def _sizes(pools: Sequence[ProblemPool]) -> list[int]:
    """Return powers of two, and the largest size that nearly all problems have samples for."""
    largest_pools: dict[str, int] = {}
    for pool in pools:
        largest_pools[pool.cell.problem] = max(largest_pools.get(pool.cell.problem, 0), len(pool.drawn))
    pool_sizes = sorted(largest_pools.values(), reverse=True)
    num_enough = math.ceil(_LEAST_POOLS * len(pool_sizes))
    largest = max(1, pool_sizes[num_enough - 1])
    powers_of_two = [2**i for i in range(largest.bit_length())]
    return sorted({*powers_of_two, largest})


def _mean_chosen_scores(
    scored: VerifierScores, problems: Sequence[str], sizes: Sequence[int], aggregate: str
) -> Floats:
    """Return the mean score of the chosen sample, [B, P], over a problem's pools; NaN: no score is known.

    `best_at_k` averages a value of the chosen candidate over subsets. The value is the score, scaled to [0, 1], and 0
    where the score is unknown. The average is then divided by the share of subsets whose chosen candidate has a known
    score.
    """
    low, high = float(scored.scores.min()), float(scored.scores.max())
    index_of = {problem: i for i, problem in enumerate(problems)}
    shape = (len(sizes), len(problems))
    sums, num_pools = np.zeros(shape), np.zeros(shape)
    for pool in scored.pools:
        scores = np.array([score_of(sample, scored.role, aggregate) for sample in pool.drawn])
        answers = [-1 if sample.answer_class is None else sample.answer_class for sample in pool.drawn]
        is_known = ~np.isnan(scores)
        scaled = (scores - low) / (high - low) if high > low else np.zeros(len(scores))
        known_share = best_at_k(answers, scores, is_known.astype(np.float64), sizes)  # [B]
        scaled_mean = best_at_k(answers, scores, np.clip(np.where(is_known, scaled, 0.0), 0, 1), sizes)  # [B]
        has_score = np.nan_to_num(known_share) > 0
        column = index_of[pool.cell.problem]
        sums[has_score, column] += low + (high - low) * scaled_mean[has_score] / known_share[has_score]
        num_pools[has_score, column] += 1
    return np.where(num_pools > 0, sums / np.where(num_pools > 0, num_pools, 1), np.nan)


def _difference(first: Curve, second: Curve, rng: np.random.Generator, points: tuple[int, int] = (-1, -1)) -> Estimate:
    """Return the difference in accuracy of a point of each curve, on the problems that have both points."""
    first_point, second_point = points
    first_shares, second_shares = first.shares[first_point], second.shares[second_point]  # [P] each
    has_both = ~np.isnan(first_shares) & ~np.isnan(second_shares)
    return paired_difference(first_shares[has_both], second_shares[has_both], rng=rng).mean

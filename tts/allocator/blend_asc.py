"""Blend-ASC: the next sample goes to the problem whose most frequent answer is least sure.

Idea: of a problem's two leading answers, the votes say how likely it is that the second would win a longer vote. Two
    such errors are known. The posterior mass of that event (ASC) is small early, with few votes. The bound of a
    martingale (PPR-1v1) is larger, and shrinks at the best possible rate. So their blend begins as the first and ends
    as the second, as the total is spent. It has no parameter, and no prior over problems: it asks which answer is most
    frequent, and never whether that answer is right.
Source: Blend-ASC, Feng, Alonso and Odonnat, "Optimal Self-Consistency for Efficient Reasoning with Large Language
    Models" (2511.12309): abstract and reviews alone, which say what is blended and why. Its weights, linear in the
    share of the total that is spent, are unverified. ASC is algorithm B1 (`tts.search.stop_rules.posterior`); PPR-1v1
    is of Jain et al., "PAC Mode Estimation using PPR Martingale Confidence Sequences" (2109.05047), from memory.
Differs: a wave serves a tenth of the problems, not one, so that samples are drawn at once. The second answer alone
    is compared with the leader, without a union bound over all answers.

Shapes: P problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts.allocator.difficulty import Floats, Whole
from tts.allocator.values import ProblemStates, Worth, plain_worth


def posterior_error(leader: Whole, second: Whole) -> Floats:
    """Return the posterior chance [P] that the second answer is the more frequent one.

    It is Pr[X < 1/2] with X ~ Beta(leader + 1, second + 1).
    """
    from scipy import special

    return special.betainc(leader + 1.0, second + 1.0, 0.5)


def martingale_error(leader: Whole, second: Whole) -> Floats:
    """Return the greatest error rate [P] at which PPR-1v1 goes on.

    It is the posterior density of a share of 1/2, at most 1. The prior is uniform, with density 1. The ratio of prior
    to posterior density at the true share is a martingale of mean 1. So it ever exceeds 1 / error with a chance of at
    most that error (Ville's inequality).
    """
    from scipy import special

    votes = leader + second
    log_ways = special.gammaln(votes + 2.0) - special.gammaln(leader + 1.0) - special.gammaln(second + 1.0)
    return np.minimum(1.0, np.exp(log_ways - votes * np.log(2.0)))


@dataclass(frozen=True, slots=True)
class Blended:
    """Values that are the blended error of each problem's vote; see the module."""

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return the blended error; 0 for a solved problem."""
        del price
        share = 1.0 - state.left / (state.left + float((state.samples * state.cost).sum()))  # of the total, spent
        error = (1 - share) * posterior_error(state.leader, state.second)
        error += share * martingale_error(state.leader, state.second)
        return plain_worth(np.where(state.solved, 0.0, error))

    def chance(self, state: ProblemStates) -> Floats:
        """Return the posterior chance that the leading answer is more frequent than the second."""
        return np.where(state.solved, 1.0, 1.0 - posterior_error(state.leader, state.second))

    def price(self, samples: float) -> float:
        """Return 0: errors have no price, and the total alone ends the division."""
        del samples
        return 0.0

    def adapt(self, state: ProblemStates) -> Blended:
        """Return the same values: there is nothing to learn."""
        del state
        return self

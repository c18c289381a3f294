"""Mixture SPRT: a sequential test between the two leading answers that needs no assumed share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from scipy.special import betainc, betaln

from tts.checks import check_parameters, number
from tts.search.answers import votes_of
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.search.stop_rules.sprt import ErrorRate, check_error_rates, decided_by
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSPRT(StopRule):
    """Stops as `sprt` does, with a prior over the first answer's share in place of one assumed share.

    The share has the law Beta(prior, prior) above one half. The larger the prior, the smaller the differences that are looked for.

    Guarantee: that of `sprt`. With K possible answers, the chance that it ever stops for one that is not the most likely is at most
    (K - 1) alpha / (1 - beta). None is given for a stop at no difference. The defaults make the bound void: a lead
    of three votes stops. `mixture_sprt(prior=1, beta=0.05)` errs with a chance of at most 0.053 (K - 1); seven equal answers stop there.

    Source: ConSol, Lee et al. (2503.17587), its abstract and code (defaults: prior 1e6, beta 0.94994); Robbins, "Statistical methods
    related to the law of the iterated logarithm" (1970). The bound for the two leaders of many answers is ours.

    Args:
        prior: both parameters of the Beta law, in [1e-3, 1e9]. alpha, beta: error rates as in `sprt`.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | mixture_sprt(prior=1, beta=0.05) | majority"
        ... )
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 16, 'mixture_sprt')
    """

    registered_as = "mixture_sprt"
    prior: Annotated[float, number(1e-3, 1e9)] = 1e6
    alpha: ErrorRate = 0.05
    beta: ErrorRate = 0.94994

    def __post_init__(self) -> None:
        check_parameters(self)
        check_error_rates(self.alpha, self.beta)

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the test is decided."""
        votes = votes_of(candidates)
        if not votes.total:
            return None
        return decided_by(log_mixture_ratio(votes.first, votes.second, self.prior), self.alpha, self.beta, "mixture_sprt")


@lru_cache(maxsize=10_000)
def log_mixture_ratio(first: int, second: int, prior: float) -> float:
    """Return the log of the mean of (2p)^first (2(1 - p))^second, first >= second, over p of law Beta(prior, prior) above one half."""
    a, b = prior + first, prior + second
    above = float(betainc(b, a, 0.5))  # the part of Beta(a, b) above one half
    # the law is symmetric, so that half of it lies above one half
    return float(betaln(a, b) - betaln(prior, prior)) + (first + second + 1) * math.log(2) + math.log(above)

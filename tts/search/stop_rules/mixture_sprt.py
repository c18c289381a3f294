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
from tts.search.stop_rules.sprt import ErrorRate, Preset, check_error_rates, decision, preset_parameters
from tts.types import Candidate

_PRESETS = {"bounded": (1.0, 0.05), "consol": (1e6, 0.94994)}  # prior and beta


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSPRT(StopRule):
    """Stops as `sprt` does, with a prior over the first answer's share in place of one assumed share.

    The share has the law Beta(prior, prior) above one half. The larger the prior, the smaller the differences that are
    looked for.

    Guarantee: that of `sprt`. With K possible answers, the chance that it ever stops for one that is not the most
    likely is at most (K - 1) alpha / (1 - beta). None is given for a stop at no difference. By default it errs with a
    chance of at most 0.053 (K - 1), and seven equal answers stop. The preset "consol" makes the bound void: a lead of
    three votes stops.

    Source: ConSol, Lee et al. (2503.17587), its abstract and code (prior 1e6, beta 0.94994); Robbins, "Statistical
    methods related to the law of the iterated logarithm" (1970). The bound for the two leaders of many answers, and the
    default parameters, are ours.

    Args:
        preset: What prior and beta are where they are None: "bounded", 1 and 0.05; "consol", the paper's.
        prior: Both parameters of the Beta law, in [1e-3, 1e9]; None: by the preset.
        alpha: The error rate as in `sprt`.
        beta: The error rate as in `sprt`; None: by the preset.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | mixture_sprt | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 16, 'mixture_sprt')
    """

    registered_as = "mixture_sprt"
    preset: Preset = "bounded"
    prior: Annotated[float, number(1e-3, 1e9)] | None = None
    alpha: ErrorRate = 0.05
    beta: ErrorRate | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        check_error_rates(self.alpha, self._settings[1])

    @property
    def _settings(self) -> tuple[float, float]:
        """The prior and beta, by the preset where they are None."""
        return preset_parameters(self.prior, self.beta, _PRESETS[self.preset])

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the test is decided."""
        votes = votes_of(candidates)
        if not votes.total:
            return None
        prior, beta = self._settings
        log_ratio = log_mixture_ratio(votes.first, votes.second, prior)
        return decision(log_ratio, self.alpha, beta, "mixture_sprt")


@lru_cache(maxsize=10_000)
def log_mixture_ratio(first: int, second: int, prior: float) -> float:
    """Return the log of the mean of (2p)^first (2(1 - p))^second, over p above one half.

    The law of p is Beta(prior, prior), and first >= second.
    """
    a, b = prior + first, prior + second
    mass_above = float(betainc(b, a, 0.5))  # the part of Beta(a, b) above one half
    # the prior is symmetric: half of its mass lies above one half, which adds one factor 2
    log_factors = (first + second + 1) * math.log(2)
    return float(betaln(a, b) - betaln(prior, prior)) + log_factors + math.log(mass_above)

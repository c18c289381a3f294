"""SPRT: a sequential test between the two leading answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tts.checks import check_parameters, choice, number
from tts.errors import ConfigError
from tts.search.answers import votes_of
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate

_EPSILON = 1e-12  # nearest to a bound that a parameter may be
ErrorRate = Annotated[float, number(_EPSILON, 1 - _EPSILON)]
Preset = Annotated[str, choice("bounded", "consol")]
_PRESETS = {"bounded": (0.75, 0.05), "consol": (0.5001, 0.949976)}  # share and beta


@dataclass(frozen=True, slots=True, kw_only=True)
class SPRT(StopRule):
    """Stops when a sequential probability ratio test tells the two leading answers apart.

    It also stops when the test finds no difference.

    The hypothesis that the first answer has `share` of the votes of both is tested against the hypothesis that it has
    half. With a votes for the first and b for the second, the log-likelihood ratio is a ln(2 share) + b ln(2 (1 -
    share)). It stops at ln((1 - beta) / alpha) and above, and at ln(beta / (1 - alpha)) and below. Other answers, and
    candidates without one, do not count. The selection chooses the answer.

    Guarantee: with K possible answers, the chance that it ever stops for one that is not the most likely is at most
    (K - 1) alpha / (1 - beta). This holds at any number of samples (Ville's inequality). With two answers of which one
    has at least `share`, the chance that it ever stops for no difference is at most beta / (1 - alpha). By default it
    errs with a chance of at most 0.053 (K - 1), and eight equal answers stop. The preset "consol" makes both bounds
    void: a lead of three votes stops, whatever was seen before. The most likely answer may be wrong: nothing here
    bounds that.

    Source: ConSol, Lee et al. (2503.17587), its abstract and code (share 0.5001, beta 0.949976); Wald, "Sequential
    tests of statistical hypotheses" (1945). The bounds for the two leaders of many answers, and the default parameters,
    are ours.

    Args:
        preset: What share and beta are where they are None: "bounded", 0.75 and 0.05; "consol", the paper's.
        share: The share of the first answer under the alternative, above 0.5 and below 1; None: by the preset.
        alpha: The rate at which Wald's test errs for a difference, above 0.
        beta: The rate at which it errs for none, above 0, with alpha below 1 in sum; None: by the preset.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=16) | sprt | majority")
        >>> found.answer, found.usage.samples, found.stopped_by
        ('14', 16, 'sprt')
    """

    registered_as = "sprt"
    preset: Preset = "bounded"
    share: Annotated[float, number(0.5 + _EPSILON, 1 - _EPSILON)] | None = None
    alpha: ErrorRate = 0.05
    beta: ErrorRate | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        check_error_rates(self.alpha, self._settings[1])

    @property
    def _settings(self) -> tuple[float, float]:
        """The share and beta, by the preset where they are None."""
        return preset_parameters(self.share, self.beta, _PRESETS[self.preset])

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when the test is decided."""
        votes = votes_of(candidates)
        if not votes.total:
            return None
        share, beta = self._settings
        log_ratio = votes.first * math.log(2 * share) + votes.second * math.log(2 * (1 - share))
        return decision(log_ratio, self.alpha, beta, "sprt")


def preset_parameters(first: float | None, beta: float | None, preset: tuple[float, float]) -> tuple[float, float]:
    """Return the two parameters of a test, those of a preset in place of None."""
    return preset[0] if first is None else first, preset[1] if beta is None else beta


def check_error_rates(alpha: float, beta: float) -> None:
    """Raise ConfigError where the error rates of a sequential test sum to 1 or more."""
    if alpha + beta >= 1:
        raise ConfigError(
            f"alpha is {alpha!r} and beta is {beta!r}, but their sum must be below 1",
            hint="for example alpha=0.05, beta=0.05",
        )


def decision(ratio: float, alpha: float, beta: float, name: str) -> StopDecision | None:
    """Return the decision of Wald's test at a log-likelihood ratio; None: the test goes on.

    Args:
        ratio: The log-likelihood ratio.
        alpha: The rate at which the test errs for a difference.
        beta: The rate at which the test errs for no difference.
        name: The name of the stop rule, which begins the reason.
    """
    if ratio >= math.log((1 - beta) / alpha):
        return StopDecision(name)
    if ratio <= math.log(beta / (1 - alpha)):
        return StopDecision(f"{name}: no difference")
    return None

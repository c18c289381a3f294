"""Confidence: scores from the log-probabilities that were recorded when the policy wrote a trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tts._core.odds import chance, log_odds
from tts.checks import Count, Rule, check_parameters, member
from tts.errors import ConfigError, quote
from tts.types import Problem, Spread, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier

_BOTTOM = 0.1  # share of the groups in "bottom"
_RANGES = MappingProxyType(
    {
        "probability": (0.0, 1.0),
        "logprob": (-math.inf, 0.0),
        "certainty": (0.0, math.inf),
        "top": (0.0, math.inf),
        "entropy": (-math.inf, 0.0),
    }
)
_SPREADS: Mapping[str, Callable[[Spread], float]] = MappingProxyType(
    {
        "certainty": lambda spread: spread.certainty,
        "top": lambda spread: spread.top,
        "entropy": lambda spread: -spread.entropy,
    }
)


def _check(name: str, odds: Any) -> tuple[float, float]:
    """Return the scale and the shift in the value of a parameter.

    Args:
        name: The name of the parameter, for the error.
        odds: The value of the parameter; see `Confidence`.

    Raises:
        ConfigError: the value is not two finite numbers, or the scale is not above 0.
    """
    numbers = tuple(odds) if isinstance(odds, tuple | list) else ()
    are_finite = all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
    if len(numbers) != 2 or not are_finite or numbers[0] <= 0:
        raise ConfigError(
            f"{name} is {quote(odds)}, but must be two finite numbers, a scale above 0 and a shift",
            hint="odds=(1.5, 2.0)",
        )
    scale, shift = numbers
    return float(scale), float(shift)


def groups(tokens: NDArray[Any], window: int) -> NDArray[np.float64]:
    """Return the mean of each run of `window` successive values, [tokens - window + 1].

    If there are fewer values, the result is the mean of all.
    """
    if len(tokens) <= window:
        return np.array([tokens.mean()])
    running_sums = np.cumsum(np.concatenate(([0.0], tokens)))
    return (running_sums[window:] - running_sums[:-window]) / window


def _bottom(tokens: NDArray[np.float64], window: int) -> float:
    """Return the mean of the lowest tenth of the group means."""
    means = groups(tokens, window)
    num_lowest = max(1, int(_BOTTOM * len(means)))
    lowest_means = np.partition(means, num_lowest - 1)[:num_lowest]
    return float(lowest_means.mean())


def _joint(tokens: NDArray[np.float64], window: int) -> float:
    """Return the mean before the last window plus the mean of the last window.

    With a single group, its mean stands for both.
    """
    last_mean = float(tokens[-window:].mean())
    mean_before = float(tokens[:-window].mean()) if len(tokens) > window else last_mean
    return last_mean + mean_before


_REDUCTIONS: Mapping[str, Callable[[NDArray[np.float64], int], float]] = MappingProxyType(
    {
        "mean": lambda tokens, window: float(tokens.mean()),  # noqa: ARG005 - one signature for all
        "sum": lambda tokens, window: float(tokens.sum()),  # noqa: ARG005
        "lowest": lambda tokens, window: float(groups(tokens, window).min()),
        "bottom": _bottom,
        "tail": lambda tokens, window: float(tokens[-window:].mean()),
        "joint": _joint,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence(Verifier):
    """Aggregates a confidence measure over the tokens of a complete or partial trajectory.

    All measures are of the untempered distribution. These combinations are known in the literature:
        - "logprob" over "mean": the mean log-probability.
        - "probability" over "mean": its exponential, the inverse perplexity; perplexity consistency (`rpc`) weighs
          votes by it.
        - "certainty" over "mean": self-certainty.
        - "top" over "lowest": DeepConf's lowest group confidence.
        - "logprob" over "sum": the log-probability of the path. Long paths are penalised, and "probability" over "sum"
          may be 0.
        - "top" over "tail": DeepConf's tail confidence; "entropy" and "logprob" over "tail" are the same of other
          measures, for thinkers, whose answer comes last.
        - "logprob" over "joint": PiCSAR's length-normalised score, reasoning confidence plus answer confidence; over
          "sum" its plain score.

    Source: algorithms B3 (Zhou et al., 2502.00511), B4 (Kang et al., 2502.18581) and B6 (Fu et al., 2508.15260), from
    code. PiCSAR: Leang et al., "PiCSAR: Probabilistic Confidence Selection And Ranking" (2508.21787), from its
    abstract, reviews and a public implementation. Differs:
        - DeepConf uses several numbers of top tokens; here it is 20 everywhere, because measures at different numbers
          cannot be mixed.
        - Groups may also be of the other measures, for backends that record only the log-probability of the drawn
          token.
        - PiCSAR's answer confidence is of an answer that is asked for anew; here it is of the last `window` tokens as
          they were written.
    As in DeepConf's code, a trajectory shorter than the window is one group.

    Args:
        measure: What is measured at each token; high is confident. "probability" or "logprob" of the drawn token;
            "certainty", the divergence of the token's distribution from the uniform one (takes a backend with
            `spreads`); "top", the mean -ln p of the 20 most likely tokens (takes `tops`); "entropy", that of the
            token's distribution, with a minus sign (takes `tops`).
        over: "mean" or "sum" of all tokens; "lowest" group mean; "bottom", the mean of the lowest tenth of the group
            means; "tail", the mean of the last group; "joint", the mean of all before the last group plus that of the
            last group.
        window: Tokens in a group; groups slide by one token. Not used by "mean" and "sum".
        odds: (scale, shift); the score is the chance 1 / (1 + exp(-(scale * x + shift))) that the solution is right
            (Platt 1999). x is what is measured, of probabilities and their logarithms the log-odds. Both are fitted to
            solutions of one model, with a scale above 0; None: the score is what is measured.

    Returns:
        One score of the whole. Forced text is left out; without a token drawn from a model the score is NaN.

    Cost: no tokens; one verifier call a trajectory.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=4) | weighted", verifier="confidence"
        ... )
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [0.97, 0.97, 0.97, 0.84]
    """

    measure: Annotated[str, member(_RANGES)] = "probability"
    over: Annotated[str, member(_REDUCTIONS)] = "mean"
    window: Count = 2048
    odds: Annotated[tuple[float, float], Rule(_check)] | None = None
    range: tuple[float, float] = field(init=False, repr=False)
    needs: tuple[str, ...] = field(init=False, repr=False)
    name = "confidence"

    def __post_init__(self) -> None:
        check_parameters(self)
        object.__setattr__(self, "range", _RANGES[self.measure] if self.odds is None else (0.0, 1.0))
        capability = {"certainty": "spreads", "top": "tops", "entropy": "tops"}.get(self.measure, "logprobs")
        object.__setattr__(self, "needs", (capability,))

    @property
    def traits(self) -> Traits:
        """The window of the groups."""
        return Traits(window=self.window)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        del problem, calls
        return [StepScores(whole=self._confidence(t)) for t in trajectories]

    def _confidence(self, trajectory: Trajectory) -> float:
        """Return the score of a trajectory; NaN without a token drawn from a model."""
        measured_tokens = self._tokens(trajectory)
        if not measured_tokens:
            return math.nan
        aggregate = _REDUCTIONS[self.over](np.array(measured_tokens, np.float64), self.window)
        if not math.isfinite(aggregate):
            return math.nan
        low, high = _RANGES[self.measure]
        confidence = math.exp(aggregate) if self.measure == "probability" else aggregate
        confidence = min(max(confidence, low), high)
        if self.odds is None:
            return confidence
        scale, shift = self.odds
        x = confidence if self.measure in _SPREADS else log_odds(aggregate)
        return chance(scale * x + shift)

    def _tokens(self, trajectory: Trajectory) -> Sequence[float]:
        """Return the measure at each token that a model drew, along the path from the root.

        For "probability" the measure is the log-probability.
        """
        nodes = (trajectory,) if trajectory.depth <= 1 else trajectory.path
        measure_spread = _SPREADS.get(self.measure)
        if measure_spread is not None:
            return [measure_spread(spread) for node in nodes for spread in node.spreads]
        if len(nodes) == 1:
            return nodes[0].logprobs
        return [logprob for node in nodes for logprob in node.logprobs]

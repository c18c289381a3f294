"""Confidence: how sure the policy was of the tokens that it wrote, from what was kept of them; no model is asked again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError, shown, unknown_name
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text

_BOTTOM = 0.1  # share of the groups that "bottom" goes by
_RANGES = MappingProxyType({
    "probability": (0.0, 1.0), "logprob": (-math.inf, 0.0), "certainty": (0.0, math.inf), "top": (0.0, math.inf),
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Scores a path, whole or partial, by the confidence of its tokens: what is measured at each, and how they become one number.

    Four combinations have names of their own. `measure="logprob"` over "mean" is the mean log-probability. "probability" over "mean" is
    its exponential, the inverse of the perplexity, and what perplexity consistency weighs votes by (the selection `rpc`). "certainty" over
    "mean" is self-certainty. "top" over "lowest" is DeepConf's lowest group confidence. All are of the untempered law.

    Source: algorithms B3 (Zhou et al., 2502.00511), B4 (Kang et al., 2502.18581) and B6 (Fu et al., 2508.15260), from code. Differs:
    DeepConf's numbers of top tokens is 20 throughout, as numbers at several cannot be mixed; a path shorter than the window is one group,
    as in its code; a group may also be of the other measures, for models whose backend keeps no more than the drawn token's own.

    Args:
        measure: "probability" and "logprob" of the drawn token; "certainty", the divergence of its law from the uniform one, and "top",
            the mean -ln p of its 20 most likely tokens, which take a backend that keeps `spreads`, or `tops`. High is confident.
        over: "mean" of all tokens; "lowest" mean of a group, "bottom", the mean of the lowest tenth of the groups, or "tail", the last.
        window: tokens of a group, a sliding one; of no meaning to "mean".

    Returns:
        One score of the whole; forced text counts nothing, and a path without a token of a model's own is unknown.

    Cost: no tokens; one verifier call a path.
    """

    measure: str = "probability"
    over: str = "mean"
    window: int = 2048
    name: str = field(default="confidence", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    model: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        check_text("measure", self.measure)
        check_text("over", self.over)
        if self.measure not in _RANGES:
            raise unknown_name("measure", self.measure, _RANGES)
        if self.over not in _OVER:
            raise unknown_name("over", self.over, _OVER)
        if type(self.window) is not int or not 1 <= self.window < 2**63:
            raise ConfigError(f"window is {shown(self.window)}, but must be a whole number of at least 1 and below 2**63")
        object.__setattr__(self, "range", _RANGES[self.measure])
        object.__setattr__(self, "needs", ({"certainty": "spreads", "top": "tops"}.get(self.measure, "logprobs"),))

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of each path."""
        del problem, calls
        return [StepScores(whole=self._of(t)) for t in trajectories]

    def _of(self, trajectory: Trajectory) -> float:
        tokens = self._tokens(trajectory)
        if not tokens:
            return math.nan
        found = _OVER[self.over](np.array(tokens, np.float64), self.window)
        if not math.isfinite(found):
            return math.nan
        low, high = self.range
        return min(max(math.exp(found) if self.measure == "probability" else found, low), high)

    def _tokens(self, trajectory: Trajectory) -> Sequence[float]:
        """Return what is measured at each token that a model wrote, along the path."""
        pieces = (trajectory,) if trajectory.depth <= 1 else trajectory.path
        if self.measure == "certainty":
            return [spread.certainty for piece in pieces for spread in piece.spreads]
        if self.measure == "top":
            return [spread.top for piece in pieces for spread in piece.spreads]
        return pieces[0].logprobs if len(pieces) == 1 else [logprob for piece in pieces for logprob in piece.logprobs]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return 0."""
        del prefix_tokens, new_tokens
        return 0


def groups(tokens: NDArray[Any], window: int) -> NDArray[np.float64]:
    """Return the mean of each run of `window` tokens, [tokens - window + 1]; of all of them, where there are fewer."""
    if len(tokens) <= window:
        return np.array([tokens.mean()])
    sums = np.cumsum(np.concatenate(([0.0], tokens)))
    return (sums[window:] - sums[:-window]) / window


def _bottom(tokens: NDArray[np.float64], window: int) -> float:
    means = groups(tokens, window)
    count = max(1, int(_BOTTOM * len(means)))
    return float(np.partition(means, count - 1)[:count].mean())


_OVER: Mapping[str, Callable[[NDArray[np.float64], int], float]] = MappingProxyType({
    "mean": lambda tokens, window: float(tokens.mean()),  # noqa: ARG005 - one signature for all
    "lowest": lambda tokens, window: float(groups(tokens, window).min()),
    "bottom": _bottom,
    "tail": lambda tokens, window: float(tokens[-window:].mean()),
})  # fmt: skip

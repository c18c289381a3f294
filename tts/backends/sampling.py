"""From logits to a token: temperature, filters, and one uniform number through the inverse CDF. Plain numpy in float64.

The CDF runs in token-id order. Near-equal logits may swap ranks under rounding noise, but ids never move. So only a number
that falls within that noise of an edge can give another token. Each filter sees the distribution as the filter before left it
(top-k, then top-p, then min-p), and equal probabilities are ranked by id.

Shapes: V vocabulary; logits and distributions are [V], indexed by token id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Sampling
from tts.errors import EngineError
from tts.types import TOP_TOKENS, Spread

_LEAST = -745.0  # the logarithm of the smallest number of float64


class Draw(NamedTuple):
    """A drawn token, its natural-log probability under the untempered, unfiltered distribution, and the spread of that."""

    token: int
    logprob: float
    spread: Spread


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return the natural-log probabilities of the untempered distribution.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shifted(logits)
    return shifted - np.log(np.exp(shifted).sum())


def filtered_distribution(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.float64]:
    """Return the distribution that `sampling` draws from: probabilities that sum to 1, exactly 0 where filtered out.

    At temperature 0 all mass is on the most likely token, the lowest id among equals. top-k keeps the k most likely tokens;
    top-p the fewest most likely ones whose mass is at least p; min-p those of at least min_p times the most likely one's.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shifted(logits)
    if sampling.temperature == 0:
        probs = np.zeros_like(shifted)
        probs[int(np.argmax(shifted))] = 1.0
        return probs
    with np.errstate(over="ignore", under="ignore"):  # a tiny temperature sends all but the best to -inf, and so to 0
        probs = np.exp(shifted / sampling.temperature)
        probs /= probs.sum()
    if 0 < sampling.top_k < len(probs):
        probs[_ranked(probs)[sampling.top_k :]] = 0.0
        probs /= probs.sum()
    if sampling.top_p < 1:
        ranked = _ranked(probs)
        mass = np.cumsum(probs[ranked])
        probs[ranked[int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1 :]] = 0.0
        probs /= probs.sum()
    if sampling.min_p > 0:
        probs[probs < sampling.min_p * probs.max()] = 0.0
        probs /= probs.sum()
    return probs


def inverse_cdf(probs: NDArray[np.float64], u: float) -> int:
    """Return the index of a uniform number u in [0, 1): the first whose cumulated mass is above u times the whole.

    An index of probability 0 is never returned.
    """
    cumulated = np.cumsum(probs)
    return int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))


def draw(logits: NDArray[Any], sampling: Sampling, u: float) -> Draw:
    """Return the token of a uniform number u in [0, 1), its log-probability, and the spread of the distribution.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    token = int(np.argmax(logits)) if sampling.temperature == 0 else inverse_cdf(filtered_distribution(logits, sampling), u)
    logprobs = log_softmax(logits)
    return Draw(token, float(logprobs[token]), spread(logprobs))


def spread(logprobs: NDArray[np.float64]) -> Spread:
    """Return the spread of a distribution of natural-log probabilities; -inf counts as -745."""
    known = np.maximum(logprobs, _LEAST)
    count = min(TOP_TOKENS, len(known))
    top = np.partition(known, len(known) - count)[len(known) - count :]
    certainty = max(0.0, -float(known.mean()) - float(np.log(len(known))))
    return Spread(certainty, max(0.0, -float(top.mean())), max(0.0, -float(np.exp(known) @ known)))


def top_spread(logprobs: Sequence[float]) -> Spread:
    """Return the spread of the most likely tokens, given their log-probabilities and perhaps that of a less likely token."""
    known = np.sort(np.maximum(logprobs, _LEAST))[-TOP_TOKENS:]
    chances = np.exp(known)
    rest = max(0.0, 1.0 - float(chances.sum()))  # of all other tokens
    others = -rest * math.log(rest) if rest > 0 else 0.0
    return Spread(math.nan, max(0.0, -float(known.mean())), max(0.0, others - float(chances @ known)))


def _shifted(logits: NDArray[Any]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    top = wide.max()
    if not np.isfinite(top):
        raise EngineError(f"the model's largest logit is {top}, which gives no distribution over tokens", hint="try float32 weights")
    return wide - top


def _ranked(probs: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(-probs, kind="stable")

"""From logits to a token: temperature, filters, and one uniform number through the inverse CDF. Plain numpy in float64.

The CDF runs in token-id order. Near-equal logits may swap ranks under rounding noise, but ids never move, so only a number
that falls within that noise of an edge can give another token. A filter sees the law as the filter before it left it
(top-k, then top-p, then min-p), and equal probabilities are ranked by id.

Shapes: V vocabulary; logits and laws are [V], indexed by token id.
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
    """A drawn token, its natural-log probability under the untempered, unfiltered law, and how spread that law is."""

    token: int
    logprob: float
    spread: Spread


def log_law(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return the natural-log probabilities of the untempered law.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shifted(logits)
    return shifted - np.log(np.exp(shifted).sum())


def filtered_law(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.float64]:
    """Return the law that `sampling` draws from: probabilities that sum to 1, exactly 0 where filtered out.

    At temperature 0 all mass is on the most likely token, the lowest id among equals. top-k keeps the k most likely tokens;
    top-p the fewest most likely ones whose mass is at least p; min-p those of at least min_p times the most likely one's.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shifted(logits)
    if sampling.temperature == 0:
        law = np.zeros_like(shifted)
        law[int(np.argmax(shifted))] = 1.0
        return law
    with np.errstate(over="ignore", under="ignore"):  # a tiny temperature sends all but the best to -inf, and so to 0
        law = np.exp(shifted / sampling.temperature)
        law /= law.sum()
    if 0 < sampling.top_k < len(law):
        law[_ranked(law)[sampling.top_k :]] = 0.0
        law /= law.sum()
    if sampling.top_p < 1:
        ranked = _ranked(law)
        mass = np.cumsum(law[ranked])
        law[ranked[int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1 :]] = 0.0
        law /= law.sum()
    if sampling.min_p > 0:
        law[law < sampling.min_p * law.max()] = 0.0
        law /= law.sum()
    return law


def inverse_cdf(law: NDArray[np.float64], u: float) -> int:
    """Return the index that a uniform number u in [0, 1) falls on: the first whose cumulated mass is above u times the whole.

    An index of probability 0 is never returned.
    """
    cumulated = np.cumsum(law)
    return int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))


def draw(logits: NDArray[Any], sampling: Sampling, u: float) -> Draw:
    """Return the token that a uniform number u in [0, 1) stands for, with what the law says of it.

    Raises:
        EngineError: the logits hold NaN or +inf, or nothing but -inf.
    """
    token = int(np.argmax(logits)) if sampling.temperature == 0 else inverse_cdf(filtered_law(logits, sampling), u)
    law = log_law(logits)
    return Draw(token, float(law[token]), spread(law))


def spread(law: NDArray[np.float64]) -> Spread:
    """Return how spread a law is, given as natural-log probabilities; what a model rules out altogether (-inf) counts as e**-745."""
    known = np.maximum(law, _LEAST)
    count = min(TOP_TOKENS, len(known))
    top = np.partition(known, len(known) - count)[len(known) - count :]
    return Spread(max(0.0, -float(known.mean()) - float(np.log(len(known)))), max(0.0, -float(top.mean())))


def top_spread(logprobs: Sequence[float]) -> Spread:
    """Return what the most likely tokens tell of how spread a law is, given their log-probabilities and perhaps a less likely one's."""
    known = np.sort(np.maximum(logprobs, _LEAST))[-TOP_TOKENS:]
    return Spread(math.nan, max(0.0, -float(known.mean())))


def _shifted(logits: NDArray[Any]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    top = wide.max()
    if not np.isfinite(top):
        raise EngineError(f"the model's largest logit is {top}, which is no law over tokens", hint="try float32 weights")
    return wide - top


def _ranked(law: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(-law, kind="stable")

"""From logits to a token, in plain numpy in float64.

The steps are temperature, filters, and one uniform number through the inverse CDF. The CDF runs in token-id order.
Near-equal logits may swap ranks under rounding noise, but ids never move. So only a uniform number within that noise of
an edge can give another token. The filters are top-k, then top-p, then min-p. Each sees the distribution that the
filter before returned, and equal probabilities are ranked by id.

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
    """A drawn token.

    Args:
        token: The token's id.
        logprob: The token's natural-log probability under the untempered, unfiltered distribution.
        spread: The spread of the untempered, unfiltered distribution.
        sampling_logprob: The token's natural-log probability under the distribution that it was drawn from.
    """

    token: int
    logprob: float
    spread: Spread
    sampling_logprob: float


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return the natural-log probabilities of the untempered distribution.

    Raises:
        EngineError: The logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shift(logits)
    return shifted - np.log(np.exp(shifted).sum())


def filtered_distribution(logits: NDArray[Any], sampling: Sampling) -> NDArray[np.float64]:
    """Return the distribution that `sampling` draws from.

    Its probabilities sum to 1, and are exactly 0 where a token is filtered out. At temperature 0 all mass is on the
    most likely token, the lowest id among equals. top-k keeps the k most likely tokens. top-p keeps the fewest most
    likely tokens whose mass is at least p. min-p keeps tokens of at least min_p times the greatest probability.

    Raises:
        EngineError: The logits hold NaN or +inf, or nothing but -inf.
    """
    shifted = _shift(logits)
    if sampling.temperature == 0:
        probs = np.zeros_like(shifted)
        probs[int(np.argmax(shifted))] = 1.0
        return probs
    # at a tiny temperature, all logits but the largest overflow to -inf, and their probabilities are 0
    with np.errstate(over="ignore", under="ignore"):
        probs = np.exp(shifted / sampling.temperature)
        probs /= probs.sum()
    if 0 < sampling.top_k < len(probs):
        probs[_rank(probs)[sampling.top_k :]] = 0.0
        probs /= probs.sum()
    if sampling.top_p < 1:
        ranking = _rank(probs)
        cumulated = np.cumsum(probs[ranking])
        num_kept = int(np.searchsorted(cumulated, sampling.top_p * cumulated[-1])) + 1
        probs[ranking[num_kept:]] = 0.0
        probs /= probs.sum()
    if sampling.min_p > 0:
        probs[probs < sampling.min_p * probs.max()] = 0.0
        probs /= probs.sum()
    return probs


def inverse_cdf(probs: NDArray[np.float64], u: float) -> int:
    """Return the first index whose cumulated mass is above u times the whole mass, for u in [0, 1).

    An index of probability 0 is never returned.
    """
    cumulated = np.cumsum(probs)
    return int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))


def draw(logits: NDArray[Any], sampling: Sampling, u: float) -> Draw:
    """Return the token that a uniform number u in [0, 1) draws, with its log-probabilities and the spread.

    Raises:
        EngineError: The logits hold NaN or +inf, or nothing but -inf.
    """
    if sampling.temperature == 0:
        token = int(np.argmax(logits))
    else:
        token = inverse_cdf(filtered_distribution(logits, sampling), u)
    logprobs = log_softmax(logits)
    return Draw(
        token=token,
        logprob=float(logprobs[token]),
        spread=spread(logprobs),
        sampling_logprob=sampling_logprob(logprobs, sampling, token),
    )


def sampling_logprob(logprobs: NDArray[np.float64], sampling: Sampling, token: int) -> float:
    """Return the natural-log probability of a token under the distribution that `sampling` draws from.

    The filters always count `token` as kept, since rounding may have kept it at their edge when it was drawn.

    Args:
        logprobs: [V] log-probabilities of the untempered distribution.
        sampling: Temperature and filters.
        token: The token that was drawn.

    Raises:
        EngineError: `logprobs` hold NaN or +inf, or nothing but -inf.
    """
    if sampling.temperature == 0:
        return 0.0
    if not _is_filtered(sampling):
        return float(log_softmax(logprobs / sampling.temperature)[token])
    is_kept = filtered_distribution(logprobs, sampling) > 0
    is_kept[token] = True
    return float(log_softmax(np.where(is_kept, logprobs, -np.inf) / sampling.temperature)[token])


def top_sampling_logprob(top: Sequence[float], logprob: float, sampling: Sampling) -> float:
    """Return a token's natural-log probability under `sampling`, given the most likely tokens alone.

    A token of probability p has the weight p^(1/T) at temperature T. At a temperature below 1, the hidden tokens (all
    that `top` lacks) have at most the weight m * q^(1/T - 1). Here m is the probability of all hidden tokens, and q is
    the least probability in `top`. The hidden tokens count with this bound, so that the value is a lower bound. The
    value is too low by at most the bound divided by the weight of the tokens in `top`.

    Args:
        top: Log-probabilities of the most likely tokens under the untempered distribution.
        logprob: The log-probability of the token that was drawn.
        sampling: Temperature and filters.

    Returns:
        The log-probability; NaN where the hidden tokens have no bound: above temperature 1, and with a filter, a
        penalty or a bias.
    """
    temperature = sampling.temperature
    if temperature == 0:
        return 0.0
    if _is_filtered(sampling) or temperature > 1:
        return math.nan
    if temperature == 1:
        return logprob
    ascending = np.sort(np.asarray(top, np.float64))
    logprobs = np.maximum(ascending[-TOP_TOKENS:], _LEAST)
    log_weights = [*(logprobs / temperature)]
    hidden_mass = max(0.0, 1.0 - float(np.exp(logprobs).sum()))
    if hidden_mass > 0:
        log_weights.append(math.log(hidden_mass) + (1 / temperature - 1) * float(logprobs[0]))
    else:
        log_weights.append(-math.inf)
    return logprob / temperature - float(np.logaddexp.reduce(log_weights))


def _is_filtered(sampling: Sampling) -> bool:
    return bool(sampling.top_k or sampling.top_p < 1 or sampling.min_p or sampling.changes_logits)


def spread(logprobs: NDArray[np.float64]) -> Spread:
    """Return the spread of a distribution of natural-log probabilities; -inf counts as -745."""
    clipped = np.maximum(logprobs, _LEAST)
    num_tokens = len(clipped)
    num_less_likely = num_tokens - min(TOP_TOKENS, num_tokens)
    top = np.partition(clipped, num_less_likely)[num_less_likely:]
    return Spread(
        certainty=max(0.0, -float(clipped.mean()) - float(np.log(num_tokens))),
        top=max(0.0, -float(top.mean())),
        entropy=max(0.0, -float(np.exp(clipped) @ clipped)),
    )


def top_spread(logprobs: Sequence[float]) -> Spread:
    """Return the spread of the most likely tokens, given their log-probabilities.

    The given values may include the log-probability of a less likely token.
    """
    clipped = np.sort(np.maximum(logprobs, _LEAST))[-TOP_TOKENS:]
    probs = np.exp(clipped)
    hidden_mass = max(0.0, 1.0 - float(probs.sum()))  # the probability of all other tokens, which count as one token
    hidden_entropy = -hidden_mass * math.log(hidden_mass) if hidden_mass > 0 else 0.0
    return Spread(
        certainty=math.nan,
        top=max(0.0, -float(clipped.mean())),
        entropy=max(0.0, hidden_entropy - float(probs @ clipped)),
    )


def _shift(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return logits in float64, shifted so that the largest is 0."""
    wide = logits.astype(np.float64)
    largest = wide.max()
    if not np.isfinite(largest):
        raise EngineError(
            f"the model's largest logit is {largest}, which gives no distribution over tokens",
            hint="try float32 weights",
        )
    return wide - largest


def _rank(probs: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(-probs, kind="stable")

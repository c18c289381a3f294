"""Log-probabilities of the tokens of a prompt, as backends return them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError, quote

MOST_TOPS = 20  # alternatives of a token that may be asked for


class Top(NamedTuple):
    """A token that may come next: its text and its log-probability.

    `ends` is whether the token is known to be an end of sequence.
    """

    text: str
    logprob: float
    ends: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PromptLogprobs:
    """The tokens of a prompt of T tokens, as the model reads it, and their log-probabilities.

    Args:
        token_ids: [T], or () where a server shows none.
        texts: [T] texts that the tokens complete. Joined they are the prompt's text, with the names of special tokens
            and "" for ends of sequence.
        logprobs: [T] natural-log probabilities under the untempered distribution after the tokens before; NaN where the
            model has none, as at the first token.
        tops: [T] the most likely tokens at each place, best first and the lowest id among equals, () where `logprobs`
            is NaN. The whole field is () where no top tokens were requested.
        behind: The most likely tokens after the last token; () where none were requested, or a server shows none.
    """

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    logprobs: NDArray[np.float64]
    tops: tuple[tuple[Top, ...], ...] = ()
    behind: tuple[Top, ...] = ()


def law_of_tops(tops: Sequence[Top], tokens: Sequence[str]) -> tuple[list[float], float]:
    """Return the log-probabilities of tokens that are shown in `tops`, and a bound on the unseen tokens.

    A requested token that `tops` does not show is unseen, and gets -inf. The bound is the most probability that the
    unseen tokens have together. An unseen token is at most as likely as the least likely token in `tops`. All unseen
    tokens together have at most 1 minus the probability of the tokens in `tops`.

    Args:
        tops: The most likely tokens at one place; () where none are known.
        tokens: The texts of the requested tokens.
    """
    logprobs: dict[str, float] = {}
    for top in tops:
        logprobs[top.text] = float(np.logaddexp(logprobs.get(top.text, -math.inf), top.logprob))
    num_unseen = sum(token not in logprobs for token in tokens)
    probabilities = np.exp([top.logprob for top in tops])
    least_probability = float(probabilities.min(initial=1.0))
    remaining_probability = max(0.0, 1.0 - float(probabilities.sum()))
    bound = min(num_unseen * least_probability, remaining_probability) if num_unseen else 0.0
    return [logprobs.get(token, -math.inf) for token in tokens], bound


def check_top(top: Any) -> int:
    """Return a valid `top`, the requested number of most likely tokens.

    Raises:
        ConfigError: `top` is not a whole number from 0 to `MOST_TOPS`.
    """
    if type(top) is not int or not 0 <= top <= MOST_TOPS:
        raise ConfigError(f"top is {quote(top)}, but must be a whole number from 0 to {MOST_TOPS}")
    return top


def most_likely(logprobs: NDArray[np.float64], count: int) -> list[int]:
    """Return the ids of the `count` most likely tokens, best first, the lowest id among equals.

    Args:
        logprobs: [V], the log-probability of each token, by id.
        count: The number of tokens to return.
    """
    if count == 0:
        return []
    num_less_likely = len(logprobs) - count
    least_logprob = np.partition(logprobs, num_less_likely)[num_less_likely] if num_less_likely > 0 else -np.inf
    candidates = np.flatnonzero(logprobs >= least_logprob)  # more than `count` ids where log-probabilities are equal
    ranking = np.argsort(-logprobs[candidates], kind="stable")
    return candidates[ranking][:count].tolist()

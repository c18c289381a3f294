"""Reward models in the engine.

The module has heads on the policy's hidden states, and templates and readouts of process models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tts._core.odds import chance, log_odds
from tts.backends.sampling import log_softmax
from tts.errors import ConfigError

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ValueHead:
    """A linear head on the last hidden state, which the policy computes anyway.

    Args:
        weight: [K] weights of the hidden state's numbers.
        bias: The number that is added.
        sigmoid: Whether the reading passes a sigmoid.
        step: Texts that end a step. A step is read at the token that completes it, an unfinished last step at the
            path's last token.
    """

    weight: Floats
    bias: float = 0.0
    sigmoid: bool = True
    step: tuple[str, ...] = ("\n",)

    def __call__(self, states: Floats) -> Floats:
        """Return a reading for each of [n, K] hidden states; its bits do not depend on the other states."""
        readings = (states * self.weight).sum(axis=-1, dtype=np.float64) + self.bias
        if self.sigmoid:
            readings = _sigmoid(readings)
        return readings.astype(np.float32)


class Readout(Protocol):
    """Scores a step by its last token, from the token's logits or hidden state."""

    @property
    def logits(self) -> bool:
        """Whether `__call__` takes logits [n, V]; else hidden states [n, K]."""
        ...

    def __call__(self, found: Floats, /) -> Floats:
        """Return a score for each of n tokens."""
        ...


@dataclass(frozen=True)
class LabelReadout:
    """The probability of the good label's token among the labels' tokens; `good` and `bad` are token ids."""

    good: int
    bad: tuple[int, ...]
    logits: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not self.bad:
            raise ConfigError("bad is (), but must name at least one token to compare with the good one")

    def __call__(self, found: Floats, /) -> Floats:
        """Return the probabilities after each of [n, V] logits."""
        labels = found[:, [self.good, *self.bad]].astype(np.float64)
        weights = np.exp(labels - labels.max(axis=-1, keepdims=True))
        return (weights[:, 0] / weights.sum(axis=-1)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HeadReadout:
    """A value head of the process model itself."""

    head: ValueHead
    logits: bool = field(default=False, init=False)

    def __call__(self, found: Floats, /) -> Floats:
        """Return the head's reading of each of [n, K] hidden states."""
        return self.head(found)


@dataclass(frozen=True)
class LikelihoodReadout:
    """The chance that a path is right, read from its probability under a process model.

    The process model writes right solutions. Where a problem has one right solution, that probability is the chance
    itself. In general its log-odds are scaled and shifted (Platt 1999).

    Args:
        scale: The factor of the log-odds, fitted to solutions of the policy.
        shift: What is added to the scaled log-odds, fitted to solutions of the policy.
    """

    scale: float = 1.0
    shift: float = 0.0
    logits: bool = field(default=True, init=False)

    def logprob(self, before: float, tokens: Sequence[int], logits: Floats) -> float:
        """Return the log-probability of a path with n more tokens.

        `before` is the path's log-probability without these tokens. Row i of `logits` [n, V] predicts token i.
        """
        logprob = before
        for token, row in zip(tokens, logits, strict=True):
            logprob += float(log_softmax(row)[token])
        return logprob

    def __call__(self, logprob: float) -> float:
        """Return the chance of a path by its log-probability."""
        return chance(self.scale * log_odds(logprob) + self.shift)


@dataclass(frozen=True, eq=False)
class StepTemplate:
    """How a path is rendered for a process model.

    Args:
        encode: Turns a text into the model's tokens, with nothing added. None: the model has the policy's tokenizer and
            reads the policy's own tokens, so never more tokens than were sampled.
        readout: The readout of the last token of each step, or of all tokens of a path.
        step: Texts that end a step in the policy's text.
        separator: Text added after each step; "": the step's own last token is read, as always without `encode`.

    Raises:
        ConfigError: a separator without `encode`.
    """

    encode: Callable[[str], Sequence[int]] | None
    readout: Readout | LikelihoodReadout
    step: tuple[str, ...] = ("\n",)
    separator: str = ""

    def __post_init__(self) -> None:
        if self.separator and self.encode is None:
            raise ConfigError(
                f"separator is {self.separator!r}, but the policy's own tokens are read as they are", hint="give encode"
            )

    def tokens(self, piece: str | tuple[int, ...]) -> tuple[int, ...]:
        """Return the model's tokens of a step.

        A text is encoded with the separator. Tokens of the policy are returned as they are.
        """
        if isinstance(piece, tuple):
            return piece
        assert self.encode is not None, "a text was given to a model that reads the policy's own tokens"
        return tuple(self.encode(piece + self.separator))


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(-np.abs(x))  # at most 1, so that nothing overflows
    return np.where(x >= 0, 1.0, exponentials) / (1.0 + exponentials)

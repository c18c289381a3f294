"""Reward models in the engine.

The module has heads on the policy's hidden states, and templates and readouts of process models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tts._core.odds import chance, log_odds
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
    """Scores a step by what is read behind its last token."""

    @property
    def labels(self) -> tuple[int, ...]:
        """The ids whose log-probabilities `__call__` takes; (): it takes the hidden state [K]."""
        ...

    def __call__(self, found: NDArray[Any], /) -> float:
        """Return the score of a step."""
        ...


@dataclass(frozen=True)
class LabelReadout:
    """The probability of the good label's token among the labels' tokens; `good` and `bad` are token ids."""

    good: int
    bad: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.bad:
            raise ConfigError("bad is (), but must name at least one token to compare with the good one")

    @property
    def labels(self) -> tuple[int, ...]:
        """The labels' tokens, the good one first."""
        return (self.good, *self.bad)

    def __call__(self, found: NDArray[Any], /) -> float:
        """Return the probability by the labels' log-probabilities."""
        weights = np.exp(found - found.max())
        return float(np.float32(weights[0] / weights.sum()))


@dataclass(frozen=True, eq=False)
class HeadReadout:
    """A value head of the process model itself."""

    head: ValueHead
    labels: tuple[int, ...] = field(default=(), init=False)

    def __call__(self, found: NDArray[Any], /) -> float:
        """Return the head's reading of a hidden state [K]."""
        return float(self.head(found))


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

    def __call__(self, logprob: float) -> float:
        """Return the chance of a path by its log-probability."""
        return chance(self.scale * log_odds(logprob) + self.shift)


def needs_logits(readout: Readout | LikelihoodReadout) -> bool:
    """Return whether a readout needs the model's output layer."""
    return isinstance(readout, LikelihoodReadout) or bool(readout.labels)


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

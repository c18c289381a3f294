"""Jobs of the engine: paths to prefill, rows to sample, and the ends that each reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet
from tts.backends.engine.tree import KVNode
from tts.backends.kernels.draw import DrawRequest
from tts.backends.text.row_state import PathText, RowState, as_engine_error
from tts.errors import EngineError

NO_LAW = "the model's logits give no distribution over tokens (NaN or infinite)"


@dataclass(slots=True, eq=False)
class PrefillJob:
    """A job that computes keys and values of a node's first `upto` tokens.

    From token `wanted` on, the job also reads log-probabilities behind the tokens, or their hidden states.

    Args:
        node: The node, of which the job owns one handle until the job's end.
        upto: The number of the node's tokens to compute. Ancestors without keys and values are computed first.
        wanted: The first token behind which something is wanted; `upto`: none.
        done: Called with this job at its end; `failure` is set where the job failed.
        tokens: The ids whose log-probabilities are read, for each wanted token. None: hidden states are read.
        top: The number of most likely tokens that are read behind each wanted token.
        keeps: Whether the logits of the last token stay where the model runs, as `last_logits`, and nothing is `found`.

    Attributes:
        order: The age of the job; lower is older.
        found: A `LogitReading` or a hidden state [K] for each wanted token.
        last_logits: The logits [V] of the last token.
        at: The first token whose result is still wanted.
        seconds: The seconds of the steps that fed the job.
        started: Whether the job was ever scheduled.
        ready: Whether all ancestors of the node have keys and values.
    """

    node: KVNode
    upto: int
    wanted: int
    done: Callable[[PrefillJob], None]
    tokens: Sequence[Sequence[int]] | None = None
    top: int = 0
    keeps: bool = False
    order: tuple[int, int] = (0, 0)
    found: list[Any] = field(default_factory=list[Any])
    last_logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    failure: Exception | None = None
    seconds: float = 0.0
    at: int = 0
    started: bool = False
    ready: bool = False

    def __post_init__(self) -> None:
        self.at = self.wanted

    @property
    def logits(self) -> bool:
        """Whether logits are computed behind the wanted tokens."""
        return self.keeps or self.tokens is not None

    @property
    def states(self) -> bool:
        """Whether hidden states are wanted of some token."""
        return not self.logits and self.wanted < self.upto

    def take(self, found: Sequence[Any], until: int) -> None:
        """Take what was read of the wanted tokens before `until`; None for a token whose logits are not valid."""
        self.at = until
        self.found += found

    def result(self) -> list[Any]:
        """Return what was read of each wanted token, in order.

        Raises:
            Exception: the job failed.
            EngineError: logits were not valid.
        """
        if self.failure is not None:
            raise self.failure
        if any(one is None for one in self.found):
            raise EngineError(NO_LAW, hint="try float32 weights")
        return self.found


@dataclass(slots=True, eq=False)
class SampleJob:
    """Rows to sample after a node.

    Args:
        rows: The rows of one request.
        node: The node, of which the job owns one handle.
        text: The state of the path's text.
        ended: Called with each row's end.

    Attributes:
        order: The age of the job; lower is older.
        logits: [V] logits after the node, once computed.
        pending: Whether the logits are being computed.
        next_row: The first row that has not begun.
    """

    rows: RowSet
    node: KVNode
    text: PathText
    ended: Callable[[RowEnd], None]
    order: tuple[int, int] = (0, 0)
    logits: torch.Tensor | None = None
    pending: bool = False
    next_row: int = 0

    @property
    def num_waiting(self) -> int:
        """Rows that have not begun."""
        return len(self.rows.request.rows) - self.next_row


@dataclass(slots=True, eq=False)
class DecodeSequence:
    """A row under way: the open node that its tokens are appended to, and its state."""

    job: SampleJob
    node: KVNode
    state: RowState
    order: tuple[int, int]
    started: bool = False
    ready: bool = False


Schedulable = PrefillJob | DecodeSequence


@dataclass(frozen=True, slots=True)
class RowEnd:
    """The end of a row.

    Args:
        state: The state of the row; None where making the state failed, or the row did not begin.
        node: The last node of the path, with one handle for the receiver; None where the path cannot be continued.
        began: Whether the row was under way.
    """

    job: SampleJob
    index: int
    state: RowState | None
    finish: Finish
    node: KVNode | None
    error: str = ""
    began: bool = False


class Draws(NamedTuple):
    """Sequences that need a token, and the request to draw one for each."""

    sequences: Sequence[DecodeSequence]
    request: DrawRequest


def draws_of(sequences: Sequence[DecodeSequence], logit_rows: NDArray[np.int64]) -> Draws:
    """Return the draws of a token for each sequence, from the given rows of logits."""
    request = DrawRequest(
        rows=logit_rows,
        samplings=[sequence.state.rows.request.sampling for sequence in sequences],
        streams=np.array([sequence.state.row.stream for sequence in sequences], np.uint64),
        positions=np.array([sequence.state.position for sequence in sequences], np.int64),
        words=np.array([sequence.state.row.word for sequence in sequences], np.uint64),
        spreads=np.array([sequence.state.rows.request.spreads for sequence in sequences], np.bool_),
        sampling_logprobs=np.array([sequence.state.rows.request.sampling_logprobs for sequence in sequences], np.bool_),
    )
    return Draws(sequences, request)


def engine_error(failure: Exception) -> EngineError:
    """Return a failure as an EngineError; an EngineError is returned unchanged."""
    return as_engine_error(failure, "the engine")

"""Jobs of the engine: paths to prefill, rows to sample, and the ends that each reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet
from tts.backends.engine.device.memory import download
from tts.backends.engine.tree import KVNode
from tts.backends.kernels.draw import DrawRequest
from tts.backends.text.row_state import PathText, RowState, as_engine_error
from tts.errors import EngineError

Floats = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class PrefillJob:
    """A job that computes keys and values of a node's first `upto` tokens.

    From token `wanted` on, the job also computes the tokens' logits or hidden states.

    Args:
        node: The node, of which the job owns one handle until the job's end.
        upto: The number of the node's tokens to compute. Ancestors without keys and values are computed first.
        wanted: The first token whose logits (or hidden states) are wanted; `upto`: none.
        done: Called with this job at its end; `failure` is set where the job failed.
        logits: Whether logits are wanted; else hidden states.
        take: Called with results as they are computed, which then are not added to `found`.
        keeps: Whether the logits of the last token stay where the model runs, as `last_logits`, and nothing is `found`.

    Attributes:
        order: The age of the job; lower is older.
        found: Logits [tokens, V], or hidden states [tokens, K], in pieces.
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
    logits: bool = True
    take: Callable[[Floats], None] | None = None
    keeps: bool = False
    order: tuple[int, int] = (0, 0)
    found: list[Floats] = field(default_factory=list[Floats])
    last_logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    failure: Exception | None = None
    seconds: float = 0.0
    at: int = 0
    started: bool = False
    ready: bool = False

    def __post_init__(self) -> None:
        self.at = self.wanted

    def give(self, results: torch.Tensor | Floats, until: int) -> None:
        """Take the wanted results [n, V] or [n, K] of the tokens before `until`."""
        self.at = until
        if self.keeps:
            self.last_logits = cast("torch.Tensor", results)[-1].float().clone()
            return
        host = download(results.float()) if isinstance(results, torch.Tensor) else results
        if self.take is None:
            self.found.append(host.copy())
        else:
            self.take(host)

    def result(self) -> Floats:
        """Return the wanted logits or hidden states, in order.

        Raises:
            Exception: the job failed.
        """
        if self.failure is not None:
            raise self.failure
        return np.concatenate(self.found)


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
    )
    return Draws(sequences, request)


def engine_error(failure: Exception) -> EngineError:
    """Return a failure as an EngineError; an EngineError is returned unchanged."""
    return as_engine_error(failure, "the engine")

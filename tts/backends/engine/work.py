"""Jobs of the engine: paths to prefill, rows to sample, and the ends that each reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet
from tts.backends.engine.tree import KVNode
from tts.backends.kernels.draw import DrawRequest
from tts.backends.text.row_state import PathText, RowState, as_engine_error
from tts.errors import EngineError

Floats = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class PrefillJob:
    """Computes keys and values of a node's first `upto` tokens.

    It also computes logits or hidden states of the last of these tokens.

    Args:
        node: The job owns one handle of it, which it releases at its end.
        upto: Number of its tokens. Ancestors without keys and values are computed first.
        wanted: First token whose logits (or hidden states) are wanted; `upto`: none.
        done: Called with this job at its end; `failure` is set where it failed.
        logits: Whether logits are wanted; else hidden states.
        take: Called with them as they are computed, in place of `found`.

    Attributes:
        order: Lower is older.
        found: Logits [tokens, V], or hidden states [tokens, K], in pieces.
        at: First token whose result is still wanted.
        seconds: The seconds of the steps that it took part in.
        started: Whether it was ever scheduled.
        ready: Whether all its ancestors have keys and values.
    """

    node: KVNode
    upto: int
    wanted: int
    done: Callable[[PrefillJob], None]
    logits: bool = True
    take: Callable[[Floats], None] | None = None
    order: tuple[int, int] = (0, 0)
    found: list[Floats] = field(default_factory=list[Floats])
    failure: Exception | None = None
    seconds: float = 0.0
    at: int = 0
    started: bool = False
    ready: bool = False

    def __post_init__(self) -> None:
        self.at = self.wanted

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
        rows: The request.
        node: The job owns one handle of it.
        text: State of the path's text.
        ended: Called with each row's end.

    Attributes:
        order: Lower is older.
        logits: [V] after the node, once computed.
        pending: Whether they are being computed.
        next_row: The first row that has not begun.
    """

    rows: RowSet
    node: KVNode
    text: PathText
    ended: Callable[[RowEnd], None]
    order: tuple[int, int] = (0, 0)
    logits: Floats | None = None
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
        state: None where it could not be made.
        node: The end of its path, with one handle for the receiver; None where the path cannot be continued.
        began: Whether the row was under way.
    """

    job: SampleJob
    index: int
    state: RowState | None
    finish: Finish
    node: KVNode | None
    error: str = ""
    began: bool = False


def draws_of(sequences: Sequence[DecodeSequence], logit_rows: NDArray[np.int64] | None) -> DrawRequest:
    """Return what a step draws: a token of each sequence, from the given rows of its logits.

    None: all tokens are drawn from the first row.
    """
    return DrawRequest(
        rows=np.zeros(len(sequences), np.int64) if logit_rows is None else logit_rows,
        samplings=[sequence.state.rows.request.sampling for sequence in sequences],
        streams=np.array([sequence.state.row.stream for sequence in sequences], np.uint64),
        positions=np.array([sequence.state.position for sequence in sequences], np.int64),
        words=np.array([sequence.state.row.word for sequence in sequences], np.uint64),
    )


def engine_error(failure: Exception) -> EngineError:
    """Return a failure as an EngineError, itself if it is one."""
    return as_engine_error(failure, "the engine")

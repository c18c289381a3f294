"""What the engine is asked to do: paths to read, rows to write, and what each is told in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet
from tts.backends.engine.tree import Node
from tts.backends.row_state import PathText, RowState

Floats = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Reading:
    """Tokens of a node to be read: keys and values of its first `upto` tokens, and what is wanted of the last of them.

    Args:
        node: a handle of it belongs to this work and is given up at its end.
        upto: how many of its tokens; those of its ancestors are read first where they are not there.
        wanted: from which of its tokens on logits (or hidden states) are wanted; `upto`: of none.
        done: called with this reading when it has ended; `failure` says whether it did so well.
        logits: whether logits are wanted; without, hidden states.

    Attributes:
        order: of work; lower is older. found: logits [tokens, V], or hidden states [tokens, K], in pieces.
        at: of how many of the node's tokens nothing is wanted any more. seconds: of the steps it took part in.
        started: whether it ever was under way. ready: whether its ancestors are all there.
    """

    node: Node
    upto: int
    wanted: int
    done: Callable[[Reading], None]
    logits: bool = True
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
        """Return what was wanted, in order.

        Raises:
            Exception: the reading failed.
        """
        if self.failure is not None:
            raise self.failure
        return np.concatenate(self.found)


@dataclass(slots=True, eq=False)
class Writing:
    """Rows to write behind a node.

    Args:
        rows: the request. node: a handle of it belongs to this work. text: where its path's text stands.
        ended: called with each row's end.

    Attributes:
        law: logits [V] behind the node, once they are read; asked: whether they are being read. next_row: the first row that has not begun.
    """

    rows: RowSet
    node: Node
    text: PathText
    ended: Callable[[RowEnd], None]
    order: tuple[int, int] = (0, 0)
    law: Floats | None = None
    asked: bool = False
    next_row: int = 0

    @property
    def num_waiting(self) -> int:
        """Rows that have not begun."""
        return len(self.rows.request.rows) - self.next_row


@dataclass(slots=True, eq=False)
class Line:
    """One row under way: the open node that it writes, and its state."""

    writing: Writing
    node: Node
    state: RowState
    order: tuple[int, int]
    started: bool = False
    ready: bool = False


Work = Reading | Line


@dataclass(frozen=True, slots=True)
class RowEnd:
    """How a row ended.

    Args:
        state: None where it could not be made. node: holds its path, with one handle for the receiver; None where there is
            nothing to go on from. began: whether it was under way.
    """

    writing: Writing
    index: int
    state: RowState | None
    finish: Finish
    node: Node | None
    error: str = ""
    began: bool = False

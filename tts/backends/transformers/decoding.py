"""Decoding of the rows of many requests: rows take turns of one token, and each is computed alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers.cache_utils import DynamicCache

from tts.backends.base import Finish, RowSet, Sample
from tts.backends.sampling import draw
from tts.backends.text.row_state import PathText, RowState, error_line, failed_row
from tts.backends.transformers.causal_model import CausalModel, Segment
from tts.randomness import uniform


@dataclass(frozen=True, slots=True, eq=False)
class CachedPath:
    """The state of a path, from which the path is continued.

    Args:
        ids: The tokens of the path, the prompt's included.
        state: Keys and values of all tokens but the last, in pieces that paths share.
        text: The state of the path's text.
    """

    ids: tuple[int, ...]
    state: tuple[Segment, ...]
    text: PathText


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """An ended row.

    Args:
        rows: The rows of the request.
        index: The index of the row.
        sample: The sample of the row, without a handle.
        path: The path after the row; None: the row was cancelled or failed.
        reused: The number of input tokens that the row reused.
    """

    rows: RowSet
    index: int
    sample: Sample
    path: CachedPath | None
    reused: int


# Rows to sample, and the path that they continue.
RowRequest = tuple[RowSet, CachedPath]


@dataclass(frozen=True, slots=True)
class _Running:
    """A row under way: its state, the path that it continues, and the keys and values of path and row."""

    state: RowState
    path: CachedPath
    cache: DynamicCache


@dataclass(slots=True, eq=False)
class RowDecoder:
    """Decodes rows until they end.

    Args:
        model: The model.
        decode: Turns token ids into text, ends of sequence into "".
        eos: Ids that end a row.
        max_rows: Most rows under way at once; others wait, in order.
    """

    model: CausalModel
    decode: Callable[[Sequence[int]], str]
    eos: frozenset[int]
    max_rows: int

    def run(
        self, requests: list[RowRequest], more: Callable[[], list[RowRequest]], ended: Callable[[FinishedRow], None]
    ) -> None:
        """Decode rows until all have ended. The failure of a row ends this row alone.

        Args:
            requests: The requests of the first rows.
            more: Called after each turn. It returns requests whose rows join.
            ended: Called for each row as soon as it ends.
        """
        waiting: deque[tuple[RowSet, int, CachedPath]] = deque()
        running: list[_Running] = []
        while True:
            for rows, path in requests:
                waiting.extend((rows, index, path) for index in range(len(rows.request.rows)))
            if not waiting and not running:
                return
            self._admit(waiting, running, ended)
            running = [row for row in running if self._draw_token(row, ended)]
            requests = more()

    def _admit(
        self,
        waiting: deque[tuple[RowSet, int, CachedPath]],
        running: list[_Running],
        ended: Callable[[FinishedRow], None],
    ) -> None:
        """Start waiting rows, in order, while there is room. Cancelled rows end even without room."""
        for _ in range(len(waiting)):
            rows, index, path = waiting.popleft()
            if len(running) < self.max_rows or rows.cancelled:
                self._start(rows, index, path, running, ended)
            else:
                waiting.append((rows, index, path))

    def _start(
        self, rows: RowSet, index: int, path: CachedPath, running: list[_Running], ended: Callable[[FinishedRow], None]
    ) -> None:
        """Start a row, or end it at once where it has no first token."""
        try:
            state = RowState(
                rows, index, path.text, len(path.ids), decode=self.decode, eos=self.eos, context=self.model.context
            )
            finish = state.early_finish()
            if finish is None:
                running.append(_Running(state, path, self.model.cache(path.state)))
                return
        except Exception as failure:  # noqa: BLE001 - no memory, or a predicate raised: only this row fails
            ended(FinishedRow(rows, index, failed_row(failure), path=None, reused=0))
            return
        end_path = None if finish == "cancelled" else CachedPath(path.ids, path.state, state.path_text())
        ended(FinishedRow(rows, index, state.sample(finish), end_path, reused=0))

    def _draw_token(self, row: _Running, ended: Callable[[FinishedRow], None]) -> bool:
        """Draw one token for a row; return whether the row goes on."""
        state, path = row.state, row.path
        end_path: CachedPath | None = None
        error = ""
        try:
            finish = "cancelled" if state.rows.cancelled else self._append(row)
            if finish is None:
                return True
            if finish != "cancelled":
                segment = self.model.segment(row.cache, len(path.ids) - 1)
                end_path = CachedPath((*path.ids, *state.ids), (*path.state, segment), state.path_text())
        except Exception as failure:  # noqa: BLE001 - bad logits, or a predicate raised: only this row fails
            finish, error = "error", error_line(failure)
        sample = state.sample(finish, error=error)
        ended(FinishedRow(state.rows, state.index, sample, end_path, reused=len(path.ids)))
        return False

    def _append(self, row: _Running) -> Finish | None:
        """Draw a row's next token; return the row's finish, None if the row goes on."""
        state = row.state
        last_token = state.ids[-1] if state.ids else row.path.ids[-1]
        start = time.perf_counter()
        logits = self.model.step(row.cache, last_token)
        state.seconds += time.perf_counter() - start
        number = uniform(state.row.stream, state.position, state.row.word)
        return state.append(*draw(logits, state.rows.request.sampling, number))

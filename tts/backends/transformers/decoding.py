"""Batched decoding of the rows of many requests in tiles; each row's result is that of decoding it alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet, Sample
from tts.backends.sampling import draw
from tts.backends.text.row_state import PathText, RowState, error_line, failed_row
from tts.backends.transformers.causal_model import CausalModel, Segment, Tile
from tts.randomness import uniform


@dataclass(frozen=True, slots=True, eq=False)
class CachedPath:
    """The state of a path, from which it is continued.

    Args:
        ids: its tokens, the prompt's included. state: keys and values of all of them but the last, in pieces that paths share.
        text: state of its text.
    """

    ids: tuple[int, ...]
    state: tuple[Segment, ...]
    text: PathText


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """An ended row: its sample without a handle, the path behind it (None if cancelled or failed), and the tokens reused."""

    rows: RowSet
    index: int
    sample: Sample
    path: CachedPath | None
    reused: int


# Rows to sample, and the path that they continue.
RowRequest = tuple[RowSet, CachedPath]


class _Running:
    """A row under way. `length`: tokens of its path so far. `reused`: length of the path that it continues, once it has begun."""

    def __init__(self, state: RowState, path: CachedPath) -> None:
        self.state = state
        self.path = path
        self.reused = 0

    @property
    def length(self) -> int:
        return len(self.path.ids) + len(self.state.ids)

    @property
    def last(self) -> int:
        return (self.state.ids or self.path.ids)[-1]


class _Group:
    """A tile and the rows in its slots."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.slots: list[_Running | None] = [None] * tile.num_rows

    def running(self) -> list[tuple[int, _Running]]:
        return [(slot, row) for slot, row in enumerate(self.slots) if row is not None]


class TileDecoder:
    """Decodes rows until they end.

    Args:
        model: the model. decode: turns token ids into text, ends of sequence into "". eos: ids that end a row.
        max_rows: most rows under way at once; others wait, in order.
    """

    def __init__(self, model: CausalModel, decode: Callable[[Sequence[int]], str], eos: frozenset[int], *, max_rows: int) -> None:
        self._model = model
        self._decode = decode
        self._eos = eos
        self._max_rows = max_rows

    def run(self, requests: list[RowRequest], more: Callable[[], list[RowRequest]], ended: Callable[[FinishedRow], None]) -> None:
        """Decode rows until they end. A step that fails ends its own rows only.

        Args:
            requests: of the first rows. more: returns, after each step, requests whose rows join.
            ended: called for each row as soon as it ends.
        """
        waiting: deque[tuple[RowSet, int, CachedPath]] = deque()
        groups: list[_Group] = []
        while True:
            waiting.extend((rows, index, path) for rows, path in requests for index in range(len(rows.request.rows)))
            if not waiting and not groups:
                return
            self._admit(waiting, groups, ended)
            for group in list(groups):
                try:
                    self._advance(group, groups, ended)
                except RuntimeError as failure:  # what torch raises, lack of memory included
                    for slot, row in group.running():
                        group.slots[slot] = None
                        ended(self._end(row, "error", error=error_line(failure)))
            _compact(groups)
            requests = more()

    def _admit(self, waiting: deque[tuple[RowSet, int, CachedPath]], groups: list[_Group], ended: Callable[[FinishedRow], None]) -> None:
        """Start waiting rows, in order, while there is room; cancelled rows end without it."""
        room = self._max_rows - sum(len(group.running()) for group in groups)
        for _ in range(len(waiting)):
            rows, index, path = waiting.popleft()
            if room > 0 or rows.cancelled:
                room -= self._start(rows, index, path, groups, ended)
            else:
                waiting.append((rows, index, path))

    def _start(self, rows: RowSet, index: int, path: CachedPath, groups: list[_Group], ended: Callable[[FinishedRow], None]) -> bool:
        """Give a row a slot, or end it at once; return whether it has a slot."""
        try:
            state = RowState(rows, index, path.text, len(path.ids), decode=self._decode, eos=self._eos, context=self._model.context)
            row = _Running(state, path)
            finish = state.at_once()
            if finish is None:
                self._place(row, path.state, groups)
                row.reused = len(path.ids)
                return True
        except Exception as failure:  # noqa: BLE001 - no memory, or its predicate raised: fails this row only
            ended(FinishedRow(rows, index, failed_row(failure), None, 0))
            return False
        ended(self._end(row, finish))
        return False

    def _place(self, row: _Running, state: Sequence[Segment], groups: list[_Group]) -> None:
        """Give a row a slot in a tile of the width that its length needs."""
        width = self._model.tile_width(row.length)
        group = next((group for group in groups if group.tile.width == width and None in group.slots), None)
        if group is None:
            group = _Group(self._model.tile(width))
            groups.append(group)
        slot = group.slots.index(None)
        group.tile.put(slot, state)
        group.slots[slot] = row

    def _advance(self, group: _Group, groups: list[_Group], ended: Callable[[FinishedRow], None]) -> None:
        """Draw one token for every row of a group. Rows that end leave it; rows that outgrow its tile move to a wider one."""
        for slot, row in group.running():
            if row.state.rows.cancelled:
                group.slots[slot] = None
                ended(self._end(row, "cancelled"))
        running = group.running()
        if not running:
            return
        began = time.perf_counter()
        logits = group.tile.step({slot: row.last for slot, row in running}, {slot: row.length - 1 for slot, row in running})
        seconds = time.perf_counter() - began
        for slot, row in running:
            row.state.seconds += seconds
            try:
                finish = self._append(row, logits[slot])
            except Exception as failure:  # noqa: BLE001 - its logits or its predicate: fails this row only
                group.slots[slot] = None
                ended(self._end(row, "error", error=error_line(failure)))
                continue
            if finish is not None:
                end = self._end(row, finish, group.tile.take(slot, len(row.path.ids) - 1, row.length - 1))
                group.slots[slot] = None
                ended(end)
            elif row.length > group.tile.width:
                self._place(row, [group.tile.take(slot, 0, row.length - 1)], groups)
                group.slots[slot] = None

    @staticmethod
    def _append(row: _Running, logits: NDArray[np.float32]) -> Finish | None:
        """Draw a row's next token; return how the row ended with it, or None."""
        state = row.state
        drawn = draw(logits, state.rows.request.sampling, uniform(state.row.stream, state.position, state.row.word))
        return state.append(*drawn)

    @staticmethod
    def _end(row: _Running, finish: Finish, segment: Segment | None = None, *, error: str = "") -> FinishedRow:
        state, path = row.state, None
        if finish not in ("cancelled", "error"):
            whole = row.path.state if segment is None else (*row.path.state, segment)
            path = CachedPath((*row.path.ids, *state.ids), whole, state.path_text())
        return FinishedRow(state.rows, state.index, state.sample(finish, error=error), path, row.reused)


def _compact(groups: list[_Group]) -> None:
    """Drop idle groups, and move the rows of a group into the free slots of another of its width where they all fit."""
    for group in sorted(groups, key=lambda group: len(group.running())):
        running = group.running()
        for other in groups if running else ():
            same = other is not group and other.tile.width == group.tile.width and any(other.slots)
            if same and other.slots.count(None) >= len(running):
                for slot, row in running:
                    free = other.slots.index(None)
                    other.tile.put(free, [group.tile.take(slot, 0, row.length - 1)])
                    other.slots[free], group.slots[slot] = row, None
                break
    groups[:] = [group for group in groups if any(group.slots)]

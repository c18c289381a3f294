"""Rows of many requests, decoded together in tiles, each exactly as it would be alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Finish, RowSet, Sample
from tts.backends.causal_model import CausalModel, Segment, Tile
from tts.backends.row_state import PathText, RowState, failed_row, said
from tts.backends.sampling import draw
from tts.randomness import uniform


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The state of a path: all that continuing it needs.

    Args:
        ids: its tokens, the prompt's included. state: keys and values of all of them but the last, in pieces that paths share.
        text: where its text stands.
    """

    ids: tuple[int, ...]
    state: tuple[Segment, ...]
    text: PathText


@dataclass(frozen=True, slots=True)
class Ended:
    """A row that has ended: its sample without a handle, the path behind it (None if cancelled or failed), tokens reused."""

    rows: RowSet
    index: int
    sample: Sample
    path: Path | None
    reused: int


# Rows to write and the path that they continue.
Request = tuple[RowSet, Path]


class _Running:
    """A row on its way. `length`: tokens of its path so far. `reused`: length of the path it started from, once it has."""

    def __init__(self, state: RowState, path: Path) -> None:
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
    """A tile and who sits in its slots."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.seats: list[_Running | None] = [None] * tile.num_rows

    def running(self) -> list[tuple[int, _Running]]:
        return [(slot, row) for slot, row in enumerate(self.seats) if row is not None]


class Decoder:
    """Decodes rows to their ends.

    Args:
        model: the model. decode: turns token ids into text, ends of sequence into "". eos: ids that end a row.
        max_rows: most rows under way at once; others wait for a place, in order.
    """

    def __init__(self, model: CausalModel, decode: Callable[[Sequence[int]], str], eos: frozenset[int], *, max_rows: int) -> None:
        self._model = model
        self._decode = decode
        self._eos = eos
        self._max_rows = max_rows

    def run(self, requests: list[Request], more: Callable[[], list[Request]], ended: Callable[[Ended], None]) -> None:
        """Decode rows to their ends. A failing step ends its rows only.

        Args:
            requests: whose rows to begin with. more: asked after each step for requests whose rows join them.
            ended: called for each row as soon as it ends.
        """
        waiting: deque[tuple[RowSet, int, Path]] = deque()
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
                        group.seats[slot] = None
                        ended(self._end(row, "error", error=said(failure)))
            _compact(groups)
            requests = more()

    def _admit(self, waiting: deque[tuple[RowSet, int, Path]], groups: list[_Group], ended: Callable[[Ended], None]) -> None:
        """Start rows that wait, in order, while there is room; those that were cancelled end, room or not."""
        room = self._max_rows - sum(len(group.running()) for group in groups)
        for _ in range(len(waiting)):
            rows, index, path = waiting.popleft()
            if room > 0 or rows.cancelled:
                room -= self._start(rows, index, path, groups, ended)
            else:
                waiting.append((rows, index, path))

    def _start(self, rows: RowSet, index: int, path: Path, groups: list[_Group], ended: Callable[[Ended], None]) -> bool:
        """Seat a row, or end it at once; return whether it has a seat."""
        try:
            state = RowState(rows, index, path.text, len(path.ids), decode=self._decode, eos=self._eos, context=self._model.context)
            row = _Running(state, path)
            finish = state.at_once()
            if finish is None:
                self._seat(row, path.state, groups)
                row.reused = len(path.ids)
                return True
        except Exception as failure:  # noqa: BLE001 - no memory for it, or its predicate raised: its own failure, nobody else's
            ended(Ended(rows, index, failed_row(failure), None, 0))
            return False
        ended(self._end(row, finish))
        return False

    def _seat(self, row: _Running, state: Sequence[Segment], groups: list[_Group]) -> None:
        """Give a row a slot in a tile of the width that its length asks for."""
        width = self._model.tile_width(row.length)
        group = next((group for group in groups if group.tile.width == width and None in group.seats), None)
        if group is None:
            group = _Group(self._model.tile(width))
            groups.append(group)
        slot = group.seats.index(None)
        group.tile.put(slot, state)
        group.seats[slot] = row

    def _advance(self, group: _Group, groups: list[_Group], ended: Callable[[Ended], None]) -> None:
        """Draw one token for every row of a group; rows that end leave it, rows that outgrow its tile move on."""
        for slot, row in group.running():
            if row.state.rows.cancelled:
                group.seats[slot] = None
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
            except Exception as failure:  # noqa: BLE001 - of its own law or predicate, so nobody else's
                group.seats[slot] = None
                ended(self._end(row, "error", error=said(failure)))
                continue
            if finish is not None:
                end = self._end(row, finish, group.tile.take(slot, len(row.path.ids) - 1, row.length - 1))
                group.seats[slot] = None
                ended(end)
            elif row.length > group.tile.width:
                self._seat(row, [group.tile.take(slot, 0, row.length - 1)], groups)
                group.seats[slot] = None

    @staticmethod
    def _append(row: _Running, logits: NDArray[np.float32]) -> Finish | None:
        """Draw a row's next token; return how the row ended with it, or None."""
        state = row.state
        drawn = draw(logits, state.rows.request.sampling, uniform(state.row.stream, state.position, state.row.word))
        return state.append(*drawn)

    @staticmethod
    def _end(row: _Running, finish: Finish, segment: Segment | None = None, *, error: str = "") -> Ended:
        state, path = row.state, None
        if finish not in ("cancelled", "error"):
            whole = row.path.state if segment is None else (*row.path.state, segment)
            path = Path((*row.path.ids, *state.ids), whole, state.path_text())
        return Ended(state.rows, state.index, state.sample(finish, error=error), path, row.reused)


def _compact(groups: list[_Group]) -> None:
    """Drop idle groups, and move the rows of a group into the free slots of another of its width where they all fit."""
    for group in sorted(groups, key=lambda group: len(group.running())):
        running = group.running()
        for other in groups if running else ():
            same = other is not group and other.tile.width == group.tile.width and any(other.seats)
            if same and other.seats.count(None) >= len(running):
                for slot, row in running:
                    free = other.seats.index(None)
                    other.tile.put(free, [group.tile.take(slot, 0, row.length - 1)])
                    other.seats[free], group.seats[slot] = row, None
                break
    groups[:] = [group for group in groups if any(group.seats)]

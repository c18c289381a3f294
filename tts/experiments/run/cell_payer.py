"""Pays the cells of a run from one account, each by a part with the cell's own budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from tts.budget.account import Account
from tts.experiments.run.executors import Unpaid
from tts.experiments.study.record import Cell
from tts.types import Solution

_ROOM = 4  # expected costs of the cells that run, which must be left of a limit that they share


class CellPayer:
    """Opens a part for each cell. A cell runs only where the account can pay its whole budget.

    A limit that a cell's budget does not have, such as dollars, is shared by all cells that run. So that it cuts none
    of them, cells wait where less is left of it than four times what those that run are expected to cost. The last ones
    run alone.

    Args:
        account: The account of the run.
        expected: A function that returns what a cell is expected to cost, by unit, as far as that is known.
    """

    def __init__(self, account: Account, expected: Callable[[Cell], Mapping[str, float]]) -> None:
        self._account = account
        self._expected = expected
        self._dearest: dict[tuple[str, str, str, str], dict[str, float]] = {}  # the dearest cell so far, by row
        self._running: dict[str, Mapping[str, float]] = {}  # what running cells are expected to cost, by key
        self._given_back = asyncio.Event()  # set when one of them ends

    @asynccontextmanager
    async def part(self, cell: Cell) -> AsyncGenerator[Account]:
        """Yield the part that pays a cell; where running cells may give back what it lacks, wait for that.

        Raises:
            Unpaid: The account cannot pay it.
        """
        part = await self._open(cell)
        try:
            yield part
            self._dearest[_row(cell)] = dict(Counter(self._dearest.get(_row(cell), {})) | Counter(part.spent))
        finally:
            part.close()
            del self._running[cell.key]
            self._given_back.set()
            self._given_back = asyncio.Event()

    async def _open(self, cell: Cell) -> Account:
        account = self._account
        while account.seconds_left != 0 and not account.is_closed:
            cost = self._dearest.get(_row(cell)) or self._expected(cell)
            if self._has_room(cell, cost):
                part = account.part(**dict(cell.budget))  # pyright: ignore[reportArgumentType]
                if not part.shortened:
                    self._running[cell.key] = cost
                    return part
                part.close()
            if not self._running:
                break
            await self._given_back.wait()
        raise Unpaid(cell.key)

    def _has_room(self, cell: Cell, cost: Mapping[str, float]) -> bool:
        """Whether shared limits pay a cell beside those that run; alone, one that may just be paid."""
        left = self._account.remainder()
        for unit in left.keys() - cell.budget.keys() - {"seconds"}:
            together = cost.get(unit, 0) + sum(one.get(unit, 0) for one in self._running.values())
            if left[unit] < (_ROOM * together if self._running else together) or not left[unit]:
                return False
        return True

    def may_have_cut(self, cell: Cell, part: Account, solution: Solution) -> bool:
        """Whether the account, and not the budget of a cell, may have ended its search or made it smaller."""
        if part.is_closed or (part.seconds_left == 0 and "seconds" not in cell.budget):
            return True
        left, samples = part.remainder(), max(1, solution.usage.samples)
        shared = [unit for unit in part.units if unit not in cell.budget]
        return any(
            solution.stopped_by == f"budget: {unit}" or left[unit] * samples < part.spent[unit] for unit in shared
        )


def _row(cell: Cell) -> tuple[str, str, str, str]:
    return (cell.model, cell.setting, cell.strategy, str(sorted(cell.budget.items())))

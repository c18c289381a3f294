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

_ROOM = 4  # multiple of the running cells' expected costs that must be left of a shared limit


class CellPayer:
    """Opens a part for each cell. A cell runs only where the account can pay its whole budget.

    A limit that a cell's budget does not have, such as dollars, is shared by all running cells. Cells wait where less
    of such a limit is left than four times the expected cost of the running cells. The limit then cuts no cell short.
    The last cells run alone.

    Args:
        account: The account of the run.
        expected: A function that returns the expected cost of a cell by unit, without units of unknown cost.
    """

    def __init__(self, account: Account, expected: Callable[[Cell], Mapping[str, float]]) -> None:
        self._account = account
        self._expected = expected
        self._dearest: dict[tuple[str, str, str, str], dict[str, float]] = {}  # the dearest cell so far, by row
        self._running: dict[str, Mapping[str, float]] = {}  # expected cost of running cells, by key
        self._given_back = asyncio.Event()  # set when a running cell ends

    @asynccontextmanager
    async def part(self, cell: Cell) -> AsyncGenerator[Account]:
        """Yield the part that pays a cell, after waiting for running cells that may return the missing amount.

        Raises:
            Unpaid: The account cannot pay the cell.
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
        """Return whether shared limits pay a cell beside the running ones. A cell alone needs no reserve."""
        remainder = self._account.remainder()
        for unit in remainder.keys() - cell.budget.keys() - {"seconds"}:
            total_cost = cost.get(unit, 0) + sum(running_cost.get(unit, 0) for running_cost in self._running.values())
            if remainder[unit] < (_ROOM * total_cost if self._running else total_cost) or not remainder[unit]:
                return False
        return True

    def may_have_cut(self, cell: Cell, part: Account, solution: Solution) -> bool:
        """Return whether the account, not the cell's budget, may have ended its search or made it smaller."""
        if part.is_closed or (part.seconds_left == 0 and "seconds" not in cell.budget):
            return True
        remainder, samples = part.remainder(), max(1, solution.usage.samples)
        shared_units = [unit for unit in part.units if unit not in cell.budget]
        return any(
            solution.stopped_by == f"budget: {unit}" or remainder[unit] * samples < part.spent[unit]
            for unit in shared_units
        )


def _row(cell: Cell) -> tuple[str, str, str, str]:
    return (cell.model, cell.setting, cell.strategy, str(sorted(cell.budget.items())))

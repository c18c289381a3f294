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

_RESERVE = 4  # multiple of the running cells' expected costs that must be left of a shared limit


class CellPayer:
    """Opens a part of the account for each cell. A cell runs only if the account can pay its whole budget.

    A limit of the account that a cell's budget does not have, such as dollars, is shared by all running cells. A new
    cell waits while less of such a limit is left than four times the expected cost of the running cells and itself.
    The limit then cuts no cell short. Once little is left, cells run one by one.

    Args:
        account: The account of the run.
        expected: A function that returns the expected cost of a cell by unit, without units of unknown cost.
    """

    def __init__(self, account: Account, expected: Callable[[Cell], Mapping[str, float]]) -> None:
        self._account = account
        self._expected_cost = expected
        # by row of the table, the highest cost of a finished cell in each unit
        self._highest_costs: dict[tuple[str, str, str, str], dict[str, float]] = {}
        self._running_costs: dict[str, Mapping[str, float]] = {}  # by key, the expected cost of a running cell
        self._cell_ended = asyncio.Event()  # set when a running cell ends, then replaced by a new event

    @asynccontextmanager
    async def part(self, cell: Cell) -> AsyncGenerator[Account]:
        """Yield the part that pays a cell, after waiting for running cells that may return the missing amount.

        Raises:
            Unpaid: The account cannot pay the cell.
        """
        part = await self._open(cell)
        try:
            yield part
            row = _row(cell)
            # the union of counters is the maximum of each unit
            self._highest_costs[row] = dict(Counter(self._highest_costs.get(row, {})) | Counter(part.spent))
        finally:
            part.close()
            del self._running_costs[cell.key]
            self._cell_ended.set()
            self._cell_ended = asyncio.Event()

    async def _open(self, cell: Cell) -> Account:
        """Return the part that pays a cell, once the account has enough.

        Raises:
            Unpaid: The account cannot pay the cell, and no running cell may return the missing amount.
        """
        account = self._account
        while account.seconds_left != 0 and not account.is_closed:
            cost = self._highest_costs.get(_row(cell)) or self._expected_cost(cell)
            if self._has_room(cell, cost):
                part = account.part(**dict(cell.budget))  # pyright: ignore[reportArgumentType]
                if not part.shortened:
                    self._running_costs[cell.key] = cost
                    return part
                part.close()
            if not self._running_costs:
                break
            await self._cell_ended.wait()
        raise Unpaid(cell.key)

    def _has_room(self, cell: Cell, cost: Mapping[str, float]) -> bool:
        """Return whether the shared limits can pay a cell beside the running cells.

        Without running cells, no reserve is needed.

        Args:
            cell: The cell.
            cost: The expected cost of the cell by unit.
        """
        reserve = _RESERVE if self._running_costs else 1
        remainder = self._account.remainder()
        shared_units = remainder.keys() - cell.budget.keys() - {"seconds"}
        for unit in shared_units:
            running_cost = sum(costs.get(unit, 0) for costs in self._running_costs.values())
            needed = reserve * (cost.get(unit, 0) + running_cost)
            if remainder[unit] == 0 or remainder[unit] < needed:
                return False
        return True

    def may_have_cut(self, cell: Cell, part: Account, solution: Solution) -> bool:
        """Return whether the account, not the cell's budget, may have ended a search or made it smaller.

        A shared limit may have made the search smaller if less of the limit is left than one sample cost on average.
        """
        if part.is_closed or (part.seconds_left == 0 and "seconds" not in cell.budget):
            return True
        remainder = part.remainder()
        num_samples = max(1, solution.usage.samples)
        shared_units = [unit for unit in part.units if unit not in cell.budget]
        return any(
            solution.stopped_by == f"budget: {unit}" or remainder[unit] * num_samples < part.spent[unit]
            for unit in shared_units
        )


def _row(cell: Cell) -> tuple[str, str, str, str]:
    return (cell.model, cell.setting, cell.strategy, str(sorted(cell.budget.items())))

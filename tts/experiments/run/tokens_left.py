"""The tokens that the rest of a run is expected to cost, learned from its results row by row.

Cells of large budgets cost many times more than cells of small budgets. The time left therefore follows tokens, not
cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tts.experiments.run.forecast import RowKey, row_key
from tts.experiments.study.record import Result


@dataclass(slots=True)
class RowLeft:
    """The number of a row's cells without a result, and the cost of its finished cells.

    Args:
        left: The number of cells without a result.
        prior: The expected tokens of a cell before the row has results; None: unknown.
        finished: The number of cells that this run has finished.
        tokens: The tokens of finished cells.
    """

    left: int
    prior: float | None = None
    finished: int = 0
    tokens: int = 0


class TokensLeft:
    """The expected tokens of the cells of a run that have no result.

    A cell costs the mean of its row's results. In a row without results, a cell costs the row's prior, scaled by the
    ratio of costs to priors in rows with results. Without a prior, a cell costs the mean of all results.

    Args:
        rows: The rows by their key.
    """

    def __init__(self, rows: Iterable[tuple[RowKey, RowLeft]]) -> None:
        self._rows = dict(rows)

    def add(self, result: Result) -> None:
        """Count a result of this run."""
        row = self._rows.setdefault(row_key(result.cell), RowLeft(0))
        row.left = max(0, row.left - 1)
        row.finished += 1
        row.tokens += result.usage.tokens

    def expectation(self, cells: int) -> float | None:
        """Return the expected tokens of the cells that are left; None before the first result with tokens.

        Args:
            cells: The number of cells that are left. Other processes may have finished some cells of the rows.
        """
        rows = self._rows.values()
        finished, tokens = sum(row.finished for row in rows), sum(row.tokens for row in rows)
        if not tokens:
            return None
        spent_tokens, prior_tokens = 0, 0.0  # of the finished cells of rows with a prior
        for row in rows:
            if row.finished and row.prior:
                spent_tokens += row.tokens
                prior_tokens += row.finished * row.prior
        ratio = spent_tokens / prior_tokens if prior_tokens else 1.0
        unfinished, unfinished_tokens = 0, 0.0
        for row in rows:
            if row.finished:
                cell_tokens = row.tokens / row.finished
            elif row.prior is not None:
                cell_tokens = row.prior * ratio
            else:
                cell_tokens = tokens / finished
            unfinished += row.left
            unfinished_tokens += row.left * cell_tokens
        if not unfinished:
            return cells * tokens / finished
        return unfinished_tokens * cells / unfinished

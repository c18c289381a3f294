"""The tokens that the rest of a run is expected to cost, learned from its results row by row.

Cells of large budgets cost many times what cells of small ones cost. The time left therefore follows tokens, not cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tts.experiments.run.forecast import RowKey, row_key
from tts.experiments.study.record import Result


@dataclass(slots=True)
class RowLeft:
    """The cells of a row of the final table that have no result, and what finished ones have cost.

    Args:
        left: The number of cells without a result.
        prior: The tokens that a cell is expected to cost without results like it; None: unknown.
        finished: The number of cells that this run has finished.
        tokens: The tokens of finished cells.
    """

    left: int
    prior: float | None = None
    finished: int = 0
    tokens: int = 0


class TokensLeft:
    """The expected tokens of the cells of a run that have no result.

    A row with results costs their mean. A row without them costs its prior, times what rows with results cost of their
    priors; without a prior it costs the mean of all results.

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
            cells: The number of cells that are left. Other processes may have finished some of them.
        """
        rows = self._rows.values()
        finished, tokens = sum(row.finished for row in rows), sum(row.tokens for row in rows)
        if not tokens:
            return None
        foreseen = [(row.tokens, row.finished * row.prior) for row in rows if row.finished and row.prior]
        by_prior = sum(prior for _, prior in foreseen)
        ratio = sum(spent for spent, _ in foreseen) / by_prior if by_prior else 1.0
        left, total = 0, 0.0
        for row in rows:
            each = (
                row.tokens / row.finished
                if row.finished
                else tokens / finished
                if row.prior is None
                else row.prior * ratio
            )
            left += row.left
            total += row.left * each
        return total * cells / left if left else cells * tokens / finished
